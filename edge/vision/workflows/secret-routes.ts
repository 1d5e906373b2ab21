// Secrets of workflows over HTTP, of which only names come back; and what became of webhooks.

import { z } from "@hono/zod-openapi";
import {
  DELIVERY_STATUSES,
  WorkflowDelivery,
  WorkflowSecret,
} from "../../../shared/wire/workflows.ts";
import { json, jsonBody } from "../../http/route.ts";
import { user } from "../auth/audience.ts";
import { actOf } from "../auth/audit.ts";
import { callerOf, workspaceFor, workspacesFor } from "../auth/scope.ts";
import { pageQuery } from "../base/api.ts";
import { type Route, route } from "../base/route.ts";
import { SecretBody, secretParam } from "./definitions/bodies.ts";
import { listDeliveries } from "./deliveries.ts";
import { deleteSecret, listSecrets, putSecret } from "./secrets.ts";

const tag = "Workflows";
const DELIVERIES_MAX = 1_000;
const workspaceQuery = {
  workspace_id: z.uuid().optional().meta({ description: "only of this workspace" }),
};

/** Routes of secrets and deliveries. */
export const secretRoutes: readonly Route[] = [
  route(
    {
      call: "GET /workflows/secrets",
      operationId: "listWorkflowSecrets",
      tag,
      summary: "Names of the secrets that workflows may name",
      description: "Beyond the contract. Their values are shown to nobody.",
      who: user,
      query: z.object(workspaceQuery),
      answers: { 200: json("secrets", z.array(WorkflowSecret)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      return context.json(await listSecrets(context.var.service.database, workspaces), 200);
    },
  ),
  route(
    {
      call: "PUT /workflows/secrets/{name}",
      operationId: "setWorkflowSecret",
      tag,
      summary: "Give a secret its value",
      description:
        "Beyond the contract; for engineers. A new secret, or another value of one that is there: what " +
        "waits to be sent goes with the new value. At most 200 a workspace.",
      who: user,
      params: secretParam,
      body: jsonBody(SecretBody),
      answers: { 200: json("the secret, without its value", WorkflowSecret) },
      errors: ["state_conflict", "bad_configuration"],
    },
    async (context) => {
      const { workspace_id, value } = context.req.valid("json");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
      const name = { ...context.req.valid("param"), workspaceId };
      const act = actOf(context, "setWorkflowSecret");
      return context.json(await putSecret(context.var.service, name, { value, act }), 200);
    },
  ),
  route(
    {
      call: "DELETE /workflows/secrets/{name}",
      operationId: "deleteWorkflowSecret",
      tag,
      summary: "Delete a secret",
      description: "Beyond the contract; for engineers. Webhooks that name it are sent no more.",
      who: user,
      params: secretParam,
      query: z.object({
        workspace_id: z.uuid().optional().meta({
          description: "whose; required where you are an engineer of several workspaces",
        }),
      }),
      answers: { 204: { description: "the secret is gone" } },
    },
    async (context) => {
      const { workspace_id } = context.req.valid("query");
      const workspaceId = workspaceFor(callerOf(context), workspace_id, "engineer");
      const name = { ...context.req.valid("param"), workspaceId };
      await deleteSecret(context.var.service, name, actOf(context, "deleteWorkflowSecret"));
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "GET /workflows/deliveries",
      operationId: "listWorkflowDeliveries",
      tag,
      summary: "Webhooks of runs, and what became of them, newest first",
      description:
        "Beyond the contract. One is tried at once, then after 1 and 5 minutes, 1, 4 and 12 hours; then " +
        "it is given up. Kept for 30 days, without address and body once it is over.",
      who: user,
      query: z.object({
        ...workspaceQuery,
        status: z.enum(DELIVERY_STATUSES).optional().meta({ description: "only of this status" }),
        run_id: z.uuid().optional().meta({ description: "only of this run" }),
        ...pageQuery(DELIVERIES_MAX),
      }),
      answers: { 200: json("deliveries", z.array(WorkflowDelivery)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { workspace_id, run_id: runId, ...filter } = context.req.valid("query");
      const workspaces = workspacesFor(callerOf(context), workspace_id, "viewer");
      const asked = { ...filter, runId };
      return context.json(await listDeliveries(context.var.service, workspaces, asked), 200);
    },
  ),
];
