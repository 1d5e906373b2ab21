// What becomes of a model's export when its task ended. Nothing that a node says of its file is
// believed: it is there whole, as its SHA-256 says, and as large as such a file may be.

import { type SQL, sql } from "drizzle-orm";
import { missesOf } from "../../../../shared/detector/export-formats.ts";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../../../shared/tasks/tasks.ts";
import { jsonb, storable } from "../../../http/storable.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { attemptKey } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { sha256Of } from "../runs/objects.ts";
import { expectedBytes } from "./options.ts";
import { keysOf } from "./rows.ts";

type Payload = TaskPayload<"device_export">;
type Result = TaskResult<"device_export">;

/** How much larger a file may be than was foretold. */
const BYTES_SHARE_MAX = 1.25;

const payloadOf = ({ payload }: Task): Payload => payload as Payload;

/** Checks a file as its node announced it; see `TaskHandlers.seal`. */
export async function sealModelExport(
  parts: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const done = result as Result;
  const { bytes, sha256 } = done;
  const payload = payloadOf(task);
  const key = attemptKey(payload.file.key, task);
  const object = await parts.bucket.head(key);
  if (object?.size !== bytes) {
    const there = object ? `has ${object.size}` : "is not in the store";
    return `the file of ${bytes} bytes ${there}`;
  }
  if (bytes > BYTES_SHARE_MAX * expectedBytes(payload.model, payload)) {
    return `the file's ${bytes} bytes are more than such a model takes`;
  }
  if ((await sha256Of(parts, key)) !== sha256) {
    return "the file in the store is not that of the SHA-256 that the node reported";
  }
  return figuresProblem(payload, done);
}

/** Why the figures of a file do not do, or null. */
function figuresProblem(
  { format, precision, size }: Payload,
  { verification, calibration }: Result,
): string | null {
  if (precision === "int8" && !calibration) return "int8 was made by no ranges";
  // A runtime of TensorFlow Lite is an optional part of a node; onnxruntime is not.
  if (!verification) return format === "tflite" ? null : "the file was held against nothing";
  if (verification.rows === 0) return "the file was held against nothing";
  const misses = missesOf(verification, { precision, size });
  return misses.length > 0 ? `the file differs from the predictor: ${misses.join(", ")}` : null;
}

/** A task that exports a model ended. May be called again for the same task. */
export async function modelExportEnded(parts: Parts, task: Task): Promise<void> {
  const { export_id: id, round, model, file } = payloadOf(task);
  const owner = { workspaceId: task.workspaceId, modelId: model.model_id };
  const { folder } = keysOf(owner, id);
  const current = sql`id = ${id}::uuid AND round = ${round}::int AND state = 'queued'`;
  if (task.state === "finished") {
    const done = TASK_KINDS.device_export.result.parse(task.result);
    await parts.database.execute(sql`
      UPDATE model_export SET state = 'completed', storage_key = ${attemptKey(file.key, task)},
        bytes = ${done.bytes}::bigint, sha256 = ${done.sha256}, opset = ${done.opset}::int,
        verification = ${orNull(done.verification)}, calibration = ${orNull(done.calibration)},
        recommended_confidence = ${done.recommended_confidence}::float8,
        not_verified = ${textArray(done.not_verified)}, ended_at = now() WHERE ${current}`);
  } else {
    const failure = storable(task.errors.at(-1)?.detail || `the export was ${task.state}`);
    await parts.database.execute(sql`
      UPDATE model_export SET state = 'failed', failure = ${failure}, ended_at = now()
       WHERE ${current}`);
  }
  await sweep(parts, task, { id, folder });
}

const orNull = (value: object | null): SQL => (value ? jsonb(value) : sql`NULL::jsonb`);
const textArray = (texts: readonly string[]): SQL => sql`ARRAY(SELECT jsonb_array_elements_text(
  ${JSON.stringify(texts.map(storable))}::jsonb))`;

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
  if (!row) return discardObjects(parts, [folder]);
  const own = `.${taskId.slice(0, 8)}-`;
  const { objects } = await parts.bucket.list({ prefix: folder });
  const left = objects.map(({ key }) => key).filter((key) => key.includes(own) && key !== row.key);
  if (left.length > 0) await parts.bucket.delete(left);
}
