// Tracks across the frames of a whole video, made when a job has all its frames: nodes see only
// their own stretch of a video, and stretches come in any order.

import { sql } from "drizzle-orm";
import { track } from "../../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import type { Database } from "../../../http/database.ts";
import { idList } from "../../base/sql.ts";
import { inJob } from "./jobs.ts";

/** What a pass found: in annotations of these classes, on all videos of the job or on some. */
export interface PassFinds {
  /** Numbers of the classes that the pass looks for. */
  classes: readonly number[];
  videos: readonly string[] | null;
}

/**
 * Gives what a model found in a pass its track ids, video by video and class by class. Those of
 * other passes, and those that people gave, stay as they are.
 */
export async function trackPass(
  database: Database,
  jobId: string,
  { classes, videos: wanted }: PassFinds,
): Promise<void> {
  const current = sql`class_number IN (SELECT n::int FROM jsonb_array_elements_text(
    ${JSON.stringify(classes)}::jsonb) n)`;
  const { rows: videos } = await database.execute<{ video_id: string }>(sql`
    SELECT video_id FROM job_video WHERE job_id = ${jobId}::uuid
       AND ${wanted ? sql`video_id IN ${idList(wanted)}` : sql`true`}
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
