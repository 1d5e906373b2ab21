// Assignment of a job's frames to people, and their stages, over HTTP.

import { z } from "@hono/zod-openapi";
import { FrameStage } from "../../../../shared/wire/labeling.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { FrameBodyFilter, frameFilterOf } from "../review/frame-filters.ts";
import { assignFrames, moveFrames } from "./assignments.ts";

/** People that one request shares frames among. */
const SHARERS_MAX = 100;
const tag = "Review";

const isDistinct = (ids: readonly string[]) =>
  new Set(ids.map((id) => id.toLowerCase())).size === ids.length;
const AssignBody = z
  .strictObject({
    filter: FrameBodyFilter,
    labeler_id: z.uuid().nullable().optional().meta({
      description: "who labels them; null: nobody from now on; left out: who it was",
    }),
    labeler_ids: z
      .array(z.uuid())
      .min(2)
      .max(SHARERS_MAX)
      .refine(isDistinct, "names an account twice")
      .optional()
      .meta({
        description:
          "in place of `labeler_id`: several people, each of whom gets as many frames that follow " +
          "one another in the job's order, to one more or less",
      }),
    reviewer_id: z.uuid().nullable().optional().meta({
      description: "who reviews them; null: nobody from now on; left out: who it was",
    }),
  })
  .refine(
    ({ labeler_id, labeler_ids, reviewer_id }) =>
      [labeler_id, labeler_ids, reviewer_id].some((one) => one !== undefined),
    "give labeler_id, labeler_ids or reviewer_id",
  )
  .refine(
    ({ labeler_id, labeler_ids }) => labeler_id === undefined || labeler_ids === undefined,
    "labeler_ids: no labeler_id beside it",
  );

/** Routes of assignment and stages. */
export const assignmentRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/frames/assign",
      operationId: "assignFrames",
      tag,
      summary: "Assign frames of a job to people",
      description:
        "Beyond the contract; for annotators, who take frames that are nobody's and give back their " +
        "own: frames of others are left as they are and counted as `kept`. An engineer assigns any " +
        "frame to any annotator, engineer or admin of the workspace. Null takes an assignment away. " +
        "An empty filter names all frames of the job.",
      who: user,
      params: jobId,
      body: jsonBody(AssignBody),
      answers: {
        200: json(
          "how many frames that changed",
          z.object({
            changed: z.number().int(),
            kept: z.number().int().meta({ description: "frames that were left to other people" }),
          }),
        ),
      },
    },
    async (context) => {
      const { database } = context.var.service;
      const caller = callerOf(context);
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const body = context.req.valid("json");
      const { labeler_id: labelerId, reviewer_id: reviewerId } = body;
      const labelerIds =
        body.labeler_ids ?? (typeof labelerId === "string" ? [labelerId] : labelerId);
      const named = [...(labelerIds ?? []), ...(reviewerId ? [reviewerId] : [])];
      const isOwn = (id: string) => id.toLowerCase() === caller.accountId;
      if (!named.every(isOwn)) allow(caller, job.workspaceId, "engineer");
      const isEngineer = workspacesOf(caller, "engineer").includes(job.workspaceId);
      const onlyOwn = isEngineer ? undefined : caller.accountId;
      const filter = frameFilterOf(body.filter, caller.accountId);
      const assignment = { labelerIds, reviewerId, onlyOwn };
      return context.json(await assignFrames(database, job, { filter, assignment }), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/frames/stage",
      operationId: "moveFrames",
      tag,
      summary: "Hand frames of a job to review, or send them back",
      description:
        "Beyond the contract; for annotators. `review` moves frames that are in stage `label`. " +
        "`label` moves back what is in review, and takes the mark of reviewed frames away. A frame is " +
        "done once it is marked (`POST …/frames/review`), or each annotation shown on it was judged.",
      who: user,
      params: jobId,
      body: jsonBody(
        z.strictObject({ filter: FrameBodyFilter, stage: FrameStage.exclude(["done"]) }),
      ),
      answers: {
        200: json("how many frames that changed", z.object({ changed: z.number().int() })),
      },
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { filter: given, stage } = context.req.valid("json");
      const filter = frameFilterOf(given, callerOf(context).accountId);
      return context.json({ changed: await moveFrames(database, job, { filter, stage }) }, 200);
    },
  ),
];
