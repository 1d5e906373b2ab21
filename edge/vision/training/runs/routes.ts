// Training runs: where they stand, what they left, their life.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../../shared/errors.ts";
import { Ticket } from "../../../../shared/wire/progress.ts";
import {
  ArtifactObject,
  EPOCHS_MAX,
  Model,
  RUN_STATES,
  RunEpoch,
  TrainingRun,
} from "../../../../shared/wire/training.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { headers } from "../../../http/description.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name, text } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { API, originOf } from "../../base/api.ts";
import { listAnswer, listQuery, statusQuery, tellTotal } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { modelRecord } from "../../models/registry.ts";
import { presignGet } from "../../tasks/objects.ts";
import { issueTicket } from "../../tasks/progress/tickets.ts";
import { deleteRun, editRun, failRun, registerBest, resumeRun, stopRun } from "./moves.ts";
import { findRun, listEpochs, type RunRow, runPage, runRecord, topicOf } from "./runs.ts";

const tag = "Training";
const runId = z.object({ run_id: z.uuid() });

/** The run of a path, if the caller has at least the role in its workspace. */
async function runFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<RunRow> {
  const caller = callerOf(context);
  const run = await findRun(context.var.service.database, workspacesOf(caller), id);
  allow(caller, run.workspaceId, role);
  return run;
}

/** A run as it is now. */
const again = async ({ database }: Parts, { workspaceId, runId: id }: RunRow) =>
  runRecord(await findRun(database, [workspaceId], id));

const Artifact = ArtifactObject.omit({ key: true })
  .extend({ url: z.string() })
  .meta({ id: "RunArtifact" });

const Resume = z.strictObject({
  epochs: z
    .number()
    .int()
    .min(1)
    .max(EPOCHS_MAX)
    .optional()
    .meta({ description: "how many it shall have in all; as before when omitted" }),
});

/** Routes of runs. */
export const runRoutes: readonly Route[] = [
  route(
    {
      call: "GET /train",
      operationId: "listRuns",
      tag,
      summary: "Training runs, newest first",
      who: user,
      query: z.object({
        project_id: z.uuid().optional(),
        job_id: z.uuid().optional(),
        ...listQuery,
        status: statusQuery(RUN_STATES),
      }),
      answers: { 200: listAnswer("runs of the caller's workspaces", TrainingRun) },
    },
    async (context) => {
      const { project_id: projectId, job_id: jobId, ...query } = context.req.valid("query");
      const workspaces = workspacesOf(callerOf(context));
      const { database } = context.var.service;
      const page = await runPage(database, workspaces, { filter: { projectId, jobId }, query });
      tellTotal(context, page);
      return context.json(page.rows.map(runRecord), 200);
    },
  ),
  route(
    {
      call: "GET /train/{run_id}",
      operationId: "readRun",
      tag,
      summary: "One training run: epoch, loss, mAP, ETA, status",
      who: user,
      params: runId,
      answers: { 200: json("the run", TrainingRun) },
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "viewer");
      return context.json(runRecord(run), 200);
    },
  ),
  route(
    {
      call: "GET /train/{run_id}/epochs",
      operationId: "listEpochs",
      tag,
      summary: "A run's epochs, oldest first",
      description: "Beyond the contract: losses and metrics of every epoch, as charts draw them.",
      who: user,
      params: runId,
      answers: { 200: json("the epochs that are done", z.array(RunEpoch)) },
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "viewer");
      return context.json(await listEpochs(context.var.service.database, run.runId), 200);
    },
  ),
  route(
    {
      call: "POST /train/{run_id}/ticket",
      operationId: "makeRunTicket",
      tag,
      summary: "A ticket for the run's live progress",
      description:
        "Events are those of the run's current round; a resumed run has a new topic. `log` is a line " +
        "of the trainer, `epoch` an epoch with losses (`loss`, `validation_loss`) and metrics, " +
        "`per_class` its metrics under `per_class/{class}/{metric}`, `batch` how far the epoch under " +
        "way is, `end` the run with the final metrics of every class in `best_metrics`.",
      who: user,
      params: runId,
      answers: { 200: json("a ticket of a minute", Ticket) },
      never: ["forbidden"],
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "viewer");
      const { accountId, session } = callerOf(context);
      const guest = { accountId, session, workspaceId: run.workspaceId };
      const request = { topic: topicOf(run), ...guest };
      return context.json(await issueTicket(context.var.service, request), 200);
    },
  ),
  route(
    {
      call: "GET /train/{run_id}/artifacts",
      operationId: "listArtifacts",
      tag,
      summary: "What a run left: charts, pictures, its settings",
      description:
        "Beyond the contract. `curves.json` has `confidences` and `recalls` (0, 0.01, …, 1), and for " +
        "`best_epoch` and `model` each: `epoch`, `confidence` (of the highest mean F1), `all` and " +
        "`classes` with the curves `precision`, `recall`, `f1` by confidence and " +
        "`precision_by_recall`, all at IoU 0.5.",
      who: user,
      params: runId,
      answers: { 200: json("files with their addresses", z.array(Artifact)) },
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "viewer");
      const base = `${originOf(context)}${API}/train/${run.runId}/artifacts`;
      const artifacts = run.artifacts.map(({ key: _, model: __, ...one }) => ({
        ...one,
        url: `${base}/${encodeURIComponent(one.name)}`,
      }));
      return context.json(artifacts, 200);
    },
  ),
  route(
    {
      call: "GET /train/{run_id}/artifacts/{artifact}",
      operationId: "readArtifact",
      tag,
      summary: "A file that a run left",
      description: "Beyond the contract.",
      who: user,
      params: runId.extend({ artifact: z.string().max(100) }),
      answers: {
        302: { description: "to the file, signed for 15 minutes", headers: headers("Location") },
      },
    },
    async (context) => {
      const { run_id: id, artifact } = context.req.valid("param");
      const run = await runFor(context, id, "viewer");
      const file = run.artifacts.find((one) => one.name === artifact);
      if (!file) throw new Failure("not_found", "the run left no file of this name");
      return context.redirect(await presignGet(context.var.service, file.key), 302);
    },
  ),
  route(
    {
      call: "PATCH /train/{run_id}",
      operationId: "editRun",
      tag,
      summary: "Rename a run, or note something on it",
      description: "For engineers. A model that it registered keeps the name that it got.",
      who: user,
      params: runId,
      body: jsonBody(
        z.strictObject({
          name: name().max(200).optional(),
          notes: text().max(10_000).optional(),
        }),
      ),
      answers: { 200: json("the run", TrainingRun) },
    },
    async (context) => {
      const parts = context.var.service;
      const run = await runFor(context, context.req.valid("param").run_id, "engineer");
      await editRun(parts, run, context.req.valid("json"));
      return context.json(await again(parts, run), 200);
    },
  ),
  route(
    {
      call: "DELETE /train/{run_id}",
      operationId: "deleteRun",
      tag,
      summary: "Delete a run and its artifacts",
      description:
        "For engineers. A run that is not over is ended first, and nothing of it is kept. Models " +
        "that it registered stay.",
      who: user,
      params: runId,
      answers: { 204: { description: "the run is gone" } },
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "engineer");
      await deleteRun(context.var.service, run);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /train/{run_id}/stop",
      operationId: "stopRun",
      tag,
      summary: "Stop a run gracefully",
      description:
        "For engineers. The trainer flushes its latest checkpoint and registers it: the model is the " +
        "run's weights as they are when it stops, validated once more, and the run is `stopped`. " +
        "Weights of an epoch that was better stay as the artifact `best.safetensors`, and are " +
        "registered by `POST /train/{run_id}/register`. A run that no node has is stopped at once.",
      who: user,
      params: runId,
      answers: { 202: json("the run stops", TrainingRun) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const run = await runFor(context, context.req.valid("param").run_id, "engineer");
      await stopRun(parts, run);
      return context.json(await again(parts, run), 202);
    },
  ),
  route(
    {
      call: "POST /train/{run_id}/register",
      operationId: "registerCheckpoint",
      tag,
      summary: "Register the best weights of a stopped run",
      description:
        "Beyond the contract; for engineers. A stop registers the latest weights; this registers " +
        "those of the best epoch as the next version of the run's name. `model_id`, `best_epoch` and " +
        "`best_metrics` of the run are then the new model's. Where they are a model already, such as " +
        "of a completed run, the answer is that model.",
      who: user,
      params: runId,
      body: jsonBody(
        z.strictObject({
          checkpoint: z.literal("best").meta({
            description: "which weights of the run: those of its best epoch",
            example: "best",
          }),
        }),
      ),
      answers: { 201: json("the model", Model) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "engineer");
      const model = await registerBest(context.var.service, run);
      return context.json(modelRecord(model, originOf(context)), 201);
    },
  ),
  route(
    {
      call: "POST /train/{run_id}/resume",
      operationId: "resumeRun",
      tag,
      summary: "Go on with a stopped or failed run",
      description:
        "Beyond the contract; for engineers. From its last checkpoint, or from the beginning where it " +
        "has none; on the dataset that it began with.",
      who: user,
      params: runId,
      body: { content: { "application/json": { schema: Resume } }, required: false },
      answers: { 202: json("the run goes on", TrainingRun) },
      errors: ["state_conflict", "quota_exceeded"],
    },
    async (context) => {
      const run = await runFor(context, context.req.valid("param").run_id, "engineer");
      // Without a body there is nothing to validate.
      const body = Resume.parse(context.req.valid("json") ?? {});
      return context.json(runRecord(await resumeRun(context.var.service, run, body)), 202);
    },
  ),
  route(
    {
      call: "POST /admin/training/{run_id}/mark-failed",
      operationId: "failRun",
      tag,
      summary: "Force-fail a stuck training run",
      description:
        "Needs the role admin in the run's workspace. Its process is ended, and nothing that comes " +
        "of it is taken any more. It may be resumed.",
      who: user,
      params: runId,
      answers: { 200: json("the run, failed", TrainingRun) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const run = await runFor(context, context.req.valid("param").run_id, "admin");
      const reason = "an administrator marked the run as failed";
      await failRun(parts, run, { reason, act: actOf(context, "failRun") });
      return context.json(await again(parts, run), 200);
    },
  ),
];
