// Review: annotations listed, drawn, edited and judged, one by one or by filter; and undone.

import { createRoute, z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { Annotation, AnnotationPage, Change } from "../../../shared/labeling.ts";
import { Bbox } from "../../../shared/tasks.ts";
import { parseFrameId } from "../../../shared/vision.ts";
import { type App, errorResponses, json, jsonBody, name } from "../../http/app.ts";
import type { Database } from "../../http/database.ts";
import { allow, type Caller, callerOf, workspacesOf } from "../auth/scope.ts";
import { API, bearer, bodyErrors, conflict, readErrors, writeErrors } from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { jobFor, jobId } from "../labeling/job-routes.ts";
import type { JobRow } from "../labeling/jobs.ts";
import {
  type AnnotationFilter,
  type FrameSize,
  findAnnotation,
  insideFrame,
  listAnnotations,
  matching,
} from "./annotations.ts";
import {
  deleteAnnotations,
  inJob,
  insertChange,
  jobOfChange,
  listChanges,
  undoChange,
  updateAnnotations,
} from "./changes.ts";
import { classNamed } from "./classes.ts";

const PAGE = 100;
const PAGE_MAX = 1_000;
const CHANGES_MAX = 200;
const tags = ["Review"];

/** `true`, `false`, or `null` for what nobody reviewed. */
const accepted = z.enum(["true", "false", "null"]).optional().meta({
  description: "`null`: not reviewed yet",
});
const Filter = z.object({
  frame_id: z.string().optional(),
  class_name: name().optional(),
  accepted,
  source: Annotation.shape.source.optional(),
  min_confidence: z.coerce.number().min(0).max(1).optional().meta({
    description: "instead of the job's threshold",
  }),
  max_confidence: z.coerce.number().min(0).max(1).optional(),
  duplicates: z.stringbool().optional().meta({
    description: "true: only those that another class's annotation covers",
  }),
});

function filterOf(job: JobRow, given: z.output<typeof Filter>): AnnotationFilter {
  const frame = given.frame_id === undefined ? undefined : parseFrameId(given.frame_id);
  if (frame === null) throw new Failure("invalid_request", "frame_id: is none");
  return {
    jobId: job.id,
    threshold: given.min_confidence ?? job.threshold,
    frame,
    className: given.class_name,
    accepted: given.accepted === undefined ? undefined : ACCEPTED[given.accepted],
    source: given.source,
    confidenceMax: given.max_confidence,
    duplicates: given.duplicates,
  };
}
const ACCEPTED = { true: true, false: false, null: null } as const;
const REVIEWS = new Map<boolean | null, string>([
  [true, "accepted"],
  [false, "rejected"],
  [null, "pending"],
]);

const EditedSchema = z.object({
  change_id: z.uuid().nullable().meta({ description: "null when nothing was to change" }),
  changed: z.number().int(),
});

/** Registers the routes of review. */
export function addReview(app: App<Parts>) {
  addListing(app);
  addDrawing(app);
  addBulk(app);
  addUndo(app);
}

function addListing(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/annotations`,
    tags,
    summary: "A job's annotations, frame by frame",
    description: "At or above the job's threshold, with all that people drew.",
    security: bearer,
    request: {
      params: jobId,
      query: Filter.extend({
        offset: z.coerce.number().int().min(0).max(10_000_000).default(0),
        limit: z.coerce.number().int().min(1).max(PAGE_MAX).default(PAGE),
      }),
    },
    responses: { 200: json("a page of annotations", AnnotationPage), ...readErrors },
  });
  app.openapi(list, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const { offset, limit, ...filter } = context.req.valid("query");
    const { database } = context.var.service;
    const page = await listAnnotations(database, filterOf(job, filter), { offset, limit });
    return context.json({ ...page, offset, limit }, 200);
  });
}

const annotationId = z.object({ annotation_id: z.uuid() });
const Edit = z.object({
  bbox: Bbox.optional(),
  class: name().max(200).optional(),
  accepted: z.boolean().nullable().optional(),
  revision: z.number().int().min(0).max(2_147_483_647).optional().meta({
    description: "the revision you saw; the edit is refused when there is a newer one",
  }),
});
const Drawn = z.object({
  job_id: z.uuid(),
  frame_id: z.string(),
  class: name().max(200),
  bbox: Bbox,
  polygon: z
    .array(z.number())
    .min(6)
    .max(20_000)
    .refine(({ length }) => length % 2 === 0, "must be x and y in turn")
    .optional(),
});

function addDrawing(app: App<Parts>) {
  const draw = createRoute({
    method: "post",
    path: `${API}/annotations`,
    tags,
    summary: "Draw an annotation",
    description: "For annotators. A class that the job lacks is added to it.",
    security: bearer,
    request: jsonBody(Drawn),
    responses: { 201: json("the annotation", Annotation), ...bodyErrors },
  });
  app.openapi(draw, async (context) => {
    const { database } = context.var.service;
    const body = context.req.valid("json");
    const job = await jobFor(context, body.job_id, "annotator");
    const record = await insertDrawn(database, job, {
      ...body,
      actorId: callerOf(context).accountId,
    });
    return context.json(record, 201);
  });

  const edit = createRoute({
    method: "patch",
    path: `${API}/annotations/{annotation_id}`,
    tags,
    summary: "Edit or judge an annotation",
    description: "For annotators. `accepted` null takes a judgement back.",
    security: bearer,
    request: { params: annotationId, ...jsonBody(Edit) },
    responses: {
      200: json("the annotation", Annotation),
      ...bodyErrors,
      ...errorResponses("revision_conflict"),
    },
  });
  app.openapi(edit, async (context) => {
    const { database } = context.var.service;
    const caller = callerOf(context);
    const id = context.req.valid("param").annotation_id;
    const { record, size } = await annotationFor(database, caller, id);
    const body = context.req.valid("json");
    const where = sql`a.id = ${record.annotation_id}::uuid
      AND a.revision = ${body.revision ?? record.revision}::int`;
    const change = { jobId: record.job_id, actorId: caller.accountId, kind: "edit" };
    const columns = editOf(record.job_id, size, body);
    const { changed } = await updateAnnotations(database, change, { where, ...columns });
    const now = await findAnnotation(database, record.annotation_id);
    if (!now) throw new Failure("not_found", "the annotation was deleted meanwhile");
    if (changed === 0) {
      const newer = `somebody edited the annotation; it is at revision ${now.record.revision}`;
      throw new Failure("revision_conflict", newer, { data: { revision: now.record.revision } });
    }
    return context.json(now.record, 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/annotations/{annotation_id}`,
    tags,
    summary: "Delete an annotation",
    description: "Beyond the contract; for annotators. It can be undone.",
    security: bearer,
    request: { params: annotationId },
    responses: { 200: json("what was changed", EditedSchema), ...writeErrors },
  });
  app.openapi(remove, async (context) => {
    const { database } = context.var.service;
    const caller = callerOf(context);
    const id = context.req.valid("param").annotation_id;
    const { record } = await annotationFor(database, caller, id);
    const change = { jobId: record.job_id, actorId: caller.accountId, kind: "delete" };
    const where = sql`a.id = ${record.annotation_id}::uuid`;
    const { changeId, changed } = await deleteAnnotations(database, change, { where });
    return context.json({ change_id: changeId, changed }, 200);
  });
}

async function annotationFor(database: Database, caller: Caller, id: string) {
  const found = await findAnnotation(database, id);
  if (!found || !workspacesOf(caller).includes(found.workspaceId)) {
    throw new Failure("not_found", "no such annotation in your workspaces");
  }
  allow(caller, found.workspaceId, "annotator");
  return found;
}

/** What an edit sets, and what that needs in the same statement. */
function editOf(jobId: string, size: FrameSize, body: z.output<typeof Edit>) {
  const sets = [];
  let also = sql``;
  if (body.bbox) {
    const [x1, y1, x2, y2] = cutBox(body.bbox, size);
    // A box that was moved by hand is no more that of the mask.
    sets.push(sql`x1 = ${x1}::real, y1 = ${y1}::real, x2 = ${x2}::real, y2 = ${y2}::real,
      polygon = NULL`);
  }
  if (body.class !== undefined) {
    also = sql`, ${classNamed(jobId, body.class, sql`EXISTS (SELECT FROM target)`)}`;
    sets.push(sql`class_number = (SELECT number FROM named)`);
  }
  if (body.accepted !== undefined) sets.push(sql`review = ${REVIEWS.get(body.accepted)}`);
  if (sets.length === 0) throw new Failure("invalid_request", "bbox, class or accepted: required");
  return { set: sql.join(sets, sql`, `), also };
}

function cutBox(bbox: Bbox, size: FrameSize): Bbox {
  const inside = insideFrame(bbox, size);
  if (inside) return inside;
  const frame = `${size.width} × ${size.height} pixels`;
  throw new Failure("invalid_request", `bbox: lies outside of the frame, which is ${frame}`);
}

async function insertDrawn(
  database: Database,
  job: JobRow,
  body: z.output<typeof Drawn> & { actorId: string },
): Promise<Annotation> {
  const frame = parseFrameId(body.frame_id);
  if (!frame) throw new Failure("invalid_request", "frame_id: is none");
  const { rows: sizes } = await database.execute<FrameSize & Record<string, unknown>>(sql`
    SELECT v.width, v.height FROM job_video j JOIN video v ON v.id = j.video_id
     WHERE j.job_id = ${job.id}::uuid AND v.id = ${frame.videoId}::uuid
       AND ${frame.index}::int = ANY(j.frames)`);
  if (!sizes[0]) throw new Failure("not_found", "the job has no such frame");
  const [x1, y1, x2, y2] = cutBox(body.bbox, sizes[0]);
  const id = crypto.randomUUID();
  const change = { jobId: job.id, actorId: body.actorId, kind: "draw" };
  const live = sql`EXISTS (SELECT FROM job WHERE id = ${job.id}::uuid)`;
  await inJob(
    database,
    job.id,
    sql`
    WITH ${classNamed(job.id, body.class, live)},
    a AS (
      INSERT INTO annotation (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source, review, polygon, updated_by)
      SELECT ${id}::uuid, ${job.workspaceId}::uuid, ${job.id}::uuid, ${frame.videoId}::uuid,
        ${frame.index}::int, named.number, ${x1}::real, ${y1}::real, ${x2}::real, ${y2}::real,
        'person', 'accepted', ${body.polygon ? JSON.stringify(body.polygon) : null}::jsonb,
        ${body.actorId}::uuid FROM named RETURNING id
    ), c AS (${insertChange(change, sql`EXISTS (SELECT FROM a)`)})
    INSERT INTO change_item (change_id, annotation_id, before, after)
    SELECT c.id, a.id, NULL, '{}'::jsonb FROM c, a`,
  );
  const found = await findAnnotation(database, id);
  if (!found) throw new Failure("not_found", "the annotation was deleted meanwhile");
  return found.record;
}

function addBulk(app: App<Parts>) {
  const review = createRoute({
    method: "post",
    path: `${API}/jobs/{job_id}/annotations/review`,
    tags,
    summary: "Accept or reject all annotations that a filter names",
    description: "Beyond the contract; for annotators. It can be undone as one edit.",
    security: bearer,
    request: {
      params: jobId,
      // A filter that is misspelt would name every annotation.
      ...jsonBody(
        z.object({
          accepted: z.boolean().nullable(),
          filter: z.strictObject(Filter.shape).prefault({}),
        }),
      ),
    },
    responses: { 200: json("what was changed", EditedSchema), ...bodyErrors },
  });
  app.openapi(review, async (context) => {
    const { database } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
    const { accepted, filter } = context.req.valid("json");
    const state = REVIEWS.get(accepted) as string;
    const edit = {
      jobId: job.id,
      actorId: callerOf(context).accountId,
      kind: "review",
      summary: { accepted, filter },
    };
    const where = sql`${matching(filterOf(job, filter))} AND a.review <> ${state}`;
    const set = sql`review = ${state}`;
    const { changeId, changed } = await updateAnnotations(database, edit, { where, set });
    return context.json({ change_id: changeId, changed }, 200);
  });
}

function addUndo(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/changes`,
    tags,
    summary: "A job's edits, newest first",
    description: "Beyond the contract. Who did what, and whether it was undone.",
    security: bearer,
    request: { params: jobId },
    responses: { 200: json(`the newest ${CHANGES_MAX} edits`, z.array(Change)), ...readErrors },
  });
  app.openapi(list, async (context) => {
    const { database } = context.var.service;
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    return context.json(await listChanges(database, job.id, CHANGES_MAX), 200);
  });

  const undo = createRoute({
    method: "post",
    path: `${API}/changes/{change_id}/undo`,
    tags,
    summary: "Undo an edit",
    description:
      "Beyond the contract; for annotators. What was edited again since stays, and is counted as kept.",
    security: bearer,
    request: { params: z.object({ change_id: z.uuid() }) },
    responses: {
      200: json(
        "how much came back",
        z.object({ restored: z.number().int(), kept: z.number().int() }),
      ),
      ...writeErrors,
      ...conflict,
    },
  });
  app.openapi(undo, async (context) => {
    const { database } = context.var.service;
    const { change_id: id } = context.req.valid("param");
    const caller = callerOf(context);
    const found = await jobOfChange(database, id);
    if (!found || !workspacesOf(caller).includes(found.workspaceId)) {
      throw new Failure("not_found", "no such edit in your workspaces");
    }
    allow(caller, found.workspaceId, "annotator");
    const edit = { jobId: found.jobId, changeId: id };
    return context.json(await undoChange(database, edit, caller.accountId), 200);
  });
}
