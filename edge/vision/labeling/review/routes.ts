// Review over HTTP: annotations listed, drawn, edited and judged one by one, and edits undone.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { whole } from "../../../../shared/scalars.ts";
import { Bbox } from "../../../../shared/tasks/tasks.ts";
import { Annotation, AnnotationPage, Change } from "../../../../shared/wire/labeling.ts";
import { FrameId } from "../../../../shared/wire/vision.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { answerOnce, IdempotencyKey } from "../../auth/idempotency.ts";
import { allow, callerOf, workspacesOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { ClassName } from "../classes.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { annotationFor, annotationId } from "./annotation-access.ts";
import { Polygon, Revision, TrackId } from "./annotation-fields.ts";
import { listAnnotations, ORDERS } from "./annotation-pages.ts";
import { jobOfChange, listChanges } from "./change-pages.ts";
import { undoChange } from "./changes.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { deleteAnnotation, drawAnnotation, editAnnotation } from "./edits.ts";
import { Filter, filterOf } from "./filters.ts";

const PAGE = 100;
const PAGE_MAX = 1_000;
const CHANGES_MAX = 200;
const tag = "Review";

const EditBody = z
  .strictObject({
    bbox: Bbox.optional().meta({
      description:
        "alone, it takes the polygon away; beside a polygon, it must be the one around it",
    }),
    polygon: Polygon.nullable()
      .optional()
      .meta({ description: "the box becomes the one around it; null takes it away" }),
    class: ClassName.optional(),
    accepted: z.boolean().nullable().optional(),
    revision: Revision.optional().meta({
      description: "the revision you saw; the edit is refused when there is a newer one",
    }),
  })
  .meta({ minProperties: 1 });
const DrawBody = z.strictObject({
  job_id: z.uuid(),
  frame_id: FrameId,
  class: ClassName,
  bbox: Bbox.optional().meta({
    description: "the one around the polygon when omitted, and no other where both are given",
  }),
  polygon: Polygon.optional(),
  track_id: TrackId.optional().meta({
    description: "the track that the box continues, or begins",
  }),
});

/** Routes of review. */
export const reviewRoutes: readonly Route[] = [
  route(
    {
      call: "GET /jobs/{job_id}/annotations",
      operationId: "listAnnotations",
      tag,
      summary: "A job's annotations, frame by frame or by confidence",
      description:
        "At or above the job's threshold, with all that people drew. Sorted by confidence, what has " +
        "none counts as the surest.",
      who: user,
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
      answers: { 200: json("a page of annotations", AnnotationPage) },
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { sort, cursor, offset, limit, ...filter } = context.req.valid("query");
      const { database } = context.var.service;
      const request = { sort, cursor, offset, limit };
      const page = await listAnnotations(database, filterOf(job, filter), request);
      return context.json({ ...page, offset, limit }, 200);
    },
  ),
  route(
    {
      call: "POST /annotations",
      operationId: "drawAnnotation",
      tag,
      summary: "Draw an annotation",
      description:
        "For annotators. On any frame from the first that the job labels to before the one that it " +
        "would label next; of an imported job, on any frame of its videos. A frame between those that " +
        "the job labels becomes one of its frames, in exports too, as long as it has annotations. A " +
        "class that the job lacks is added to it; one that differs from another's in nothing but case " +
        "is refused.",
      who: user,
      body: jsonBody(DrawBody),
      headers: IdempotencyKey,
      answers: { 201: json("the annotation", Annotation) },
      errors: ["not_found", "state_conflict", "class_exists", "idempotency_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const body = context.req.valid("json");
      const job = await jobFor(context, body.job_id, "annotator");
      const once = {
        workspaceId: job.workspaceId,
        route: "POST /annotations",
        key: context.req.valid("header")["idempotency-key"],
        body,
      };
      const { body: record } = await answerOnce(parts, once, async () => {
        const drawn = { ...body, actorId: callerOf(context).accountId };
        return { status: 201, body: await drawAnnotation(parts.database, job, drawn) };
      });
      return context.json(record, 201);
    },
  ),
  route(
    {
      call: "GET /annotations/{annotation_id}",
      operationId: "readAnnotation",
      tag,
      summary: "One annotation",
      description: "Beyond the contract. As the list of its job shows it.",
      who: user,
      params: annotationId,
      answers: { 200: json("the annotation", Annotation) },
      never: ["forbidden"],
    },
    async (context) => {
      const { database } = context.var.service;
      const id = context.req.valid("param").annotation_id;
      const { record } = await annotationFor(database, callerOf(context), id, "viewer");
      return context.json(record, 200);
    },
  ),
  route(
    {
      call: "PATCH /annotations/{annotation_id}",
      operationId: "editAnnotation",
      tag,
      summary: "Edit or judge an annotation",
      description: "For annotators. `accepted` null takes a judgement back.",
      who: user,
      params: annotationId,
      body: jsonBody(EditBody),
      answers: { 200: json("the annotation", Annotation) },
      errors: ["revision_conflict", "class_exists"],
    },
    async (context) => {
      const { database } = context.var.service;
      const caller = callerOf(context);
      const id = context.req.valid("param").annotation_id;
      const annotation = await annotationFor(database, caller, id, "annotator");
      const change = { ...context.req.valid("json"), actorId: caller.accountId };
      return context.json(await editAnnotation(database, annotation, change), 200);
    },
  ),
  route(
    {
      call: "DELETE /annotations/{annotation_id}",
      operationId: "deleteAnnotation",
      tag,
      summary: "Delete an annotation",
      description: "Beyond the contract; for annotators. It can be undone.",
      who: user,
      params: annotationId,
      answers: { 200: json("what was changed", EditRecord) },
    },
    async (context) => {
      const { database } = context.var.service;
      const caller = callerOf(context);
      const id = context.req.valid("param").annotation_id;
      const { record } = await annotationFor(database, caller, id, "annotator");
      const deleted = await deleteAnnotation(database, record, caller.accountId);
      return context.json(editRecord(deleted), 200);
    },
  ),
  route(
    {
      call: "GET /jobs/{job_id}/changes",
      operationId: "listChanges",
      tag,
      summary: "A job's edits, newest first, or those since a number",
      description:
        "Beyond the contract. Who did what, and whether it was undone. With `after_seq`, edits of " +
        "greater numbers follow in their order, each with the annotations that it touched: ask " +
        "again with the last `seq` until the answer is empty. An edit that is undone comes once " +
        "more. What models found is no edit.",
      who: user,
      params: jobId,
      query: z.object({
        after_seq: whole(0).optional().meta({
          description: "number of the last edit that was seen, or the job's `edits_seq`",
        }),
        limit: whole(1, CHANGES_MAX).default(CHANGES_MAX),
      }),
      answers: { 200: json("the edits", z.array(Change)) },
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { after_seq: afterSeq, limit } = context.req.valid("query");
      return context.json(await listChanges(database, job.id, { afterSeq, limit }), 200);
    },
  ),
  route(
    {
      call: "POST /changes/{change_id}/undo",
      operationId: "undoChange",
      tag,
      summary: "Undo an edit",
      description:
        "Beyond the contract; for annotators. What was edited again since stays, and is counted as " +
        "kept. A class that the edit added goes with it when nothing else is of it.",
      who: user,
      params: z.object({ change_id: z.uuid() }),
      answers: {
        200: json(
          "how much came back",
          z.object({ restored: z.number().int(), kept: z.number().int() }),
        ),
      },
      errors: ["state_conflict"],
    },
    async (context) => {
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
    },
  ),
];
