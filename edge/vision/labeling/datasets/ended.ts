// What becomes of an export when its task ended.

import { sql } from "drizzle-orm";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../../../shared/tasks/tasks.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { attemptKey } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { keysOf, subjectOf } from "./exports.ts";

/** Checks that the archive is there as it was announced; see `TaskHandlers.seal`. */
export async function sealExport(
  { bucket }: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const { bytes } = result as TaskResult<"export">;
  const { archive } = task.payload as TaskPayload<"export">;
  const object = await bucket.head(attemptKey(archive.key, task));
  if (object?.size === bytes) return null;
  const there = object ? `has ${object.size}` : "is not in the store";
  return `the archive of ${bytes} bytes ${there}`;
}

/** An export task ended. May be called again for the same task. */
export async function exportEnded(parts: Parts, task: Task): Promise<void> {
  const { database } = parts;
  const id = task.subject.slice(subjectOf("").length);
  const { rows } = await database.execute(
    sql`SELECT id FROM dataset_export WHERE id = ${id}::uuid`,
  );
  // Its job was deleted while a node made it.
  const keys = keysOf(task.workspaceId, id);
  const archive = attemptKey(keys.archive, task);
  if (rows.length === 0) return parts.bucket.delete([keys.manifest, archive]);
  if (task.state === "finished") {
    const { bytes, summary } = TASK_KINDS.export.result.parse(task.result);
    await database.execute(sql`
      UPDATE dataset_export SET state = 'completed', bytes = ${bytes}::bigint, ended_at = now(),
        storage_key = ${archive}, summary = coalesce(summary, '{}') || ${jsonb(summary)}
       WHERE id = ${id}::uuid AND state = 'queued'`);
    return;
  }
  const failure = task.errors.at(-1)?.detail ?? `the export was ${task.state}`;
  await database.execute(sql`
    UPDATE dataset_export SET state = 'failed', failure = ${failure}, ended_at = now()
     WHERE id = ${id}::uuid AND state = 'queued'`);
}
