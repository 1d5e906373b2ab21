// The model registry over HTTP: models, what they are called, and the way back.

import { z } from "@hono/zod-openapi";
import type { Context } from "hono";
import { Failure } from "../../../shared/errors.ts";
import { ModelExportRequest } from "../../../shared/wire/exports.ts";
import { ALIASES, MODEL_NAMES, Model, ModelMove } from "../../../shared/wire/training.ts";
import type { Role } from "../../../shared/wire/vision.ts";
import { headers } from "../../http/description.ts";
import { json, jsonBody } from "../../http/route.ts";
import { text } from "../../http/texts.ts";
import { user } from "../auth/audience.ts";
import { actOf } from "../auth/audit.ts";
import { allow, callerOf, workspaceFor, workspacesOf } from "../auth/scope.ts";
import { originOf, pageQuery } from "../base/api.ts";
import { listAnswer, listQuery, tellTotal } from "../base/lists.ts";
import type { Parts } from "../base/parts.ts";
import { type Route, route } from "../base/route.ts";
import { presignGet } from "../tasks/objects.ts";
import {
  deleteModel,
  findModel,
  listMoves,
  type ModelRow,
  modelPage,
  modelRecord,
  moveName,
  nameStepBack,
} from "./registry.ts";

const tag = "Models";
const modelId = z.object({ model_id: z.uuid() });
const MOVES_MAX = 1_000;
/** Files that follow an alias at one time. */
const EXPORTS_MAX = 16;

/** Readies a model before it becomes the active one; what it throws keeps the old one active. */
export type BeforeActive = (parts: Parts, model: ModelRow) => Promise<unknown>;

/**
 * Told of a model before it is deleted; what is returned lets go, once it is, of what other rooms
 * hold for it.
 */
export type ModelRelease = (parts: Parts, model: ModelRow) => Promise<() => Promise<void>>;

/** The model of a path, if the caller has at least the role in its workspace. */
export async function modelFor(
  context: Pick<Context, "get"> & { var: { service: Parts } },
  id: string,
  role: Role,
): Promise<ModelRow> {
  const caller = callerOf(context);
  const model = await findModel(context.var.service.database, workspacesOf(caller), id);
  allow(caller, model.workspaceId, role);
  return model;
}

/** Asks for files of a model that is about to be given an alias; returns the exports' ids. */
export type ExportsOnPromotion = (
  parts: Parts,
  model: ModelRow,
  asked: { requests: readonly ModelExportRequest[]; createdBy: string },
) => Promise<string[]>;

/** What other rooms do where models are named and deleted. */
export interface ModelHooks {
  beforeActive: BeforeActive;
  beforeDeleted: ModelRelease;
  onPromotion: ExportsOnPromotion;
}

const rollbackRoute = (hooks: ModelHooks): Route =>
  route(
    {
      call: "POST /models/rollback",
      operationId: "rollBackModel",
      tag,
      summary: "Have an alias, or `active`, name the model before again",
      description:
        "Beyond the contract; for engineers. It takes back the newest move of the name that stands; a " +
        "second call takes back the one before it. A model that was deleted is passed over, and " +
        "listed in `skipped`. The move is logged like any other. Before `active` moves, a node opens " +
        "the model, as for an activation.",
      who: user,
      body: jsonBody(
        z.strictObject({ name: z.enum(MODEL_NAMES), workspace_id: z.uuid().optional() }),
      ),
      answers: {
        200: json(
          "the model that the name means now",
          z.object({ model: Model, move: ModelMove, skipped: z.array(z.uuid()) }),
        ),
      },
      errors: ["not_found", "state_conflict", "task_failed", "no_node"],
    },
    async (context) => {
      const parts = context.var.service;
      const { database } = parts;
      const caller = callerOf(context);
      const { name, workspace_id } = context.req.valid("json");
      const workspaceId = workspaceFor(caller, workspace_id, "engineer");
      const { skipped, ...back } = await nameStepBack(database, { workspaceId, name });
      const model = await findModel(database, [workspaceId], back.modelId);
      if (name === "active") await hooks.beforeActive(parts, model);
      const act = actOf(context, "rollBackModel");
      const { accountId: actorId } = caller;
      const move = await moveName(parts, { workspaceId, name, actorId, act, ...back });
      if (!move) throw new Failure("state_conflict", `${name} names the model before already`);
      const now = modelRecord(
        await findModel(database, [workspaceId], back.modelId),
        originOf(context),
      );
      return context.json({ model: now, move, skipped }, 200);
    },
  );

const deletionRoute = (hooks: ModelHooks): Route =>
  route(
    {
      call: "DELETE /models/{model_id}",
      operationId: "deleteModel",
      tag,
      summary: "Delete a model that nothing names",
      description:
        "Beyond the contract; for engineers. The active model and one with an alias are refused. Its " +
        "exports go with it.",
      who: user,
      params: modelId,
      answers: { 204: { description: "the model is gone" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const model = await modelFor(context, context.req.valid("param").model_id, "engineer");
      const parts = context.var.service;
      const release = await hooks.beforeDeleted(parts, model);
      await deleteModel(parts, model);
      await release();
      return context.body(null, 204);
    },
  );

const promotionRoute = (hooks: ModelHooks): Route =>
  route(
    {
      call: "POST /models/{model_id}/promote",
      operationId: "promoteModel",
      tag,
      summary: "Give a model an alias",
      description:
        "For engineers. The model that had it loses it. `move` is null when it had it already. `exports` " +
        "are asked for before the alias moves, as by `POST /models/{model_id}/export`: where one is " +
        "refused, nothing moves.",
      who: user,
      params: modelId,
      body: jsonBody(
        z.strictObject({
          alias: z.enum(ALIASES),
          exports: z.array(ModelExportRequest).max(EXPORTS_MAX).optional().meta({
            description: "files that follow the alias: they are made of this model, too",
          }),
        }),
      ),
      answers: {
        200: json(
          "the model",
          z.object({
            model: Model,
            // `.nullable()` would have descriptions ask for a move that is also null.
            move: z.union([ModelMove, z.null()]),
            exports: z
              .array(z.uuid())
              .meta({ description: "ids of the exports that were asked for" }),
          }),
        ),
      },
      errors: ["state_conflict", "quota_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const model = await modelFor(context, context.req.valid("param").model_id, "engineer");
      const { workspaceId, modelId: id } = model;
      const { alias, exports: requests = [] } = context.req.valid("json");
      const { accountId: actorId } = callerOf(context);
      const exports = await hooks.onPromotion(parts, model, { requests, createdBy: actorId });
      const act = actOf(context, "promoteModel");
      const move = await moveName(parts, { workspaceId, name: alias, modelId: id, actorId, act });
      const now = await findModel(parts.database, [workspaceId], id);
      return context.json({ model: modelRecord(now, originOf(context)), move, exports }, 200);
    },
  );

/** Routes of models. */
export const modelRoutes = (hooks: ModelHooks): readonly Route[] => [
  route(
    {
      call: "GET /models",
      operationId: "listModels",
      tag,
      summary: "All models in the registry, newest first",
      who: user,
      query: z.object({
        name: text().max(200).optional(),
        alias: z.enum(MODEL_NAMES).optional().meta({ description: "`active` is the active one" }),
        project_id: z.uuid().optional(),
        run_id: z.uuid().optional(),
        ...listQuery,
      }),
      answers: { 200: listAnswer("models of the caller's workspaces", Model) },
    },
    async (context) => {
      const { project_id, run_id, alias: called, name, ...query } = context.req.valid("query");
      const filter = { name, projectId: project_id, runId: run_id, called };
      const { database } = context.var.service;
      const wanted = { filter, query };
      const page = await modelPage(database, workspacesOf(callerOf(context)), wanted);
      tellTotal(context, page);
      return context.json(
        page.rows.map((one) => modelRecord(one, originOf(context))),
        200,
      );
    },
  ),
  route(
    {
      call: "GET /models/moves",
      operationId: "listMoves",
      tag,
      summary: "Each time an alias, or the active model, changed; newest first",
      description:
        "Beyond the contract. The log is kept for ever, also of models that were deleted.",
      who: user,
      query: z.object({
        name: z.enum(MODEL_NAMES).optional(),
        ...pageQuery(MOVES_MAX),
      }),
      answers: { 200: json("moves", z.array(ModelMove)) },
    },
    async (context) => {
      const { database } = context.var.service;
      const workspaces = workspacesOf(callerOf(context));
      return context.json(await listMoves(database, workspaces, context.req.valid("query")), 200);
    },
  ),
  rollbackRoute(hooks),
  route(
    {
      call: "GET /models/{model_id}",
      operationId: "readModel",
      tag,
      summary: "One model",
      who: user,
      params: modelId,
      answers: { 200: json("the model", Model) },
    },
    async (context) => {
      const model = await modelFor(context, context.req.valid("param").model_id, "viewer");
      return context.json(modelRecord(model, originOf(context)), 200);
    },
  ),
  route(
    {
      call: "GET /models/{model_id}/weights",
      operationId: "downloadWeights",
      tag,
      summary: "A model's weights as safetensors",
      description: "Beyond the contract.",
      who: user,
      params: modelId,
      answers: {
        302: { description: "to the weights, signed for 15 minutes", headers: headers("Location") },
      },
    },
    async (context) => {
      const model = await modelFor(context, context.req.valid("param").model_id, "viewer");
      const filename = `${model.name.replace(/[^\w.-]+/g, "_").slice(0, 80)}-v${model.version}.safetensors`;
      const url = await presignGet(context.var.service, model.storageKey, { filename });
      return context.redirect(url, 302);
    },
  ),
  deletionRoute(hooks),
  promotionRoute(hooks),
  route(
    {
      call: "DELETE /models/{model_id}/names/{alias}",
      operationId: "removeName",
      tag,
      summary: "Take an alias, or `active`, from a model",
      description:
        "Beyond the contract; for engineers. The name means no model then, until it is given or " +
        "rolled back.",
      who: user,
      params: modelId.extend({ alias: z.enum(MODEL_NAMES) }),
      answers: { 204: { description: "the name means none" } },
      errors: ["state_conflict"],
    },
    async (context) => {
      const parts = context.var.service;
      const { model_id: id, alias: name } = context.req.valid("param");
      const { workspaceId } = await modelFor(context, id, "engineer");
      const { accountId: actorId } = callerOf(context);
      const act = actOf(context, "removeName");
      const none = { modelId: null, from: id };
      const names = await moveName(parts, { workspaceId, name, actorId, act, ...none });
      if (!names) throw new Failure("state_conflict", `the model is not ${name}`);
      return context.body(null, 204);
    },
  ),
];
