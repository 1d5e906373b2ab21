// Targets over HTTP.

import { createRoute, z } from "@hono/zod-openapi";
import { whole } from "../../../../shared/scalars.ts";
import { ALIASES } from "../../../../shared/wire/training.ts";
import { type App, errorResponses, json, jsonBody, title } from "../../../http/app.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard, workspaceFor, workspacesFor } from "../../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  listErrors,
  readErrors,
  toItsEnd,
  writeErrors,
} from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { Slug } from "../../serving/endpoints/bodies.ts";
import { fileBody, predictErrors } from "../../serving/predict/image-requests.ts";
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

const tags = ["Targets"];
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
const sealErrors = errorResponses("bad_configuration");

/** Registers the routes of targets. */
export function addTargetRoutes(app: App<Parts>) {
  guard(app, "/targets", "/targets/:target_id", "/targets/:target_id/*");
  addList(app);
  addCreate(app);
  addOne(app);
  addUpdate(app);
  addDelete(app);
  addChecks(app);
  addCheck(app);
  addPredict(app);
}

function addList(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/targets`,
    operationId: "listTargets",
    tags,
    summary: "Servers elsewhere that predict, by name",
    description: "Of all your workspaces, or of one.",
    security: bearer,
    request: {
      query: z.object({
        workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
      }),
    },
    responses: { 200: json("targets", z.array(Target)), ...readErrors, ...listErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    const rows = await listTargets(context.var.service, workspaces);
    return context.json(rows.map(targetRecord), 200);
  });
}

function addCreate(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/targets`,
    operationId: "addTarget",
    tags,
    summary: "Register a server elsewhere that predicts",
    description:
      "For engineers. Addresses are https ones on the internet, and what the operator allows " +
      "(`OUTBOUND_HOSTS`); that is judged again before each request and each redirect. At most 100 a " +
      "workspace.",
    security: bearer,
    request: jsonBody(
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
    responses: { 201: json("the target", Target), ...bodyErrors, ...conflict, ...sealErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id, ...body } = context.req.valid("json");
    const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
    const made = { ...body, workspaceId, act: actOf(context, "addTarget") };
    return context.json(targetRecord(await createTarget(context.var.service, made)), 201);
  });
}

function addOne(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/targets/{target_id}`,
    operationId: "readTarget",
    tags,
    summary: "One target",
    description: "Beyond the contract.",
    security: bearer,
    request: { params: targetParam },
    responses: { 200: json("the target", Target), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const { target_id } = context.req.valid("param");
    const row = await findTargetFor(context.var.service, callerOf(context), target_id);
    return context.json(targetRecord(row), 200);
  });
}

function addUpdate(app: App<Parts>) {
  const route = createRoute({
    method: "patch",
    path: `${API}/targets/{target_id}`,
    operationId: "changeTarget",
    tags,
    summary: "Change a target",
    description:
      "For engineers. A credential stays as it is where none is given, unless the server is another " +
      "one: then it is given anew.",
    security: bearer,
    request: {
      params: targetParam,
      ...jsonBody(
        z.strictObject({
          name: title().optional(),
          config: TargetConfig.optional(),
          credential: credential().optional(),
          enabled: enabled().optional(),
        }),
      ),
    },
    responses: {
      200: json("the target", Target),
      ...bodyErrors,
      ...errorResponses("revision_conflict"),
      ...sealErrors,
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { target_id } = context.req.valid("param");
    const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
    const change = context.req.valid("json");
    const act = actOf(context, "changeTarget");
    return context.json(targetRecord(await updateTarget(parts, row, { change, act })), 200);
  });
}

function addDelete(app: App<Parts>) {
  const route = createRoute({
    method: "delete",
    path: `${API}/targets/{target_id}`,
    operationId: "deleteTarget",
    tags,
    summary: "Delete a target with its history",
    description: "For engineers.",
    security: bearer,
    request: { params: targetParam },
    responses: { 204: { description: "deleted" }, ...writeErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { target_id } = context.req.valid("param");
    const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
    await deleteTarget(parts, row, actOf(context, "deleteTarget"));
    return context.body(null, 204);
  });
}

function addChecks(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/targets/{target_id}/checks`,
    operationId: "listTargetChecks",
    tags,
    summary: "How a target was each time that it was looked at, newest first",
    description: "Beyond the contract. Kept for a week.",
    security: bearer,
    request: {
      params: targetParam,
      query: z.object({ limit: whole(1, CHECKS_MAX).default(100) }),
    },
    responses: { 200: json("looks", z.array(TargetCheck)), ...readErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { target_id } = context.req.valid("param");
    await findTargetFor(parts, callerOf(context), target_id);
    const { limit } = context.req.valid("query");
    return context.json(await listChecks(parts, target_id, limit), 200);
  });
}

function addCheck(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/targets/{target_id}/check`,
    operationId: "checkTarget",
    tags,
    summary: "Look at a target now",
    description:
      "Beyond the contract; for engineers. Waits for its answer, five seconds at most. The minute " +
      "looks at enabled ones by itself, at one that is down less and less often.",
    security: bearer,
    request: { params: targetParam },
    responses: { 200: json("how it is", TargetCheck), ...writeErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const { target_id } = context.req.valid("param");
    const row = await findTargetFor(parts, callerOf(context), target_id, "engineer");
    return context.json(await toItsEnd(context, checkTarget(parts, row)), 200);
  });
}

function addPredict(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/targets/{target_id}/predict`,
    operationId: "predictByTarget",
    tags,
    summary: "A prediction by a target, compared with a model's where one is named",
    description:
      "Beyond the contract. multipart/form-data with `file`: JPEG, PNG or WebP, at most 8 MiB, which " +
      "is sent to the target. Needs the role annotator. With `model_id`, `alias` or `endpoint` a model " +
      "of ours looks at the same image, and what differs is told.",
    security: bearer,
    request: {
      params: targetParam,
      query: z.object({
        model_id: z.uuid().optional().meta({ description: "compared with this model" }),
        alias: z.enum(ALIASES).optional().meta({ description: "compared with the model of it" }),
        endpoint: Slug.optional().meta({
          description: "compared with the first model of this endpoint",
        }),
      }),
      body: fileBody,
    },
    responses: {
      200: json("what it sees", TargetPrediction),
      ...predictErrors,
      ...errorResponses("task_failed", "target_failed"),
      ...errorResponses("overloaded"),
      ...sealErrors,
    },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const caller = callerOf(context);
    const { target_id } = context.req.valid("param");
    const row = await findTargetFor(parts, caller, target_id, "annotator");
    const asked = { row, caller, comparedTo: context.req.valid("query") };
    const work = predictByTarget(parts, asked, context.req.raw);
    return context.json(await toItsEnd(context, work), 200);
  });
}
