// Frames of a job over HTTP: how each of them stands, and which were reviewed.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { JobFramePage } from "../../../../shared/wire/labeling.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { FrameBodyFilter, frameFilterOf, frameQuery } from "./frame-filters.ts";
import { listFrames, markFrames, markMatching } from "./frames.ts";

const PAGE = 100;
/** Frames of one page: each may be of a video of its own, whose times are one read of the store. */
const PAGE_MAX = 500;
const tag = "Review";

const Query = z.object({
  ...frameQuery,
  offset: whole(0, 10_000_000).default(0),
  limit: whole(1, PAGE_MAX).default(PAGE),
});
const MarkBody = z.strictObject({ reviewed: z.boolean(), filter: FrameBodyFilter });

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
      const filter = frameFilterOf(query, callerOf(context).accountId);
      const page = await listFrames(context.var.service, job, { ...filter, offset, limit });
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
        "job, `frame_ids` any of the whole range that can be drawn on; the same call with `reviewed` " +
        "false takes the marks back.",
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
            filter: frameFilterOf(filter, actorId),
          });
      return context.json({ changed }, 200);
    },
  ),
];
