// The order of an outbox as pure state: which changes of annotations wait, which of them may be
// sent now, what an answer makes of one and of those after it, and which ones people have to
// decide. Changes of one annotation are sent one after the other; those of others never wait for
// them.

import type { Annotation } from "../../../shared/wire/labeling.ts";
import { type BoxFields, boxOf, FIELD_NAMES, isSame } from "./box.ts";
import { compose, type EditRow, isIdle, rebase, withBefore } from "./edit.ts";

/** Why people have to decide about a change. */
export type CardReason =
  /** Somebody else changed the same fields. */
  | { kind: "conflict"; theirs: Annotation }
  /** Somebody else deleted the annotation. */
  | { kind: "gone" }
  /** The server does not take the change. */
  | { kind: "refused"; code: string; detail: string };

/** One annotation's change of an edit, as it waits in the outbox. Never changed: replaced. */
export interface OutboxEntry {
  /** Sorts by time; stays when `edit_id` changes. */
  key: string;
  job: string;
  /** Id of the edit that it is a row of. */
  edit: string;
  label: string;
  /** The server takes a change of one id once; a rebased one gets a new id. */
  edit_id: string;
  row: EditRow;
  /** The box in full once the change took place, to draw it again; null where it deletes. */
  whole: BoxFields | null;
  /** It is an undo, which people are asked about after every change of others in between. */
  strict: boolean;
  /** Key of the change of the same annotation that it was made after, while that one waits. */
  follows: string | null;
  /** Sequence number of the job's edits that was known when it was made. */
  since: number;
  /** Whether it may have been sent before, so its answer may be older than what is known. */
  tried: boolean;
  /** Null while it waits to be sent. */
  card: CardReason | null;
}

/** The answer to one row of a request. */
export type EditResult = { edit_id: string } & (
  | { status: "applied"; revision: number; change_id: string }
  | { status: "conflict"; current: Annotation }
  | { status: "gone" }
  | { status: "refused"; code: string; detail: string }
);

/** What became of an entry. */
export type Outcome =
  | { kind: "applied"; entry: OutboxEntry; revision: number }
  /** It is out of the queue and changed nothing. */
  | { kind: "dropped"; entry: OutboxEntry; theirs?: Annotation | null }
  /** It waits again, on top of somebody else's change. */
  | { kind: "rebased"; entry: OutboxEntry; theirs: Annotation }
  /** It became a card; `theirs`: the annotation as the server has it, null where it is gone. */
  | { kind: "card"; entry: OutboxEntry; theirs?: Annotation | null };

/** Entries to store and keys to forget, with what became of entries. */
export interface QueueChange {
  put: OutboxEntry[];
  remove: string[];
  outcomes: Outcome[];
}

/** Answers that later changes from other tabs may still follow. */
const MADE_MAX = 10_000;

export class OutboxQueue {
  readonly #waiting = new Map<string, OutboxEntry>();
  readonly #byId = new Map<string, OutboxEntry[]>();
  readonly #cards = new Map<string, OutboxEntry>();
  /** Revisions that answered entries made, by key. */
  readonly #made = new Map<string, number>();

  /** Entries that wait to be sent. */
  get size(): number {
    return this.#waiting.size;
  }

  get cards(): OutboxEntry[] {
    return [...this.#cards.values()];
  }

  /** Entries of an annotation that wait, in the order in which they apply. */
  waitingFor(id: string): readonly OutboxEntry[] {
    return this.#byId.get(id) ?? [];
  }

  /** Ids of the annotations of which something waits. */
  get waitingIds(): Iterable<string> {
    return this.#byId.keys();
  }

  /** All entries that wait. */
  waiting(): Iterable<OutboxEntry> {
    return this.#waiting.values();
  }

  has(key: string): boolean {
    return this.#waiting.has(key) || this.#cards.has(key);
  }

  get(key: string): OutboxEntry | undefined {
    return this.#waiting.get(key) ?? this.#cards.get(key);
  }

  /** Adds an entry at the end, or replaces the one of its key. */
  put(entry: OutboxEntry): void {
    if (entry.card) {
      this.#takeOut(entry.key);
      this.#cards.set(entry.key, entry);
      return;
    }
    const made = entry.follows === null ? undefined : this.#made.get(entry.follows);
    const own =
      made === undefined
        ? entry
        : { ...entry, follows: null, row: { ...entry.row, revision: made } };
    this.#cards.delete(own.key);
    const entries = this.#byId.get(own.row.id);
    const index = entries?.findIndex(({ key }) => key === own.key) ?? -1;
    if (!entries) this.#byId.set(own.row.id, [own]);
    else if (index < 0) entries.push(own);
    else entries[index] = own;
    this.#waiting.set(own.key, own);
  }

  /** Forgets an entry. */
  remove(key: string): void {
    this.#cards.delete(key);
    this.#takeOut(key);
  }

  /** The first waiting entry of each annotation, oldest first, `max` of those that may be sent. */
  heads(max: number, isReady: (entry: OutboxEntry) => boolean): OutboxEntry[] {
    const heads: OutboxEntry[] = [];
    for (const entry of this.#waiting.values()) {
      if (heads.length === max) break;
      const isFirst = this.#byId.get(entry.row.id)?.[0] === entry;
      if (isFirst && isReady(entry)) heads.push(entry);
    }
    return heads;
  }

  /** Marks an entry as one that may have arrived at the server. */
  markTried(key: string): void {
    const entry = this.#waiting.get(key);
    if (entry && !entry.tried) this.put({ ...entry, tried: true });
  }

  /** Notes a revision that an entry made, for entries that follow it and come later. */
  noteMade(key: string, revision: number): void {
    this.#made.set(key, revision);
    const oldest = this.#made.keys().next().value;
    if (this.#made.size > MADE_MAX && oldest !== undefined) this.#made.delete(oldest);
  }

  /** Takes the answer to the first waiting entry of an annotation. `newId` names a rebased one. */
  answer(entry: OutboxEntry, result: EditResult, newId: () => string): QueueChange {
    if (result.status === "applied") return this.#applied(entry, result.revision);
    if (result.status === "conflict") return this.#conflict(entry, result.current, newId);
    if (result.status === "refused") {
      return this.#refused(entry, { kind: "refused", code: result.code, detail: result.detail });
    }
    // What was to be deleted is.
    if (entry.row.after === null) return this.#dropped(entry, null);
    return this.#carded(entry, { kind: "gone" }, null);
  }

  #applied(entry: OutboxEntry, revision: number): QueueChange {
    this.remove(entry.key);
    this.noteMade(entry.key, revision);
    const outcome: Outcome = { kind: "applied", entry, revision };
    return { put: this.#advance(entry, revision), remove: [entry.key], outcomes: [outcome] };
  }

  /** Forgets an entry whose annotation is as it wants it, by somebody else's hand. */
  #dropped(entry: OutboxEntry, theirs: Annotation | null): QueueChange {
    this.remove(entry.key);
    const change: QueueChange = {
      put: [],
      remove: [entry.key],
      outcomes: [{ kind: "dropped", entry, theirs }],
    };
    const [next, after] = this.waitingFor(entry.row.id);
    if (next?.follows !== entry.key) return change;
    if (!next.strict) {
      if (theirs) change.put.push(...this.#advance(entry, theirs.revision));
      return change;
    }
    // It would undo what is not of this person. What comes after it stays at its old revision, at
    // which the server tells the two apart.
    this.remove(next.key);
    change.remove.push(next.key);
    change.outcomes.push({ kind: "dropped", entry: next, theirs });
    if (after?.follows === next.key) {
      const freed = { ...after, follows: null };
      this.put(freed);
      change.put.push(freed);
    }
    return change;
  }

  #conflict(entry: OutboxEntry, theirs: Annotation, newId: () => string): QueueChange {
    const rebased = rebase(entry.row, boxOf(theirs), { strict: entry.strict });
    if (rebased.kind === "met") return this.#dropped(entry, theirs);
    if (rebased.kind === "conflict") {
      return this.#carded(entry, { kind: "conflict", theirs }, theirs);
    }
    const again = { ...entry, row: rebased.row, edit_id: newId(), follows: null };
    this.put(again);
    const put = [again, ...this.#restoring(entry.row, rebased.row)];
    return { put, remove: [], outcomes: [{ kind: "rebased", entry: again, theirs }] };
  }

  /** Undos that wait behind a rebased row and that now restore what others left, not what was. */
  #restoring({ id, before }: EditRow, rebased: EditRow): OutboxEntry[] {
    const left = rebased.before ?? {};
    const own = this.waitingFor(id).flatMap((later) => {
      const { after } = later.row;
      if (!later.strict || !after || !before) return [];
      const restored = FIELD_NAMES.filter(
        (name) => name in after && name in before && isSame(name, after, before) && name in left,
      );
      const values = Object.fromEntries(restored.map((name) => [name, left[name]]));
      return { ...later, row: { ...later.row, after: { ...after, ...values } } };
    });
    for (const entry of own) this.put(entry);
    return own;
  }

  /** A card of an entry and of all that waits after it for the same annotation. */
  #carded(
    entry: OutboxEntry,
    reason: CardReason,
    theirs: Annotation | null | undefined,
  ): QueueChange {
    const later = this.waitingFor(entry.row.id).filter(({ key }) => key !== entry.key);
    let row: EditRow | null = entry.row;
    for (const one of later) row = row ? compose(row, one.row) : one.row;
    const { whole } = later.at(-1) ?? entry;
    for (const { key } of [entry, ...later]) this.remove(key);
    const known = theirs === undefined ? undefined : { theirs };
    const dropped = (one: OutboxEntry): Outcome => ({ kind: "dropped", entry: one, ...known });
    const outcomes = later.map(dropped);
    const remove = later.map(({ key }) => key);
    // Together they change nothing any more.
    if (!row)
      return { put: [], remove: [entry.key, ...remove], outcomes: [dropped(entry), ...outcomes] };
    const card: OutboxEntry = { ...entry, row, whole, follows: null, card: reason };
    this.put(card);
    return {
      put: [card],
      remove,
      outcomes: [{ kind: "card", entry: card, ...known }, ...outcomes],
    };
  }

  /** The card of a refused entry. Later changes of the annotation go on without it. */
  #refused(entry: OutboxEntry, reason: CardReason): QueueChange {
    const { before, after, revision } = entry.row;
    // What was never created cannot be changed; what was to be deleted was changed by its undo.
    if (before === null || after === null) return this.#carded(entry, reason, undefined);
    const card: OutboxEntry = { ...entry, follows: null, card: reason };
    this.put(card);
    const put = [card];
    const remove: string[] = [];
    const outcomes: Outcome[] = [{ kind: "card", entry: card }];
    // Fields that are as they were, until a later change sets them.
    const unchanged: Partial<BoxFields> = { ...before };
    let isNext = true;
    for (const later of [...this.waitingFor(entry.row.id)]) {
      const row = withBefore(later.row, unchanged);
      for (const name of Object.keys(later.row.after ?? {}))
        delete unchanged[name as keyof BoxFields];
      if (isIdle(row)) {
        this.remove(later.key);
        remove.push(later.key);
        outcomes.push({ kind: "dropped", entry: later });
        continue;
      }
      const isFreed = isNext && later.follows !== null;
      const own = isFreed
        ? { ...later, follows: null, row: { ...row, revision } }
        : { ...later, row };
      this.put(own);
      put.push(own);
      isNext = false;
    }
    return { put, remove, outcomes };
  }

  /** The entry after an answered one, at the revision that it made. */
  #advance(entry: OutboxEntry, revision: number): OutboxEntry[] {
    const next = this.waitingFor(entry.row.id)[0];
    if (next?.follows !== entry.key) return [];
    const own = { ...next, follows: null, row: { ...next.row, revision } };
    this.put(own);
    return [own];
  }

  #takeOut(key: string): void {
    const entry = this.#waiting.get(key);
    if (!entry) return;
    this.#waiting.delete(key);
    const rest = this.waitingFor(entry.row.id).filter((one) => one.key !== key);
    if (rest.length > 0) this.#byId.set(entry.row.id, rest);
    else this.#byId.delete(entry.row.id);
  }
}
