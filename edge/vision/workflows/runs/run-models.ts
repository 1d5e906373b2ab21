// The models of a run: every name that a definition or an input has for one, as the model of the
// run's workspace that it means now. Whatever runs the graph is handed models, never names.

import { Failure } from "../../../../shared/errors.ts";
import type { ResolvedModel } from "../../../../shared/tasks/workflow-task.ts";
import { MODEL_NAMES, type ModelName } from "../../../../shared/wire/training.ts";
import type { WorkflowProblem } from "../../../../shared/workflow/definition.ts";
import type { Database } from "../../../http/database.ts";
import { listModels, type ModelRow } from "../../models/registry.ts";
import { findEndpoint } from "../../serving/endpoints/endpoints.ts";
import { ServedModels, sized, targetName } from "../../serving/endpoints/settings.ts";
import { choose } from "../../serving/endpoints/split.ts";
import { invalidWorkflow } from "../definitions/library.ts";

const ENDPOINT_PREFIX = "endpoint:";
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

const isModelName = (name: string): name is ModelName =>
  (MODEL_NAMES as readonly string[]).includes(name);

/** Where a run names a model. */
export interface ModelMention {
  name: string;
  /** Null of an input. */
  step: string | null;
  port: string;
}

/** A model of a run, and what is told of what it finds: as its endpoint has it, or all. */
export interface RunModel extends ModelRow {
  told: ResolvedModel["told"];
}

/**
 * The models that names of a workspace mean now. Names that mean none are left out.
 */
async function modelsByName(
  database: Database,
  workspaceId: string,
  names: readonly string[],
): Promise<Map<string, RunModel>> {
  const among = {
    modelIds: names.filter((name) => UUID.test(name)),
    names: names.filter(isModelName),
  };
  const isAny = among.modelIds.length > 0 || among.names.length > 0;
  const rows = isAny ? await listModels(database, [workspaceId], { among }) : [];
  const found = new Map<string, RunModel>();
  for (const name of names) {
    const row = rows.find(({ modelId, active, aliases }) =>
      isModelName(name)
        ? name === "active"
          ? active
          : aliases.some((one) => one === name)
        : modelId === name.toLowerCase(),
    );
    const own = name.startsWith(ENDPOINT_PREFIX)
      ? await endpointModel(database, workspaceId, name.slice(ENDPOINT_PREFIX.length))
      : row && { ...row, told: null };
    if (own) found.set(name, own);
  }
  return found;
}

/** The model that answers for an endpoint now, by its weights; null where none does. */
async function endpointModel(
  database: Database,
  workspaceId: string,
  slug: string,
): Promise<RunModel | null> {
  try {
    const row = await findEndpoint(database, [workspaceId], { slug });
    const models = new ServedModels(row.models);
    const candidates = row.settings.models.flatMap((target) => {
      const model = models.of(workspaceId, target);
      return model ? [{ name: targetName(target), weight: target.weight, model }] : [];
    });
    const winner = choose(candidates, { key: null, salt: row.endpointId });
    const { confidence, classes } = row.settings;
    return winner && { ...sized(winner.model, row.settings), told: { confidence, classes } };
  } catch (thrown) {
    if (thrown instanceof Failure && thrown.code === "not_found") return null;
    throw thrown;
  }
}

/**
 * The models of a run, by the names that it has for them. Fails with `invalid_workflow`, one
 * problem for each mention of a name that means no model of the workspace.
 */
export async function resolveModels(
  database: Database,
  workspaceId: string,
  mentions: readonly ModelMention[],
): Promise<Map<string, RunModel>> {
  const names = [...new Set(mentions.map(({ name }) => name))];
  const found = await modelsByName(database, workspaceId, names);
  const problems = mentions.filter(({ name }) => !found.has(name)).map(unknownModel);
  if (problems.length > 0) throw invalidWorkflow(problems);
  return found;
}

function unknownModel({ name, step, port }: ModelMention): WorkflowProblem {
  const detail = `the workspace has no model ${name}`;
  return { code: "bad_value", step, port, detail, fix: fixOf(name) };
}

function fixOf(name: string): string {
  if (name.startsWith(ENDPOINT_PREFIX)) return "name an endpoint one of whose models is there";
  if (isModelName(name)) {
    return name === "active" ? "activate a model" : `promote a model to ${name}`;
  }
  return "name a model by its id, `active`, an alias or `endpoint:<slug>`";
}
