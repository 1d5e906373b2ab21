// Crops that there are none of yet: one task of a node cuts them together with those that lack
// nearby, in the order of the job's videos and frames. While a task has a box no other gets it.

import { sql } from "drizzle-orm";
import type { CropsTask } from "../../../../shared/tasks/crops-task.ts";
import type { Database } from "../../../http/database.ts";
import type { Parts } from "../../base/parts.ts";
import { findVideos } from "../../media/videos/videos.ts";
import { offeringNodes } from "../../tasks/nodes/nodes.ts";
import { source } from "../../tasks/objects.ts";
import { submit } from "../../tasks/queue/wait.ts";
import { type JobRow, subjectOf as jobSubjectOf } from "../jobs/jobs.ts";
import { BOX, boxesWithPacks, boxKey, locate, type WantedBox } from "./located-crops.ts";
import { packTarget, subjectOf } from "./packs.ts";

/** Boxes of one task: what a grid shows in the next pages. */
const TASK_BOXES_MAX = 500;
/** Videos of one task, each with a pack of its own: images are videos of one frame. */
const TASK_VIDEOS_MAX = 64;
/** Tasks of a job that may be open at once: people look at several stretches of it. */
const OPEN_TASKS_MAX = 3;
/** Minutes in which a box is not asked for again that a node could not cut. */
const REFUSED_MINUTES = 5;

/** Crops of a job that are on their way, and those that nodes failed at. */
interface CropWork {
  /** Tasks that were ever enqueued for the job, and how many have not ended. */
  tasks: number;
  open: number;
  asked: CropsTask["videos"][];
  refused: CropsTask["videos"][];
  /** Frames of label tasks that have yet to end: their packs come with the end. */
  labeled: { videoId: string; frames: number[] }[];
}

/**
 * How many of some boxes without crops are to have one soon: a node is cutting it, or is asked to
 * now. Nothing is asked for where no node that cuts crops is there.
 */
export async function expectedCrops(
  parts: Parts,
  job: JobRow,
  lacking: readonly WantedBox[],
): Promise<number> {
  const { database } = parts;
  const work = await cropWork(database, job.id);
  const [asked, refused] = [namesOf(work.asked), namesOf(work.refused)];
  const frames = new Set(
    work.labeled.flatMap(({ videoId, frames }) => frames.map((frame) => `${videoId} ${frame}`)),
  );
  const isOnItsWay = (box: WantedBox) =>
    asked.has(boxKey(box)) || frames.has(`${box.videoId} ${box.frame}`);
  const isFree = (box: WantedBox) => !isOnItsWay(box) && !refused.has(boxKey(box));
  const onTheirWay = lacking.filter(isOnItsWay).length;
  const fresh = lacking.filter(isFree);
  if (fresh.length === 0) return onTheirWay;
  const { workspaceId } = job;
  const nodes = await offeringNodes(database, { kind: "crops", workspaceId });
  if (nodes === 0) return onTheirWay;
  if (work.open < OPEN_TASKS_MAX) {
    const nearby = (await boxesWithoutCrops(parts, job.id, fresh)).filter(isFree);
    await enqueueCrops(parts, job, { boxes: [...fresh, ...nearby], number: work.tasks });
  }
  return onTheirWay + fresh.length;
}

const namesOf = (videos: readonly CropsTask["videos"][]): Set<string> =>
  new Set(
    videos
      .flat()
      .flatMap(({ video_id: videoId, boxes }) =>
        boxes.map(({ frame_index: frame, bbox }) => boxKey({ videoId, frame, bbox })),
      ),
  );

async function cropWork(database: Database, jobId: string): Promise<CropWork> {
  const { rows } = await database.execute<Record<string, unknown> & CropWork>(sql`
    SELECT count(*)::int AS tasks, (count(*) FILTER (WHERE ended_at IS NULL))::int AS open,
      coalesce(json_agg(payload->'videos') FILTER (WHERE ended_at IS NULL), '[]') AS asked,
      coalesce(json_agg(payload->'videos') FILTER (
        WHERE ended_at > now() - ${REFUSED_MINUTES}::int * interval '1 minute'
          AND (state IN ('failed', 'revoked') OR (result->>'left_out')::int > 0)), '[]') AS refused,
      (SELECT coalesce(json_agg(json_build_object('videoId', payload->>'video_id',
          'frames', frames_done)), '[]')
        FROM task WHERE subject = ${jobSubjectOf(jobId)} AND kind = 'label'
         AND settled_at IS NULL AND frames_done <> '[]' AND payload ? 'crops') AS labeled
      FROM task WHERE subject = ${subjectOf(jobId)}`);
  return rows[0] ?? { tasks: 0, open: 0, asked: [], refused: [], labeled: [] };
}

/** Boxes without crops from the first of some boxes on, in the order of the job's frames. */
async function boxesWithoutCrops(
  { database, bucket }: Parts,
  jobId: string,
  from: readonly WantedBox[],
): Promise<WantedBox[]> {
  const first = JSON.stringify(from.map(({ videoId, frame }) => ({ videoId, frame })));
  const { boxes, packs } = await boxesWithPacks(
    database,
    jobId,
    sql`
      WITH first AS (
        SELECT jv.position, f.frame FROM job_video jv
          JOIN jsonb_to_recordset(${first}::jsonb) f("videoId" uuid, frame int)
            ON f."videoId" = jv.video_id
         WHERE jv.job_id = ${jobId}::uuid ORDER BY 1, 2 LIMIT 1)
      SELECT next.* FROM first
        CROSS JOIN LATERAL (
          SELECT video_id, position FROM job_video
           WHERE job_id = ${jobId}::uuid AND position >= first.position
           ORDER BY position LIMIT ${TASK_VIDEOS_MAX}::int) jv
        CROSS JOIN LATERAL (
          SELECT ${BOX} FROM annotation a
           WHERE a.job_id = ${jobId}::uuid AND a.video_id = jv.video_id
             AND (jv.position > first.position OR a.frame_index >= first.frame)
           ORDER BY a.frame_index, a.id LIMIT ${TASK_BOXES_MAX}::int) next
       ORDER BY jv.position, next.frame LIMIT ${TASK_BOXES_MAX}::int`,
  );
  const located = await locate(bucket, packs, boxes);
  return boxes.filter((box) => !located.has(boxKey(box)));
}

/**
 * Enqueues the task of these boxes, the first of them where they are too many. Of requests at once,
 * which name the same number, one enqueues its task; the others ask again.
 */
async function enqueueCrops(
  parts: Parts,
  job: JobRow,
  { boxes, number }: { boxes: readonly WantedBox[]; number: number },
): Promise<void> {
  const chosen = [...new Map(boxes.map((box) => [boxKey(box), box])).values()];
  const byVideo = Map.groupBy(chosen.slice(0, TASK_BOXES_MAX), ({ videoId }) => videoId);
  const some = [...byVideo].slice(0, TASK_VIDEOS_MAX);
  const ids = some.map(([videoId]) => videoId);
  const rows = await findVideos(parts.database, [job.workspaceId], ids);
  const files = new Map(rows.map((row) => [row.videoId, row]));
  const videos = some.flatMap(([videoId, own]) => {
    const file = files.get(videoId);
    if (!file) return [];
    return {
      video_id: videoId,
      video: source(file.storageKey, file.bytes),
      boxes: own.map(({ frame, bbox: [x1, y1, x2, y2] }) => ({
        frame_index: frame,
        bbox: [x1, y1, x2, y2] as [number, number, number, number],
      })),
      pack: packTarget(job, videoId, crypto.randomUUID()),
    };
  });
  if (videos.length === 0) return;
  const subject = subjectOf(job.id);
  await submit(parts, [
    {
      kind: "crops",
      workspaceId: job.workspaceId,
      subject,
      idempotencyKey: `${subject}:${number}`,
      payload: { videos },
    },
  ]);
}
