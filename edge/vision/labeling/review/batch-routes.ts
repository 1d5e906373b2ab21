// Batches of edits over HTTP: what a client with an outbox sends, again where it heard no answer.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { pixels } from "../../../../shared/shapes.ts";
import { EditsAnswer } from "../../../../shared/wire/edits.ts";
import { Ticket } from "../../../../shared/wire/progress.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { issueTicket } from "../../tasks/progress/tickets.ts";
import { jobFor, jobId } from "../jobs/access.ts";
import { editsTopicOf } from "../jobs/edit-events.ts";
import { Revision } from "./annotation-fields.ts";
import type { BatchEdit } from "./batch-edits.ts";
import { applyEdits } from "./batch-rows.ts";

const EDITS_MAX = 500;
const BODY_BYTES_MAX = 8 * 1024 * 1024;
const TEXT_MAX = 10_000;
const CORNERS_MAX = 20_000;
const TRACK_MAX = 2_147_483_647;

// Values are judged edit by edit: one that breaks a rule keeps none of the others.
const fields = {
  class: z.string().max(TEXT_MAX).optional(),
  bbox: z
    .tuple([pixels(), pixels(), pixels(), pixels()])
    .optional()
    .meta({
      description:
        "[x1, y1, x2, y2], pixels; alone, it takes the polygon away; beside a polygon, it must be the " +
        "one around it",
    }),
  polygon: z
    .array(pixels())
    .max(CORNERS_MAX)
    .nullable()
    .optional()
    .meta({ description: "x and y in turn, pixels; the box becomes the one around it" }),
  accepted: z.boolean().nullable().optional(),
  track_id: z.number().min(-TRACK_MAX).max(TRACK_MAX).nullable().optional().meta({
    description: "the track that the annotation is of; null takes it off its track",
  }),
};
const ids = {
  edit_id: z.uuid().toLowerCase().meta({
    description: "an id that the client gives the edit: one that was applied is not applied again",
  }),
  annotation_id: z.uuid().toLowerCase(),
};
const revision = Revision.meta({
  description: "the revision that the client sees: 1 of a new one, one more by each applied edit",
});
const EditsBody = z.strictObject({
  edits: z
    .array(
      z.discriminatedUnion("op", [
        z.strictObject({
          ...ids,
          op: z.literal("create"),
          fields: z.strictObject({ frame_id: z.string().max(TEXT_MAX), ...fields }),
        }),
        z.strictObject({ ...ids, op: z.literal("set"), revision, fields: z.strictObject(fields) }),
        z.strictObject({ ...ids, op: z.literal("delete"), revision }),
      ]),
    )
    .min(1)
    .max(EDITS_MAX)
    .meta({ description: "applied in this order" }),
});

/** Fails with `invalid_request` where one id stands for two edits. */
function assertOnce(edits: readonly BatchEdit[]): void {
  const known = new Map<string, string>();
  for (const [index, edit] of edits.entries()) {
    const text = JSON.stringify(edit);
    if ((known.get(edit.edit_id) ?? text) !== text) {
      const detail = `edits.${index}.edit_id: is another edit's, too; give each one an id of its own`;
      throw new Failure("invalid_request", detail);
    }
    known.set(edit.edit_id, text);
  }
}

/** Routes of batches of edits. */
export const batchRoutes: readonly Route[] = [
  route(
    {
      call: "POST /jobs/{job_id}/edits",
      operationId: "applyEdits",
      tag: "Review",
      summary: "Apply a batch of edits, each once",
      description:
        "Beyond the contract; for annotators. Edits are applied in order, as one change that can be " +
        "undone, by the rules of drawing and editing one by one: `create` draws an annotation under " +
        "an id of the client's, accepted where nothing else is said. An edit that was applied is " +
        "answered as then and changes nothing, for 90 days: send a batch again after a lost answer. " +
        "One that is refused, in conflict or late keeps none of the others.",
      who: user,
      params: jobId,
      body: jsonBody(EditsBody, { bytesMax: BODY_BYTES_MAX }),
      answers: { 200: json("what became of each edit", EditsAnswer) },
      errors: ["busy"],
    },
    async (context) => {
      const { database } = context.var.service;
      const job = await jobFor(context, context.req.valid("param").job_id, "annotator");
      const { edits } = context.req.valid("json");
      assertOnce(edits);
      const { accountId: actorId } = callerOf(context);
      return context.json(await applyEdits(database, job, { edits, actorId }), 200);
    },
  ),
  route(
    {
      call: "POST /jobs/{job_id}/edits/ticket",
      operationId: "makeEditsTicket",
      tag: "Review",
      summary: "A ticket for live edits of the job's annotations",
      description:
        "Beyond the contract. The topic outlives the job's rounds. Its event `edit` has `edits_seq`, " +
        "`after_seq` (the number before), `actor_id`, and after small batches of edits `rows` and " +
        "`deleted`; `presence` has `listener_id`, `actor_id`, `frame_id` and `left`.",
      who: user,
      params: jobId,
      answers: { 200: json("a ticket of a minute", Ticket) },
      never: ["forbidden"],
    },
    async (context) => {
      const job = await jobFor(context, context.req.valid("param").job_id, "viewer");
      const { accountId, session } = callerOf(context);
      const guest = { accountId, session, workspaceId: job.workspaceId };
      const request = { topic: editsTopicOf(job.id), ...guest };
      return context.json(await issueTicket(context.var.service, request), 200);
    },
  ),
];
