// Which frames of a job a request means: the filter of a query, and the one of JSON bodies.

import { z } from "@hono/zod-openapi";
import { flag, whole } from "../../../../shared/scalars.ts";
import { FrameStage } from "../../../../shared/wire/labeling.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { TagList, Tags, tagKeys } from "../search/tags.ts";
import { type FrameFilter, framesOfIds } from "./frames.ts";

/** Frames that one request names by their ids. */
const NAMED_MAX = 1_000;
const INDEX_MAX = 2_147_483_647;

const Assignee = z.union([z.uuid(), z.enum(["me", "none"])]).meta({
  description:
    "frames that this account labels or reviews (`me`: your own; `none`: nobody); beside a `stage` " +
    "of `label` or `review`, only who labels, or only who reviews",
});

/** A filter of frames in a query. */
export const frameQuery = {
  video_id: z.uuid().optional(),
  from_index: whole(0, INDEX_MAX).optional().meta({ description: "frames from this index on" }),
  to_index: whole(0, INDEX_MAX).optional().meta({ description: "and before this one" }),
  reviewed: flag().optional().meta({
    type: "boolean",
    description: "true: only those that are marked",
  }),
  annotated: flag().optional().meta({
    type: "boolean",
    description: "false: only those without annotations",
  }),
  stage: FrameStage.optional(),
  assignee: Assignee.optional(),
  tag: TagList.optional(),
};

const index = z.int().min(0).max(INDEX_MAX);
/** A filter of frames in a body. */
export const FrameBodyFilter = z
  .strictObject({
    frame_ids: z.array(FrameId).min(1).max(NAMED_MAX).nullish().meta({
      description: "only these; no other filter beside it",
    }),
    video_id: z.uuid().nullish(),
    from_index: index.nullish().meta({ description: "frames from this index on" }),
    to_index: index.nullish().meta({ description: "and before this one" }),
    annotated: z.boolean().nullish().meta({ description: "false: only those without annotations" }),
    stage: FrameStage.nullish(),
    assignee: Assignee.nullish(),
    tags: Tags.min(1).nullish().meta({ description: "only frames that have all of these tags" }),
  })
  .refine(
    ({ frame_ids: ids, ...others }) => !ids || Object.values(others).every((one) => one == null),
    "frame_ids: no other filter beside it",
  );

/** The frames that a query, or a body, of a caller names. */
export function frameFilterOf(
  given: Partial<z.output<typeof FrameBodyFilter>> & {
    reviewed?: boolean | undefined;
    tag?: string | undefined;
  },
  callerId: string,
): FrameFilter {
  const { assignee } = given;
  const accounts: Record<string, string | null> = { me: callerId, none: null };
  const isNamed = assignee !== undefined && assignee !== null;
  return {
    videoId: given.video_id ?? undefined,
    fromIndex: given.from_index ?? undefined,
    toIndex: given.to_index ?? undefined,
    reviewed: given.reviewed,
    annotated: given.annotated ?? undefined,
    stage: given.stage ?? undefined,
    assigneeId: isNamed && assignee in accounts ? accounts[assignee] : (assignee ?? undefined),
    tagKeys: tagKeys(given.tag ?? given.tags ?? undefined),
    among: given.frame_ids ? framesOfIds(given.frame_ids) : undefined,
  };
}
