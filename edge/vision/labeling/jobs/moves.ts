// A labeling job's life as people decide it: edit, copy, extend, stop, resume, delete.

import { type SQL, sql } from "drizzle-orm";
import { annotation, job as jobs } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import { patientBatch } from "../../../http/database.ts";
import { assignments, copyOf } from "../../../http/row-changes.ts";
import type { Act } from "../../auth/audit.ts";
import { mayMove } from "../../auth/logged-moves.ts";
import { folded } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { textList } from "../../base/sql.ts";
import { modelCalled } from "../../models/registry.ts";
import { requestCancel, requestRevoke } from "../../tasks/queue/interventions.ts";
import { classExists, unusedNumber } from "../classes.ts";
import { subjectOf as cropSubjectOf, discardPacks } from "../crops/packs.ts";
import { releaseExports } from "../datasets/exports.ts";
import type { JobEdit } from "./bodies.ts";
import { classesOfModel, groundAnother, type PromptedClass } from "./grounding.ts";
import {
  addWarnings,
  findJob,
  inJob,
  isLive,
  type JobRow,
  labeledFrames,
  moveJob,
  passesOf,
  stillRuns,
  subjectOf,
  wordColumns,
} from "./jobs.ts";
import { advanceJob, assertSearchable, beginRound, relateAnnotations } from "./rounds.ts";
import { MOVES, type Move } from "./states.ts";

/** Renames a job, or slices it by another threshold. */
export async function editJob(
  { database }: Pick<Parts, "database">,
  job: JobRow,
  edit: JobEdit,
): Promise<void> {
  const changes = assignments(jobs, {
    name: sql`${edit.name ?? job.name}`,
    threshold: sql`${Math.fround(edit.threshold ?? job.threshold)}::real`,
    ...wordColumns(edit),
  });
  // What another threshold shows is counted, which of a million annotations takes its time.
  await patientBatch(database, [sql`UPDATE job SET ${changes} WHERE id = ${job.id}::uuid`]);
}

/** Deletes a job with its annotations, crops and exports; its tasks are canceled. */
export async function deleteJob(parts: Parts, job: JobRow): Promise<void> {
  await requestCancel(parts.database, { subject: subjectOf(job.id) });
  const afterDelete = await releaseExports(parts, {
    workspaceId: job.workspaceId,
    jobId: job.id,
  });
  await patientBatch(parts.database, [sql`DELETE FROM job WHERE id = ${job.id}::uuid`]);
  await requestCancel(parts.database, { subject: cropSubjectOf(job.id) });
  await discardPacks(parts, job);
  await afterDelete();
}

/** Copies a job that has ended; returns the copy's id. Before its end: `state_conflict`. */
export async function duplicateJob(
  { database }: Parts,
  job: JobRow,
  createdBy: string,
): Promise<string> {
  if (isLive(job)) throw stillRuns(job);
  const copyId = crypto.randomUUID();
  await inJob(database, job.id, copyJob(job, copyId, createdBy));
  return copyId;
}

/** The copy is a finished job of its own, over the frames that are labeled: nothing runs again. */
function copyJob(job: JobRow, to: string, createdBy: string): SQL {
  const from = sql`${job.id}::uuid`;
  // The copy of an id follows from it, so that references need no look-up (a UUID of version 8).
  const copied = (id: SQL) => sql`overlay(overlay(md5(${to}::text || ${id}::text)
    placing '8' from 13) placing '8' from 17)::uuid`;
  const frames =
    job.state === "completed"
      ? sql`SELECT video_id, position, frames, searched FROM job_video WHERE job_id = ${from}`
      : sql`SELECT j.video_id, j.position, l.frames, j.searched FROM job_video j JOIN (
            SELECT video_id, array_agg(frame ORDER BY frame) AS frames FROM (${labeledFrames(job)}) f
             GROUP BY video_id) l ON l.video_id = j.video_id WHERE j.job_id = ${from}`;
  const jobCopy = copyOf(jobs, {
    id: sql`${to}::uuid`,
    name: sql`left(name || ' (copy)', 200)`,
    state: sql`'completed'`,
    failure: sql`NULL`,
    settings: sql`settings - 'added' || '{"round": 1, "planned": 1, "passes": [[]]}'::jsonb
      || jsonb_build_object('copyOf', id)`,
    framesTotal: sql`(SELECT coalesce(sum(cardinality(frames)), 0) FROM frames)`,
    createdBy: sql`${createdBy}::uuid`,
    createdAt: sql`now()`,
  });
  const annotationCopy = copyOf(annotation, {
    id: copied(sql`id`),
    jobId: sql`${to}::uuid`,
    duplicateOf: copied(sql`duplicate_of`),
    // Set by the trigger that counts annotations.
    repeatsTo: sql`NULL::real`,
    revision: sql`1`,
    createdAt: sql`now()`,
    updatedAt: sql`now()`,
  });
  return sql`
  WITH frames (video_id, position, frames, searched) AS (${frames}),
  j AS (
    INSERT INTO job ${jobCopy} FROM job WHERE id = ${from}
  ), v AS (
    INSERT INTO job_video (job_id, video_id, position, frames, searched)
    SELECT ${to}::uuid, video_id, position, frames, searched FROM frames
  ), c AS (
    INSERT INTO job_class (job_id, number, name, prompt)
    SELECT ${to}::uuid, number, name, prompt FROM job_class WHERE job_id = ${from}
  ), r AS (
    INSERT INTO frame_review (job_id, video_id, frame_index, reviewed_by, reviewed_at)
    SELECT ${to}::uuid, video_id, frame_index, reviewed_by, reviewed_at
      FROM frame_review WHERE job_id = ${from}
  ), s AS (
    INSERT INTO job_side (job_id, video_id, frame_index, side)
    SELECT ${to}::uuid, video_id, frame_index, side FROM job_side WHERE job_id = ${from}
  )
  INSERT INTO annotation ${annotationCopy}
    FROM annotation WHERE job_id = ${from}`;
}

/** A class that a finished job is to look for, too. */
interface NewClass {
  className: string;
  prompt: string;
  /** Id or name of the model that looks for it; that of the job when left out. */
  model?: string | undefined;
}

/**
 * Has a finished job look for one class more over all its frames; returns warnings of the prompt.
 * Fails with `state_conflict` for a job that no segmenter labels or that is not finished, with
 * `class_exists`, and with `prompt_unknown`.
 */
export async function extendJob(
  parts: Parts,
  job: JobRow,
  { className, prompt, model }: NewClass,
): Promise<string[]> {
  const { database } = parts;
  if (job.kind === "import" || job.kind === "manual") {
    const detail = `a job of kind ${job.kind} is not labeled by a segmenter`;
    throw new Failure("state_conflict", detail);
  }
  if (!mayMove(MOVES.extend, job.state)) {
    const detail = `the job is ${job.state}; only a finished one is extended`;
    throw new Failure("state_conflict", detail);
  }
  const { workspaceId, settings } = job;
  const asked = model ?? settings.models?.[0];
  if (asked) {
    const row = await modelCalled(database, workspaceId, asked);
    classesOfModel(row, [prompt]);
    await addPass(database, job.id, { className, prompt, modelId: row.modelId });
    await beginRound(parts, job);
    return [];
  }
  const { rows: beside } = await database.execute<PromptedClass & Record<string, unknown>>(sql`
    SELECT name, prompt FROM job_class WHERE job_id = ${job.id}::uuid AND prompt IS NOT NULL`);
  const choice = { workspaceId, segmenter: settings.segmenter ?? undefined };
  const warnings = await groundAnother(database, { prompt, beside }, choice);
  await addPass(database, job.id, { className, prompt });
  await addWarnings(database, job, warnings);
  await beginRound(parts, job);
  return warnings;
}

/** A class more and the pass that looks for it, in one statement with the job's move. */
async function addPass(
  database: Parts["database"],
  jobId: string,
  { className, prompt, modelId = null }: NewClass & { modelId?: string | null },
): Promise<void> {
  const { from, to } = MOVES.extend;
  const models = sql`CASE WHEN ${modelId}::text IS NULL THEN '{}'::jsonb
    ELSE jsonb_build_object('models', coalesce(settings->'models', '{}') || jsonb_build_object(
      jsonb_array_length(settings->'passes')::text, ${modelId}::text)) END`;
  const [outcome] = await inJob<{ known: string | null; moved: boolean }>(
    database,
    jobId,
    sql`
    WITH known AS (
      SELECT name FROM job_class WHERE job_id = ${jobId}::uuid
         AND ${folded(sql`name`)} = ${folded(sql`${className}::text`)} LIMIT 1
    ), next AS (SELECT ${unusedNumber(jobId)} AS number), moved AS (
      UPDATE job SET state = ${to}, ended_at = NULL, settings = settings - 'since' - 'added' ||
          ${models} || jsonb_build_object('round', (settings->>'round')::int + 1, 'passes',
            settings->'passes' || jsonb_build_array(jsonb_build_array(next.number)))
        FROM next WHERE id = ${jobId}::uuid AND state IN ${textList(from)}
         AND NOT EXISTS (SELECT FROM known) RETURNING id
    ), class AS (
      INSERT INTO job_class (job_id, number, name, prompt)
      SELECT moved.id, next.number, ${className}, ${prompt} FROM moved, next)
    SELECT (SELECT name FROM known) AS known, EXISTS (SELECT FROM moved) AS moved`,
  );
  if (outcome?.moved) return;
  throw outcome?.known ? classExists(outcome.known) : noMore("extend");
}

/** Ends a job early and keeps what it labeled; frames under way are finished first. */
export async function stopJob(parts: Parts, job: JobRow): Promise<void> {
  if (!mayMove(MOVES.stop, job.state)) {
    throw new Failure("state_conflict", `the job is ${job.state}: there is nothing to stop`);
  }
  await requestCancel(parts.database, { subject: subjectOf(job.id) });
  await takeUnclaimed(parts, job);
}

/**
 * Ends a job for good, as failed: what its nodes report of it is taken no more, and what it labeled
 * stays. Fails with `state_conflict` for one that has ended.
 */
export async function failJob(
  parts: Parts,
  job: JobRow,
  { reason, act }: { reason: string; act: Act },
): Promise<void> {
  const { database } = parts;
  await relateAnnotations(database, job);
  const set = sql`, ended_at = now(), failure = ${reason}`;
  if (!(await moveJob(database, job.id, "fail", { set, act }))) {
    const now = await findJob(database, [job.workspaceId], job.id);
    throw new Failure("state_conflict", `the job has ended: it is ${now.state}`);
  }
  await requestRevoke(database, { subject: subjectOf(job.id) });
  await takeUnclaimed(parts, job);
}

/** Takes the outcome of tasks that ended before a node had them: no node reports it. */
async function takeUnclaimed(parts: Parts, job: JobRow) {
  await parts.database.execute(sql`
    UPDATE task SET settled_at = now(), result = jsonb_build_object('done', frames_done)
     WHERE subject = ${subjectOf(job.id)} AND state IN ('cancelled', 'revoked')
       AND settled_at IS NULL AND result IS NULL`);
  await advanceJob(parts, job.id, job.workspaceId);
}

/**
 * Goes on with a stopped or failed job where it was left. Fails with `state_conflict` for any
 * other, and when the classes that it looked for were removed; with `not_found` when its model was.
 */
export async function resumeJob(parts: Parts, job: JobRow): Promise<void> {
  const { database } = parts;
  if (!mayMove(MOVES.resume, job.state)) {
    throw new Failure("state_conflict", `the job is ${job.state}: there is nothing to resume`);
  }
  await assertSearchable(database, job, passesOf(job));
  const round = JSON.stringify({ round: job.settings.round + 1 });
  const columns = sql`, failure = NULL, ended_at = NULL,
    settings = settings || ${round}::jsonb - 'since'`;
  if (!(await moveJob(database, job.id, "resume", { set: columns }))) throw noMore("resume");
  await beginRound(parts, job);
}

const noMore = (move: Move) =>
  new Failure("state_conflict", `the job is no more ${MOVES[move].from.join(" or ")}`);
