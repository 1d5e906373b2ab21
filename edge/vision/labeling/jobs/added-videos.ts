// Videos that a job gets after it was made: people find new ones to draw in, and a job by text or
// exemplar looks through them for all its classes.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import { mayMove } from "../../auth/logged-moves.ts";
import type { Caller } from "../../auth/scope.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import type { FrameChoice } from "./bodies.ts";
import { inJob, isLive, type JobRow, type SampledVideo, sampledRows, stillRuns } from "./jobs.ts";
import { assertCropsFit, chosenFrames, FRAMES_MAX } from "./new-jobs.ts";
import { assertSearchable, beginRound } from "./rounds.ts";
import { MOVES } from "./states.ts";

/**
 * Adds videos, or frames of videos, to a job that has ended; tells whether it runs again. A manual
 * job takes frames of videos that it has, too. Fails with `state_conflict` for a job that runs or
 * is not finished, for a copy that cannot be searched again and for a video that the job has, with
 * `invalid_request` for too many frames, and with `not_found`.
 */
export async function addVideos(
  parts: Parts,
  caller: Caller,
  { job, chosen }: { job: JobRow; chosen: FrameChoice },
): Promise<boolean> {
  const searches = job.kind === "text" || job.kind === "exemplar";
  if (isLive(job)) throw stillRuns(job);
  if (!mayMove(MOVES.extend, job.state)) {
    const detail = `the job is ${job.state}; resume it to its end before it gets more videos`;
    throw new Failure("state_conflict", detail);
  }
  if (searches && job.settings.copyOf) {
    const instead = "label them in a job of their own";
    throw new Failure("state_conflict", `a copy does not look through other videos: ${instead}`);
  }
  if (searches) await assertSearchable(parts.database, job, [...job.settings.passes.keys()]);
  const stretch = searches && job.fps !== null ? { fps: job.fps, ...chosen } : chosen;
  const wanted = { ...(chosen.frame_ids ? chosen : stretch), project_id: job.projectId };
  const { sampled } = await chosenFrames(parts, caller, wanted);
  assertCropsFit(job.settings.exemplars ?? [], sampled);
  if (job.framesTotal + sampled.reduce((sum, { frames }) => sum + frames.length, 0) > FRAMES_MAX) {
    throw new Failure("invalid_request", `video_ids: the job would have over ${FRAMES_MAX} frames`);
  }
  const [outcome] = await inJob<Outcome>(parts.database, job.id, insertion(job, sampled, searches));
  if (outcome?.present) {
    throw new Failure("state_conflict", `the job has video ${outcome.present} already`);
  }
  if (!outcome?.moved) throw new Failure("state_conflict", "the job runs again, or was deleted");
  if (searches) await beginRound(parts, job);
  return searches;
}

interface Outcome {
  /** A video that the job has already, and takes no frames of. */
  present: string | null;
  moved: boolean;
}

/** Stores the videos, in one statement with the move of a job that looks through them. */
function insertion(job: JobRow, sampled: readonly SampledVideo[], searches: boolean): SQL {
  const jobId = sql`${job.id}::uuid`;
  const ids = sampled.map(({ videoId }) => videoId);
  const { from, to } = MOVES.extend;
  const round = sql`, state = ${to}, ended_at = NULL, settings = settings - 'since' ||
    jsonb_build_object('round', (settings->>'round')::int + 1, 'added', ${JSON.stringify(ids)}::jsonb,
      'passes', (
        -- A pass whose classes were all removed looks for nothing.
        SELECT jsonb_agg((SELECT coalesce(jsonb_agg(n), '[]') FROM jsonb_array_elements(p.pass) n
             WHERE EXISTS (SELECT FROM job_class k WHERE k.job_id = ${jobId} AND k.number = n::int))
             ORDER BY p.place)
          FROM jsonb_array_elements(settings->'passes') WITH ORDINALITY p(pass, place)))`;
  const merged = sql`ARRAY(SELECT DISTINCT f FROM unnest(job_video.frames || excluded.frames) f
    ORDER BY f)`;
  return sql`
    WITH given AS (${sampledRows(sampled)}), present AS (
      SELECT video_id FROM job_video WHERE job_id = ${jobId} AND video_id IN ${idList(ids)}
         AND ${job.kind !== "manual"}
    ), own AS (
      SELECT id FROM job WHERE id = ${jobId} AND state = ${from[0]}
         AND NOT EXISTS (SELECT FROM present)
    ), stored AS (
      INSERT INTO job_video (job_id, video_id, position, frames, searched)
      SELECT own.id, given.video_id, given.position + (
          SELECT coalesce(max(position), -1) FROM job_video WHERE job_id = ${jobId}),
        given.frames, ${searches} FROM own, given
      ON CONFLICT (job_id, video_id) DO UPDATE SET frames = ${merged}
      RETURNING video_id, frames
    ), moved AS (
      UPDATE job SET frames_total = (SELECT sum(cardinality(frames)) FROM stored) + (
          SELECT coalesce(sum(cardinality(frames)), 0) FROM job_video
           WHERE job_id = ${jobId} AND video_id NOT IN ${idList(ids)})
        ${searches ? round : sql``}
        FROM own WHERE job.id = own.id RETURNING job.id)
    SELECT (SELECT video_id::text FROM present LIMIT 1) AS present,
      EXISTS (SELECT FROM moved) AS moved`;
}
