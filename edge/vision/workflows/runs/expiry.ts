// Runs over clips that no node can do: a node leaves a segmenter that it lacks to the others, and
// where none has it any more the run would wait for ever. It fails after a while, and says why.

import { sql } from "drizzle-orm";
import { MINUTE } from "../../../../shared/time.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";
import { hasHeardOfNode } from "../../tasks/nodes/nodes.ts";
import { giveUp } from "../../tasks/queue/interventions.ts";
import { videoRunEnded } from "./ended.ts";

/** As long as a node may take to come back from an update of its machine. */
const STRANDED_MS = 15 * MINUTE;
const STRANDED_MAX = 200;

/**
 * Fails queued runs over clips whose segmenters no node has that was heard of for a quarter of an
 * hour. The minute cron calls it.
 */
export async function failStranded(parts: Parts): Promise<void> {
  const since = sql`${instant(parts.clock() - STRANDED_MS)}`;
  const isThere = hasHeardOfNode({
    kind: "workflow_video",
    workspaceId: sql`task.workspace_id`,
    names: sql`asked.names`,
    since,
  });
  const { rows } = await parts.database.execute<{ taskId: string; names: string[] }>(sql`
    SELECT task.id::text AS "taskId", asked.names FROM task CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT step->'parameters'->>'segmenter') AS names
          FROM jsonb_array_elements(payload->'definition'->'steps') AS step
         WHERE step->>'type' LIKE 'segmenter@%' AND step->'parameters' ? 'segmenter') AS asked
     WHERE kind = 'workflow_video' AND state = 'queued' AND created_at < ${since}
       AND asked.names IS NOT NULL AND NOT ${isThere}
     LIMIT ${STRANDED_MAX}::int`);
  for (const { taskId, names } of rows) {
    const which = names.map((name) => name.slice(0, 200)).join(" and ");
    const detail = `no GPU node that runs workflows has the segmenter ${which}`;
    const task = await giveUp(parts.database, { taskId, reason: { code: "no_node", detail } });
    if (!task) continue;
    parts.log.warning("workflow_run_stranded", { task_id: taskId, segmenters: names });
    await videoRunEnded(parts, task);
  }
}
