// Edits of a job's tracks over HTTP.

import { z } from "@hono/zod-openapi";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { interpolateTrack, mergeTracks, splitTrack } from "./track-edits.ts";

const tag = "Review";
const INDEX_MAX = 2_147_483_647;
const trackId = z.int().min(1).max(INDEX_MAX);
const index = z.int().min(0).max(INDEX_MAX);
const track = { video_id: z.uuid(), track_id: trackId };
/** Routes of tracks. */
export const trackRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/tracks/split",
      operationId: "splitTrack",
      tag,
      summary: "Make a track's part from a frame on a track of its own",
      description:
        "Beyond the contract; for annotators, in a completed job. The part before `index` keeps the " +
        "track's id. It can be undone.",
      who: user,
      params: jobId,
      body: jsonBody(z.strictObject({ ...track, index })),
      answers: { 200: json("the new track", EditRecord.extend({ track_id: trackId })) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { video_id: videoId, track_id, index: from } = context.req.valid("json");
      const { accountId: actorId } = callerOf(context);
      const edit = { videoId, trackId: track_id, index: from, actorId };
      const made = await splitTrack(database, job, edit);
      return context.json({ ...editRecord(made), track_id: made.trackId }, 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/tracks/merge",
      operationId: "mergeTracks",
      tag,
      summary: "Make one track of two",
      description:
        "Beyond the contract; for annotators, in a completed job. Both are of one video and one class " +
        "and have no frame in common; what was `track_id` is `into` from then on. It can be undone.",
      who: user,
      params: jobId,
      body: jsonBody(z.strictObject({ ...track, into: trackId })),
      answers: { 200: json("what was changed", EditRecord) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { video_id: videoId, track_id, into } = context.req.valid("json");
      const { accountId: actorId } = callerOf(context);
      const merged = await mergeTracks(database, job, {
        videoId,
        trackId: track_id,
        into,
        actorId,
      });
      return context.json(editRecord(merged), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/tracks/interpolate",
      operationId: "interpolateTrack",
      tag,
      summary: "Fill a track between the boxes that people set",
      description:
        "Beyond the contract; for annotators, in a completed job. Keyframes are the track's boxes " +
        "that somebody drew, set or accepted. On the job's frames between two of them the box lies on " +
        "a straight line, by frame index: it is made where there is none (`source` is " +
        "`interpolated`, and it is pending), and moved where there is one that nobody judged. It can be " +
        "undone.",
      who: user,
      params: jobId,
      body: jsonBody(
        z.strictObject({
          ...track,
          from_index: index.optional().meta({ description: "frames from this index on" }),
          to_index: index.optional().meta({ description: "and before this one" }),
        }),
      ),
      answers: { 200: json("what was changed", EditRecord) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const body = context.req.valid("json");
      const filled = await interpolateTrack(database, job, {
        videoId: body.video_id,
        trackId: body.track_id,
        actorId: callerOf(context).accountId,
        fromIndex: body.from_index,
        toIndex: body.to_index,
      });
      return context.json(editRecord(filled), 200);
    },
  ),
];
