// What becomes of a video when its probe task has ended. May be told twice: a video leaves
// `probing` once.

import { sql } from "drizzle-orm";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../../../shared/tasks/tasks.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { attemptKey } from "../../tasks/objects.ts";
import type { Task } from "../../tasks/queue/queue.ts";
import { sealImages } from "./frame-images.ts";
import { findVideos, objectKeys } from "./videos.ts";

const FAILURE_LENGTH_MAX = 500;
/** Characters of what a probe knows beside the columns. */
const FACTS_LENGTH_MAX = 64 * 1024;
const PTS_BYTES = 4;

/** Checks what a probe says, and that what it wrote is there; see `TaskHandlers.seal`. */
export async function sealProbe(
  { bucket }: Parts,
  task: Task,
  { result }: { result: unknown },
): Promise<string | null> {
  const found = result as TaskResult<"probe">;
  if (found.broken !== null) return null;
  if (JSON.stringify(found.probe).length > FACTS_LENGTH_MAX) return "probe: too long";
  const { pts, thumbnail } = task.payload as TaskPayload<"probe">;
  const [table, image] = await Promise.all(
    [pts, thumbnail].map(({ key }) => bucket.head(attemptKey(key, task))),
  );
  if (table?.size !== found.frame_count * PTS_BYTES) {
    return `the table of ${found.frame_count} frames' times is not in the store`;
  }
  return image ? null : "the thumbnail is not in the store";
}

/** Takes the image of a frame that somebody waits for; see `TaskHandlers.seal`. */
export function sealFrames(
  parts: Parts,
  task: Task,
  { partial }: { partial: boolean },
): Promise<string | null> {
  const { frames, images, width } = task.payload as TaskPayload<"frames">;
  const written = frames.flatMap((frame, at) => {
    const key = images[at]?.key;
    return key === undefined ? [] : [{ frame, key }];
  });
  // A node of an older release writes images of the frame's size, which are none of the width.
  return sealImages(parts, task, written, { required: !partial, width });
}

/** The `ended` handler of probe tasks. */
export async function probeEnded(parts: Parts, task: Task): Promise<void> {
  const [, videoId = ""] = task.subject.split(":");
  const keys = objectKeys(task.workspaceId, videoId);
  const [video] = await findVideos(parts.database, [task.workspaceId], [videoId]);
  // Deleted while a node was at it: what the node wrote since has nobody else to delete it.
  const [pts, thumbnail] = [attemptKey(keys.pts, task), attemptKey(keys.thumbnail, task)];
  if (!video) return parts.bucket.delete([pts, thumbnail]);
  if (task.state !== "finished") {
    const reason = task.errors.at(-1)?.detail ?? `probing was ${task.state}`;
    return fail(parts, videoId, reason);
  }
  const parsed = TASK_KINDS.probe.result.safeParse(task.result);
  if (!parsed.success) return fail(parts, videoId, "the GPU node's answer is malformed");
  const found = parsed.data;
  if (found.broken !== null) return fail(parts, videoId, found.broken);
  await parts.database.execute(sql`
    UPDATE video SET state = 'ready', content_type = ${found.content_type},
      width = ${found.width}::int, height = ${found.height}::int, fps = ${found.fps}::float8,
      duration_seconds = ${found.duration_seconds}::float8,
      frame_count = ${found.frame_count}::int,
      time_base = ARRAY[${found.time_base[0]}::int, ${found.time_base[1]}::int],
      pts_key = ${pts}, thumbnail_key = ${thumbnail},
      probe = ${jsonb(found.probe)}
     WHERE id = ${videoId}::uuid AND workspace_id = ${task.workspaceId}::uuid
       AND state = 'probing'`);
}

async function fail({ database }: Parts, videoId: string, reason: string): Promise<void> {
  const failure = reason.replaceAll("\0", "").slice(0, FAILURE_LENGTH_MAX) || "unknown";
  await database.execute(sql`
    UPDATE video SET state = 'failed', failure = ${failure}
     WHERE id = ${videoId}::uuid AND state = 'probing'`);
}
