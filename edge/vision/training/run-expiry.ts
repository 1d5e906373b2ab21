// Runs that begin with weights which no node has any more: a node that lacks them leaves the run to
// others, and where none has them it would wait for ever. It fails after a while, and says why.

import { sql } from "drizzle-orm";
import { iso, MINUTE } from "../../../shared/time.ts";
import type { Parts } from "../base/parts.ts";
import { giveUp } from "../tasks/interventions.ts";
import { hasHeardOfNode, hasWeights } from "../tasks/nodes.ts";
import { trainEnded } from "./ended.ts";
import { missingWeights } from "./runs.ts";

/** As long as a node may take to come back from an update of its machine. */
const STRANDED_MS = 15 * MINUTE;
const STRANDED_MAX = 200;

/**
 * Fails queued runs whose first weights no node has that was heard of for a quarter of an hour. The
 * minute cron calls it.
 */
export async function failStrandedRuns(parts: Parts): Promise<void> {
  const since = sql`${iso(parts.clock() - STRANDED_MS)}::timestamptz`;
  const isThere = hasHeardOfNode({
    kind: "train",
    workspaceId: sql`task.workspace_id`,
    since,
    also: hasWeights(sql`asked.dataset`, sql`asked.variant`),
  });
  const { rows } = await parts.database.execute<{
    taskId: string;
    dataset: string;
    variant: string;
  }>(sql`
    SELECT task.id::text AS "taskId", asked.dataset, asked.variant
      FROM task CROSS JOIN LATERAL (
        SELECT payload->'pretrained'->>'dataset' AS dataset,
          payload->'settings'->>'variant' AS variant) AS asked
     WHERE kind = 'train' AND state = 'queued' AND created_at < ${since}
       AND asked.dataset IS NOT NULL AND jsonb_typeof(payload->'resume') = 'null'
       AND NOT ${isThere}
     LIMIT ${STRANDED_MAX}::int`);
  for (const { taskId, ...asked } of rows) {
    const reason = { code: "no_node", detail: missingWeights(asked) };
    const task = await giveUp(parts.database, { taskId, reason });
    if (!task) continue;
    parts.log.warning("run_stranded", { task_id: taskId, ...asked });
    await trainEnded(parts, task);
  }
}
