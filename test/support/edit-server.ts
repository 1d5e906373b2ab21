// A model of the routes of a job's edits: revisions, an answer kept by each edit's id, conflicts,
// numbers with gaps, columns and their differences. What a test asks of the real routes holds here
// in a hundred lines, so that thousands of faults can be tried.

import type { BoxFields } from "../../edge/studio/boxes/box.ts";
import { frameOf } from "../../edge/studio/boxes/box.ts";
import { FLAGS } from "../../edge/studio/boxes/columns.ts";
import type { EditRequest } from "../../edge/studio/boxes/edit.ts";
import type { FeedEvent } from "../../edge/studio/boxes/feed.ts";
import type { EditResult } from "../../edge/studio/boxes/outbox-queue.ts";
import { COLUMNS_VERSION, confidenceCode, SOURCES } from "../../shared/columns/column-layout.ts";
import type { ColumnTable } from "../../shared/columns/column-reader.ts";
import type { Annotation } from "../../shared/wire/labeling.ts";

/** A class that no edit may set. */
export const REFUSED_CLASS = "refused";
export const VIDEO = "00000000-0000-7000-8000-0000000000aa";
export const JOB = "00000000-0000-7000-8000-0000000000bb";
const FRAME_SIZE = 1_000;
const VIDEO_SIZE = {
  filename: "a.mp4",
  width: FRAME_SIZE,
  height: FRAME_SIZE,
  frame_count: 90_000,
};

/** A state that an annotation had, and who made it. */
export interface AnnotationState {
  actor: string;
  editId: string;
  row: Annotation | null;
}

const idBytes = (id: string) => Buffer.from(id.replaceAll("-", ""), "hex");

export class EditServer {
  readonly rows = new Map<string, Annotation>();
  /** All states of each annotation, oldest first. */
  readonly states = new Map<string, AnnotationState[]>();
  readonly answers = new Map<string, EditResult>();
  /** Edits that changed something, by their ids. */
  readonly applied = new Map<string, { actor: string; before: string | undefined }>();
  seq = 7;
  /** Whether numbers began anew. */
  isRestored = false;
  readonly #seqs = new Map<string, number>();
  readonly #deleted = new Map<string, number>();
  readonly #listeners = new Set<(event: FeedEvent) => void>();
  readonly #random: () => number;

  constructor(random: () => number) {
    this.#random = random;
  }

  /** Puts a box of a model there, as labeling does. */
  seed(id: string, fields: Partial<Annotation> = {}): void {
    const row: Annotation = {
      annotation_id: id,
      job_id: JOB,
      frame_id: `${VIDEO}.0`,
      class: "car",
      bbox: [10, 10, 20, 20],
      accepted: null,
      confidence: 0.5,
      source: "model",
      found_by: "sam",
      keyframe: false,
      track_id: null,
      duplicate_of: null,
      polygon: null,
      revision: 1,
      updated_at: "2026-01-01T00:00:00.000Z",
      ...fields,
    };
    this.#write(id, row, { actor: "model", editId: "" });
  }

  subscribe(listener: (event: FeedEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** `POST /jobs/{job}/edits` of a person. */
  edit(actor: string, edits: readonly EditRequest[]) {
    const changed = new Set<string>();
    const before = this.seq;
    const results = edits.map((edit) => {
      const known = this.answers.get(edit.edit_id);
      const result = known ?? this.#answer(actor, edit);
      // Only what was applied is remembered.
      if (!known && result.status === "applied") {
        this.answers.set(edit.edit_id, result);
        changed.add(edit.annotation_id);
      }
      return result;
    });
    if (changed.size > 0) this.#publish(actor, changed, before);
    return structuredClone({ edits_seq: this.seq, results });
  }

  /** `GET /jobs/{job}/annotations.columns`. */
  columns(since: number | null): ColumnTable {
    // The client reads the whole job where its number is above the job's own.
    const after = this.isRestored ? null : since;
    const isNewer = (seq = 0) => after === null || seq > after;
    const rows = [...this.rows.values()].filter(({ annotation_id: id }) =>
      isNewer(this.#seqs.get(id)),
    );
    const classes = [...new Set(rows.map((row) => row.class))];
    const deleted = [...this.#deleted].filter(
      ([id, seq]) => after !== null && seq > after && !this.rows.has(id),
    );
    const numbers = (column: (row: Annotation) => number) => rows.map(column);
    return {
      header: {
        version: COLUMNS_VERSION,
        job_id: JOB,
        threshold: 0,
        rows: rows.length,
        edits_seq: this.seq,
        after_seq: after,
        classes: classes.map((name, index) => ({ number: index * 3 + 2, name })),
        videos: [{ video_id: VIDEO, ...VIDEO_SIZE }],
      },
      rows: rows.length,
      columns: {
        id: new Uint8Array(Buffer.concat(rows.map((row) => idBytes(row.annotation_id)))),
        video: new Uint16Array(rows.length),
        frame: Uint32Array.from(numbers((row) => frameOf(row.frame_id).index)),
        class: Uint16Array.from(numbers((row) => classes.indexOf(row.class) * 3 + 2)),
        state: Uint8Array.from(
          numbers(({ accepted }) => (accepted === null ? 0 : accepted ? 1 : 2)),
        ),
        source: Uint8Array.from(numbers((row) => SOURCES.indexOf(row.source))),
        flags: Uint8Array.from(
          numbers(
            (row) =>
              (row.keyframe ? FLAGS.keyframe : 0) |
              (row.polygon ? FLAGS.polygon : 0) |
              (row.duplicate_of ? FLAGS.duplicate : 0),
          ),
        ),
        confidence: Uint16Array.from(numbers((row) => confidenceCode(row.confidence))),
        box: Float32Array.from(rows.flatMap((row) => row.bbox)),
        revision: Uint32Array.from(numbers((row) => row.revision)),
        track: Uint32Array.from(numbers((row) => row.track_id ?? 0)),
      },
      deleted: new Uint8Array(Buffer.concat(deleted.map(([id]) => idBytes(id)))),
    };
  }

  #answer(actor: string, edit: EditRequest): EditResult {
    const { edit_id, annotation_id: id, op, revision, fields = {} } = edit;
    const own = { edit_id };
    const now = this.rows.get(id);
    if (fields.class === REFUSED_CLASS) {
      return { ...own, status: "refused", code: "class_exists", detail: "class: is not allowed" };
    }
    if (op === "create" ? now : now && now.revision !== revision) {
      return { ...own, status: "conflict", current: structuredClone(now) as Annotation };
    }
    if (op !== "create" && !now) return { ...own, status: "gone" };
    const before = this.states.get(id)?.at(-1)?.actor;
    this.applied.set(edit_id, { actor, before });
    const next = op === "delete" ? null : this.#changed(now, edit);
    this.#write(id, next, { actor, editId: edit_id });
    const made = next?.revision ?? (now?.revision as number);
    return { ...own, status: "applied", revision: made, change_id: edit_id };
  }

  #changed(now: Annotation | undefined, { annotation_id: id, fields = {} }: EditRequest) {
    const { bbox, polygon, ...rest } = fields as BoxFields;
    const base = now ?? {
      annotation_id: id,
      job_id: JOB,
      confidence: null,
      source: "person" as const,
      found_by: null,
      keyframe: true,
      track_id: null,
      duplicate_of: null,
      polygon: null,
      accepted: true,
      updated_at: "2026-01-01T00:00:00.000Z",
      revision: 0,
    };
    const shape = polygon === undefined ? undefined : { polygon: polygon && [...polygon] };
    const cut = bbox && {
      // The server cuts boxes to their frame and stores float32.
      bbox: bbox.map((value) => Math.fround(Math.min(FRAME_SIZE, Math.max(0, value)))),
      polygon: null,
      keyframe: true,
    };
    const row = { ...base, ...rest, ...cut, ...shape, revision: base.revision + 1 };
    // The route's schema checks it; a test gives no other.
    return row as Annotation;
  }

  #write(id: string, row: Annotation | null, by: { actor: string; editId: string }): void {
    // Numbers of all jobs come from one sequence.
    this.seq += 1 + Math.floor(this.#random() * 3);
    if (row) {
      this.rows.set(id, row);
      this.#seqs.set(id, this.seq);
    } else {
      this.rows.delete(id);
      this.#deleted.set(id, this.seq);
    }
    const states = this.states.get(id) ?? [];
    states.push({ ...by, row: structuredClone(row) });
    this.states.set(id, states);
  }

  #publish(actor: string, changed: ReadonlySet<string>, before: number): void {
    const rows = [...changed].flatMap((id) => this.rows.get(id) ?? []);
    const deleted = [...changed].filter((id) => !this.rows.has(id));
    const isLarge = changed.size > 200;
    const brief = { after_seq: before, edits_seq: this.seq, actor_id: actor };
    const event = { ...brief, rows, deleted };
    for (const listener of this.#listeners) {
      listener(structuredClone(isLarge ? brief : event));
    }
  }
}
