// Sides of a job's frames that its import brought along: how they are stored with the job, and what
// a split makes of them.

import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../../http/database.ts";
import { jsonb } from "../../../http/storable.ts";
import { idList } from "../../base/sql.ts";
import { type Side, type SideSpan, type SplitVideo, sidesOf, strictestSide } from "./split.ts";

/** A frame with the side that an import tells for it. */
export interface FrameSide {
  video: string;
  frame: number;
  side: Side;
}

const ROWS_PER_STATEMENT = 10_000;

/** The statements that store the sides of a job's frames. */
export const insertSides = (jobId: string, told: readonly FrameSide[]): SQL[] =>
  Array.from({ length: Math.ceil(told.length / ROWS_PER_STATEMENT) }, (_, page) => {
    const rows = told.slice(page * ROWS_PER_STATEMENT, (page + 1) * ROWS_PER_STATEMENT);
    return sql`
    INSERT INTO job_side (job_id, video_id, frame_index, side)
    SELECT ${jobId}::uuid, video, frame, side
      FROM jsonb_to_recordset(${jsonb(rows)}) AS x(video uuid, frame int, side text)`;
  });

/**
 * The sides that imports told for frames of these jobs, as spans: other frames of a video are on
 * the side of the told one before them. Where two jobs tell two sides of a frame, the more held-out
 * one counts.
 */
export async function importedSides(
  database: Database,
  jobIds: readonly string[],
): Promise<SideSpan[]> {
  const { rows } = await database.execute<Record<string, unknown> & SideSpan>(sql`
    WITH told AS (
      SELECT video_id, frame_index,
        max(CASE side WHEN 'test' THEN 2 WHEN 'val' THEN 1 ELSE 0 END) AS rank
        FROM job_side WHERE job_id IN ${idList(jobIds)} GROUP BY video_id, frame_index
    ), ordered AS (
      SELECT *, lag(rank) OVER (PARTITION BY video_id ORDER BY frame_index) AS before FROM told)
    SELECT video_id::text AS "videoId",
      CASE WHEN before IS NULL THEN 0 ELSE frame_index END AS "fromIndex",
      (ARRAY['train', 'val', 'test'])[rank + 1] AS side
      FROM ordered WHERE before IS DISTINCT FROM rank ORDER BY video_id, frame_index`);
  return rows;
}

/** Spans of the videos whose side an import fixes, and whether any frame is for validation. */
interface FixedSides {
  spans: Map<string, SideSpan[]>;
  hasVal: boolean;
}

/**
 * What a split makes of told sides. A group of look-alikes goes whole to the most held-out side
 * that its members have. Where no frame is for validation, neither by an import nor otherwise
 * (`hasVal`), training frames are drawn from as if nothing was told of them: some must be held out.
 */
export function fixedSides(
  videos: readonly SplitVideo[],
  told: readonly SideSpan[],
  { hasVal = false }: { hasVal?: boolean } = {},
): FixedSides {
  const own = Map.groupBy(told, ({ videoId }) => videoId);
  const labeled = videos.filter(({ frames }) => frames.length > 0);
  const spans = new Map<string, SideSpan[]>();
  for (const members of Map.groupBy(labeled, ({ videoId, group }) => group ?? videoId).values()) {
    const all = members.flatMap(({ videoId }) => own.get(videoId) ?? []);
    if (all.length === 0) continue;
    const side = strictestSide(all.map((span) => span.side));
    for (const { videoId } of members) {
      spans.set(videoId, members.length === 1 ? all : [{ videoId, fromIndex: 0, side }]);
    }
  }
  const isVal = ({ videoId, frames }: SplitVideo) =>
    sidesOf(frames, spans.get(videoId) ?? [])
      .values()
      .some((side) => side === "val");
  if (hasVal || labeled.some(isVal)) return { spans, hasVal: true };
  const held = [...spans].filter(([, all]) => all.some(({ side }) => side !== "train"));
  return { spans: new Map(held), hasVal: false };
}
