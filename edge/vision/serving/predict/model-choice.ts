// Which model a request is for: the active one of a workspace, one of an alias, or one by its id.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../../../shared/errors.ts";
import { ALIASES, type ModelName } from "../../../../shared/wire/training.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import { allow, type Caller, workspacesFor, workspacesOf } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { findModel, listModels, type ModelRow } from "../../models/registry.ts";

export const workspaceQuery = {
  workspace_id: z.uuid().optional().meta({
    description: "whose; required where several of yours have such a model",
  }),
};

export const modelQuery = {
  ...workspaceQuery,
  model_id: z
    .uuid()
    .optional()
    .meta({ description: "beyond the contract: this model in place of the active one" }),
  alias: z
    .enum(ALIASES)
    .optional()
    .meta({ description: "beyond the contract: the model of this alias" }),
};

export interface Choice {
  workspace_id?: string | undefined;
  model_id?: string | undefined;
  alias?: ModelName | undefined;
}

/**
 * The model of a request. Fails with `not_found` for an id that is not the caller's, with
 * `forbidden` where his role is too small, and with `state_conflict` where no model is called so.
 */
export async function chooseModel(
  { database }: Pick<Parts, "database">,
  caller: Caller,
  { workspace_id, model_id, alias }: Choice,
  role: Role,
): Promise<ModelRow> {
  const workspaces = workspacesFor(caller, workspace_id, role);
  if (model_id !== undefined) {
    if (alias !== undefined) throw new Failure("invalid_request", "alias: not with a model_id");
    const within = workspace_id === undefined ? workspacesOf(caller) : workspaces;
    const model = await findModel(database, within, model_id);
    allow(caller, model.workspaceId, role);
    return model;
  }
  const called = alias ?? "active";
  const found = await listModels(database, workspaces, { called });
  const model = onlyOne(found, called);
  if (model) return model;
  const what = alias ? `no model is called ${alias} yet: promote one` : "no model is active yet";
  throw new Failure("state_conflict", `${what}${alias ? "" : ": activate one"} first`);
}

/** The one model of a name, or null. Fails where several workspaces have one. */
export function onlyOne(models: readonly ModelRow[], called: ModelName): ModelRow | null {
  if (models.length <= 1) return models[0] ?? null;
  const detail = `workspace_id: required, since several of your workspaces have the model ${called}`;
  throw new Failure("invalid_request", detail);
}

/** Tasks that open or use a model are of this subject. */
export const subjectOf = (modelId: string) => `model:${modelId}`;
