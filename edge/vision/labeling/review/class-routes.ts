// Classes of a job, and its numbers.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { flag } from "../../../../shared/scalars.ts";
import { JobClass, Overview, Stats } from "../../../../shared/wire/labeling.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { ClassName } from "../classes.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { isLive, type JobRow, stillRuns } from "../jobs/jobs.ts";
import { statusOf } from "../jobs/status.ts";
import { deleteClass, mergeClasses } from "./class-edits.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { listClasses, overviewOf, statsOf } from "./stats.ts";

const tag = "Classes and statistics";

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

/** Routes of classes and statistics. */
export const classRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/classes",
      operationId: "listClasses",
      tag,
      summary: "Classes present in a job's annotations",
      description: "`all=true` also lists the job's classes that no annotation has yet.",
      who: user,
      params: jobId,
      query: z.object({ all: flag().default(false).meta({ type: "boolean" }) }),
      answers: { 200: json("classes, in the order of exports", z.array(JobClass)) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const classes = await listClasses(context.var.service.database, job, { duplicates: true });
      const { all } = context.req.valid("query");
      return context.json(all ? classes : classes.filter((one) => one.annotations > 0), 200);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}/overview",
      operationId: "readOverview",
      tag,
      summary: "A job at a glance",
      who: user,
      params: jobId,
      answers: { 200: json("frames, annotations, completion", Overview) },
    },
    async (context) => {
      const { database, clock } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { frames_done: done } = await statusOf(database, job, clock());
      return context.json(await overviewOf(database, job, done), 200);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}/stats",
      operationId: "readStats",
      tag,
      summary: "Distributions of a job's annotations",
      description:
        "Of the annotations at or above the threshold, without duplicates unless `duplicates=true`. " +
        "Accepted and rejected reviews are the ground truth of `precision`; objects that nobody found " +
        "are not known of.",
      who: user,
      params: jobId,
      query: z.object({ duplicates }),
      answers: { 200: json("statistics", Stats) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const scope = context.req.valid("query");
      return context.json(await statsOf(context.var.service.database, job, scope), 200);
    },
  ),
  route(
    {
      call: "POST /annotations/merge-classes",
      operationId: "mergeClasses",
      tag,
      summary: "Rename one class of a job into another",
      description:
        "For annotators. Annotations of `from` become those of `into`, and `from` is gone; an `into` " +
        "that the job lacks is `from` under a new name, unless that differs from a third class's in " +
        "nothing but case. It can be undone. Not while the job runs.",
      who: user,
      body: jsonBody(z.strictObject({ job_id: z.uuid(), from: name().max(200), into: ClassName })),
      answers: { 200: json("what was changed", EditRecord) },
      errors: ["not_found", "state_conflict", "class_exists"],
    },
    async (context) => {
      const { database } = context.var.service;
      const { job_id: id, from, into } = context.req.valid("json");
      const job = await jobFor(context, id, "annotator");
      if (from === into) throw new Failure("invalid_request", "into: is the same class");
      assertEnded(job);
      const edit = { jobId: job.id, actorId: callerOf(context).accountId };
      const merged = await mergeClasses(database, edit, { from, into });
      if (!merged) throw unknownClass(from);
      return context.json(editRecord(merged), 200);
    },
  ),
  route(
    {
      call: "DELETE /jobs/{job_id}/classes/{class_name}",
      operationId: "removeClass",
      tag,
      summary: "Remove a class of a job and all its annotations",
      description: "For annotators. It can be undone. Not while the job runs.",
      who: user,
      params: jobId.extend({ class_name: name().max(200) }),
      answers: { 200: json("what was changed", EditRecord) },
      errors: ["state_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const { job_id: id, class_name: className } = context.req.valid("param");
      const job = await jobFor(context, id, "annotator");
      assertEnded(job);
      const edit = { jobId: job.id, actorId: callerOf(context).accountId };
      const deleted = await deleteClass(database, edit, className);
      if (!deleted) throw unknownClass(className);
      return context.json(editRecord(deleted), 200);
    },
  ),
];
