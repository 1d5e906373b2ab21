// Named endpoints over HTTP: made, changed, deleted, and brought back to what they were.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { Endpoint, EndpointMove, EndpointSettings } from "../../../../shared/wire/endpoints.ts";
import { json, jsonBody } from "../../../http/route.ts";
import { user } from "../../auth/audience.ts";
import { callerOf, workspaceFor, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import { pageQuery } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { type Route, route } from "../../base/route.ts";
import { endpointFor } from "./access.ts";
import { changedSettings, EndpointBody, EndpointPatch, Slug, settingsOf } from "./bodies.ts";
import {
  changeEndpoint,
  createEndpoint,
  deleteEndpoint,
  type EndpointRow,
  endpointStepBack,
  findEndpoint,
  listEndpointMoves,
  listEndpoints,
  rollBackEndpoint,
} from "./endpoints.ts";
import { checkSettings, modelsOf, ServedModels, servingModels, warmNewModels } from "./settings.ts";

const tag = "Endpoints";
const MOVES_MAX = 1_000;
export const slugParam = z.object({ slug: Slug });
export const slugQuery = {
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where several of yours have an endpoint of this slug",
  }),
};
/** An endpoint as it goes over the wire, with the models that its settings come to now. */
function endpointRecord(row: EndpointRow, models: ServedModels): Endpoint {
  const { workspaceId, settings } = row;
  const shadow = settings.shadow && models.of(workspaceId, settings.shadow);
  return {
    endpoint_id: row.endpointId,
    workspace_id: workspaceId,
    slug: row.slug,
    // In the order of its schema, whatever it was stored in.
    settings: EndpointSettings.parse(settings),
    serving: servingModels(models, row).map(({ modelId }) => modelId),
    shadowing: shadow?.modelId ?? null,
    revision: row.revision,
    created_at: row.createdAt,
    updated_at: row.updatedAt,
  };
}

const recordOf = async ({ database }: Parts, row: EndpointRow): Promise<Endpoint> =>
  endpointRecord(row, await modelsOf(database, [row]));

const RolledBack = z.object({
  endpoint: Endpoint,
  move: EndpointMove,
  skipped: z.array(z.number().int()).meta({
    description: "moves that were passed over: models that they lead back to were deleted",
  }),
});

/** Routes of endpoints, but for those that keys open. */
export const endpointRoutes: readonly Route[] = [
  route(
    {
      call: "POST /endpoints",
      operationId: "makeEndpoint",
      tag,
      summary: "Make a named endpoint",
      description:
        "Beyond the contract; for engineers. `models` says who answers: one model by its `model_id`, " +
        "whichever an `alias` means (`active` too), or several, among which traffic is split by " +
        "`weight`. A model that an endpoint names by its id cannot be deleted. A node opens a model " +
        "at its first request. A slug is one of a kind in its workspace, and stays the endpoint's. At " +
        "most 100 a workspace.",
      who: user,
      body: jsonBody(EndpointBody),
      answers: { 201: json("the endpoint", Endpoint) },
      errors: ["not_found", "state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const caller = callerOf(context);
      const body = context.req.valid("json");
      const workspaceId = workspaceFor(caller, body.workspace_id, "engineer");
      const settings = settingsOf(body);
      await checkSettings(parts.database, { workspaceId, settings }, null);
      const { slug } = body;
      const actorId = caller.accountId;
      const row = await createEndpoint(parts, { workspaceId, slug, settings, actorId });
      return context.json(await recordOf(parts, row), 201);
    },
  ),
  route(
    {
      call: "GET /endpoints",
      operationId: "listEndpoints",
      tag,
      summary: "Named endpoints, by slug",
      description: "Beyond the contract.",
      who: user,
      query: z.object({ workspace_id: z.uuid().optional() }),
      answers: { 200: json("endpoints of the caller's workspaces", z.array(Endpoint)) },
      errors: ["not_found"],
    },
    async (context) => {
      const { database } = context.var.service;
      const { workspace_id } = context.req.valid("query");
      const caller = callerOf(context);
      const workspaces =
        workspace_id === undefined
          ? workspacesOf(caller)
          : workspacesFor(caller, workspace_id, "viewer");
      const rows = await listEndpoints(database, workspaces);
      const models = await modelsOf(database, rows);
      return context.json(
        rows.map((row) => endpointRecord(row, models)),
        200,
      );
    },
  ),
  route(
    {
      call: "GET /endpoints/{slug}",
      operationId: "readEndpoint",
      tag,
      summary: "One named endpoint",
      description: "Beyond the contract.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 200: json("the endpoint", Endpoint) },
    },
    async (context) => {
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, name, "viewer");
      return context.json(endpointRecord(row, new ServedModels(row.models)), 200);
    },
  ),
  route(
    {
      call: "PATCH /endpoints/{slug}",
      operationId: "changeEndpoint",
      tag,
      summary: "Change what a named endpoint serves",
      description:
        "Beyond the contract; for engineers. What the body does not name stays; what it names is " +
        "replaced whole. Models that it brings in are opened by a GPU node first, unless one has them " +
        "open: where that fails nothing has changed, and the endpoint answers all the while. Requests " +
        "that are under way end with the model they have. The change is a move in the log.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      body: jsonBody(EndpointPatch),
      answers: { 200: json("the endpoint", Endpoint) },
      errors: ["revision_conflict", "task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, name, "engineer");
      const { workspaceId } = row;
      const body = context.req.valid("json");
      const { changed } = await changeEndpoint(parts, row, {
        actorId: callerOf(context).accountId,
        revision: body.revision,
        edit: async (before) => {
          const after = changedSettings(before, body);
          await checkSettings(parts.database, { workspaceId, settings: after }, before);
          await warmNewModels(parts, { workspaceId, before, after });
          return after;
        },
      });
      return context.json(await recordOf(parts, changed), 200);
    },
  ),
  route(
    {
      call: "DELETE /endpoints/{slug}",
      operationId: "deleteEndpoint",
      tag,
      summary: "Delete a named endpoint",
      description:
        "Beyond the contract; for engineers. Its slug is free, its models may be deleted, and its keys " +
        "open nothing. A rollback of the slug brings it back, its keys too.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 204: { description: "the endpoint is gone" } },
      errors: ["revision_conflict"],
    },
    async (context) => {
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, name, "engineer");
      await deleteEndpoint(context.var.service, row, callerOf(context).accountId);
      return context.body(null, 204);
    },
  ),
  route(
    {
      call: "POST /endpoints/{slug}/rollback",
      operationId: "rollBackEndpoint",
      tag,
      summary: "Bring a named endpoint back to what it was before its newest move",
      description:
        "Beyond the contract; for engineers. It takes back the newest move that stands; a second call " +
        "takes back the one before it. What leads back to models that were deleted is passed over, and " +
        "listed in `skipped`. Of a slug that was deleted it brings back the endpoint, with its keys. " +
        "Models are opened first, as for a change, where a node is there. The rollback is a move in the log.",
      who: user,
      params: slugParam,
      query: z.object(slugQuery),
      answers: { 200: json("the endpoint, as it was", RolledBack) },
      errors: ["state_conflict", "task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const name = { ...context.req.valid("param"), ...context.req.valid("query") };
      const row = await endpointFor(context, { ...name, orFormer: true }, "engineer");
      const { workspaceId, slug } = row;
      const back = await endpointStepBack(database, row);
      if (!row.deleted) {
        const opened = { workspaceId, before: row.settings, after: back.settings };
        await warmNewModels(parts, opened).catch((thrown: unknown) => {
          // Whoever goes back does so most urgently while the nodes are down.
          if (!(thrown instanceof Failure && thrown.code === "no_node")) throw thrown;
        });
      }
      const actorId = callerOf(context).accountId;
      const move = await rollBackEndpoint(parts, row, { ...back, actorId });
      const now = await findEndpoint(database, [workspaceId], { slug });
      const endpoint = await recordOf(parts, now);
      const { skipped } = back;
      return context.json({ endpoint, move: EndpointMove.parse(move), skipped }, 200);
    },
  ),
  route(
    {
      call: "GET /endpoints/{slug}/moves",
      operationId: "listEndpointMoves",
      tag,
      summary: "Each time that a named endpoint was made, changed, rolled back or deleted",
      description:
        "Beyond the contract. Newest first, each with what it was before and after. The log is kept for " +
        "ever, also of endpoints that were deleted.",
      who: user,
      params: slugParam,
      query: z.object({
        ...slugQuery,
        ...pageQuery(MOVES_MAX),
      }),
      answers: { 200: json("moves", z.array(EndpointMove)) },
    },
    async (context) => {
      const { workspace_id, ...page } = context.req.valid("query");
      const name = { ...context.req.valid("param"), workspace_id, orFormer: true };
      const row = await endpointFor(context, name, "viewer");
      const moves = await listEndpointMoves(context.var.service.database, row, page);
      return context.json(z.array(EndpointMove).parse(moves), 200);
    },
  ),
];
