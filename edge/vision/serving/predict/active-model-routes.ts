// The active model: its classes, how serving stands, and making another one active.

import { z } from "@hono/zod-openapi";
import { ServeStatus } from "../../../../shared/wire/serving.ts";
import { Model } from "../../../../shared/wire/training.ts";
import { json } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { actOf } from "../../auth/audit.ts";
import { callerOf, workspacesFor } from "../../auth/scope.ts";
import { originOf } from "../../base/api.ts";
import { type Route, route } from "../../base/route.ts";
import { listModels, modelRecord } from "../../models/registry.ts";
import { activate } from "./activation.ts";
import { chooseModel, onlyOne, workspaceQuery } from "./model-choice.ts";
import { servingStatus } from "./status.ts";

const tag = "Serving";
/** Routes of the active model. */
export const serveRoutes: readonly Route[] = [
  route(
    {
      call: "GET /serve/classes",
      operationId: "listServedClasses",
      tag,
      summary: "Class names of the active model, in index order",
      who: user,
      query: z.object(workspaceQuery),
      answers: { 200: json("class names", z.array(z.string())) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const choice = context.req.valid("query");
      const caller = callerOf(context);
      const model = await chooseModel(context.var.service, caller, choice, "viewer");
      return context.json(model.classes, 200);
    },
  ),
  route(
    {
      call: "GET /serve/status",
      operationId: "readServing",
      tag,
      summary: "Health, active model and warm-up state",
      description: "Nodes say every 20 seconds, and whenever it changes, which models are open.",
      who: user,
      query: z.object(workspaceQuery),
      answers: { 200: json("how serving stands", ServeStatus) },
      errors: ["not_found"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const { workspace_id } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      const active = await listModels(database, workspaces, { called: "active" });
      const model = onlyOne(active, "active");
      const workspaceId = model?.workspaceId ?? (workspaces[0] as string);
      return context.json(await servingStatus(parts, workspaceId, model ?? null), 200);
    },
  ),
  route(
    {
      call: "POST /models/{model_id}/activate",
      operationId: "activateModel",
      tag,
      summary: "Make a model the active one",
      description:
        "Needs the role engineer. A GPU node opens the model and looks at a picture with it first; " +
        "where that fails (`task_failed`, `no_node`) the model that was active stays it, and it serves " +
        "all the while. At most one model of a workspace is active. Other nodes open the model at " +
        "their first prediction with it.",
      who: user,
      params: z.object({ model_id: z.uuid() }),
      answers: { 200: json("the model, now active", Model) },
      errors: ["task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const model = await chooseModel(parts, caller, context.req.valid("param"), "engineer");
      const active = await activate(parts, model, actOf(context, "activateModel"));
      return context.json(modelRecord(active, originOf(context)), 200);
    },
  ),
];
