// Secrets of workflows over HTTP, of which only names come back; and what became of webhooks.

import { createRoute, z } from "@hono/zod-openapi";
import {
  DELIVERY_STATUSES,
  WorkflowDelivery,
  WorkflowSecret,
} from "../../../shared/wire/workflows.ts";
import { type App, errorResponses, json, jsonBody } from "../../http/app.ts";
import { actOf } from "../auth/audit.ts";
import { callerOf, guard, workspaceFor, workspacesFor } from "../auth/scope.ts";
import {
  API,
  bearer,
  bodyErrors,
  conflict,
  listErrors,
  pageQuery,
  readErrors,
  writeErrors,
} from "../base/api.ts";
import type { Parts } from "../base/parts.ts";
import { SecretBody, secretParam } from "./definitions/bodies.ts";
import { listDeliveries } from "./deliveries.ts";
import { deleteSecret, listSecrets, putSecret } from "./secrets.ts";

const tags = ["Workflows"];
const DELIVERIES_MAX = 1_000;
const workspaceQuery = {
  workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
};

/** Registers the routes of secrets and deliveries. */
export function addSecretRoutes(app: App<Parts>) {
  guard(app, "/workflows/secrets", "/workflows/secrets/:name", "/workflows/deliveries");
  addList(app);
  addPut(app);
  addDelete(app);
  addDeliveries(app);
}

function addList(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/workflows/secrets`,
    operationId: "listWorkflowSecrets",
    tags,
    summary: "Names of the secrets that workflows may name",
    description: "Beyond the contract. Their values are shown to nobody.",
    security: bearer,
    request: { query: z.object(workspaceQuery) },
    responses: { 200: json("secrets", z.array(WorkflowSecret)), ...readErrors, ...listErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    return context.json(await listSecrets(context.var.service.database, workspaces), 200);
  });
}

function addPut(app: App<Parts>) {
  const route = createRoute({
    method: "put",
    path: `${API}/workflows/secrets/{name}`,
    operationId: "setWorkflowSecret",
    tags,
    summary: "Give a secret its value",
    description:
      "Beyond the contract; for engineers. A new secret, or another value of one that is there: what " +
      "waits to be sent goes with the new value. At most 200 a workspace.",
    security: bearer,
    request: { params: secretParam, ...jsonBody(SecretBody) },
    responses: {
      200: json("the secret, without its value", WorkflowSecret),
      ...bodyErrors,
      ...conflict,
      ...errorResponses("bad_configuration"),
    },
  });
  app.openapi(route, async (context) => {
    const { workspace_id, value } = context.req.valid("json");
    const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
    const name = { ...context.req.valid("param"), workspaceId };
    const act = actOf(context, "setWorkflowSecret");
    return context.json(await putSecret(context.var.service, name, { value, act }), 200);
  });
}

function addDelete(app: App<Parts>) {
  const route = createRoute({
    method: "delete",
    path: `${API}/workflows/secrets/{name}`,
    operationId: "deleteWorkflowSecret",
    tags,
    summary: "Delete a secret",
    description: "Beyond the contract; for engineers. Webhooks that name it are sent no more.",
    security: bearer,
    request: {
      params: secretParam,
      query: z.object({
        workspace_id: z.uuid().optional().meta({
          description: "whose; required where you are an engineer of several workspaces",
        }),
      }),
    },
    responses: { 204: { description: "the secret is gone" }, ...writeErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id } = context.req.valid("query");
    const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
    const name = { ...context.req.valid("param"), workspaceId };
    await deleteSecret(context.var.service, name, actOf(context, "deleteWorkflowSecret"));
    return context.body(null, 204);
  });
}

function addDeliveries(app: App<Parts>) {
  const route = createRoute({
    method: "get",
    path: `${API}/workflows/deliveries`,
    operationId: "listWorkflowDeliveries",
    tags,
    summary: "Webhooks of runs, and what became of them, newest first",
    description:
      "Beyond the contract. One is tried at once, then after 1 and 5 minutes, 1, 4 and 12 hours; then " +
      "it is given up. Kept for 30 days, without address and body once it is over.",
    security: bearer,
    request: {
      query: z.object({
        ...workspaceQuery,
        status: z.enum(DELIVERY_STATUSES).optional().meta({ description: "only of this status" }),
        run_id: z.uuid().optional().meta({ description: "only of this run" }),
        ...pageQuery(DELIVERIES_MAX),
      }),
    },
    responses: { 200: json("deliveries", z.array(WorkflowDelivery)), ...readErrors, ...listErrors },
  });
  app.openapi(route, async (context) => {
    const { workspace_id, run_id: runId, ...filter } = context.req.valid("query");
    const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
    const asked = { ...filter, runId };
    return context.json(await listDeliveries(context.var.service, workspaces, asked), 200);
  });
}
