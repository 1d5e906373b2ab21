// Targets over HTTP.

import { z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { ALIASES } from "../../../../shared/wire/training.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { title } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import { toItsEnd } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { Slug } from "../../serving/endpoints/bodies.ts";
import { fileBody } from "../../serving/predict/image-requests.ts";
import { checkTarget } from "./health.ts";
import { predictByTarget } from "./predict.ts";
import { Target, TargetCheck, TargetConfig, TargetPrediction } from "./records.ts";
import {
  createTarget,
  deleteTarget,
  findTargetFor,
  listChecks,
  listTargets,
  targetRecord,
  updateTarget,
} from "./targets.ts";

const tag = "Targets";
const CHECKS_MAX = 1_000;

const targetParam = z.object({
  target_id: z.uuid().meta({ description: "the target's id" }),
});
const credential = () =>
  z
    .string()
    .min(1)
    .max(4_000)
    // Headers take no more than visible characters.
    .regex(/^[\x21-\x7e]+$/, "must be visible characters without blanks")
    .nullable()
    .meta({
      description:
        "key or token of the server; null is none. It is sealed, shown to nobody, and sent to this " +
        "server only",
    });
const enabled = () => z.boolean().meta({ description: "whether its health is looked at" });
/** Routes of targets. */
export const targetRoutes: readonly Route[] = [
  route(
    {
      call: "GET /targets",
      operationId: "listTargets",
      tag,
      summary: "Servers elsewhere that predict, by name",
      description: "Of all your workspaces, or of one.",
      who: user,
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
      }),
      answers: { 200: json("targets", z.array(Target)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      const rows = await listTargets(context.var.service, workspaces);
      return context.json(rows.map(targetRecord), 200);
    },
  ),
  route(
    {
      call: "POST /targets",
      operationId: "addTarget",
      tag,
      summary: "Register a server elsewhere that predicts",
      description:
        "For engineers. Addresses are https ones on the internet, and what the operator allows " +
        "(`OUTBOUND_HOSTS`); that is judged again before each request and each redirect. At most 100 a " +
        "workspace.",
      who: user,
      body: jsonBody(
        z.strictObject({
          name: title(),
          workspace_id: z.uuid().optional().meta({
            description: "whose; required where you are an engineer of several workspaces",
          }),
          config: TargetConfig,
          credential: credential().default(null),
          enabled: enabled().default(true),
        }),
      ),
      answers: { 201: json("the target", Target) },
      errors: ["not_found", "state_conflict", "bad_configuration"],
    },
    async (context) => {
      const { workspace_id, ...body } = context.req.valid("json");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
      const made = { ...body, workspaceId, act: actOf(context, "addTarget") };
      return context.json(targetRecord(await createTarget(context.var.service, made)), 201);
    },
  ),
  route(
    {
      call: "GET /targets/{target_id}",
      operationId: "readTarget",
      tag,
      summary: "One target",
      description: "Beyond the contract.",
      who: user,
      params: targetParam,
      answers: { 200: json("the target", Target) },
    },
    async (context) => {
      const { target_id } = context.req.valid("param");
      const row = await findTargetFor(context.var.service, callerOf(context), target_id);
      return context.json(targetRecord(row), 200);
    },
  ),
  route(
    {
      call: "PATCH /targets/{target_id}",
      operationId: "changeTarget",
      tag,
      summary: "Change a target",
      description:
        "For engineers. A credential stays as it is where none is given, unless the server is another " +
        "one: then it is given anew.",
      who: user,
      params: targetParam,
      body: jsonBody(
        z.strictObject({
          name: title().optional(),
          config: TargetConfig.optional(),
          credential: credential().optional(),
          enabled: enabled().optional(),
        }),
      ),
      answers: { 200: json("the target", Target) },
      errors: ["revision_conflict", "bad_configuration"],
    },
    async (context) => {
      const parts = context.var.service;
      const { target_id } = context.req.valid("param");
      const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
      const change = context.req.valid("json");
      const act = actOf(context, "changeTarget");
      return context.json(targetRecord(await updateTarget(parts, row, { change, act })), 200);
    },
  ),
  route(
    {
      call: "DELETE /targets/{target_id}",
      operationId: "deleteTarget",
      tag,
      summary: "Delete a target with its history",
      description: "For engineers.",
      who: user,
      params: targetParam,
      answers: { 204: { description: "deleted" } },
    },
    async (context) => {
      const parts = context.var.service;
      const { target_id } = context.req.valid("param");
      const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
      await deleteTarget(parts, row, actOf(context, "deleteTarget"));
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /targets/{target_id}/checks",
      operationId: "listTargetChecks",
      tag,
      summary: "How a target was each time that it was looked at, newest first",
      description: "Beyond the contract. Kept for a week.",
      who: user,
      params: targetParam,
      query: z.object({ limit: whole(1, CHECKS_MAX).default(100) }),
      answers: { 200: json("looks", z.array(TargetCheck)) },
    },
    async (context) => {
      const parts = context.var.service;
      const { target_id } = context.req.valid("param");
      await findTargetFor(parts, callerOf(context), target_id);
      const { limit } = context.req.valid("query");
      return context.json(await listChecks(parts, target_id, limit), 200);
    },
  ),
  route(
    {
      call: "POST /targets/{target_id}/check",
      operationId: "checkTarget",
      tag,
      summary: "Look at a target now",
      description:
        "Beyond the contract; for engineers. Waits for its answer, five seconds at most. The minute " +
        "looks at enabled ones by itself, at one that is down less and less often.",
      who: user,
      params: targetParam,
      answers: { 200: json("how it is", TargetCheck) },
    },
    async (context) => {
      const parts = context.var.service;
      const { target_id } = context.req.valid("param");
      const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
      return context.json(await toItsEnd(context, checkTarget(parts, row)), 200);
    },
  ),
  route(
    {
      call: "POST /targets/{target_id}/predict",
      operationId: "predictByTarget",
      tag,
      summary: "A prediction by a target, compared with a model's where one is named",
      description:
        "Beyond the contract. multipart/form-data with `file`: JPEG, PNG or WebP, at most 8 MiB, which " +
        "is sent to the target. Needs the role annotator. With `model_id`, `alias` or `endpoint` a model " +
        "of ours looks at the same image, and what differs is told.",
      who: user,
      params: targetParam,
      query: z.object({
        model_id: z.uuid().optional().meta({ description: "compared with this model" }),
        alias: z.enum(ALIASES).optional().meta({ description: "compared with the model of it" }),
        endpoint: Slug.optional().meta({
          description: "compared with the first model of this endpoint",
        }),
      }),
      body: fileBody,
      answers: { 200: json("what it sees", TargetPrediction) },
      errors: [
        "bad_body",
        "state_conflict",
        "file_too_large",
        "quota_exceeded",
        "unsupported_media",
        "overloaded",
        "bad_configuration",
        "task_failed",
        "target_failed",
        "no_node",
      ],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const { target_id } = context.req.valid("param");
      const row = await findTargetFor(parts, caller, target_id, "annotator");
      const asked = { row, caller, comparedTo: context.req.valid("query") };
      const work = predictByTarget(parts, asked, context.req.raw);
      return context.json(await toItsEnd(context, work), 200);
    },
  ),
];
