// What becomes of the edits of a batch, one after another, by what is known of the job: which are
// applied, and what is left to write of each annotation then. Reads and writes nothing.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { EditResult } from "../../../../shared/wire/edits.ts";
import { frameId, parseFrameId } from "../../../../shared/wire/vision.ts";
import { foldedName } from "../../base/lists.ts";
import { ClassName, classExists } from "../classes.ts";
import { CLASSES_MAX } from "../jobs/bodies.ts";
import type { FrameSize } from "../jobs/boxes.ts";
import { Polygon, TrackId } from "./annotation-fields.ts";
import { type Review, reviewOf } from "./annotations.ts";
import { shapeInside } from "./edits.ts";

const NewFields = z.strictObject({
  frame_id: z.string(),
  class: ClassName,
  bbox: Bbox.optional(),
  polygon: Polygon.nullable().optional(),
  accepted: z.boolean().nullable().default(true),
  track_id: TrackId.nullable().default(null),
});
const SetFields = z
  .strictObject({
    class: ClassName.optional(),
    bbox: Bbox.optional(),
    polygon: Polygon.nullable().optional(),
    accepted: z.boolean().nullable().optional(),
    track_id: TrackId.nullable().optional(),
  })
  .refine((fields) => Object.keys(fields).length > 0, "must name what to set");

interface EditOf {
  edit_id: string;
  annotation_id: string;
}

/** An edit of a batch; whether its fields have the values that they may have is not known yet. */
export type BatchEdit =
  | (EditOf & { op: "create"; fields: Record<string, unknown> })
  | (EditOf & { op: "set"; revision: number; fields: Record<string, unknown> })
  | (EditOf & { op: "delete"; revision: number });

/** An annotation as it was read. */
export interface KnownAnnotation {
  id: string;
  /** Whether it is of the job of the batch. */
  own: boolean;
  video: string;
  frame: number;
  size: FrameSize;
  class: number;
  track: number | null;
  revision: number;
}

/** What is of a track beside the annotations that the batch names. */
export interface KnownTrack {
  video: string;
  track: number;
  class: number;
  /** Indexes of those frames, of the ones that the batch is about, on which it has boxes. */
  frames: readonly number[];
}

/** What is known of a job before a batch. */
export interface KnownJob {
  editsSeq: number;
  /** Names of its classes by number. */
  classes: Readonly<Record<number, string>>;
  /** A number that no class has or had; the same holds for those above it. */
  unusedNumber: number;
  /** Annotations that the batch names, of whatever job. */
  annotations: readonly KnownAnnotation[];
  /** Edits of the batch that were applied before. */
  applied: readonly { edit: string; revision: number; change: string }[];
  /** Sizes of the frames in its range that the batch draws on, by their id. */
  sizes: ReadonlyMap<string, FrameSize>;
  tracks: readonly KnownTrack[];
}

/** What is to be written of an annotation. */
export interface AnnotationWrite {
  id: string;
  op: "create" | "set" | "delete";
  /** The revision that it must be at; null for one that must not be there. */
  seen: number | null;
  revision: number;
  video: string;
  frame: number;
  /** Null where it stays; so with those that follow. */
  class: number | null;
  bbox: readonly number[] | null;
  review: Review | null;
  /** Whether the polygon is set, or taken away. */
  shaped: boolean;
  polygon: readonly number[] | null;
  /** Whether the track is set, or taken away. */
  tracked: boolean;
  track: number | null;
}

/** A result without what is known only once the batch is written. */
export type PlannedResult =
  | Exclude<EditResult, { status: "applied" | "conflict" }>
  | { edit_id: string; status: "conflict"; annotation_id: string }
  /** Without a change, it is that of this batch. */
  | {
      edit_id: string;
      status: "applied";
      annotation_id: string;
      revision: number;
      change_id?: string;
    };

/** What a batch comes to. */
export interface BatchPlan {
  /** One for each edit that was looked at, which may be a first part of the batch. */
  results: PlannedResult[];
  writes: AnnotationWrite[];
  /** Classes that the job gets. */
  added: { number: number; name: string }[];
}

/** An annotation in the midst of a batch. */
interface Draft extends KnownAnnotation {
  /** Whether it was there before the batch, and whether it is there now. */
  existed: boolean;
  exists: boolean;
  write: AnnotationWrite;
}

/**
 * Goes through the edits of a batch in order. It ends before an edit that draws, under its old id,
 * what an earlier one deleted: those are two changes.
 */
export function planBatch(edits: readonly BatchEdit[], known: KnownJob): BatchPlan {
  const batch = new Batch(known);
  const results: PlannedResult[] = [];
  const byId = new Map<string, PlannedResult>();
  for (const edit of edits) {
    if (batch.drawsAgain(edit)) break;
    const result = byId.get(edit.edit_id) ?? batch.resultOf(edit);
    byId.set(edit.edit_id, result);
    results.push(result);
  }
  return { results, writes: batch.writes(), added: batch.added };
}

class Batch {
  readonly #known: KnownJob;
  readonly #drafts: Map<string, Draft>;
  readonly #applied: ReadonlyMap<string, KnownJob["applied"][number]>;
  readonly #classes: Map<string, { number: number; name: string }>;
  readonly added: BatchPlan["added"] = [];

  constructor(known: KnownJob) {
    this.#known = known;
    this.#drafts = new Map(known.annotations.map((one) => [one.id, draftOf(one, true)]));
    this.#applied = new Map(known.applied.map((one) => [one.edit, one]));
    this.#classes = new Map(
      Object.entries(known.classes).map(([number, name]) => [
        foldedName(name),
        { number: Number(number), name },
      ]),
    );
  }

  drawsAgain({ op, edit_id, annotation_id }: BatchEdit): boolean {
    const draft = this.#drafts.get(annotation_id);
    const isGone = draft?.existed && !draft.exists;
    return op === "create" && isGone === true && !this.#applied.has(edit_id);
  }

  resultOf(edit: BatchEdit): PlannedResult {
    const { edit_id, annotation_id } = edit;
    const before = this.#applied.get(edit_id);
    if (before) {
      const { revision, change: change_id } = before;
      return { edit_id, status: "applied", annotation_id, revision, change_id };
    }
    const draft = this.#drafts.get(annotation_id);
    try {
      if (edit.op === "create") {
        if (draft?.exists && draft.own) return { edit_id, status: "conflict", annotation_id };
        if (draft?.exists) {
          const detail = "annotation_id: is taken; draw it under another id";
          throw new Failure("state_conflict", detail);
        }
        this.#create(annotation_id, edit.fields);
        return { edit_id, status: "applied", annotation_id, revision: 1 };
      }
      if (!draft?.exists || !draft.own) return { edit_id, status: "gone" };
      if (draft.revision !== edit.revision) return { edit_id, status: "conflict", annotation_id };
      if (edit.op === "delete") draft.exists = false;
      else this.#set(draft, edit.fields);
      return { edit_id, status: "applied", annotation_id, revision: draft.revision };
    } catch (thrown) {
      if (!(thrown instanceof Failure)) throw thrown;
      return { edit_id, status: "refused", code: thrown.code, detail: thrown.message };
    }
  }

  #create(id: string, given: Record<string, unknown>): void {
    const { accepted, ...fields } = valid(NewFields, given);
    const frame = parseFrameId(fields.frame_id);
    if (!frame) throw new Failure("invalid_request", "frame_id: is none");
    const size = this.#known.sizes.get(fields.frame_id);
    if (!size) throw new Failure("not_found", "the job has no such frame in its range");
    const shape = shapeInside(fields, size);
    const track = fields.track_id;
    const drawn = { id, own: true, video: frame.videoId, frame: frame.index, size };
    const className = this.#classOf(fields.class);
    const draft = draftOf({ ...drawn, class: className.number, track, revision: 1 }, false);
    this.#assertTrackFits(draft);
    this.#addClass(className);
    const { bbox, polygon } = shape;
    Object.assign(draft.write, { class: draft.class, bbox, shaped: true, polygon });
    Object.assign(draft.write, { review: reviewOf(accepted), tracked: true, track });
    this.#drafts.set(id, draft);
  }

  #set(draft: Draft, given: Record<string, unknown>): void {
    const fields = valid(SetFields, given);
    const more: Partial<AnnotationWrite> = {};
    if (fields.polygon || fields.bbox) {
      const { bbox, polygon } = shapeInside(fields, draft.size);
      Object.assign(more, { bbox, shaped: true, polygon });
    } else if (fields.polygon === null) Object.assign(more, { shaped: true, polygon: null });
    if (fields.accepted !== undefined) more.review = reviewOf(fields.accepted);
    const className = fields.class === undefined ? null : this.#classOf(fields.class);
    const next = { ...draft, class: className?.number ?? draft.class };
    if (fields.track_id !== undefined) {
      next.track = fields.track_id;
      this.#assertTrackFits(next);
      Object.assign(more, { tracked: true, track: next.track });
    }
    if (className) {
      this.#addClass(className);
      more.class = className.number;
    }
    draft.class = next.class;
    draft.track = next.track;
    draft.revision++;
    Object.assign(draft.write, more);
  }

  /** The class of a name, which may have to be added; fails where it is taken for another. */
  #classOf(name: string): { number: number; name: string } {
    const known = this.#classes.get(foldedName(name));
    if (known && known.name !== name) throw classExists(known.name);
    return known ?? { number: this.#known.unusedNumber + this.added.length, name };
  }

  #addClass(one: { number: number; name: string }): void {
    const key = foldedName(one.name);
    if (this.#classes.has(key)) return;
    if (this.#classes.size >= CLASSES_MAX) {
      throw new Failure("invalid_request", `class: a job has at most ${CLASSES_MAX} classes`);
    }
    this.#classes.set(key, one);
    this.added.push(one);
  }

  /** Fails where the track of an annotation has a box on its frame, or is of another class. */
  #assertTrackFits({ id, video, frame, track, class: number }: Draft): void {
    if (track === null) return;
    const ofTrack = (one: { video: string; track: number | null }) =>
      one.video === video && one.track === track;
    const others = [...this.#drafts.values()].filter(
      (one) => ofTrack(one) && one.exists && one.own && one.id !== id,
    );
    const fits =
      others.every((one) => one.frame !== frame && one.class === number) &&
      this.#known.tracks
        .filter(ofTrack)
        .every((one) => !one.frames.includes(frame) && one.class === number);
    if (fits) return;
    const detail = `track ${track} has a box on this frame, or is of another class`;
    throw new Failure("state_conflict", detail);
  }

  /** What is left to write: of what came and went within the batch, nothing is. */
  writes(): AnnotationWrite[] {
    return [...this.#drafts.values()].flatMap((draft) => {
      const { write, existed, exists, revision } = draft;
      if (!existed) return exists ? [{ ...write, op: "create" as const, revision }] : [];
      if (!exists) return [{ ...write, op: "delete" as const, revision }];
      return revision === write.seen ? [] : [{ ...write, revision }];
    });
  }
}

const draftOf = (one: KnownAnnotation, existed: boolean): Draft => ({
  ...one,
  existed,
  exists: true,
  write: {
    id: one.id,
    op: "set",
    seen: existed ? one.revision : null,
    revision: one.revision,
    video: one.video,
    frame: one.frame,
    class: null,
    bbox: null,
    review: null,
    shaped: false,
    polygon: null,
    tracked: false,
    track: null,
  },
});

/** Fields of an edit in the values that they may have; fails as a request with others would. */
function valid<Fields>(schema: z.ZodType<Fields>, given: Record<string, unknown>): Fields {
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const path = ["fields", ...(issue?.path ?? [])].join(".");
  throw new Failure("invalid_request", `${path}: ${issue?.message}`);
}

/** Ids of the frames that edits of a batch draw on. */
export const framesDrawnOn = (edits: readonly BatchEdit[]): string[] => [
  ...new Set(
    edits.flatMap((edit) => {
      const given = edit.op === "create" && edit.fields.frame_id;
      const frame = typeof given === "string" ? parseFrameId(given) : null;
      return frame ? [frameId(frame.videoId, frame.index)] : [];
    }),
  ),
];
