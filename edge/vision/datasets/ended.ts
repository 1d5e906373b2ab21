// What becomes of an export when its task ended.

import { sql } from "drizzle-orm";
import { TASK_KINDS } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import type { Task } from "../tasks/queue.ts";
import { deleteObjects, keysOf, subjectOf } from "./exports.ts";

/** An export task ended. May be called again for the same task. */
export async function exportEnded(parts: Parts, task: Task): Promise<void> {
  const { database } = parts;
  const id = task.subject.slice(subjectOf("").length);
  const { rows } = await database.execute(
    sql`SELECT id FROM dataset_export WHERE id = ${id}::uuid`,
  );
  // Its job was deleted while a node made it.
  if (rows.length === 0) return deleteObjects(parts, keysOf(task.workspaceId, id));
  if (task.state === "finished") {
    const { bytes, summary } = TASK_KINDS.export.result.parse(task.result);
    await database.execute(sql`
      UPDATE dataset_export SET state = 'completed', bytes = ${bytes}::bigint, ended_at = now(),
        summary = ${JSON.stringify(summary)}::jsonb WHERE id = ${id}::uuid AND state = 'queued'`);
    return;
  }
  const failure = task.errors.at(-1)?.detail ?? `the export was ${task.state}`;
  await database.execute(sql`
    UPDATE dataset_export SET state = 'failed', failure = ${failure}, ended_at = now()
     WHERE id = ${id}::uuid AND state = 'queued'`);
}
