// Labeling jobs over HTTP: where they stand, their names, their life.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import { Job, JobProgress, JobSummary } from "../../../../shared/wire/labeling.ts";
import { Ticket } from "../../../../shared/wire/progress.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, workspacesOf } from "../../auth/scope.ts";
import { listAnswer, listQuery, statusQuery, tellTotal } from "../../base/lists.ts";
import { type Route, route } from "../../base/route.ts";
import { issueTicket } from "../../tasks/progress/tickets.ts";
import { ClassName } from "../classes.ts";
import { COUNTED_MAX, listJobs } from "../review/job-list.ts";
import { jobFor, jobId } from "./access.ts";
import { addVideos } from "./added-videos.ts";
import { AddedVideosBody, JobEdit, modelInPlace } from "./bodies.ts";
import { findJob, jobRecord, topicOf } from "./jobs.ts";
import {
  deleteJob,
  duplicateJob,
  editJob,
  extendJob,
  failJob,
  resumeJob,
  stopJob,
} from "./moves.ts";
import { statusOf } from "./status.ts";

const tag = "Jobs";

/** Routes of jobs. */
export const jobRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs",
      operationId: "listJobs",
      tag,
      summary: "Labeling jobs, newest first",
      who: user,
      query: z.object({
        project_id: z.uuid().optional(),
        ...listQuery,
        status: statusQuery(Job.shape.status.options),
        counts: flag()
          .default(false)
          .meta({
            type: "boolean",
            description: `whether jobs carry \`annotations\` and \`frames\`: \`limit\` is at most ${COUNTED_MAX} then`,
          }),
      }),
      answers: { 200: listAnswer("jobs of the caller's workspaces", JobSummary) },
    },
    async (context) => {
      const { database } = context.var.service;
      const { project_id: projectId, counts, ...query } = context.req.valid("query");
      if (counts && query.limit > COUNTED_MAX) {
        throw new Failure("invalid_request", `limit: must be at most ${COUNTED_MAX} with counts`);
      }
      const wanted = { projectId, counts, query };
      const page = await listJobs(database, workspacesOf(callerOf(context)), wanted);
      tellTotal(context, page);
      return context.json(page.rows, 200);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}",
      operationId: "readJob",
      tag,
      summary: "One labeling job",
      who: user,
      params: jobId,
      answers: { 200: json("the job", Job) },
    },
    async (context) => {
      const { job_id: id } = context.req.valid("param");
      const { database } = context.var.service;
      return context.json(await jobRecord(database, workspacesOf(callerOf(context)), id), 200);
    },
  ),
  route(
    {
      call: "GET /status/{job_id}",
      operationId: "readJobStatus",
      tag,
      summary: "How far a job is",
      description: "The numbers that the job's live topic carries, for pollers.",
      who: user,
      params: jobId,
      answers: { 200: json("the job's status", JobProgress) },
    },
    async (context) => {
      const { database, clock } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      return context.json(await statusOf(database, job, clock()), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/ticket",
      operationId: "makeJobTicket",
      tag,
      summary: "A ticket for the job's live progress",
      description:
        "A WebSocket takes the ticket in its address, where an access token has no place. Events are " +
        "those of the job's current round; a resumed or extended job has a new topic.",
      who: user,
      params: jobId,
      answers: { 200: json("a ticket of a minute", Ticket) },
      never: ["forbidden"],
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { accountId, session } = callerOf(context);
      const guest = { accountId, session, workspaceId: job.workspaceId };
      const request = { topic: topicOf(job), ...guest };
      const issued = await issueTicket(context.var.service, request);
      return context.json(issued, 200);
    },
  ),
  route(
    {
      call: "PATCH /jobs/{job_id}",
      operationId: "editJob",
      tag,
      summary: "Rename a job, or slice it by another threshold",
      description:
        "For engineers. `threshold` shows or hides annotations that are stored already, down to a " +
        "confidence of 0.05; nothing runs again.",
      who: user,
      params: jobId,
      body: jsonBody(JobEdit),
      answers: { 200: json("the job", Job) },
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      await editJob({ database }, job, context.req.valid("json"));
      return context.json(await jobRecord(database, [job.workspaceId], job.id), 200);
    },
  ),
  route(
    {
      call: "DELETE /jobs/{job_id}",
      operationId: "deleteJob",
      tag,
      summary: "Delete a job and all its annotations",
      description:
        "For engineers. Its tasks are cancelled and its exports deleted; its videos stay.",
      who: user,
      params: jobId,
      answers: { 204: { description: "the job is gone" } },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      await deleteJob(context.var.service, job);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/duplicate",
      operationId: "duplicateJob",
      tag,
      summary: "A copy of a job with its classes and annotations",
      description: "For engineers. Only a job that has ended can be copied.",
      who: user,
      params: jobId,
      answers: { 201: json("the copy", Job) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      const copyId = await duplicateJob(parts, job, callerOf(context).accountId);
      return context.json(await jobRecord(parts.database, [job.workspaceId], copyId), 201);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/add-class",
      operationId: "addClass",
      tag,
      summary: "Label one class more, over all frames of a finished job",
      description:
        "For engineers. Only the new class is looked for; what is labeled stays as it is. `prompt` is " +
        "the class's name when omitted. The job's segmenter or model looks for it, or the `model` " +
        "that is given.",
      who: user,
      params: jobId,
      body: jsonBody(
        z.strictObject({
          class: ClassName,
          prompt: name().max(200).optional(),
          model: modelInPlace,
        }),
      ),
      answers: {
        202: json(
          "the job runs again",
          z.object({ job_id: z.uuid(), warnings: z.array(z.string()) }),
        ),
      },
      errors: ["state_conflict", "class_exists", "prompt_unknown"],
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      const { class: className, prompt = className, model } = context.req.valid("json");
      const warnings = await extendJob(context.var.service, job, { className, prompt, model });
      return context.json({ job_id: job.id, warnings }, 202);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/videos",
      operationId: "addJobVideos",
      tag,
      summary: "Add videos, or frames of videos, to a finished job",
      description:
        "Beyond the contract; for engineers. A job by text or exemplar runs again and looks through " +
        "the new videos for all its classes, `fps` being the job's when omitted; what is labeled stays " +
        "as it is. A manual or imported job gets them for people to draw on; a manual one takes frames " +
        "of videos that it has, too.",
      who: user,
      params: jobId,
      body: jsonBody(AddedVideosBody),
      answers: {
        200: json("the job, with more videos to draw on", Job),
        202: json("the job runs again", Job),
      },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      const more = { job, chosen: context.req.valid("json") };
      const runs = await addVideos(parts, callerOf(context), more);
      const record = await jobRecord(parts.database, [job.workspaceId], job.id);
      return runs ? context.json(record, 202) : context.json(record, 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/stop",
      operationId: "stopJob",
      tag,
      summary: "Stop a job and keep what it labeled",
      description: "Beyond the contract; for engineers. Frames under way are finished first.",
      who: user,
      params: jobId,
      answers: { 202: json("the job stops", JobProgress) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      await stopJob(parts, job);
      const now = await findJob(parts.database, [job.workspaceId], job.id);
      return context.json(await statusOf(parts.database, now, parts.clock()), 202);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/resume",
      operationId: "resumeJob",
      tag,
      summary: "Go on with a stopped or failed job",
      description: "Beyond the contract; for engineers. Only frames that are not labeled yet run.",
      who: user,
      params: jobId,
      answers: { 202: json("the job goes on", JobProgress) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
      await resumeJob(parts, job);
      const now = await findJob(parts.database, [job.workspaceId], job.id);
      return context.json(await statusOf(parts.database, now, parts.clock()), 202);
    },
  ),
  route(
    {
      call: "POST /admin/jobs/{job_id}/mark-failed",
      operationId: "failJob",
      tag,
      summary: "Force-fail a stuck labeling job",
      description:
        "Needs the role admin in the job's workspace. Its processes are ended, nothing that comes of " +
        "them is taken any more, and what is labeled stays. It may be resumed.",
      who: user,
      params: jobId,
      answers: { 200: json("the job, failed", Job) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const job = await jobFor(context, context.req.valid("param").job_id, "admin");
      const reason = "an administrator marked the job as failed";
      await failJob(parts, job, { reason, act: actOf(context, "failJob") });
      return context.json(await jobRecord(database, [job.workspaceId], job.id), 200);
    },
  ),
];
