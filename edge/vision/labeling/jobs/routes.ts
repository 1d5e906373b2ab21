// Labeling jobs over HTTP: where they stand, their names, their life.

import { createRoute, z } from "@hono/zod-openapi";
import { Job, JobProgress } from "../../../../shared/wire/labeling.ts";
import { Ticket } from "../../../../shared/wire/progress.ts";
import { type App, errorResponses, json, jsonBody, name, text } from "../../../http/app.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard, workspacesOf } from "../../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  listErrors,
  readErrors,
  writeErrors,
} from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { issueTicket } from "../../tasks/progress/tickets.ts";
import { jobFor, jobId } from "./access.ts";
import { ClassName } from "./classes.ts";
import { findJob, jobRecord, listJobs, topicOf } from "./jobs.ts";
import {
  type BeforeDelete,
  deleteJob,
  duplicateJob,
  editJob,
  extendJob,
  failJob,
  resumeJob,
  stopJob,
} from "./life.ts";
import { statusOf } from "./status.ts";

const tags = ["Jobs"];

/** Registers the routes of jobs; `beforeDelete` is what other rooms do with a job that goes. */
export function addJobRoutes(app: App<Parts>, beforeDelete: BeforeDelete) {
  guard(app, "/jobs", "/jobs/*", "/status/*", "/admin/jobs/*");
  addReading(app);
  addEditing(app, beforeDelete);
  addLife(app);
  addMarkFailed(app);
}

function addReading(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs`,
    operationId: "listJobs",
    tags,
    summary: "Labeling jobs, newest first",
    security: bearer,
    request: { query: z.object({ project_id: z.uuid().optional() }) },
    responses: { 200: json("jobs of the caller's workspaces", z.array(Job)), ...listErrors },
  });
  app.openapi(list, async (context) => {
    const { database } = context.var.service;
    const { project_id: projectId } = context.req.valid("query");
    const jobs = await listJobs(database, workspacesOf(callerOf(context)), { projectId });
    return context.json(jobs, 200);
  });

  const one = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}`,
    operationId: "readJob",
    tags,
    summary: "One labeling job",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("the job", Job), ...readErrors },
  });
  app.openapi(one, async (context) => {
    const { job_id: id } = context.req.valid("param");
    const { database } = context.var.service;
    return context.json(await jobRecord(database, workspacesOf(callerOf(context)), id), 200);
  });

  const status = createRoute({
    method: "get",
    path: `${API}/status/{job_id}`,
    operationId: "readJobStatus",
    tags,
    summary: "How far a job is",
    description: "The numbers that the job's live topic carries, for pollers.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("the job's status", JobProgress), ...readErrors },
  });
  app.openapi(status, async (context) => {
    const { database, clock } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    return context.json(await statusOf(database, job, clock()), 200);
  });

  const ticket = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/ticket`,
    operationId: "makeJobTicket",
    tags,
    summary: "A ticket for the job's live progress",
    description:
      "A WebSocket takes the ticket in its address, where an access token has no place. Events are " +
      "those of the job's current round; a resumed or extended job has a new topic.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("a ticket of a minute", Ticket), ...readErrors },
  });
  app.openapi(ticket, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const { accountId, session } = callerOf(context);
    const guest = { accountId, session, workspaceId: job.workspaceId };
    const request = { topic: topicOf(job), ...guest };
    const issued = await issueTicket(context.var.service, request);
    return context.json(issued, 200);
  });
}

function addEditing(app: App<Parts>, beforeDelete: BeforeDelete) {
  const edit = createRoute({
    method: "patch",
    path: `${API}/jobs/{job_id}`,
    operationId: "editJob",
    tags,
    summary: "Rename a job, or slice it by another threshold",
    description:
      "For engineers. `threshold` shows or hides annotations that are stored already, down to a " +
      "confidence of 0.05; nothing runs again.",
    security: bearer,
    request: {
      params: jobId,
      ...jsonBody(
        z.object({
          name: name().max(200).optional(),
          description: text().max(10_000).optional(),
          threshold: z.number().min(0).max(1).optional(),
        }),
      ),
    },
    responses: { 200: json("the job", Job), ...bodyErrors },
  });
  app.openapi(edit, async (context) => {
    const { database } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    await editJob({ database }, job, context.req.valid("json"));
    return context.json(await jobRecord(database, [job.workspaceId], job.id), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/jobs/{job_id}`,
    operationId: "deleteJob",
    tags,
    summary: "Delete a job and all its annotations",
    description: "For engineers. Its tasks are cancelled and its exports deleted; its videos stay.",
    security: bearer,
    request: { params: jobId },
    responses: { 204: { description: "the job is gone" }, ...writeErrors },
  });
  app.openapi(remove, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    await deleteJob(context.var.service, job, beforeDelete);
    return context.body(null, 204);
  });

  const duplicate = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/duplicate`,
    operationId: "duplicateJob",
    tags,
    summary: "A copy of a job with its classes and annotations",
    description: "For engineers. Only a job that has ended can be copied.",
    security: bearer,
    request: { params: jobId },
    responses: { 201: json("the copy", Job), ...writeErrors, ...conflict },
  });
  app.openapi(duplicate, async (context) => {
    const parts = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    const copyId = await duplicateJob(parts, job, callerOf(context).accountId);
    return context.json(await jobRecord(parts.database, [job.workspaceId], copyId), 201);
  });
}

function addLife(app: App<Parts>) {
  const extend = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/add-class`,
    operationId: "addClass",
    tags,
    summary: "Label one class more, over all frames of a finished job",
    description:
      "For engineers. Only the new class is looked for; what is labeled stays as it is. `prompt` is " +
      "the class's name when omitted.",
    security: bearer,
    request: {
      params: jobId,
      ...jsonBody(z.object({ class: ClassName, prompt: name().max(200).optional() })),
    },
    responses: {
      202: json(
        "the job runs again",
        z.object({ job_id: z.uuid(), warnings: z.array(z.string()) }),
      ),
      ...bodyErrors,
      ...errorResponses("state_conflict", "class_exists"),
      ...errorResponses("prompt_unknown", "invalid_request"),
    },
  });
  app.openapi(extend, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    const { class: className, prompt = className } = context.req.valid("json");
    const warnings = await extendJob(context.var.service, job, { className, prompt });
    return context.json({ job_id: job.id, warnings }, 202);
  });

  const stop = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/stop`,
    operationId: "stopJob",
    tags,
    summary: "Stop a job and keep what it labeled",
    description: "Beyond the contract; for engineers. Frames under way are finished first.",
    security: bearer,
    request: { params: jobId },
    responses: { 202: json("the job stops", JobProgress), ...writeErrors, ...conflict },
  });
  app.openapi(stop, async (context) => {
    const parts = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    await stopJob(parts, job);
    const now = await findJob(parts.database, [job.workspaceId], job.id);
    return context.json(await statusOf(parts.database, now, parts.clock()), 202);
  });

  const resume = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/resume`,
    operationId: "resumeJob",
    tags,
    summary: "Go on with a stopped or failed job",
    description: "Beyond the contract; for engineers. Only frames that are not labeled yet run.",
    security: bearer,
    request: { params: jobId },
    responses: { 202: json("the job goes on", JobProgress), ...writeErrors, ...conflict },
  });
  app.openapi(resume, async (context) => {
    const parts = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    await resumeJob(parts, job);
    const now = await findJob(parts.database, [job.workspaceId], job.id);
    return context.json(await statusOf(parts.database, now, parts.clock()), 202);
  });
}

function addMarkFailed(app: App<Parts>) {
  const fail = createRoute({
    method: "post",
    path: `${API}/admin/jobs/{job_id}/mark-failed`,
    operationId: "failJob",
    tags,
    summary: "Force-fail a stuck labeling job",
    description:
      "Needs the role admin in the job's workspace. Its processes are ended, nothing that comes of " +
      "them is taken any more, and what is labeled stays. It may be resumed.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("the job, failed", Job), ...writeErrors, ...conflict },
  });
  app.openapi(fail, async (context) => {
    const parts = context.var.service;
    const { database } = parts;
    const job = await jobFor(context, context.req.valid("param").job_id, "admin");
    const reason = "an administrator marked the job as failed";
    await failJob(parts, job, { reason, act: actOf(context, "failJob") });
    return context.json(await jobRecord(database, [job.workspaceId], job.id), 200);
  });
}
