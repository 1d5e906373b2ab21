// Labeling jobs: where they stand, their names, their life.

import { createRoute, z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import type { Context } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { Job, JobStatus } from "../../../shared/labeling.ts";
import { Ticket } from "../../../shared/progress.ts";
import type { Role } from "../../../shared/vision.ts";
import { type App, errorResponses, json, jsonBody, name, text } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { allow, callerOf, workspacesOf } from "../auth/scope.ts";
import { API, bearer, bodyErrors, conflict, readErrors, writeErrors } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { textList } from "../base/sql.ts";
import { releaseExports } from "../datasets/exports.ts";
import { issueTicket } from "../progress/tickets.ts";
import { inJob } from "../review/changes.ts";
import { unusedNumber } from "../review/classes.ts";
import { requestCancel } from "../tasks/queue.ts";
import { advanceJob } from "./ended.ts";
import { groundAll } from "./grounding.ts";
import {
  findJob,
  type JobRow,
  jobRecord,
  labeledFrames,
  listJobs,
  moveJob,
  planJob,
  promptsOf,
  statusOf,
  subjectOf,
  topicOf,
} from "./jobs.ts";
import { MOVES, type Move, mayMove } from "./states.ts";

export const jobId = z.object({ job_id: z.uuid() });
const tags = ["Jobs"];
const listErrors = errorResponses("unauthorized", "invalid_request", "store_unavailable");
/** The job of a path, if the caller has at least the role in its workspace. */
export async function jobFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<JobRow> {
  const caller = callerOf(context);
  const job = await findJob(context.var.service.database, workspacesOf(caller), id);
  allow(caller, job.workspaceId, role);
  return job;
}

/** Registers the routes of jobs. */
export function addJobs(app: App<Parts>) {
  addReading(app);
  addEditing(app);
  addLife(app);
}

function addReading(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs`,
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
    tags,
    summary: "How far a job is",
    description: "The numbers that the job's live topic carries, for pollers.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("the job's status", JobStatus), ...readErrors },
  });
  app.openapi(status, async (context) => {
    const { database, clock } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    return context.json(await statusOf(database, job, clock()), 200);
  });

  const ticket = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/ticket`,
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
    const { accountId } = callerOf(context);
    const asked = { topic: topicOf(job), accountId, requestUrl: context.req.url };
    const issued = await issueTicket(context.var.service, asked);
    return context.json(issued, 200);
  });
}

function addEditing(app: App<Parts>) {
  const edit = createRoute({
    method: "patch",
    path: `${API}/jobs/{job_id}`,
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
    const body = context.req.valid("json");
    await database.execute(sql`
      UPDATE job SET name = ${body.name ?? job.name},
        description = ${body.description ?? job.description},
        threshold = ${Math.fround(body.threshold ?? job.threshold)}::real WHERE id = ${job.id}::uuid`);
    return context.json(await jobRecord(database, [job.workspaceId], job.id), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/jobs/{job_id}`,
    tags,
    summary: "Delete a job and all its annotations",
    description: "For engineers. Its tasks are cancelled and its exports deleted; its videos stay.",
    security: bearer,
    request: { params: jobId },
    responses: { 204: { description: "the job is gone" }, ...writeErrors },
  });
  app.openapi(remove, async (context) => {
    const { database } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    await requestCancel(database, { subject: subjectOf(job.id) });
    const deleteExports = await releaseExports(context.var.service, job);
    await database.execute(sql`DELETE FROM job WHERE id = ${job.id}::uuid`);
    await deleteExports();
    return context.body(null, 204);
  });

  const duplicate = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/duplicate`,
    tags,
    summary: "A copy of a job with its classes and annotations",
    description: "For engineers. Only a job that has ended can be copied.",
    security: bearer,
    request: { params: jobId },
    responses: { 201: json("the copy", Job), ...writeErrors, ...conflict },
  });
  app.openapi(duplicate, async (context) => {
    const { database } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    if (job.state === "queued" || job.state === "running") throw stillRuns(job);
    const copy = crypto.randomUUID();
    await inJob(database, job.id, copyJob(job, copy, callerOf(context).accountId));
    return context.json(await jobRecord(database, [job.workspaceId], copy), 201);
  });
}

/** The copy is a finished job of its own, over the frames that are labeled: nothing runs again. */
function copyJob(job: JobRow, to: string, createdBy: string): SQL {
  const from = sql`${job.id}::uuid`;
  // The copy of an id follows from it, so that references need no look-up (a UUID of version 8).
  const copied = (id: SQL) => sql`overlay(overlay(md5(${to}::text || ${id}::text)
    placing '8' from 13) placing '8' from 17)::uuid`;
  const frames =
    job.state === "completed"
      ? sql`SELECT video_id, position, frames FROM job_video WHERE job_id = ${from}`
      : sql`SELECT j.video_id, j.position, l.frames FROM job_video j JOIN (
            SELECT video_id, array_agg(frame ORDER BY frame) AS frames FROM (${labeledFrames(job)}) f
             GROUP BY video_id) l ON l.video_id = j.video_id WHERE j.job_id = ${from}`;
  return sql`
  WITH frames (video_id, position, frames) AS (${frames}),
  j AS (
    INSERT INTO job (id, workspace_id, project_id, name, description, kind, state, failure,
      threshold, resolution, fps, settings, frames_total, created_by, started_at, ended_at)
    SELECT ${to}::uuid, workspace_id, project_id, left(name || ' (copy)', 200), description, kind,
      'completed', NULL, threshold, resolution, fps,
      settings || '{"round": 1, "planned": 1, "passes": [[]]}'::jsonb
        || jsonb_build_object('copyOf', id),
      (SELECT coalesce(sum(cardinality(frames)), 0) FROM frames), ${createdBy}::uuid, started_at,
      ended_at FROM job WHERE id = ${from}
  ), v AS (
    INSERT INTO job_video (job_id, video_id, position, frames)
    SELECT ${to}::uuid, video_id, position, frames FROM frames
  ), c AS (
    INSERT INTO job_class (job_id, number, name, prompt)
    SELECT ${to}::uuid, number, name, prompt FROM job_class WHERE job_id = ${from}
  )
  INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
    x1, y1, x2, y2, confidence, review, source, track_id, duplicate_of, polygon, updated_by)
  SELECT ${copied(sql`id`)}, workspace_id, ${to}::uuid, video_id, frame_index, class_number,
    x1, y1, x2, y2, confidence, review, source, track_id, ${copied(sql`duplicate_of`)}, polygon,
    updated_by
    FROM annotation WHERE job_id = ${from}`;
}

const stillRuns = (job: JobRow) =>
  new Failure("state_conflict", `the job is ${job.state}; wait for its end, or stop it`);

function addLife(app: App<Parts>) {
  const extend = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/add-class`,
    tags,
    summary: "Label one class more, over all frames of a finished job",
    description:
      "For engineers. Only the new class is looked for; what is labeled stays as it is. `prompt` is " +
      "the class's name when omitted.",
    security: bearer,
    request: {
      params: jobId,
      ...jsonBody(z.object({ class: name().max(200), prompt: name().max(200).optional() })),
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
    const parts = context.var.service;
    const { database } = parts;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    const { class: className, prompt = className } = context.req.valid("json");
    if (job.kind === "import" || job.kind === "manual") {
      throw new Failure(
        "state_conflict",
        `a job of kind ${job.kind} is not labeled by a segmenter`,
      );
    }
    if (!mayMove(job.state, "extend")) {
      throw new Failure(
        "state_conflict",
        `the job is ${job.state}; only a finished one is extended`,
      );
    }
    const warnings = await groundAll(database, [prompt], job.settings.segmenter ?? undefined);
    await addPass(database, job.id, { className, prompt });
    await goOn(parts, job);
    return context.json({ job_id: job.id, warnings }, 202);
  });

  const stop = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/stop`,
    tags,
    summary: "Stop a job and keep what it labeled",
    description: "Beyond the contract; for engineers. Frames under way are finished first.",
    security: bearer,
    request: { params: jobId },
    responses: { 202: json("the job stops", JobStatus), ...writeErrors, ...conflict },
  });
  app.openapi(stop, async (context) => {
    const parts = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    if (!mayMove(job.state, "stop")) {
      throw new Failure("state_conflict", `the job is ${job.state}: there is nothing to stop`);
    }
    await requestCancel(parts.database, { subject: subjectOf(job.id) });
    await settleCancelled(parts, job);
    const now = await findJob(parts.database, [job.workspaceId], job.id);
    return context.json(await statusOf(parts.database, now, parts.clock()), 202);
  });

  const resume = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/resume`,
    tags,
    summary: "Go on with a stopped or failed job",
    description: "Beyond the contract; for engineers. Only frames that are not labeled yet run.",
    security: bearer,
    request: { params: jobId },
    responses: { 202: json("the job goes on", JobStatus), ...writeErrors, ...conflict },
  });
  app.openapi(resume, async (context) => {
    const parts = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "engineer");
    if (!mayMove(job.state, "resume")) {
      throw new Failure("state_conflict", `the job is ${job.state}: there is nothing to resume`);
    }
    if ((await promptsOf(parts.database, job)).length === 0) {
      throw new Failure("state_conflict", "the classes that the job looked for were removed");
    }
    const round = JSON.stringify({ round: job.settings.round + 1 });
    const moved = await moveJob(
      parts.database,
      job.id,
      "resume",
      sql`, failure = NULL, ended_at = NULL, settings = settings || ${round}::jsonb - 'since'`,
    );
    if (!moved) throw noMore("resume");
    await goOn(parts, job);
    const now = await findJob(parts.database, [job.workspaceId], job.id);
    return context.json(await statusOf(parts.database, now, parts.clock()), 202);
  });
}

/** Tasks that no node has end at once, with nothing for any node to report. */
async function settleCancelled(parts: Parts, job: JobRow) {
  await parts.database.execute(sql`
    UPDATE task SET settled_at = now(), result = '{"done": []}'::jsonb
     WHERE subject = ${subjectOf(job.id)} AND state = 'cancelled' AND settled_at IS NULL
       AND result IS NULL`);
  await advanceJob(parts, job.id, job.workspaceId);
}

const noMore = (move: Move) =>
  new Failure("state_conflict", `the job is no more ${MOVES[move].from.join(" or ")}`);

/** A class more and the pass that looks for it, in one statement with the job's move. */
async function addPass(
  database: Database,
  jobId: string,
  { className, prompt }: { className: string; prompt: string },
): Promise<void> {
  const { from, to } = MOVES.extend;
  const [outcome] = await inJob<{ known: boolean; moved: boolean }>(
    database,
    jobId,
    sql`
    WITH known AS (
      SELECT FROM job_class WHERE job_id = ${jobId}::uuid AND name = ${className}
    ), next AS (SELECT ${unusedNumber(jobId)} AS number), moved AS (
      UPDATE job SET state = ${to}, ended_at = NULL, settings = settings - 'since' ||
          jsonb_build_object('round', (settings->>'round')::int + 1, 'passes',
            settings->'passes' || jsonb_build_array(jsonb_build_array(next.number)))
        FROM next WHERE id = ${jobId}::uuid AND state IN ${textList(from)}
         AND NOT EXISTS (SELECT FROM known) RETURNING id
    ), class AS (
      INSERT INTO job_class (job_id, number, name, prompt)
      SELECT moved.id, next.number, ${className}, ${prompt} FROM moved, next)
    SELECT EXISTS (SELECT FROM known) AS known, EXISTS (SELECT FROM moved) AS moved`,
  );
  if (outcome?.moved) return;
  if (!outcome?.known) throw noMore("extend");
  throw new Failure("class_exists", `the job has a class ${JSON.stringify(className)}`);
}

/** Enqueues the round that the job was moved to. */
async function goOn(parts: Parts, job: JobRow) {
  await planJob(parts, await findJob(parts.database, [job.workspaceId], job.id));
  await advanceJob(parts, job.id, job.workspaceId);
}
