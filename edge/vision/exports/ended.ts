// What becomes of a model's export when its task ended. Nothing that a node says of its file is
// believed: it is there whole, as its SHA-256 says, and as large as such a file may be.

import { sql } from "drizzle-orm";
import { boxTolerance, EXPORT_TOLERANCE } from "../../../shared/exports.ts";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import { jsonb, storable } from "../base/sql.ts";
import { attemptKey } from "../tasks/objects.ts";
import type { Task } from "../tasks/queue.ts";
import { sha256Of } from "../training/run-objects.ts";
import { deleteFolder, keysOf } from "./exports.ts";
import { expectedBytes } from "./options.ts";

type Payload = TaskPayload<"model_export">;
type Result = TaskResult<"model_export">;

/** How much larger a file may be than was foretold. */
const BYTES_SHARE_MAX = 1.25;

/** Checks a file as its node announced it; see `TaskHandlers.seal`. */
export async function sealModelExport(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const { bytes, sha256, verification } = result as Result;
  const { file, model, size } = task.payload as Payload;
  const key = attemptKey(file.key, task);
  const object = await parts.bucket.head(key);
  if (object?.size !== bytes) {
    const there = object ? `has ${object.size}` : "is not in the store";
    return `the file of ${bytes} bytes ${there}`;
  }
  if (bytes > BYTES_SHARE_MAX * expectedBytes(model, { size })) {
    return `the file's ${bytes} bytes are more than such a model takes`;
  }
  if ((await sha256Of(parts, key)) !== sha256) {
    return "the file in the store is not that of the SHA-256 that the node reported";
  }
  if (verification.rows === 0) return "the file was held against nothing";
  const { box_difference_max: box, score_difference_max: score } = verification;
  if (box <= boxTolerance(size) && score <= EXPORT_TOLERANCE.score) return null;
  return `the file differs from the predictor by ${box} pixels and ${score} of a score`;
}

/** A task that exports a model ended. May be called again for the same task. */
export async function modelExportEnded(parts: Parts, task: Task): Promise<void> {
  const { export_id: id, round, model, file } = task.payload as Payload;
  const owner = { workspaceId: task.workspaceId, modelId: model.model_id };
  const { folder } = keysOf(owner, id);
  const current = sql`id = ${id}::uuid AND round = ${round}::int AND state = 'queued'`;
  if (task.state === "finished") {
    const done = TASK_KINDS.model_export.result.parse(task.result);
    await parts.database.execute(sql`
      UPDATE model_export SET state = 'completed', storage_key = ${attemptKey(file.key, task)},
        bytes = ${done.bytes}::bigint, sha256 = ${done.sha256}, opset = ${done.opset}::int,
        verification = ${jsonb(done.verification)}, ended_at = now() WHERE ${current}`);
  } else {
    const failure = storable(task.errors.at(-1)?.detail || `the export was ${task.state}`);
    await parts.database.execute(sql`
      UPDATE model_export SET state = 'failed', failure = ${failure}, ended_at = now()
       WHERE ${current}`);
  }
  await sweep(parts, task, { id, folder });
}

/** Deletes what the task's attempts left beside the export's file; everything once that is gone. */
async function sweep(
  parts: Parts,
  { taskId }: Task,
  { id, folder }: { id: string; folder: string },
): Promise<void> {
  const { rows } = await parts.database.execute<{ key: string | null }>(
    sql`SELECT storage_key AS key FROM model_export WHERE id = ${id}::uuid`,
  );
  const [row] = rows;
  if (!row) return deleteFolder(parts, folder);
  const own = `.${taskId.slice(0, 8)}-`;
  const { objects } = await parts.bucket.list({ prefix: folder });
  const left = objects.map(({ key }) => key).filter((key) => key.includes(own) && key !== row.key);
  if (left.length > 0) await parts.bucket.delete(left);
}
