// Classes of a job, and its numbers.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import { JobClass, Overview, Stats } from "../../../../shared/wire/labeling.ts";
import { type App, errorResponses, json, jsonBody, name } from "../../../http/app.ts";
import { callerOf, guard } from "../../auth/scope.ts";
import { API, bearer, bodyErrors, conflict, readErrors, writeErrors } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { ClassName } from "../jobs/classes.ts";
import { isLive, type JobRow, stillRuns } from "../jobs/jobs.ts";
import { statusOf } from "../jobs/status.ts";
import { deleteClass, mergeClasses } from "./classes.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { listClasses, overviewOf, statsOf } from "./stats.ts";

const tags = ["Classes and statistics"];

/** Registers the routes of classes and statistics. */
export function addClassRoutes(app: App<Parts>) {
  guard(app, "/annotations/*", "/jobs/*");
  addNumbers(app);
  const merge = createRoute({
    method: "post",
    path: `${API}/annotations/merge-classes`,
    operationId: "mergeClasses",
    tags,
    summary: "Rename one class of a job into another",
    description:
      "For annotators. Annotations of `from` become those of `into`, and `from` is gone; an `into` " +
      "that the job lacks is `from` under a new name, unless that differs from a third class's in " +
      "nothing but case. It can be undone. Not while the job runs.",
    security: bearer,
    request: jsonBody(z.object({ job_id: z.uuid(), from: name().max(200), into: ClassName })),
    responses: {
      200: json("what was changed", EditRecord),
      ...bodyErrors,
      ...errorResponses("state_conflict", "class_exists"),
    },
  });
  app.openapi(merge, async (context) => {
    const { database } = context.var.service;
    const { job_id: id, from, into } = context.req.valid("json");
    const job = await jobFor(context, id, "annotator");
    if (from === into) throw new Failure("invalid_request", "into: is the same class");
    assertEnded(job);
    const edit = { jobId: job.id, actorId: callerOf(context).accountId };
    const merged = await mergeClasses(database, edit, { from, into });
    if (!merged) throw unknownClass(from);
    return context.json(editRecord(merged), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/jobs/{job_id}/classes/{class_name}`,
    operationId: "removeClass",
    tags,
    summary: "Remove a class of a job and all its annotations",
    description: "For annotators. It can be undone. Not while the job runs.",
    security: bearer,
    request: { params: jobId.extend({ class_name: name().max(200) }) },
    responses: { 200: json("what was changed", EditRecord), ...writeErrors, ...conflict },
  });
  app.openapi(remove, async (context) => {
    const { database } = context.var.service;
    const { job_id: id, class_name: className } = context.req.valid("param");
    const job = await jobFor(context, id, "annotator");
    assertEnded(job);
    const edit = { jobId: job.id, actorId: callerOf(context).accountId };
    const deleted = await deleteClass(database, edit, className);
    if (!deleted) throw unknownClass(className);
    return context.json(editRecord(deleted), 200);
  });
}

/** Fails while the job runs: results that are still to come name their classes. */
function assertEnded(job: JobRow) {
  if (isLive(job)) throw stillRuns(job);
}

const duplicates = flag().default(false).meta({
  type: "boolean",
  description: "true: with those that repeat a better one of the same object, and nobody judged",
});

const unknownClass = (className: string) =>
  new Failure("not_found", `the job has no class ${JSON.stringify(className)}`);

function addNumbers(app: App<Parts>) {
  const classes = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/classes`,
    operationId: "listClasses",
    tags,
    summary: "Classes present in a job's annotations",
    description: "`all=true` also lists the job's classes that no annotation has yet.",
    security: bearer,
    request: {
      params: jobId,
      query: z.object({ all: flag().default(false).meta({ type: "boolean" }) }),
    },
    responses: { 200: json("classes, in the order of exports", z.array(JobClass)), ...readErrors },
  });
  app.openapi(classes, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const classes = await listClasses(context.var.service.database, job, { duplicates: true });
    const { all } = context.req.valid("query");
    return context.json(all ? classes : classes.filter((one) => one.annotations > 0), 200);
  });

  const overview = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/overview`,
    operationId: "readOverview",
    tags,
    summary: "A job at a glance",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("frames, annotations, completion", Overview), ...readErrors },
  });
  app.openapi(overview, async (context) => {
    const { database, clock } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const { frames_done: done } = await statusOf(database, job, clock());
    return context.json(await overviewOf(database, job, done), 200);
  });

  const stats = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/stats`,
    operationId: "readStats",
    tags,
    summary: "Distributions of a job's annotations",
    description:
      "Of the annotations at or above the threshold, without duplicates unless `duplicates=true`. " +
      "Accepted and rejected reviews are the ground truth of `precision`; objects that nobody found " +
      "are not known of.",
    security: bearer,
    request: { params: jobId, query: z.object({ duplicates }) },
    responses: { 200: json("statistics", Stats), ...readErrors },
  });
  app.openapi(stats, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const scope = context.req.valid("query");
    return context.json(await statsOf(context.var.service.database, job, scope), 200);
  });
}
