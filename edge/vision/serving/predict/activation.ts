// Which model is active. A node opens a model and predicts on an image with it before the swap, so
// that one that cannot be opened never becomes active, and the one before serves all the while.
// Other nodes open it at their first prediction with it.

import type { Act } from "../../auth/audit.ts";
import type { Parts } from "../../base/parts.ts";
import { findModel, type ModelRow, modelSource, moveName } from "../../models/registry.ts";
import { runNow } from "../../tasks/queue/wait.ts";
import { prepareForEdge } from "./edge.ts";
import { subjectOf } from "./model-choice.ts";

/** The largest variant is downloaded and opened on a slow machine by then. */
const WARM_MS = 120_000;

/** Has a node open a model; fails as `runNow` does, with the node's words. */
export async function warmModel(parts: Parts, model: ModelRow): Promise<void> {
  await runNow(
    parts,
    {
      kind: "warm",
      workspaceId: model.workspaceId,
      subject: subjectOf(model.modelId),
      payload: { model: modelSource(model) },
    },
    { timeoutMs: WARM_MS },
  );
}

/**
 * Makes a model the active one of its workspace, once a node has it open. Of two at once both are
 * logged, and the later one stands.
 */
export async function activate(parts: Parts, model: ModelRow, act: Act): Promise<ModelRow> {
  const { workspaceId, modelId } = model;
  const { actorId } = act;
  const started = parts.clock();
  await warmModel(parts, model);
  const moved = await moveName(parts, { workspaceId, name: "active", modelId, actorId, act });
  const ms = parts.clock() - started;
  parts.log.info("model_activated", { model_id: modelId, moved: moved !== null, ms });
  await prepareForEdge(parts, model, actorId);
  return findModel(parts.database, [workspaceId], modelId);
}
