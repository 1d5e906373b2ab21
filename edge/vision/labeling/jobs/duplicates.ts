// Second boxes of one object, once a job has all its frames: nodes compare what one pass detects
// on a frame, and do not know what earlier passes or people left there.

import { type SQL, sql } from "drizzle-orm";
import { DUPLICATE_IOU } from "../../../../shared/detector/tracks.ts";
import type { Database } from "../../../http/database.ts";
import { inJob, type JobRow } from "./jobs.ts";

/** What is flagged in one statement: of a million annotations all would take over a minute. */
const FLAGGED_MAX = 100_000;

/** Area of the overlap of boxes `one` and `other` over the area that they cover together. */
const overlap: SQL = sql`(
  SELECT common / ((one.x2::float8 - one.x1) * (one.y2::float8 - one.y1)
      + (other.x2::float8 - other.x1) * (other.y2::float8 - other.y1) - common)
    FROM (SELECT greatest(least(one.x2, other.x2)::float8 - greatest(one.x1, other.x1), 0)
      * greatest(least(one.y2, other.y2)::float8 - greatest(one.y1, other.y1), 0) AS common) c)`;

/**
 * Flags what a model detected in a job's current pass where it repeats what was there before: what
 * is labeled stays as it is, so the better one is the surest of those it repeats, which is shown
 * wherever one of them is.
 */
export async function flagRepeats(
  database: Database,
  { id, settings }: Pick<JobRow, "id" | "settings">,
): Promise<void> {
  const numbers = JSON.stringify(settings.passes.at(-1) ?? []);
  const ofPass = (alias: SQL): SQL => sql`(${alias}.source = 'model' AND ${alias}.class_number IN (
    SELECT n::int FROM jsonb_array_elements_text(${numbers}::jsonb) n))`;
  const statement = sql`
    WITH flagged AS (UPDATE annotation a SET duplicate_of = repeat.of FROM (
      SELECT DISTINCT ON (one.id) one.id, other.id AS of
        FROM annotation other JOIN annotation one ON one.job_id = other.job_id
         AND one.video_id = other.video_id AND one.frame_index = other.frame_index
         AND one.id <> other.id, LATERAL (SELECT ${overlap} AS iou) o
       WHERE other.job_id = ${id}::uuid AND NOT ${ofPass(sql`other`)} AND ${ofPass(sql`one`)}
         AND other.review <> 'rejected' AND one.review = 'pending' AND one.duplicate_of IS NULL
         AND o.iou > ${DUPLICATE_IOU}::float8
       ORDER BY one.id, other.confidence DESC, o.iou DESC, other.id
       LIMIT ${FLAGGED_MAX}::int) repeat
     WHERE a.id = repeat.id RETURNING a.id)
    SELECT count(*)::int AS count FROM flagged`;
  for (let count = -1; count !== 0; ) {
    const [row] = await inJob<{ count: number }>(database, id, statement);
    count = row?.count ?? 0;
  }
}
