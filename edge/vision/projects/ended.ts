// What becomes of a video when its probe task has ended. May be told twice: a video leaves
// `probing` once.

import { sql } from "drizzle-orm";
import { TASK_KINDS } from "../../../shared/tasks.ts";
import type { Parts } from "../base/parts.ts";
import type { Task } from "../tasks/queue.ts";
import { findVideos, objectKeys } from "./videos.ts";

const FAILURE_LENGTH_MAX = 500;

/** The `ended` handler of probe tasks. */
export async function probeEnded(parts: Parts, task: Task): Promise<void> {
  const [, videoId = ""] = task.subject.split(":");
  const keys = objectKeys(task.workspaceId, videoId);
  const [video] = await findVideos(parts.database, [task.workspaceId], [videoId]);
  // Deleted while a node was at it: what the node wrote since has nobody else to delete it.
  if (!video) return parts.bucket.delete([keys.pts, keys.thumbnail]);
  if (task.state !== "finished") {
    const reason = task.errors.at(-1)?.detail ?? `probing was ${task.state}`;
    return fail(parts, videoId, reason);
  }
  const parsed = TASK_KINDS.probe.result.safeParse(task.result);
  if (!parsed.success) return fail(parts, videoId, "the GPU node's answer is malformed");
  const found = parsed.data;
  if (found.broken !== null) return fail(parts, videoId, found.broken);
  if (found.frame_count < 1) return fail(parts, videoId, "the file holds no frame");
  await parts.database.execute(sql`
    UPDATE video SET state = 'ready', content_type = ${found.content_type},
      width = ${found.width}::int, height = ${found.height}::int, fps = ${found.fps}::float8,
      duration_seconds = ${found.duration_seconds}::float8,
      frame_count = ${found.frame_count}::int,
      time_base = ARRAY[${found.time_base[0]}::int, ${found.time_base[1]}::int],
      pts_key = ${keys.pts}, thumbnail_key = ${keys.thumbnail},
      probe = ${JSON.stringify(found.probe)}::jsonb
     WHERE id = ${videoId}::uuid AND workspace_id = ${task.workspaceId}::uuid
       AND state = 'probing'`);
}

async function fail({ database }: Parts, videoId: string, reason: string): Promise<void> {
  const failure = reason.replaceAll("\0", "").slice(0, FAILURE_LENGTH_MAX) || "unknown";
  await database.execute(sql`
    UPDATE video SET state = 'failed', failure = ${failure}
     WHERE id = ${videoId}::uuid AND state = 'probing'`);
}
