// Which annotations a request means: the filter that listing and edits of many have in common, in a
// query and in a JSON body.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { decimal, flag, whole } from "../../../../shared/scalars.ts";
import { Annotation } from "../../../../shared/wire/labeling.ts";
import { FrameId, parseFrameId } from "../../../../shared/wire/vision.ts";
import { NULL_REFUSED } from "../../../http/not-given.ts";
import { name } from "../../../http/texts.ts";
import type { JobRow } from "../jobs/jobs.ts";
import type { AnnotationFilter } from "./annotations.ts";

/** Annotations that one request names by their ids. */
const ANNOTATIONS_MAX = 1_000;

/** `true`, `false`, or `null` for what nobody reviewed. */
const accepted = z.enum(["true", "false", "null"]).optional().meta({
  description: "`null`: not reviewed yet",
});
const confidence = z.number().min(0).max(1);
/** The largest index that a frame may have. */
const INDEX_MAX = 2_147_483_647;
/** A filter of annotations in a query. */
export const Filter = z.object({
  frame_id: FrameId.optional(),
  video_id: z.uuid().optional(),
  track_id: whole(1, INDEX_MAX)
    .optional()
    .meta({ description: "of the video that `video_id` names: each has tracks of its own" }),
  from_index: whole(0, INDEX_MAX).optional().meta({ description: "frames from this index on" }),
  to_index: whole(0, INDEX_MAX).optional().meta({ description: "and before this one" }),
  class_name: name().max(200).optional(),
  accepted,
  source: Annotation.shape.source.optional(),
  min_confidence: decimal((number) => number.min(0).max(1))
    .optional()
    .meta({
      description: "instead of the job's threshold",
    }),
  max_confidence: decimal((number) => number.min(0).max(1)).optional(),
  duplicates: flag().optional().meta({
    type: "boolean",
    description: "true: only those that repeat a better one of the same object; false: no such",
  }),
});

/** The same in a JSON body, with its types. */
export const BodyFilter = z.strictObject({
  frame_id: Filter.shape.frame_id.nullable(),
  video_id: z.uuid().nullish(),
  track_id: z.int().min(1).max(INDEX_MAX).nullish().meta({
    description: "of the video that `video_id` names: each has tracks of its own",
  }),
  from_index: z
    .int()
    .min(0)
    .max(INDEX_MAX)
    .nullish()
    .meta({ description: "frames from this index on" }),
  to_index: z.int().min(0).max(INDEX_MAX).nullish().meta({ description: "and before this one" }),
  class_name: Filter.shape.class_name.nullable(),
  // Elsewhere null is what nobody reviewed; read as not given it would name everything.
  accepted: z
    .union([z.boolean(), z.enum(["true", "false", "null"])])
    .optional()
    .meta({
      [NULL_REFUSED]: true,
      description: 'the text "null": not reviewed yet; a null itself is refused',
    }),
  source: Filter.shape.source.nullable(),
  min_confidence: confidence.nullish().meta({ description: "instead of the job's threshold" }),
  max_confidence: confidence.nullish(),
  duplicates: z.boolean().nullish().meta({
    description: "true: only those that repeat a better one of the same object; false: no such",
  }),
  annotations: z
    .array(
      z.strictObject({
        annotation_id: z.uuid(),
        revision: z.int().min(0).max(INDEX_MAX).optional(),
      }),
    )
    .min(1)
    .max(ANNOTATIONS_MAX)
    .nullish()
    .meta({
      description:
        "only these. Where one has a newer revision than the one given, the whole edit is refused",
    }),
});

/** A body's filter as one of a query. */
const asQuery = ({ accepted, ...given }: z.output<typeof BodyFilter>): z.output<typeof Filter> => ({
  frame_id: given.frame_id ?? undefined,
  video_id: given.video_id ?? undefined,
  track_id: given.track_id ?? undefined,
  from_index: given.from_index ?? undefined,
  to_index: given.to_index ?? undefined,
  class_name: given.class_name ?? undefined,
  accepted: typeof accepted === "boolean" ? `${accepted}` : accepted,
  source: given.source ?? undefined,
  min_confidence: given.min_confidence ?? undefined,
  max_confidence: given.max_confidence ?? undefined,
  duplicates: given.duplicates ?? undefined,
});

/** The annotations of a job that a query names. */
export function filterOf(job: JobRow, wanted: z.output<typeof Filter>): AnnotationFilter {
  const frame = wanted.frame_id === undefined ? undefined : parseFrameId(wanted.frame_id);
  if (frame === null) throw new Failure("invalid_request", "frame_id: is none");
  if (wanted.track_id !== undefined && !wanted.video_id && !frame) {
    throw new Failure("invalid_request", "track_id: of which video? give its video_id too");
  }
  return {
    jobId: job.id,
    threshold: wanted.min_confidence ?? job.threshold,
    shownFrom: job.threshold,
    frame,
    videoId: wanted.video_id,
    trackId: wanted.track_id,
    fromIndex: wanted.from_index,
    toIndex: wanted.to_index,
    className: wanted.class_name,
    accepted: acceptedOf(wanted.accepted),
    source: wanted.source,
    confidenceMax: wanted.max_confidence,
    duplicates: wanted.duplicates,
  };
}

/** The annotations of a job that a body names, and the filter as the log of edits keeps it. */
export function bodyFilterOf(job: JobRow, given: z.output<typeof BodyFilter>) {
  const query = asQuery(given);
  const { annotations } = given;
  const filter = filterOf(job, query);
  if (!annotations) return { filter, logged: query };
  // The log keeps the number of ids, not the ids: they may be many.
  return {
    filter: { ...filter, annotations },
    logged: { ...query, annotations: annotations.length },
  };
}

const ACCEPTED = { true: true, false: false, null: null } as const;

/** The review that a query names; null: nobody reviewed. */
export const acceptedOf = (given: z.output<typeof accepted>): boolean | null | undefined =>
  given === undefined ? undefined : ACCEPTED[given];
