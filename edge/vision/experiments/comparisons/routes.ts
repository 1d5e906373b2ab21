// Comparisons over HTTP: stored, run on an input, and their results read.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { PREDICT_WAIT_SECONDS_MAX } from "../../../../shared/wire/serving.ts";
import { headers } from "../../../http/description.ts";
import { isForm, json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { allow, callerOf, workspaceFor, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { API, pageQuery, toItsEnd } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { ComparisonBody, RunBody, runForm, settingsOf } from "./bodies.ts";
import { sideModels } from "./compared-models.ts";
import {
  comparisonRecord,
  createComparison,
  deleteComparison,
  findComparison,
  listComparisons,
} from "./comparisons.ts";
import { type RunRequest, readBody, readForm } from "./inputs.ts";
import { Comparison, ComparisonResult } from "./records.ts";
import { runComparison } from "./runs.ts";
import { findSession, sweepSessions } from "./sessions.ts";

const tag = "Comparisons";
const PAGE_MAX = 1_000;
const FRAMES_DEFAULT = 20;
const FRAMES_MAX = 100;
const OFFSET_MAX = 2_147_483_647;
const comparisonId = z.object({ comparison_id: z.uuid() });
const framePage = {
  offset: whole(0, OFFSET_MAX).default(0).meta({ description: "frames before the page" }),
  limit: whole(1, FRAMES_MAX).default(FRAMES_DEFAULT).meta({
    description: "frames on the page, at most",
  }),
};

const body = jsonBody(RunBody);

/** Routes of comparisons. */
export const modelComparisonRoutes: readonly Route[] = [
  route(
    {
      call: "GET /comparisons",
      operationId: "listComparisons",
      tag,
      summary: "Comparison configurations, newest first",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional(),
        ...pageQuery(PAGE_MAX),
      }),
      answers: { 200: json("comparisons of the caller's workspaces", z.array(Comparison)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id, ...page } = context.req.valid("query");
      const caller = callerOf(context);
      const workspaces =
        workspace_id === undefined
          ? workspacesOf(caller)
          : workspacesFor(caller, workspace_id, "viewer");
      const rows = await listComparisons(context.var.service.database, workspaces, page);
      return context.json(rows.map(comparisonRecord), 200);
    },
  ),
  route(
    {
      call: "POST /comparisons",
      operationId: "makeComparison",
      tag,
      summary: "Store how two models are compared",
      description:
        "For engineers. Each side is a model by its `model_id`, or whichever an `alias` means at a run " +
        "(`active` too), with the confidence from which its objects count; where it names an export, " +
        "that file is run in place of the weights. Both look at `image_size`, or each at its own. " +
        "`classes` says under which names classes are compared, where the models call one thing by two. " +
        "At most 1,000 a workspace.",
      who: user,
      body: jsonBody(ComparisonBody),
      answers: { 201: json("the comparison", Comparison) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { name, workspace_id, ...configuration } = context.req.valid("json");
      const workspaceId = workspaceFor(caller, workspace_id, "engineer");
      const settings = settingsOf(configuration);
      await sideModels(parts.database, workspaceId, settings);
      const createdBy = caller.accountId;
      const row = await createComparison(parts, { workspaceId, name, settings, createdBy });
      return context.json(comparisonRecord(row), 201);
    },
  ),
  route(
    {
      call: "POST /comparisons/run",
      operationId: "runComparison",
      tag,
      summary: "Hold two models against each other",
      description:
        "Needs the role annotator. How to compare is a stored comparison or comes along as " +
        "`configuration`; what to look at is one of a `file` (multipart/form-data: JPEG, PNG or WebP up " +
        "to 64 MiB, MP4, MOV, MKV, WebM or AVI up to 1 GiB, after what says how to compare), a project's " +
        "`video_id`, a `job_id` and an `export_id`. Of a job, the frames count that people reviewed: those " +
        "that are marked, and those whose every shown annotation was judged; their annotations that " +
        "nobody rejected are the truth. Of an exported dataset they are the frames of its `split`, with " +
        "its annotations as the truth. One node decodes each frame once and gives the same pixels to " +
        "both models. Boxes that overlap by the comparison's `iou` are of one object, those of one class " +
        "first, the larger overlap before the smaller. Against a truth, detections are taken in order " +
        "of confidence, and average precision is COCO's, as pycocotools computes it. The same run twice " +
        "gives the same result but for latencies, ids and times. What takes longer than " +
        "`wait_seconds` is answered with 202 and its `session_id`. A file is deleted when the run ended; " +
        "its result is kept for a day.",
      who: user,
      query: z.object({
        wait_seconds: whole(0, PREDICT_WAIT_SECONDS_MAX).default(60).meta({
          description: "the answer is waited for as long, then it is 202 and comes under its id",
        }),
      }),
      body: {
        ...body,
        content: { ...body.content, "multipart/form-data": { schema: runForm } },
      },
      answers: {
        200: json("the result, with its first frames", ComparisonResult),
        202: json("a node is at it, or will be", ComparisonResult, headers("Location")),
      },
      errors: [
        "not_found",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { wait_seconds: waitSeconds } = context.req.valid("query");
      const read = (): Promise<RunRequest> => {
        if (isForm(context)) return readForm(parts, caller, context.req.raw);
        // Validated, but typed only where every form of a body is a zod schema.
        return readBody(parts, caller, context.req.valid("json" as never) as RunBody);
      };
      const wish = { createdBy: caller.accountId, waitSeconds };
      const sessionId = await toItsEnd(context, runComparison(parts, read, wish));
      const page = { sessionId, offset: 0, limit: FRAMES_DEFAULT };
      const result = await findSession(parts, workspacesOf(caller), page);
      if (result.status === "completed") return context.json(result, 200);
      context.header("Location", `${API}/comparisons/result/${sessionId}`);
      return context.json(result, 202);
    },
  ),
  route(
    {
      call: "GET /comparisons/result/{session_id}",
      operationId: "readComparisonResult",
      tag,
      summary: "How a run of a comparison stands, and its result",
      description:
        "202 until it ended, with its progress; 200 from then on, also where it `failed`. The frames are " +
        "paged, those that differ most first. Kept for a day.",
      who: user,
      params: z.object({ session_id: z.uuid() }),
      query: z.object(framePage),
      answers: {
        200: json("the result", ComparisonResult),
        202: json("a node is at it, or will be", ComparisonResult),
      },
    },
    async (context) => {
      const { session_id: sessionId } = context.req.valid("param");
      const wanted = { sessionId, ...context.req.valid("query") };
      const workspaces = workspacesOf(callerOf(context));
      const result = await findSession(context.var.service, workspaces, wanted);
      const hasEnded = result.status === "completed" || result.status === "failed";
      return hasEnded ? context.json(result, 200) : context.json(result, 202);
    },
  ),
  route(
    {
      call: "DELETE /comparisons/{comparison_id}",
      operationId: "deleteComparison",
      tag,
      summary: "Delete a comparison with its results",
      description: "For engineers. Runs that are under way are canceled.",
      who: user,
      params: comparisonId,
      answers: { 204: { description: "the comparison is gone" } },
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { comparison_id } = context.req.valid("param");
      const row = await findComparison(parts.database, workspacesOf(caller), comparison_id);
      allow(caller, row.workspaceId, "engineer");
      const sessions = await deleteComparison(parts, row);
      // What fails of it, the next minute does.
      await sweepSessions(parts, sessions).catch((error: unknown) =>
        parts.log.warning("sessions_not_swept", { comparison_id, error }),
      );
      return context.body(null, 204);
    },
  ),
];
