// What an endpoint may be set to, and which models that comes to now.

import { nearest } from "../../../../shared/detector/vocabulary.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { EndpointSettings } from "../../../../shared/wire/endpoints.ts";
import type { ModelName } from "../../../../shared/wire/training.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { listModels, type ModelRow } from "../../models/registry.ts";
import { servingNodes } from "../../tasks/nodes/nodes.ts";
import { warmModel } from "../predict/activation.ts";
import type { SizedModel } from "../predict/edge.ts";
import type { EndpointRow } from "./endpoints.ts";

/** A model by its id, or whichever an alias means. */
export interface Target {
  model_id: string | null;
  alias: ModelName | null;
}

/** What tells a target from another, whatever an alias means now. */
export const targetName = ({ model_id, alias }: Target): string => model_id ?? `alias:${alias}`;

/** A target as a body gives it. */
interface GivenTarget {
  model_id?: string | null | undefined;
  alias?: ModelName | null | undefined;
}

/** The target that a body means. Fails with `invalid_request` unless it names exactly one. */
export function targetOf({ model_id, alias }: GivenTarget, field: string): Target {
  if ((model_id == null) === (alias == null)) {
    throw new Failure("invalid_request", `${field}: give either model_id or alias`);
  }
  return { model_id: model_id ?? null, alias: alias ?? null };
}

const targetsOf = ({ models, shadow }: EndpointSettings): Target[] =>
  shadow ? [...models, shadow] : models;

/** The models of settings of one workspace, as they are now. */
export class ServedModels {
  readonly #models: readonly ModelRow[];

  constructor(models: readonly ModelRow[]) {
    this.#models = models;
  }

  /** The model that a target of a workspace comes to; null where an alias means none. */
  of(workspaceId: string, { model_id, alias }: Target): ModelRow | null {
    const found = this.#models.find(
      (one) =>
        one.workspaceId === workspaceId &&
        (model_id === null
          ? alias === "active"
            ? one.active
            : one.aliases.some((own) => own === alias)
          : one.modelId === model_id),
    );
    return found ?? null;
  }
}

/** Looks up the models of endpoints, in one statement. */
export async function modelsOf(
  database: Database,
  endpoints: readonly { workspaceId: string; settings: EndpointSettings }[],
): Promise<ServedModels> {
  const targets = endpoints.flatMap(({ settings }) => targetsOf(settings));
  if (targets.length === 0) return new ServedModels([]);
  const modelIds = [...new Set(targets.flatMap(({ model_id }) => model_id ?? []))];
  const names = [...new Set(targets.flatMap(({ alias }) => alias ?? []))];
  const workspaces = [...new Set(endpoints.map(({ workspaceId }) => workspaceId))];
  return new ServedModels(await listModels(database, workspaces, { among: { modelIds, names } }));
}

/** The models that answer for an endpoint now, in the order of its settings, each once. */
export const servingModels = (
  models: ServedModels,
  { workspaceId, settings }: Pick<EndpointRow, "workspaceId" | "settings">,
): ModelRow[] => [
  ...new Set(
    settings.models
      .filter(({ weight }) => weight > 0)
      .flatMap((target) => models.of(workspaceId, target) ?? []),
  ),
];

/** A model at the size that settings ask for. */
export const sized = (
  model: ModelRow,
  { image_size }: Pick<EndpointSettings, "image_size">,
): SizedModel =>
  image_size === null ? model : { ...model, imageSize: image_size, trainedSize: model.imageSize };

/**
 * Fails with `invalid_request` for settings that cannot be meant, and with `not_found` for models
 * that are not the workspace's. `before` is what they were: classes that were right when they were
 * set stand in no other edit's way, whatever an alias means since.
 */
export async function checkSettings(
  database: Database,
  { workspaceId, settings }: Pick<EndpointRow, "workspaceId" | "settings">,
  before: EndpointSettings | null,
): Promise<void> {
  const names = settings.models.map(targetName);
  const repeated = names.find((name, index) => names.indexOf(name) !== index);
  if (repeated) throw new Failure("invalid_request", `models: ${repeated} is there twice`);
  if (!settings.models.some(({ weight }) => weight > 0)) {
    throw new Failure("invalid_request", "models: one of them needs a weight above 0");
  }
  const models = await modelsOf(database, [{ workspaceId, settings }]);
  for (const target of targetsOf(settings)) {
    if (target.model_id !== null && !models.of(workspaceId, target)) {
      throw new Failure("not_found", "no such model in your workspaces");
    }
  }
  const seen = ({ models: targets, classes }: EndpointSettings) =>
    JSON.stringify([targets, classes]);
  if (before && seen(before) === seen(settings)) return;
  checkClasses(servingModels(models, { workspaceId, settings }), settings);
}

/** Fails with `invalid_request` for a class that none of the models has, where there are any. */
function checkClasses(serving: readonly ModelRow[], settings: EndpointSettings) {
  const known = [...new Set(serving.flatMap(({ classes }) => classes))];
  for (const wanted of serving.length > 0 ? (settings.classes ?? []) : []) {
    if (known.includes(wanted)) continue;
    const meant = nearest(wanted, known);
    const advice = meant ? `; did you mean ${meant}?` : "";
    throw new Failure("invalid_request", `classes: no model has the class ${wanted}${advice}`);
  }
}

/**
 * Has a node open the models that settings bring in and no live node has open, so that the requests
 * after the move find them so; fails as `warmModel` does, and nothing has moved then.
 */
export async function warmNewModels(
  parts: Parts,
  {
    workspaceId,
    before,
    after,
  }: { workspaceId: string } & Record<"before" | "after", EndpointSettings>,
): Promise<void> {
  const models = await modelsOf(parts.database, [
    { workspaceId, settings: before },
    { workspaceId, settings: after },
  ]);
  const old = servingModels(models, { workspaceId, settings: before });
  const isSameSize = before.image_size === after.image_size;
  for (const model of servingModels(models, { workspaceId, settings: after })) {
    if (isSameSize && old.includes(model)) continue;
    const wanted = sized(model, after);
    const { warm } = await servingNodes(parts.database, { workspaceId, model: wanted });
    if (warm === 0) await warmModel(parts, wanted);
  }
}
