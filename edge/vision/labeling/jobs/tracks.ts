// Tracks across the frames of a whole video, made when a job has all its frames: nodes see only
// their own stretch of a video, and stretches come in any order.

import { sql } from "drizzle-orm";
import { track } from "../../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import { inJob, type JobRow } from "./jobs.ts";

/**
 * Gives what a model found in the current pass its track ids, video by video and class by class.
 * Those of earlier passes, and those that people gave, stay as they are.
 */
export async function trackJob(
  database: Database,
  { id: jobId, settings }: Pick<JobRow, "id" | "settings">,
): Promise<void> {
  const current = sql`class_number IN (SELECT n::int FROM jsonb_array_elements_text(
    ${JSON.stringify(settings.passes.at(-1) ?? [])}::jsonb) n)`;
  const { rows: videos } = await database.execute<{ video_id: string }>(sql`
    SELECT video_id FROM job_video WHERE job_id = ${jobId}::uuid
       AND cardinality(frames) > 1 ORDER BY position`);
  for (const { video_id: videoId } of videos) {
    const { rows: earlier } = await database.execute<{ used: number | null }>(sql`
      SELECT max(track_id) AS used FROM annotation
       WHERE job_id = ${jobId}::uuid AND video_id = ${videoId}::uuid
         AND (source <> 'model' OR NOT ${current})`);
    const { rows } = await database.execute<Row>(sql`
      SELECT class_number AS class, json_agg(json_build_object('id', id, 'frame', frame_index,
        'bbox', json_build_array(x1, y1, x2, y2), 'confidence', confidence)
        ORDER BY frame_index, confidence DESC, id) AS boxes
        FROM annotation
       WHERE job_id = ${jobId}::uuid AND video_id = ${videoId}::uuid AND source = 'model'
         AND ${current}
       GROUP BY class_number ORDER BY class_number`);
    let used = earlier[0]?.used ?? 0;
    const tracks: [string, number][] = [];
    for (const { boxes } of rows) {
      const frames = [...Map.groupBy(boxes, ({ frame }) => frame)].map(([frameIndex, own]) => ({
        frameIndex,
        boxes: own,
      }));
      const idsByFrame = track(frames, { firstId: used + 1 });
      for (const [position, ids] of idsByFrame.entries()) {
        for (const [index, id] of ids.entries()) {
          if (id === null) continue;
          tracks.push([frames[position]?.boxes[index]?.id ?? "", id]);
          used = Math.max(used, id);
        }
      }
    }
    await inJob(
      database,
      jobId,
      sql`
      UPDATE annotation a SET track_id = (t->>1)::int
        FROM jsonb_array_elements(${JSON.stringify(tracks)}::jsonb) t
       WHERE a.id = (t->>0)::uuid AND a.track_id IS DISTINCT FROM (t->>1)::int`,
    );
  }
}

interface Row extends Record<string, unknown> {
  class: number;
  boxes: { id: string; frame: number; bbox: Bbox; confidence: number }[];
}
