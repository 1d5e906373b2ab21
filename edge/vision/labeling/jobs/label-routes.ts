// Labeling jobs by text or by exemplar.

import { z } from "@hono/zod-openapi";
import { Job } from "../../../../shared/wire/labeling.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { EXEMPLARS_BYTES_MAX, ExemplarBody, LabelBody, ManualBody } from "./bodies.ts";
import { resolveExemplars } from "./frame-references.ts";
import { offeredSegmenters, searchOf } from "./grounding.ts";
import { jobRecord } from "./jobs.ts";
import { startJob, startManualJob, videosOf } from "./new-jobs.ts";

const tag = "Labeling";
const accepted = json(
  "the job; it runs on GPU nodes",
  z.object({ job_id: z.uuid(), warnings: z.array(z.string()) }),
);
/** Routes that begin a labeling job. */
export const labelRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs",
      operationId: "createJob",
      tag,
      summary: "A job for people to draw in",
      description:
        "Beyond the contract; for engineers. No segmenter runs: the job is of kind `manual` and " +
        "completed at once. A frame of it is part of a dataset once it has an annotation or is marked " +
        "as reviewed.",
      who: user,
      body: jsonBody(ManualBody),
      answers: { 201: json("the job", Job) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const jobId = await startManualJob(parts, caller, context.req.valid("json"));
      return context.json(await jobRecord(parts.database, workspacesOf(caller), jobId), 201);
    },
  ),
  route(
    {
      call: "POST /label",
      operationId: "labelByText",
      tag,
      summary: "Label videos by text",
      description:
        "For engineers. Each prompt becomes a class. A prompt that the segmenter has no word for is " +
        "refused before anything starts, and so are two that look for the same. `warnings`, which the " +
        "job keeps, tell where a prompt finds more than it names. A video that was uploaded just now is " +
        "waited for, up to 10 seconds; one that is still being probed then is 409. With `model`, a " +
        "model of the registry looks for its classes in a segmenter's place. With an " +
        "Idempotency-Key a repeated request starts one job.",
      who: user,
      body: jsonBody(LabelBody),
      headers: IdempotencyKey,
      answers: { 202: accepted },
      errors: ["not_found", "state_conflict", "idempotency_conflict", "prompt_unknown"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      const { database } = parts;
      const videos = await videosOf(parts, callerOf(context), body);
      const key = context.req.valid("header")["idempotency-key"];
      const answer = await answerOnce(
        parts,
        { workspaceId: videos.workspaceId, route: "label", key, body },
        async () => {
          const { workspaceId } = videos;
          const { words, warnings, model } = await searchOf(database, workspaceId, body);
          const classes = words.map((prompt) => ({ name: prompt, prompt }));
          const job = {
            ...videos,
            body,
            classes,
            kind: "text" as const,
            warnings,
            modelId: model?.modelId,
          };
          const jobId = await startJob(parts, job);
          return { status: 202, body: { job_id: jobId, warnings } };
        },
      );
      return context.json(answer.body, 202);
    },
  ),
  route(
    {
      call: "POST /label/exemplar",
      operationId: "labelByExemplar",
      tag,
      summary: "Label videos by examples of one class",
      description:
        "For engineers. The examples are boxes on frames of the workspace, or image crops.",
      who: user,
      body: jsonBody(ExemplarBody, { bytesMax: EXEMPLARS_BYTES_MAX }),
      headers: IdempotencyKey,
      answers: { 202: accepted },
      errors: ["not_found", "state_conflict", "idempotency_conflict", "prompt_unknown"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      const caller = callerOf(context);
      const videos = await videosOf(parts, caller, body);
      const { workspaceId } = videos;
      const exemplars = await resolveExemplars(parts, workspaceId, body.exemplars);
      const key = context.req.valid("header")["idempotency-key"];
      const answer = await answerOnce(
        parts,
        { workspaceId: videos.workspaceId, route: "label/exemplar", key, body },
        async () => {
          await offeredSegmenters(parts.database, { workspaceId, segmenter: body.segmenter });
          const classes = [{ name: body.class, prompt: null }];
          const job = {
            ...videos,
            body,
            classes,
            kind: "exemplar" as const,
            exemplars,
            warnings: [],
          };
          return { status: 202, body: { job_id: await startJob(parts, job), warnings: [] } };
        },
      );
      return context.json(answer.body, 202);
    },
  ),
];
