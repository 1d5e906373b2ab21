// Tracks across the frames of a whole video, made when a job has all its frames: nodes see only
// their own stretch of a video, and stretches come in any order.

import { sql } from "drizzle-orm";
import type { Bbox } from "../../../shared/tasks.ts";
import { track } from "../../../shared/tracks.ts";
import type { Database } from "../../http/database.ts";

/** Gives the annotations that a model made their track ids, video by video and class by class. */
export async function trackJob(database: Database, jobId: string): Promise<void> {
  const { rows: videos } = await database.execute<{ video_id: string }>(sql`
    SELECT video_id FROM job_video WHERE job_id = ${jobId}::uuid
       AND cardinality(frames) > 1 ORDER BY position`);
  for (const { video_id: videoId } of videos) {
    const { rows } = await database.execute<Row>(sql`
      SELECT class_number AS class, json_agg(json_build_object('id', id, 'frame', frame_index,
        'bbox', json_build_array(x1, y1, x2, y2), 'confidence', confidence)
        ORDER BY frame_index, confidence DESC, id) AS boxes
        FROM annotation
       WHERE job_id = ${jobId}::uuid AND video_id = ${videoId}::uuid AND source = 'model'
       GROUP BY class_number ORDER BY class_number`);
    let used = 0;
    const tracks: [string, number][] = [];
    for (const { boxes } of rows) {
      const frames = [...Map.groupBy(boxes, ({ frame }) => frame)].map(([frameIndex, own]) => ({
        ...{ frameIndex, boxes: own },
      }));
      const found = track(frames, { firstId: used + 1 });
      for (const [place, ids] of found.entries()) {
        for (const [index, id] of ids.entries()) {
          if (id === null) continue;
          tracks.push([frames[place]?.boxes[index]?.id ?? "", id]);
          used = Math.max(used, id);
        }
      }
    }
    await database.execute(sql`
      UPDATE annotation a SET track_id = (t->>1)::int
        FROM jsonb_array_elements(${JSON.stringify(tracks)}::jsonb) t
       WHERE a.id = (t->>0)::uuid AND a.track_id IS DISTINCT FROM (t->>1)::int`);
  }
}

interface Row extends Record<string, unknown> {
  class: number;
  boxes: { id: string; frame: number; bbox: Bbox; confidence: number }[];
}
