// Frames of a job in the hands of people: who labels and who reviews each, and the stages from label
// to review. A frame is done by the rule of `reviewedFrames`, whatever its row says. Only frames of
// the job are assigned; a row whose frame left the job, as when its only box is deleted, counts
// nowhere.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { FrameStage, Overview } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import { textList } from "../../base/sql.ts";
import { addedFrames, inJob, type JobRow } from "../jobs/jobs.ts";
import { type FrameFilter, matchingFrames, reviewedFrames } from "../review/frames.ts";

/** People that frames are assigned to; what is undefined stays, null takes the assignment away. */
export interface Assignment {
  /** Several share the frames: each gets as many that follow one another, to one more or less. */
  labelerIds?: readonly string[] | null | undefined;
  reviewerId?: string | null | undefined;
  /** The only account whose frames may be changed, beside those of nobody. */
  onlyOwn?: string | undefined;
}

/** How many frames a request changed, and how many it left to others. */
export interface AssignmentCount extends Record<string, unknown> {
  changed: number;
  kept: number;
}

/** Roles of a member, with the columns that hold who has them. */
const ROLES = { labeler: sql`labeler_id`, reviewer: sql`reviewer_id` } as const;

/**
 * Fails with `not_found` where a filter names a frame by its id that the job does not have: only
 * its own are assigned and handed on.
 */
async function assertFrames(database: Database, job: JobRow, { among }: FrameFilter) {
  if (!among) return;
  const { rows } = await database.execute<{ video_id: string; frame: number }>(sql`
    SELECT video_id, frame FROM (${among}) g
    EXCEPT SELECT video_id, frame FROM (${matchingFrames(job, { among })}) f LIMIT 1`);
  const [absent] = rows;
  if (!absent) return;
  const id = frameId(absent.video_id, absent.frame);
  throw new Failure("not_found", `filter.frame_ids: the job has no frame ${id}`);
}

/**
 * Assigns frames of a job. Frames of people other than `onlyOwn` are kept and counted. Fails with
 * `invalid_request` for an account that is no annotator of the workspace, and with `not_found` for
 * a frame that the job does not have.
 */
export async function assignFrames(
  database: Database,
  job: JobRow,
  { filter, assignment }: { filter: FrameFilter; assignment: Assignment },
): Promise<AssignmentCount> {
  const { labelerIds, reviewerId, onlyOwn } = assignment;
  await assertMembers(database, job, [...(labelerIds ?? []), ...(reviewerId ? [reviewerId] : [])]);
  await assertFrames(database, job, filter);
  const roles = [
    labelerIds !== undefined && ROLES.labeler,
    reviewerId !== undefined && ROLES.reviewer,
  ].filter((role) => role !== false);
  const each = (make: (role: SQL) => SQL, between: SQL = sql`, `) =>
    sql.join(roles.map(make), between);
  const isOthers = onlyOwn
    ? sql`(${each((role) => sql`a.${role} <> ${onlyOwn}::uuid`, sql` OR `)}) IS TRUE`
    : sql`false`;
  const isNew = sql`(${each((role) => sql`a.${role}`)})
    IS DISTINCT FROM (${each((role) => sql`n.${role}`)})`;
  const own = sql`a.job_id = ${job.id}::uuid AND a.video_id = n.video_id AND a.frame_index = n.frame`;
  const gives = Boolean(labelerIds?.length || reviewerId);
  // A frame without a row is nobody's: nothing is taken away from it.
  const changed = gives
    ? sql`
    INSERT INTO frame_assignment AS a (job_id, video_id, frame_index, labeler_id, reviewer_id)
    SELECT job.id, n.video_id, n.frame, n.labeler_id, n.reviewer_id FROM n, job
     WHERE job.id = ${job.id}::uuid
    ON CONFLICT (job_id, video_id, frame_index) DO UPDATE
      SET ${each((role) => sql`${role} = excluded.${role}`)}
     WHERE NOT ${isOthers} AND (${each((role) => sql`a.${role}`)})
       IS DISTINCT FROM (${each((role) => sql`excluded.${role}`)})
    RETURNING a.job_id`
    : sql`
    UPDATE frame_assignment a SET ${each((role) => sql`${role} = n.${role}`)} FROM n
     WHERE ${own} AND NOT ${isOthers} AND ${isNew} RETURNING a.job_id`;
  const kept = onlyOwn
    ? sql`SELECT count(*) FROM n JOIN frame_assignment a ON ${own} WHERE ${isOthers}`
    : sql`SELECT 0`;
  const [row] = await inJob<AssignmentCount>(
    database,
    job.id,
    sql`
    WITH n AS MATERIALIZED (
      SELECT video_id, frame, ${sharedAmong(labelerIds ?? [])} AS labeler_id,
        ${reviewerId ?? null}::uuid AS reviewer_id FROM (${matchingFrames(job, filter)}) w
    ), changed AS (${changed})
    SELECT (SELECT count(*) FROM changed)::int AS changed, (${kept})::int AS kept`,
  );
  return row ?? { changed: 0, kept: 0 };
}

/** The account of a frame `w`, of people who share frames in the order of the job. */
const sharedAmong = (accounts: readonly string[]): SQL => {
  const [only = null] = accounts;
  if (accounts.length < 2) return sql`${only}::uuid`;
  return sql`(${JSON.stringify(accounts)}::jsonb
    ->> (ntile(${accounts.length}::int) OVER (ORDER BY position, frame) - 1))::uuid`;
};

/** Fails with `invalid_request` for an account that is not at least an annotator of the workspace. */
async function assertMembers(
  database: Database,
  { workspaceId }: JobRow,
  accounts: readonly string[],
): Promise<void> {
  const { rows } = await database.execute<{ id: string }>(sql`
    SELECT id FROM ${textList(accounts)} g(id) WHERE NOT EXISTS (
      SELECT FROM membership m WHERE m.workspace_id = ${workspaceId}::uuid
         AND m.account_id = g.id::uuid AND m.role <> 'viewer') LIMIT 1`);
  const [unfit] = rows;
  if (!unfit) return;
  const detail = `${unfit.id} is no annotator, engineer or admin of the job's workspace`;
  throw new Failure("invalid_request", `labeler_id, labeler_ids, reviewer_id: ${detail}`);
}

/**
 * Hands frames in stage `label` to review, or takes those in review or marked as reviewed back to
 * `label`; tells how many. Fails with `not_found` for a frame that the job does not have.
 */
export async function moveFrames(
  database: Database,
  job: JobRow,
  { filter, stage }: { filter: FrameFilter; stage: Exclude<FrameStage, "done"> },
): Promise<number> {
  await assertFrames(database, job, filter);
  const frames = matchingFrames(job, filter);
  const moved =
    stage === "review"
      ? sql`
    WITH moved AS (
      INSERT INTO frame_assignment AS a (job_id, video_id, frame_index, stage)
      SELECT job.id, w.video_id, w.frame, 'review' FROM job, (
          SELECT video_id, frame FROM (${frames}) f
          EXCEPT SELECT video_id, frame_index FROM (${reviewedFrames(job)}) d) w
       WHERE job.id = ${job.id}::uuid
      ON CONFLICT (job_id, video_id, frame_index) DO UPDATE SET stage = 'review'
       WHERE a.stage <> 'review' RETURNING a.job_id)`
      : sql`
    WITH w AS MATERIALIZED (${frames}), returned AS (
      UPDATE frame_assignment a SET stage = 'label' FROM w
       WHERE a.job_id = ${job.id}::uuid AND a.video_id = w.video_id AND a.frame_index = w.frame
         AND a.stage = 'review' RETURNING a.video_id, a.frame_index
    ), unmarked AS (
      DELETE FROM frame_review r USING w WHERE r.job_id = ${job.id}::uuid
         AND r.video_id = w.video_id AND r.frame_index = w.frame
      RETURNING r.video_id, r.frame_index
    ), moved AS (SELECT * FROM returned UNION SELECT * FROM unmarked)`;
  const [row] = await inJob<{ changed: number }>(
    database,
    job.id,
    sql`${moved} SELECT count(*)::int AS changed FROM moved`,
  );
  return row?.changed ?? 0;
}

/** Frames of a job that wait for review, and what is assigned to each person. */
export async function assignedFrames(
  database: Database,
  job: JobRow,
): Promise<{ inReview: number; people: Overview["people"] }> {
  // A job without assignments costs one look-up; else they are grouped with the job's frames, as
  // `matchingFrames` groups its marks.
  const any = sql`EXISTS (SELECT FROM frame_assignment WHERE job_id = ${job.id}::uuid)`;
  const { rows } = await database.execute<{ inReview: number; people: Overview["people"] }>(sql`
    WITH marked AS (
      SELECT video_id, unnest(frames) AS frame, true AS own, NULL AS labeler, NULL AS reviewer,
        NULL AS stage, false AS done FROM job_video WHERE job_id = ${job.id}::uuid AND ${any}
      UNION ALL SELECT video_id, frame, true, NULL, NULL, NULL, false
        FROM (${addedFrames(job)}) x WHERE ${any}
      UNION ALL SELECT video_id, frame_index, false, labeler_id::text, reviewer_id::text, stage,
        false FROM frame_assignment WHERE job_id = ${job.id}::uuid
      UNION ALL SELECT video_id, frame_index, false, NULL, NULL, NULL, true
        FROM (${reviewedFrames(job)}) d WHERE ${any}
    ), assigned AS (
      SELECT max(labeler) AS labeler, max(reviewer) AS reviewer, max(stage) AS stage,
        bool_or(done) AS done FROM marked
       GROUP BY video_id, frame HAVING bool_or(own) AND max(stage) IS NOT NULL
    ), parts AS (
      SELECT labeler, reviewer, stage, done, count(*) AS frames FROM assigned GROUP BY 1, 2, 3, 4
    ), people AS (
      SELECT account_id,
        coalesce(sum(frames) FILTER (WHERE role = 'label' AND NOT is_over), 0)::int AS labeling,
        coalesce(sum(frames) FILTER (WHERE role = 'label' AND is_over), 0)::int AS labeled,
        coalesce(sum(frames) FILTER (WHERE role = 'review' AND NOT is_over), 0)::int AS reviewing,
        coalesce(sum(frames) FILTER (WHERE role = 'review' AND is_over), 0)::int AS reviewed
        FROM (
          SELECT labeler AS account_id, 'label' AS role, done OR stage = 'review' AS is_over, frames
            FROM parts WHERE labeler IS NOT NULL
          UNION ALL SELECT reviewer, 'review', done, frames FROM parts WHERE reviewer IS NOT NULL) p
       GROUP BY account_id)
    SELECT (SELECT coalesce(sum(frames), 0) FROM parts WHERE stage = 'review' AND NOT done)::int
        AS "inReview",
      (SELECT coalesce(json_agg(json_build_object('account_id', account_id, 'labeling', labeling,
          'labeled', labeled, 'reviewing', reviewing, 'reviewed', reviewed) ORDER BY account_id),
          '[]') FROM people) AS people`);
  return rows[0] ?? { inReview: 0, people: [] };
}
