// The active model: its classes, how serving stands, and making another one active.

import { createRoute, z } from "@hono/zod-openapi";
import { ServeStatus } from "../../../../shared/wire/serving.ts";
import { Model } from "../../../../shared/wire/training.ts";
import { type App, errorResponses, json } from "../../../http/app.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, guard, workspacesFor } from "../../auth/scope.ts";
import { API, bearer, originOf, readErrors } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { listModels, modelRecord } from "../../models/registry.ts";
import { activate } from "./activation.ts";
import { chooseModel, onlyOne, workspaceQuery } from "./model-choice.ts";
import { type LastAnswer, servingStatus } from "./status.ts";

const tags = ["Serving"];
const activateErrors = {
  ...errorResponses("unauthorized", "forbidden", "not_found", "invalid_request"),
  ...errorResponses("task_failed", "no_node", "store_unavailable"),
};

/** Registers the routes of the active model, whose status asks when it last answered. */
export function addServeRoutes(app: App<Parts>, lastAnswer: LastAnswer) {
  guard(app, "/serve/*", "/models/:model_id/activate");
  addReads(app, lastAnswer);
  addActivate(app);
}

function addReads(app: App<Parts>, lastAnswer: LastAnswer) {
  const classes = createRoute({
    method: "get",
    path: `${API}/serve/classes`,
    operationId: "listServedClasses",
    tags,
    summary: "Class names of the active model, in index order",
    security: bearer,
    request: { query: z.object(workspaceQuery) },
    responses: {
      200: json("class names", z.array(z.string())),
      ...readErrors,
      ...errorResponses("state_conflict"),
    },
  });
  app.openapi(classes, async (context) => {
    const choice = context.req.valid("query");
    const caller = callerOf(context);
    const model = await chooseModel(context.var.service, caller, choice, "viewer");
    return context.json(model.classes, 200);
  });

  const status = createRoute({
    method: "get",
    path: `${API}/serve/status`,
    operationId: "readServing",
    tags,
    summary: "Health, active model and warm-up state",
    description: "Nodes say every 20 seconds, and whenever it changes, which models are open.",
    security: bearer,
    request: { query: z.object(workspaceQuery) },
    responses: { 200: json("how serving stands", ServeStatus), ...readErrors },
  });
  app.openapi(status, async (context) => {
    const parts = context.var.service;
    const { database } = parts;
    const { workspace_id } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    const active = await listModels(database, workspaces, { called: "active" });
    const model = onlyOne(active, "active");
    const workspaceId = model?.workspaceId ?? (workspaces[0] as string);
    return context.json(await servingStatus(parts, workspaceId, { model, lastAnswer }), 200);
  });
}

function addActivate(app: App<Parts>) {
  const route = createRoute({
    method: "post",
    path: `${API}/models/{model_id}/activate`,
    operationId: "activateModel",
    tags,
    summary: "Make a model the active one",
    description:
      "Needs the role engineer. A GPU node opens the model and looks at a picture with it first; " +
      "where that fails (`task_failed`, `no_node`) the model that was active stays it, and it serves " +
      "all the while. At most one model of a workspace is active. Other nodes open the model at " +
      "their first prediction with it.",
    security: bearer,
    request: { params: z.object({ model_id: z.uuid() }) },
    responses: { 200: json("the model, now active", Model), ...activateErrors },
  });
  app.openapi(route, async (context) => {
    const parts = context.var.service;
    const caller = callerOf(context);
    const model = await chooseModel(parts, caller, context.req.valid("param"), "engineer");
    const active = await activate(parts, model, actOf(context, "activateModel"));
    return context.json(modelRecord(active, originOf(context)), 200);
  });
}
