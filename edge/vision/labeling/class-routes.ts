// Classes of a job, and its numbers.

import { createRoute, z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { JobClass, Overview, Stats } from "../../../shared/labeling.ts";
import { type App, json, jsonBody, name } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { bearer } from "../auth/account-routes.ts";
import { API, type Parts } from "../auth/parts.ts";
import { callerOf } from "../auth/scope.ts";
import { deleteAnnotations, type Edit, type Edited } from "./changes.ts";
import { bodyErrors, jobFor, jobId, readErrors, writeErrors } from "./job-routes.ts";
import { statusOf } from "./jobs.ts";
import { listClasses, overviewOf, statsOf } from "./stats.ts";

const tags = ["Classes and statistics"];
const EditedSchema = z.object({ change_id: z.uuid().nullable(), changed: z.number().int() });

/** Registers the routes of classes and statistics. */
export function addClasses(app: App<Parts>) {
  addNumbers(app);
  const merge = createRoute({
    method: "post",
    path: `${API}/annotations/merge-classes`,
    tags,
    summary: "Rename one class of a job into another",
    description:
      "For annotators. Annotations of `from` become those of `into`, and `from` is gone; an `into` " +
      "that the job lacks is `from` under a new name. It can be undone.",
    security: bearer,
    request: jsonBody(z.object({ job_id: z.uuid(), from: name().max(200), into: name().max(200) })),
    responses: { 200: json("what was changed", EditedSchema), ...bodyErrors },
  });
  app.openapi(merge, async (context) => {
    const { database } = context.var.service;
    const { job_id: id, from, into } = context.req.valid("json");
    const job = await jobFor(context, id, "annotator");
    if (from === into) throw new Failure("invalid_request", "into: is the same class");
    const edit = {
      ...{ jobId: job.id, actorId: callerOf(context).accountId, kind: "merge-classes" },
      summary: { from, into },
    };
    const { changeId, changed } = await mergeClasses(database, edit, { from, into });
    return context.json({ change_id: changeId, changed }, 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/jobs/{job_id}/classes/{class_name}`,
    tags,
    summary: "Remove a class of a job and all its annotations",
    description: "For annotators. It can be undone.",
    security: bearer,
    request: { params: jobId.extend({ class_name: name().max(200) }) },
    responses: { 200: json("what was changed", EditedSchema), ...writeErrors },
  });
  app.openapi(remove, async (context) => {
    const { database } = context.var.service;
    const { job_id: id, class_name: className } = context.req.valid("param");
    const job = await jobFor(context, id, "annotator");
    const found = await classOf(database, job.id, className);
    if (!found) throw unknownClass(className);
    const edit = {
      ...{ jobId: job.id, actorId: callerOf(context).accountId, kind: "delete-class" },
      summary: { class: className, classes: [found] },
    };
    const { changeId, changed } = await deleteAnnotations(database, edit, {
      where: sql`a.class_number = ${found.number}::int`,
      also: sql`, class AS (DELETE FROM job_class
        WHERE job_id = ${job.id}::uuid AND number = ${found.number}::int)`,
    });
    return context.json({ change_id: changeId, changed }, 200);
  });
}

interface ClassRow extends Record<string, unknown> {
  number: number;
  name: string;
  prompt: string | null;
}

const unknownClass = (className: string) =>
  new Failure("not_found", `the job has no class ${JSON.stringify(className)}`);

async function classOf(database: Database, jobId: string, className: string) {
  const { rows } = await database.execute<ClassRow>(sql`
    SELECT number, name, prompt FROM job_class
     WHERE job_id = ${jobId}::uuid AND name = ${className}`);
  return rows[0] ?? null;
}

/**
 * Makes the annotations of one class those of another in one statement; the class itself goes, and
 * its row is kept in the edit for the undo.
 */
async function mergeClasses(
  database: Database,
  edit: Edit,
  { from, into }: { from: string; into: string },
): Promise<Edited> {
  const [source, target] = await Promise.all([
    classOf(database, edit.jobId, from),
    classOf(database, edit.jobId, into),
  ]);
  if (!source) throw unknownClass(from);
  if (!target) {
    const { rows } = await database.execute<{ changed: number }>(sql`
      WITH renamed AS (
        UPDATE job_class SET name = ${into} WHERE job_id = ${edit.jobId}::uuid
           AND number = ${source.number}::int RETURNING number)
      SELECT count(*)::int AS changed FROM annotation a
       WHERE job_id = ${edit.jobId}::uuid AND class_number IN (SELECT number FROM renamed)`);
    return { changeId: null, changed: rows[0]?.changed ?? 0 };
  }
  const summary = { ...edit.summary, classes: [source] };
  const { rows } = await database.execute<{ change_id: string; changed: number }>(sql`
    WITH moved AS (
      UPDATE annotation SET class_number = ${target.number}::int, revision = revision + 1,
        updated_at = clock_timestamp(), updated_by = ${edit.actorId}::uuid
       WHERE job_id = ${edit.jobId}::uuid AND class_number = ${source.number}::int RETURNING *
    ), class AS (
      DELETE FROM job_class WHERE job_id = ${edit.jobId}::uuid AND number = ${source.number}::int
    ), c AS (
      INSERT INTO change (id, job_id, actor_id, kind, summary)
      VALUES (gen_random_uuid(), ${edit.jobId}::uuid, ${edit.actorId}::uuid, ${edit.kind},
        ${JSON.stringify(summary)}::jsonb) RETURNING id
    ), items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, m.id, f.after || jsonb_build_object('class_number', ${source.number}::int), f.after
        FROM c, moved m, LATERAL (SELECT jsonb_build_object('class_number', m.class_number,
          'x1', m.x1, 'y1', m.y1, 'x2', m.x2, 'y2', m.y2, 'review', m.review,
          'polygon', m.polygon) AS after) f
      RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed`);
  return { changeId: rows[0]?.change_id ?? null, changed: rows[0]?.changed ?? 0 };
}

function addNumbers(app: App<Parts>) {
  const classes = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/classes`,
    tags,
    summary: "Classes of a job",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("classes, in the order of exports", z.array(JobClass)), ...readErrors },
  });
  app.openapi(classes, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    return context.json(await listClasses(context.var.service.database, job), 200);
  });

  const overview = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/overview`,
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
    tags,
    summary: "Distributions of a job's annotations",
    description:
      "Of the annotations at or above the threshold. Accepted and rejected reviews are the ground " +
      "truth of `precision`; objects that nobody found are not known of.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json("statistics", Stats), ...readErrors },
  });
  app.openapi(stats, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    return context.json(await statsOf(context.var.service.database, job), 200);
  });
}
