// The boxes of a job while people work on them: the server's rows, under the changes that wait in
// the outbox. The table shows both together; rows with a waiting change keep the server's own row
// beside them, which others go on changing. Whoever shows boxes subscribes and reads the table.

import type { ColumnTable } from "../../../shared/columns/column-reader.ts";
import type { Annotation } from "../../../shared/wire/labeling.ts";
import { type Box, type BoxFields, boxOf, FIELD_NAMES, fieldsOf, isSame } from "./box.ts";
import { BoxTable, uuidsOf } from "./columns.ts";
import { appliedRow, type Edit, type EditRow, invert } from "./edit.ts";
import { Feed, type FeedEvent, type FeedPorts } from "./feed.ts";
import { History } from "./history.ts";
import { Outbox, type OutboxPorts } from "./outbox.ts";
import type { CardReason, OutboxEntry, Outcome } from "./outbox-queue.ts";
import { Slicer } from "./slice.ts";

/** What the job needs of the world. */
export type JobPorts = OutboxPorts & FeedPorts;

/** A change of one annotation: fields to set, or null to delete it. All fields draw a new one. */
export interface RowChange {
  id: string;
  after: Partial<BoxFields> | null;
}

/** A change about which somebody has to decide. */
export interface Card {
  key: string;
  label: string;
  ours: EditRow;
  reason: CardReason["kind"];
  /** The annotation as it is now; null where it is gone. */
  theirs: Box | null;
  /** Why the server refused it; empty otherwise. */
  code: string;
  detail: string;
}

/** What subscribers are told: annotations that look different; null where all may. */
export type Notice = { ids: ReadonlySet<string> | null };

/** The box around a polygon. */
function around(polygon: readonly number[]): BoxFields["bbox"] {
  const [xs, ys] = [0, 1].map((axis) => polygon.filter((_, index) => index % 2 === axis));
  const [x, y] = [xs ?? [], ys ?? []];
  return [Math.min(...x), Math.min(...y), Math.max(...x), Math.max(...y)];
}

export class JobBoxes {
  readonly table = new BoxTable();
  readonly slicer = new Slicer(this.table);
  readonly history = new History();
  readonly outbox: Outbox;
  readonly #job: string;
  readonly #ports: JobPorts;
  readonly #feed: Feed;
  /** The server's rows of annotations with a waiting change; null: it has none. */
  readonly #base = new Map<string, Box | null>();
  /** Number of the edit as of which an annotation is known, where that is not the first load. */
  readonly #knownAt = new Map<string, number>();
  readonly #listeners = new Set<(notice: Notice) => void>();

  constructor(job: string, ports: JobPorts) {
    this.#job = job;
    this.#ports = ports;
    this.outbox = new Outbox(job, ports, {
      takeOutcomes: (outcomes, seq) => this.#takeOutcomes(outcomes, seq),
      changed: (ids) => this.#mirror(ids),
      behind: (since) => void this.#feed.refresh(since),
      takeSteps: () => this.history.takeChanges(),
    });
    this.#feed = new Feed(ports, {
      takeColumns: (columns) => this.#takeColumns(columns),
      takeEvent: (event) => this.#takeEvent(event),
    });
  }

  /** Loads what this browser holds and the job's rows, then begins to send. */
  async open(): Promise<void> {
    const { steps } = await this.outbox.load();
    this.history.load(steps, (edit, id) =>
      this.outbox.queue.waitingFor(id).some((entry) => entry.edit === edit),
    );
    await this.#feed.load();
    this.outbox.start();
  }

  /** Stops sending and listening; what waits stays stored. */
  close(): void {
    this.outbox.stop();
    this.#feed.stop();
    this.#listeners.clear();
  }

  /**
   * Calls back after each change of boxes, cards, history or status, until the result is called.
   */
  subscribe(listener: (notice: Notice) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Takes an event of the job's live topic. */
  receive(event: FeedEvent): void {
    this.#feed.receive(event);
  }

  /** Reads what changed while the connection was away. */
  refresh(): Promise<void> {
    return this.#feed.refresh();
  }

  /** Takes annotations of another route, such as a frame's with their polygons. */
  learn(annotations: readonly Annotation[]): void {
    const ids = new Set<string>();
    for (const annotation of annotations) {
      const known = this.#known(annotation.annotation_id);
      if (!known || known.revision > annotation.revision) continue;
      this.#setKnown(annotation.annotation_id, boxOf(annotation, known.disputed));
      ids.add(annotation.annotation_id);
    }
    this.#notify(ids);
  }

  /**
   * Changes boxes, shown at once and sent when it can be; returns the edit, or null where nothing
   * was to change. `closed`: cards that it decides.
   */
  commit(
    changes: readonly RowChange[],
    label: string,
    closed: readonly string[] = [],
  ): Edit | null {
    const rows = changes.flatMap((change) => this.#rowOf(change) ?? []);
    if (rows.length === 0) {
      if (closed.length > 0) this.dismiss(closed);
      return null;
    }
    const edit = { edit_id: this.#ports.newId(), job: this.#job, rows, label };
    this.history.record(edit);
    this.#enqueue(edit, { strict: false, closed });
    return edit;
  }

  /** Draws a box; returns the id that it has. */
  draw(fields: BoxFields, label: string): string {
    const id = this.#ports.newId();
    this.commit([{ id, after: fields }], label);
    return id;
  }

  /** Takes back the newest step of this person; returns its label, or null where there is none. */
  undo(): string | null {
    return this.#turn("undo");
  }

  /** Does again what was undone last; returns its label, or null. */
  redo(): string | null {
    return this.#turn("redo");
  }

  /** Changes about which somebody has to decide, oldest first. */
  cards(): Card[] {
    return this.outbox.queue.cards.flatMap(({ key, label, row, card }) => {
      if (!card) return [];
      const { code, detail } = card.kind === "refused" ? card : { code: "", detail: "" };
      const theirs = this.#known(row.id);
      return { key, label, ours: row, reason: card.kind, theirs, code, detail };
    });
  }

  /** Gives up the changes of cards: what the server has stays. */
  dismiss(keys: readonly string[]): void {
    this.outbox.enqueue([], keys);
    this.#notify(new Set());
  }

  /** Makes the change of a card again, on what the server has now; draws what is gone anew. */
  insist(key: string): Edit | null {
    const entry = this.outbox.queue.get(key);
    if (!entry?.card) return null;
    const { row, whole, label } = entry;
    const isGone = this.table.indexOf(row.id) === undefined && row.before !== null;
    if (!isGone) return this.commit([{ id: row.id, after: row.after }], label, [key]);
    if (!whole) {
      this.dismiss([key]);
      return null;
    }
    return this.commit([{ id: this.#ports.newId(), after: whole }], label, [key]);
  }

  #turn(stack: "undo" | "redo"): string | null {
    const step = this.history.top(stack);
    if (!step) return null;
    const made = new Map(step.rows.map((row) => [row.id, row.made]));
    const own = { edit_id: step.key, job: step.job, rows: step.rows, label: step.label };
    const revisionOf = (id: string) => made.get(id) ?? null;
    const inverse = invert(own, this.#ports.newId(), revisionOf);
    this.history.turn(stack, inverse);
    this.#enqueue(inverse, { strict: true, closed: [] });
    return step.label;
  }

  /** The row of an edit that a change comes to, or null where it changes nothing. */
  #rowOf({ id, after }: RowChange): EditRow | null {
    const box = this.table.get(id);
    const revision = box ? box.revision : null;
    if (!box) return after?.frame_id && after.bbox ? { id, revision, before: null, after } : null;
    const fields = fieldsOf(box);
    if (after === null) return { id, revision, before: fields, after: null };
    const wanted: Partial<BoxFields> = { ...after };
    delete wanted.frame_id;
    // The box is the one around a new polygon; one that is moved by hand is no more that of its
    // own.
    if (wanted.polygon && !wanted.bbox) wanted.bbox = around(wanted.polygon);
    if (wanted.bbox && !wanted.polygon && box.polygon !== null) wanted.polygon = null;
    const names = FIELD_NAMES.filter((name) => name in wanted && !isSame(name, fields, wanted));
    if (names.length === 0) return null;
    const pick = (values: Partial<BoxFields>) =>
      Object.fromEntries(names.flatMap((name) => (name in values ? [[name, values[name]]] : [])));
    return { id, revision, before: pick(fields), after: pick(wanted) };
  }

  #enqueue(edit: Edit, { strict, closed }: { strict: boolean; closed: readonly string[] }): void {
    const { queue } = this.outbox;
    const entries = edit.rows.map((row): OutboxEntry => {
      const base = this.#known(row.id);
      const waiting = queue.waitingFor(row.id).at(-1);
      if (!this.#base.has(row.id)) this.#base.set(row.id, base);
      const shown = appliedRow(this.table.last(row.id), row);
      const revision = strict ? row.revision : (base?.revision ?? null);
      return {
        key: this.#ports.newId(),
        job: this.#job,
        edit: edit.edit_id,
        label: edit.label,
        edit_id: this.#ports.newId(),
        row: { ...row, revision },
        whole: shown && fieldsOf(shown),
        strict,
        follows: waiting?.key ?? null,
        since: this.#feed.cursor,
        tried: false,
        card: null,
      };
    });
    this.outbox.enqueue(entries, closed);
    for (const { id } of edit.rows) this.#show(id);
    this.#notify(new Set(edit.rows.map(({ id }) => id)));
  }

  /** The row of the server, as far as it is known. */
  #known(id: string): Box | null {
    const base = this.#base.get(id);
    return base === undefined ? this.table.get(id) : base;
  }

  #setKnown(id: string, box: Box | null): void {
    if (this.outbox.queue.waitingFor(id).length > 0 || this.#base.has(id)) this.#base.set(id, box);
    else if (box) this.table.write(box);
    else this.table.remove(id);
    if (this.#base.has(id)) this.#show(id);
  }

  /** Writes a row into the table: the server's, with what waits on top. */
  #show(id: string): void {
    const base = this.#base.get(id);
    if (base === undefined) return;
    const waiting = this.outbox.queue.waitingFor(id);
    let box = base;
    for (const { row } of waiting) box = appliedRow(box, row);
    if (box) this.table.write(box);
    else this.table.remove(id);
    if (waiting.length === 0) this.#base.delete(id);
  }

  /** Shows entries that came from the store or from other tabs. */
  #mirror(ids: readonly string[]): void {
    for (const id of ids) {
      const isWaiting = this.outbox.queue.waitingFor(id).length > 0;
      if (isWaiting && !this.#base.has(id)) this.#base.set(id, this.table.get(id));
      this.#show(id);
    }
    this.#notify(new Set(ids));
  }

  #takeOutcomes(outcomes: readonly Outcome[], seq: number): void {
    let since = Number.POSITIVE_INFINITY;
    for (const outcome of outcomes) {
      const { entry } = outcome;
      const { row, edit } = entry;
      if (outcome.kind === "applied") {
        this.history.note({ edit, row, made: outcome.revision });
        this.#takeApplied(outcome, seq);
      } else {
        if (outcome.kind !== "rebased") this.history.note({ edit, row, made: null });
        if (outcome.theirs !== undefined) this.#takeTheirs(row.id, outcome, seq);
      }
      if (entry.tried) since = Math.min(since, entry.since);
      this.#show(row.id);
    }
    // The answer is as old as the first try: what others did since may have come before it.
    if (since < Number.POSITIVE_INFINITY) void this.#feed.refresh(since);
  }

  #takeApplied({ entry, revision }: Outcome & { kind: "applied" }, seq: number): void {
    const { row, tried } = entry;
    const known = this.#known(row.id);
    const knownAt = this.#knownAt.get(row.id) ?? 0;
    // An event of a later change, or of this one, may have come before the answer.
    if (!tried && knownAt > seq) return;
    if (known && row.after && known.revision >= revision) return;
    const box = appliedRow(known, row);
    this.#base.set(row.id, box && { ...box, revision });
    const isUnknown = !box && row.after !== null;
    if (!tried && !isUnknown) this.#knownAt.set(row.id, seq);
  }

  /** Takes the server's row of an answer; null: it is gone. */
  #takeTheirs(id: string, { entry, theirs }: Exclude<Outcome, { kind: "applied" }>, seq: number) {
    const known = this.#known(id);
    if (entry.tried && theirs && known && known.revision > theirs.revision) return;
    if (!entry.tried && (this.#knownAt.get(id) ?? 0) > seq) return;
    this.#setKnown(id, theirs ? boxOf(theirs, known?.disputed) : null);
    if (!entry.tried) this.#knownAt.set(id, seq);
  }

  #takeColumns(answer: ColumnTable): void {
    const { edits_seq: seq, after_seq } = answer.header;
    if (this.table.size === 0) {
      this.table.append(answer);
      const ids = [...this.outbox.queue.waitingIds];
      for (const id of ids) this.#base.set(id, this.table.get(id));
      for (const id of ids) this.#show(id);
      this.#notify(null);
      return;
    }
    const rows = new BoxTable();
    rows.append(answer);
    // A whole job is the truth, also where numbers begin anew, as after a restored backup.
    if (after_seq === null) {
      this.#knownAt.clear();
      for (let index = 0; index < this.table.size; index++) {
        const id = this.table.idAt(index);
        if (rows.indexOf(id) === undefined) this.#takeDeletion(id, seq);
      }
    }
    for (let index = 0; index < rows.size; index++) this.#takeBox(rows.read(index), seq);
    // A row that is told as deleted too was deleted after it was sent.
    for (const id of uuidsOf(answer.deleted)) this.#takeDeletion(id, seq);
    this.#notify(null);
  }

  #takeEvent({ edits_seq: seq, rows = [], deleted = [] }: FeedEvent): void {
    for (const id of deleted) this.#takeDeletion(id, seq);
    for (const row of rows) {
      const known = this.#known(row.annotation_id);
      this.#takeBox(boxOf(row, known?.disputed), seq);
    }
    this.#notify(new Set([...deleted, ...rows.map(({ annotation_id }) => annotation_id)]));
  }

  /** Takes a row as it was at an edit, unless a newer one is known. */
  #takeBox(box: Box, seq: number): void {
    const known = this.#known(box.id);
    const knownAt = this.#knownAt.get(box.id) ?? 0;
    // Revisions rise, but for an annotation that was deleted and drawn again.
    const isNews = known && box.revision > known.revision ? true : seq >= knownAt;
    if (!isNews) return;
    this.#setKnown(box.id, box);
    this.#knownAt.set(box.id, Math.max(seq, knownAt));
  }

  #takeDeletion(id: string, seq: number): void {
    const isOld = seq < (this.#knownAt.get(id) ?? 0);
    if (!isOld) {
      this.#setKnown(id, null);
      this.#knownAt.set(id, seq);
    } else if (this.#known(id)) {
      // Which of the two came last is for the server to say.
      void this.#feed.refresh(seq - 1);
    }
  }

  #notify(ids: ReadonlySet<string> | null): void {
    for (const listener of [...this.#listeners]) listener({ ids });
  }
}
