// What segmenters find on clips, under an id: the task's row is the record, and keeps its result
// for a day, as that of a prediction on a video does.

import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { SamVideoPrediction } from "../../../shared/serving.ts";
import type { TaskPayload, TaskResult } from "../../../shared/tasks.ts";
import { wireTime } from "../../http/database.ts";
import type { Parts } from "../base/parts.ts";
import { idList } from "../base/sql.ts";
import type { Task } from "../tasks/queue.ts";
import { WIRE_STATES } from "./predictions.ts";
import { objectsOf } from "./sam.ts";

interface SamPredictionRow extends Record<string, unknown> {
  taskId: string;
  state: Task["state"];
  payload: TaskPayload<"sam_video">;
  progress: Task["progress"];
  failure: string | null;
  result: TaskResult<"sam_video"> | null;
  createdAt: string;
}

/** A prediction of the workspaces; fails with `not_found`, also for one that is over for a day. */
export async function findSamPrediction(
  { database }: Pick<Parts, "database">,
  workspaces: readonly string[],
  predictionId: string,
): Promise<SamVideoPrediction> {
  const { rows } = await database.execute<SamPredictionRow>(sql`
    SELECT id::text AS "taskId", state, payload, progress, errors->-1->>'detail' AS failure, result,
        ${wireTime(sql`created_at`)} AS "createdAt"
      FROM task WHERE id = ${predictionId}::uuid AND kind = 'sam_video'
       AND workspace_id IN ${idList(workspaces)}`);
  const [row] = rows;
  if (!row || (row.state === "finished" && !row.result)) {
    throw new Failure(
      "not_found",
      "no such prediction in your workspaces; they are kept for a day",
    );
  }
  return predictionRecord(row);
}

function predictionRecord(row: SamPredictionRow): SamVideoPrediction {
  const status = WIRE_STATES[row.state];
  const result = row.state === "finished" ? row.result : null;
  return {
    prediction_id: row.taskId,
    status,
    failure: status === "failed" ? (row.failure ?? `the prediction was ${row.state}`) : null,
    frames_done: result?.frames.length ?? row.progress?.done ?? null,
    frames_total: result?.frames.length ?? row.progress?.total ?? null,
    width: result?.width ?? null,
    height: result?.height ?? null,
    frames:
      result?.frames.map(({ frame_index, time, findings }) => ({
        frame_index,
        time,
        objects: objectsOf(findings, row.payload),
      })) ?? null,
    segmenter: result?.segmenter ?? null,
    warnings: result?.warnings ?? [],
    left_out: result
      ? {
          frames: result.left_out.frames,
          objects: result.left_out.objects,
          masks: result.left_out.masks,
        }
      : null,
    seconds: result?.seconds ?? null,
    created_at: row.createdAt,
  };
}
