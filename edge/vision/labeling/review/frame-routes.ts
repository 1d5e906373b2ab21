// Frames of a job over HTTP: how each of them stands, and which were reviewed.

import { z } from "@hono/zod-openapi";
import { flag, whole } from "../../../../shared/scalars.ts";
import { JobFramePage } from "../../../../shared/wire/labeling.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { listFrames, markFrames, markMatching } from "./frames.ts";

const PAGE = 100;
/** Frames of one page: each may be of a video of its own, whose times are one read of the store. */
const PAGE_MAX = 500;
/** Frames that one request names by their ids. */
const MARKED_MAX = 1_000;
const INDEX_MAX = 2_147_483_647;
const tag = "Review";

const Query = z.object({
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
  offset: whole(0, 10_000_000).default(0),
  limit: whole(1, PAGE_MAX).default(PAGE),
});
const index = z.int().min(0).max(INDEX_MAX);
const BodyFilter = z.strictObject({
  frame_ids: z.array(FrameId).min(1).max(MARKED_MAX).nullish().meta({
    description: "only these, of the whole range that can be drawn on; no other filter beside it",
  }),
  video_id: z.uuid().nullish(),
  from_index: index.nullish().meta({ description: "frames from this index on" }),
  to_index: index.nullish().meta({ description: "and before this one" }),
  annotated: z.boolean().nullish().meta({ description: "false: only those without annotations" }),
});
const MarkBody = z.strictObject({
  reviewed: z.boolean(),
  filter: BodyFilter.refine(
    ({ frame_ids: ids, ...others }) => !ids || Object.values(others).every((one) => one == null),
    "frame_ids: no other filter beside it",
  ),
});

/** Routes of a job's frames. */
export const frameRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/frames",
      operationId: "listJobFrames",
      tag,
      summary: "A job's frames, video by video",
      description:
        "Beyond the contract. The frames that the job labels, and those between them that somebody " +
        "drew on or marked as reviewed. Counted are annotations at or above the job's threshold, with " +
        "all that people drew.",
      who: user,
      params: jobId,
      query: Query,
      answers: { 200: json("a page of frames", JobFramePage) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { offset, limit, ...query } = context.req.valid("query");
      const page = await listFrames(context.var.service, job, {
        offset,
        limit,
        videoId: query.video_id,
        fromIndex: query.from_index,
        toIndex: query.to_index,
        reviewed: query.reviewed,
        annotated: query.annotated,
      });
      return context.json({ ...page, offset, limit }, 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/frames/review",
      operationId: "reviewFrames",
      tag,
      summary: "Mark frames of a job as reviewed, or as not",
      description:
        "Beyond the contract; for annotators. A reviewed frame is right as it is, also where it is " +
        "empty: it is done in `completion_percentage`, and is background in exports of a job that was " +
        "stopped. Its annotations are judged on their own. An empty filter names all frames of the " +
        "job; the same call with `reviewed` false takes the marks back.",
      who: user,
      params: jobId,
      body: jsonBody(MarkBody),
      answers: {
        200: json("how many frames that changed", z.object({ changed: z.number().int() })),
      },
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { reviewed, filter } = context.req.valid("json");
      const { accountId: actorId } = callerOf(context);
      const changed = filter.frame_ids
        ? await markFrames(database, job, { ids: filter.frame_ids, reviewed, actorId })
        : await markMatching(database, job, {
            reviewed,
            actorId,
            filter: {
              videoId: filter.video_id ?? undefined,
              fromIndex: filter.from_index ?? undefined,
              toIndex: filter.to_index ?? undefined,
              annotated: filter.annotated ?? undefined,
            },
          });
      return context.json({ changed }, 200);
    },
  ),
];
