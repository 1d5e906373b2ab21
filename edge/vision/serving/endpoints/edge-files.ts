// Files for the edge of models that it may be asked for without anybody having activated them: by
// a rollback, by an endpoint or an alias, before the edge was there or looked at this size, or
// where an activation was cut off before it asked.

import { sql } from "drizzle-orm";
import { STRIDE_MAX } from "../../../../shared/detector/detector.ts";
import { EDGE_WEIGHTS_BYTES_MAX } from "../../../../shared/wire/edge-inference.ts";
import type { Parts } from "../../base/parts.ts";
import { listModels } from "../../models/registry.ts";
import { fingerprintOf } from "../../training/exports/options.ts";
import { edgeOptions, prepareForEdge } from "../predict/edge.ts";

/** Models of one minute; those that are left over have their chance in the next ones. */
const MODELS_MAX = 10;

/**
 * Asks for the files that the edge lacks, of active models and of those that answer for endpoints;
 * returns of how many. A model without images or ranges to make int8 by is left out, and so is one
 * whose file failed: whoever asks for it again, or activates the model, has it tried anew. The
 * minute cron calls it.
 */
export async function makeEdgeFiles(parts: Parts): Promise<number> {
  const { edge, database } = parts;
  if (!edge) return 0;
  const sides: { side: number; fingerprint: string }[] = [];
  for (let side = STRIDE_MAX; side <= edge.imageSize; side += STRIDE_MAX) {
    sides.push({ side, fingerprint: fingerprintOf(edgeOptions(side)) });
  }
  // In no order: one that is refused, for room or a list that is gone, keeps none of the others.
  const { rows } = await database.execute<{ modelId: string; workspaceId: string }>(sql`
    SELECT m.id::text AS "modelId", m.workspace_id::text AS "workspaceId" FROM model m
      JOIN jsonb_to_recordset(${JSON.stringify(sides)}::jsonb) AS edge(side int, fingerprint text)
        ON edge.side = least(m.image_size, ${edge.imageSize}::int)
     WHERE m.bytes <= ${EDGE_WEIGHTS_BYTES_MAX}::bigint AND cardinality(m.classes) > 0
       AND (m.active OR EXISTS (
         SELECT FROM endpoint p, jsonb_array_elements(p.settings->'models') target
          WHERE p.workspace_id = m.workspace_id AND p.deleted_at IS NULL
            AND (target->>'weight')::float8 > 0
            AND (target->>'model_id' = m.id::text OR EXISTS (
              SELECT FROM model_alias WHERE model_id = m.id AND alias = target->>'alias'))))
       AND (EXISTS (
         SELECT FROM training_run r WHERE r.id = m.run_id AND r.workspace_id = m.workspace_id
            AND r.dataset->'manifest'->>'key' IS NOT NULL AND r.dataset->'sources' IS NOT NULL)
         OR EXISTS (
         SELECT FROM model_export WHERE model_id = m.id AND state = 'completed'
            AND calibration IS NOT NULL AND height = edge.side AND width = edge.side))
       AND NOT EXISTS (SELECT FROM model_export
         WHERE model_id = m.id AND fingerprint = edge.fingerprint)
     ORDER BY random() LIMIT ${MODELS_MAX}::int`);
  for (const { workspaceId, modelId } of rows) {
    const [model] = await listModels(database, [workspaceId], { modelId });
    if (model) await prepareForEdge(parts, model, null);
  }
  return rows.length;
}
