// Second boxes of one object, once a job has all its frames: nodes compare what one pass detects
// on a frame, and do not know what earlier passes or people left there.

import { type SQL, sql } from "drizzle-orm";
import { DUPLICATE_IOU } from "../../../../shared/detector/tracks.ts";
import type { Database } from "../../../http/database.ts";
import { idList } from "../../base/sql.ts";
import { inJob } from "./jobs.ts";
import type { PassFinds } from "./tracks.ts";

/** What is flagged in one statement: of a million annotations all would take over a minute. */
const FLAGGED_MAX = 100_000;

/** Area of the overlap of boxes `one` and `other` over the area that they cover together. */
const overlap: SQL = sql`(
  SELECT common / ((one.x2::float8 - one.x1) * (one.y2::float8 - one.y1)
      + (other.x2::float8 - other.x1) * (other.y2::float8 - other.y1) - common)
    FROM (SELECT greatest(least(one.x2, other.x2)::float8 - greatest(one.x1, other.x1), 0)
      * greatest(least(one.y2, other.y2)::float8 - greatest(one.y1, other.y1), 0) AS common) c)`;

/**
 * Flags what a model detected in a pass where it repeats what was there before, which is all but
 * what the pass and the `later` classes of passes after it found: what is labeled stays as it is,
 * so the better one is the surest of those it repeats, which is shown wherever one of them is.
 */
export async function flagRepeats(
  database: Database,
  id: string,
  { classes, videos, later }: PassFinds & { later: readonly number[] },
): Promise<void> {
  const detected = (alias: SQL, numbers: readonly number[]): SQL =>
    sql`(${alias}.source = 'model' AND ${alias}.class_number IN (
    SELECT n::int FROM jsonb_array_elements_text(${JSON.stringify(numbers)}::jsonb) n))`;
  const before = sql`NOT ${detected(sql`other`, [...classes, ...later])}
    AND ${videos ? sql`one.video_id IN ${idList(videos)}` : sql`true`}`;
  const statement = sql`
    WITH flagged AS (UPDATE annotation a SET duplicate_of = repeat.of FROM (
      SELECT DISTINCT ON (one.id) one.id, other.id AS of
        FROM annotation other JOIN annotation one ON one.job_id = other.job_id
         AND one.video_id = other.video_id AND one.frame_index = other.frame_index
         AND one.id <> other.id, LATERAL (SELECT ${overlap} AS iou) o
       WHERE other.job_id = ${id}::uuid AND ${before} AND ${detected(sql`one`, classes)}
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
