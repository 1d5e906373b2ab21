// How serving stands in a workspace: the active model, where it is open, and when it was last used.

import { sql } from "drizzle-orm";
import { iso } from "../../../../shared/time.ts";
import type { ServeStatus } from "../../../../shared/wire/serving.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import type { ModelRow } from "../../models/registry.ts";
import { servingNodes } from "../../tasks/nodes/nodes.ts";
import type { TaskState } from "../../tasks/queue/states.ts";
import { lastAnswer } from "../endpoints/last-answer.ts";
import { edgeStatus } from "./edge.ts";
import { subjectOf } from "./model-choice.ts";

interface ModelUse extends Record<string, unknown> {
  lastPrediction: string | null;
  warmState: TaskState | null;
  warmFailure: string | null;
}

async function useOf(database: Database, modelId: string): Promise<ModelUse> {
  const { rows } = await database.execute<ModelUse>(sql`
    WITH warmed AS (
      SELECT state, errors->-1->>'detail' AS detail FROM task
       WHERE subject = ${subjectOf(modelId)} AND kind = 'warm' ORDER BY place DESC LIMIT 1)
    SELECT (SELECT ${wireTime(sql`max(ended_at)`)} FROM task WHERE subject = ${subjectOf(modelId)}
        AND kind = 'predict' AND state = 'finished') AS "lastPrediction",
      (SELECT state FROM warmed) AS "warmState", (SELECT detail FROM warmed) AS "warmFailure"`);
  return rows[0] as ModelUse;
}

/** The status of a workspace whose active model this is. */
export async function servingStatus(
  parts: Parts,
  workspaceId: string,
  model: ModelRow | null,
): Promise<ServeStatus> {
  const { database } = parts;
  const edge = edgeStatus(parts, model);
  const nodes = await servingNodes(database, { workspaceId, model });
  const common = { workspace_id: workspaceId, nodes, edge };
  if (!model) {
    const none = { active_model: null, failure: null, last_prediction_at: null };
    return { ...common, ...none, health: "no_model", warm_up: "cold" };
  }
  const [answeredAt, { lastPrediction, warmState, warmFailure }] = await Promise.all([
    lastAnswer(parts, model),
    useOf(database, model.modelId),
  ]);
  const answered = answeredAt === null ? null : iso(answeredAt);
  const warm_up =
    nodes.warm > 0
      ? "warm"
      : warmState === "queued" || warmState === "running"
        ? "warming"
        : warmState === "failed"
          ? "failed"
          : "cold";
  return {
    ...common,
    health: nodes.able > 0 || edge.able ? "ok" : "no_node",
    active_model: {
      model_id: model.modelId,
      name: model.name,
      version: model.version,
      variant: model.variant,
      task: model.task,
      classes: model.classes,
      image_size: model.imageSize,
    },
    warm_up,
    failure: warm_up === "failed" ? warmFailure : null,
    // Instants of one form: the later one is the greater text.
    last_prediction_at:
      [answered, lastPrediction]
        .filter((at) => at !== null)
        .sort()
        .at(-1) ?? null,
  };
}
