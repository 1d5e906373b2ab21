// Frames of a job in the hands of people: who labels and who reviews each, and the stages from
// label to review. A frame is done by the rule of `reviewedFrames`, whatever its row says. Only
// frames of the job are assigned; a row whose frame left the job, as when its only box is deleted,
// counts nowhere.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { FrameStage, Overview } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
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

/** Fails with `invalid_request` for an account that is no annotator of the workspace, or above. */
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

/**
 * Has the transaction join and group by hashes. Nothing tells Postgres how many frames a job has;
 * by its guess it would look up each assignment by itself, or sort them all.
 */
const BY_HASH = sql`SELECT set_config('enable_nestloop', 'off', true),
  set_config('enable_sort', 'off', true)`;

/** How many frames have the same people and stage. */
interface AssignedPart {
  labeler_id: string | null;
  reviewer_id: string | null;
  stage: "label" | "review";
  done: boolean;
  frames: number;
}

/** Frames of a job that wait for review, and what is assigned to each person. */
export async function assignedFrames(
  database: Database,
  job: JobRow,
): Promise<{ inReview: number; people: Overview["people"] }> {
  // A job without assignments costs one look-up.
  const any = sql`EXISTS (SELECT FROM frame_assignment WHERE job_id = ${job.id}::uuid)`;
  const [, parts] = await batch<[unknown, AssignedPart]>(database, [
    BY_HASH,
    sql`
    SELECT a.labeler_id, a.reviewer_id, a.stage, d.video_id IS NOT NULL AS done,
      count(*)::int AS frames
      FROM frame_assignment a
      JOIN (SELECT video_id, unnest(frames) AS frame FROM job_video
             WHERE job_id = ${job.id}::uuid AND ${any}
            UNION ALL SELECT video_id, frame FROM (${addedFrames(job)}) x WHERE ${any}) f
        ON f.video_id = a.video_id AND f.frame = a.frame_index
      LEFT JOIN (${reviewedFrames(job)}) d
        ON d.video_id = a.video_id AND d.frame_index = a.frame_index
     WHERE a.job_id = ${job.id}::uuid GROUP BY 1, 2, 3, 4`,
  ]);
  const people = new Map<string, Overview["people"][number]>();
  type Count = "labeling" | "labeled" | "reviewing" | "reviewed";
  const add = (id: string | null, what: Count, frames: number) => {
    if (id === null) return;
    const none = { labeling: 0, labeled: 0, reviewing: 0, reviewed: 0 };
    const person = people.get(id) ?? { account_id: id, ...none };
    people.set(id, { ...person, [what]: person[what] + frames });
  };
  let inReview = 0;
  for (const { labeler_id, reviewer_id, stage, done, frames } of parts) {
    const isLabeled = done || stage === "review";
    add(labeler_id, isLabeled ? "labeled" : "labeling", frames);
    add(reviewer_id, done ? "reviewed" : "reviewing", frames);
    if (stage === "review" && !done) inReview += frames;
  }
  const byId = [...people.values()].sort((one, two) => (one.account_id < two.account_id ? -1 : 1));
  return { inReview, people: byId };
}
