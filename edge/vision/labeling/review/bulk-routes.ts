// Edits of all annotations that a filter names, each of them one change that can be undone.

import { z } from "@hono/zod-openapi";
import { NULL_REFUSED } from "../../../http/not-given.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { ClassName } from "../classes.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { EditRecord, editRecord } from "./edit-record.ts";
import { deleteMatching, relabelAnnotations, reviewAnnotations } from "./edits.ts";
import { BodyFilter, bodyFilterOf } from "./filters.ts";

const tag = "Review";
const edited = { 200: json("what was changed", EditRecord) };

/** Routes of edits by a filter. */
export const bulkRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/annotations/review",
      operationId: "reviewAnnotations",
      tag,
      summary: "Accept or reject all annotations that a filter names",
      description:
        "Beyond the contract; for annotators. It judges what is pending; what was judged before stays " +
        "as it is, unless `include_reviewed` or the filter's `accepted` says otherwise. Duplicates are " +
        "not accepted, unless the filter's `duplicates` or `annotations` name them. `accepted` null " +
        "takes judgements back. It can be undone as one edit.",
      who: user,
      params: jobId,
      body: jsonBody(
        z.strictObject({
          accepted: z.boolean().nullable(),
          include_reviewed: z.boolean().default(false),
          // A null would name everything.
          filter: BodyFilter.prefault({}).meta({ [NULL_REFUSED]: true }),
        }),
      ),
      answers: edited,
      errors: ["revision_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const body = context.req.valid("json");
      const { accepted } = body;
      const { filter, logged } = bodyFilterOf(job, body.filter);
      const all = accepted === null || body.include_reviewed || filter.accepted !== undefined;
      const named = body.filter.annotations || filter.duplicates !== undefined;
      // Accepted, a duplicate would be a second box of its object in every dataset.
      const accepting = accepted && !named ? { ...filter, unrepeated: true } : filter;
      const edit = {
        filter: all ? accepting : { ...accepting, reviewed: false },
        actorId: callerOf(context).accountId,
        summary: { accepted, include_reviewed: all, filter: logged },
      };
      return context.json(editRecord(await reviewAnnotations(database, edit, accepted)), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/annotations/relabel",
      operationId: "relabelAnnotations",
      tag,
      summary: "Give all annotations that a filter names another class",
      description:
        "Beyond the contract; for annotators. A class that the job lacks is added to it; one that " +
        "differs from another's in nothing but case is refused. It can be undone as one edit.",
      who: user,
      params: jobId,
      body: jsonBody(z.strictObject({ class: ClassName, filter: BodyFilter })),
      answers: edited,
      errors: ["revision_conflict", "class_exists"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { class: className, filter: given } = context.req.valid("json");
      const { filter, logged } = bodyFilterOf(job, given);
      const summary = { class: className, filter: logged };
      const edit = { filter, actorId: callerOf(context).accountId, summary };
      return context.json(editRecord(await relabelAnnotations(database, edit, className)), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/annotations/delete",
      operationId: "deleteAnnotations",
      tag,
      summary: "Delete all annotations that a filter names",
      description:
        "Beyond the contract; for annotators. An empty filter names all that are shown. It can be " +
        "undone as one edit.",
      who: user,
      params: jobId,
      body: jsonBody(z.strictObject({ filter: BodyFilter })),
      answers: edited,
      errors: ["revision_conflict"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { filter, logged } = bodyFilterOf(job, context.req.valid("json").filter);
      const summary = { filter: logged };
      const edit = { filter, actorId: callerOf(context).accountId, summary };
      return context.json(editRecord(await deleteMatching(database, edit)), 200);
    },
  ),
];
