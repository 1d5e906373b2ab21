// Review over HTTP: annotations listed, drawn, edited and judged one by one, and edits undone.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { Bbox } from "../../../../shared/tasks/tasks.ts";
import { Annotation, AnnotationPage, Change } from "../../../../shared/wire/labeling.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { type App, errorResponses, json, jsonBody } from "../../../http/app.ts";
import type { Database } from "../../../http/database.ts";
import { allow, type Caller, callerOf, guard, workspacesOf } from "../../auth/scope.ts";
import { API, bearer, bodyErrors, conflict, readErrors, writeErrors } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { ClassName } from "../jobs/classes.ts";
import { listAnnotations, ORDERS } from "./annotation-pages.ts";
import { findAnnotation } from "./annotations.ts";
import { jobOfChange, listChanges, undoChange } from "./changes.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { deleteAnnotation, drawAnnotation, editAnnotation } from "./edits.ts";
import { Filter, filterOf } from "./filters.ts";

const PAGE = 100;
const PAGE_MAX = 1_000;
const CHANGES_MAX = 200;
const tags = ["Review"];

/** Registers the routes of review. */
export function addReviewRoutes(app: App<Parts>) {
  guard(app, "/annotations", "/annotations/*", "/changes/*", "/jobs/*");
  addListing(app);
  addDrawing(app);
  addUndo(app);
}

function addListing(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/annotations`,
    operationId: "listAnnotations",
    tags,
    summary: "A job's annotations, frame by frame or by confidence",
    description:
      "At or above the job's threshold, with all that people drew. Sorted by confidence, what has " +
      "none counts as the surest.",
    security: bearer,
    request: {
      params: jobId,
      query: Filter.extend({
        sort: z
          .enum(Object.keys(ORDERS) as (keyof typeof ORDERS)[])
          .default("frame")
          .meta({ description: "`-confidence`: the surest first" }),
        cursor: z.string().max(500).optional().meta({
          description: "`next` of the page before, in the same order: as fast at any depth",
        }),
        offset: whole(0, 10_000_000).default(0),
        limit: whole(1, PAGE_MAX).default(PAGE),
      }),
    },
    responses: { 200: json("a page of annotations", AnnotationPage), ...readErrors },
  });
  app.openapi(list, async (context) => {
    const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
    const { sort, cursor, offset, limit, ...filter } = context.req.valid("query");
    const { database } = context.var.service;
    const request = { sort, cursor, offset, limit };
    const page = await listAnnotations(database, filterOf(job, filter), request);
    return context.json({ ...page, offset, limit }, 200);
  });
}

const annotationId = z.object({ annotation_id: z.uuid() });
/** Corners of polygons lie in frames, or not far out. */
const COORDINATE_MAX = 1_000_000;
const Polygon = z
  .array(z.number().min(-COORDINATE_MAX).max(COORDINATE_MAX))
  .min(6)
  .max(20_000)
  .refine(({ length }) => length % 2 === 0, "must be x and y in turn")
  .meta({ description: "x and y in turn, pixels; cut to the frame" });
const EditBody = z
  .object({
    bbox: Bbox.optional().meta({
      description:
        "alone, it takes the polygon away; beside a polygon, it must be the one around it",
    }),
    polygon: Polygon.nullable()
      .optional()
      .meta({ description: "the box becomes the one around it; null takes it away" }),
    class: ClassName.optional(),
    accepted: z.boolean().nullable().optional(),
    revision: z.int().min(0).max(2_147_483_647).optional().meta({
      description: "the revision you saw; the edit is refused when there is a newer one",
    }),
  })
  .meta({ minProperties: 1 });
const DrawBody = z.object({
  job_id: z.uuid(),
  frame_id: FrameId,
  class: ClassName,
  bbox: Bbox.optional().meta({
    description: "the one around the polygon when omitted, and no other where both are given",
  }),
  polygon: Polygon.optional(),
  track_id: z.int().min(1).max(2_147_483_647).optional().meta({
    description: "the track that the box continues, or begins",
  }),
});

function addDrawing(app: App<Parts>) {
  const draw = createRoute({
    method: "post",
    path: `${API}/annotations`,
    operationId: "drawAnnotation",
    tags,
    summary: "Draw an annotation",
    description:
      "For annotators. On any frame from the first that the job labels to before the one that it " +
      "would label next; of an imported job, on any frame of its videos. A frame between those that " +
      "the job labels becomes one of its frames, in exports too, as long as it has annotations. A " +
      "class that the job lacks is added to it; one that differs from another's in nothing but case " +
      "is refused.",
    security: bearer,
    request: jsonBody(DrawBody),
    responses: {
      201: json("the annotation", Annotation),
      ...bodyErrors,
      ...errorResponses("state_conflict", "class_exists"),
    },
  });
  app.openapi(draw, async (context) => {
    const { database } = context.var.service;
    const body = context.req.valid("json");
    const job = await jobFor(context, body.job_id, "annotator");
    const record = await drawAnnotation(database, job, {
      ...body,
      actorId: callerOf(context).accountId,
    });
    return context.json(record, 201);
  });

  const edit = createRoute({
    method: "patch",
    path: `${API}/annotations/{annotation_id}`,
    operationId: "editAnnotation",
    tags,
    summary: "Edit or judge an annotation",
    description: "For annotators. `accepted` null takes a judgement back.",
    security: bearer,
    request: { params: annotationId, ...jsonBody(EditBody) },
    responses: {
      200: json("the annotation", Annotation),
      ...bodyErrors,
      ...errorResponses("revision_conflict", "class_exists"),
    },
  });
  app.openapi(edit, async (context) => {
    const { database } = context.var.service;
    const caller = callerOf(context);
    const id = context.req.valid("param").annotation_id;
    const annotation = await annotationFor(database, caller, id);
    const change = { ...context.req.valid("json"), actorId: caller.accountId };
    return context.json(await editAnnotation(database, annotation, change), 200);
  });

  const remove = createRoute({
    method: "delete",
    path: `${API}/annotations/{annotation_id}`,
    operationId: "deleteAnnotation",
    tags,
    summary: "Delete an annotation",
    description: "Beyond the contract; for annotators. It can be undone.",
    security: bearer,
    request: { params: annotationId },
    responses: { 200: json("what was changed", EditRecord), ...writeErrors },
  });
  app.openapi(remove, async (context) => {
    const { database } = context.var.service;
    const caller = callerOf(context);
    const id = context.req.valid("param").annotation_id;
    const { record } = await annotationFor(database, caller, id);
    const deleted = await deleteAnnotation(database, record, caller.accountId);
    return context.json(editRecord(deleted), 200);
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

function addUndo(app: App<Parts>) {
  const list = createRoute({
    method: "get",
    path: `${API}/jobs/{job_id}/changes`,
    operationId: "listChanges",
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
    operationId: "undoChange",
    tags,
    summary: "Undo an edit",
    description:
      "Beyond the contract; for annotators. What was edited again since stays, and is counted as " +
      "kept. A class that the edit added goes with it when nothing else is of it.",
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
