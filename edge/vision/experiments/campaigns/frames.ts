// The reviewed frames of an experiment: each is looked at by both models, as a task of the queue
// that stands behind all others, and scored once by what its reviewer left. What a crash interrupts
// is taken up by the next minute: tasks have keys, and a frame has one row.

import { type SQL, sql } from "drizzle-orm";
import { type Prediction, TASK_KINDS, type TaskKind } from "../../../../shared/tasks/tasks.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { textList } from "../../base/sql.ts";
import type { JobRow } from "../../labeling/jobs/jobs.ts";
import { repeated, shown } from "../../labeling/review/annotations.ts";
import { objectKeys } from "../../media/videos/videos.ts";
import type { ModelRow } from "../../models/registry.ts";
import { predictTask } from "../../serving/predict/predictions.ts";
import { source, target } from "../../tasks/objects.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import type { NewTask } from "../../tasks/queue/queue.ts";
import { submit } from "../../tasks/queue/wait.ts";
import { FRAMES_MAX } from "./end.ts";
import type { ExperimentRow } from "./experiments.ts";
import type { FrameScore, ReviewedScores } from "./figures.ts";
import { frameScore, type TruthBox } from "./scores.ts";

/** Frames of an experiment that are under way at once. */
const UNDER_WAY_MAX = 32;
/** Behind all that somebody asked for. */
const PRIORITY = -10;
/** Detections from here on are ranked, as in a validation. */
const CONFIDENCE_MIN = 0.001;

/** What an experiment's tasks are part of. */
export const subjectOf = (experimentId: string) => `experiment:${experimentId}`;

/** Both models of an experiment. */
export interface ModelPair {
  baseline: ModelRow;
  candidate: ModelRow;
}
const ROLES = ["baseline", "candidate"] as const;
type Role = (typeof ROLES)[number];

interface OpenFrame extends Record<string, unknown> {
  number: number;
  videoId: string;
  frameIndex: number;
  /** The video's object; null where the video is gone or cannot be read. */
  storageKey: string | null;
  bytes: number | null;
}

/**
 * Brings an experiment's frames on: chooses reviewed ones that are new, has both models look at
 * them, and scores those that both have seen.
 */
export async function bringFramesOn(
  parts: Parts,
  row: ExperimentRow,
  { job, models }: { job: JobRow; models: ModelPair },
): Promise<void> {
  await chooseFrames(parts, row);
  const open = await openFrames(parts, row);
  if (open.length === 0) return;
  const outcomes = await outcomesOf(parts, row, open);
  const ends = open.map((frame) => ({ frame, end: endOf(frame, outcomes) }));
  const left = ends.filter(({ end }) => end === null);
  const tasks = await Promise.all(
    left.map(({ frame }) => tasksOf(parts, { row, models, frame, outcomes })),
  );
  await submit(parts, tasks.flat());
  const ended = ends.flatMap(({ end }) => end ?? []);
  if (ended.length > 0) await scoreFrames(parts, { row, job }, ended);
}

/** Takes in frames that were reviewed, oldest review first. */
async function chooseFrames({ database }: Parts, row: ExperimentRow): Promise<void> {
  const { rules, experimentId, jobId } = row;
  const framesMax = Math.min(rules.budget.samples ?? FRAMES_MAX, FRAMES_MAX);
  const since = rules.include_reviewed
    ? sql`true`
    : sql`r.reviewed_at >= ${row.createdAt}::timestamptz`;
  const own = sql`experiment_id = ${experimentId}::uuid`;
  await database.execute(sql`
    INSERT INTO experiment_frame (experiment_id, video_id, frame_index)
    SELECT ${experimentId}::uuid, r.video_id, r.frame_index FROM frame_review r
     WHERE r.job_id = ${jobId}::uuid AND ${since} AND NOT EXISTS (
       SELECT FROM experiment_frame f WHERE f.${own}
          AND f.video_id = r.video_id AND f.frame_index = r.frame_index)
     ORDER BY r.reviewed_at, r.video_id, r.frame_index
     LIMIT greatest(0, least(
       ${UNDER_WAY_MAX}::int
         - (SELECT count(*) FROM experiment_frame WHERE ${own} AND scored_at IS NULL),
       ${framesMax}::int - (SELECT count(*) FROM experiment_frame WHERE ${own}
         AND (scored_at IS NULL OR baseline_score IS NOT NULL))))
    ON CONFLICT DO NOTHING`);
}

async function openFrames({ database }: Parts, row: ExperimentRow): Promise<OpenFrame[]> {
  const { rows } = await database.execute<OpenFrame>(sql`
    SELECT f.number::float8 AS number, f.video_id::text AS "videoId",
      f.frame_index AS "frameIndex", v.storage_key AS "storageKey", v.bytes::float8 AS bytes
      FROM experiment_frame f LEFT JOIN video v ON v.id = f.video_id AND v.state = 'ready'
       AND v.workspace_id = ${row.workspaceId}::uuid
     WHERE f.experiment_id = ${row.experimentId}::uuid AND f.scored_at IS NULL
     ORDER BY f.number LIMIT ${UNDER_WAY_MAX}::int`);
  return rows;
}

/** What a frame needs done. */
type Part = Role | "image";
const PARTS = ["image", ...ROLES] as const;

/** How often a part is begun whose task was taken back or lost; a frame is given up then. */
const ROUNDS = [0, 1, 2] as const;

const keyOf = (row: ExperimentRow, number: number, { of, round }: { of: Part; round: number }) =>
  `${subjectOf(row.experimentId)}:${number}:${of}${round === 0 ? "" : `:${round}`}`;

/** What a frame needs: its image where the store has none, else both models' looks at it. */
async function tasksOf(
  { bucket }: Parts,
  {
    row,
    models,
    frame,
    outcomes,
  }: { row: ExperimentRow; models: ModelPair; frame: OpenFrame; outcomes: Outcomes },
): Promise<NewTask[]> {
  const { videoId, frameIndex, storageKey, bytes, number } = frame;
  if (storageKey === null || bytes === null) return [];
  const own = { subject: subjectOf(row.experimentId), priority: PRIORITY };
  const key = objectKeys(row.workspaceId, videoId).frame(frameIndex);
  const keyFor = (of: Part) => keyOf(row, number, { of, round: outcomes(number, of).round });
  const image = await bucket.head(key);
  if (!image) {
    return [
      {
        kind: "frames",
        workspaceId: row.workspaceId,
        ...own,
        idempotencyKey: keyFor("image"),
        payload: {
          video: source(storageKey, bytes),
          video_id: videoId,
          frames: [frameIndex],
          images: [target(key, "image/jpeg")],
        },
      },
    ];
  }
  const options = { fps: null, framesMax: 1, uncut: false, confidenceMin: CONFIDENCE_MIN };
  return ROLES.map((role) => ({
    ...predictTask(models[role], { key, bytes: image.size }, options),
    ...own,
    idempotencyKey: keyFor(role),
  }));
}

interface TaskOutcome extends Record<string, unknown> {
  key: string;
  kind: TaskKind;
  state: string;
  result: unknown;
  /** The code of its last error; null where it had none. */
  code: string | null;
}

/** What failed by the model itself: all others may do better at the next node, or another day. */
const MODEL_CODES: readonly (string | null)[] = ["bad_weights", "too_many_objects"];
/** What no other attempt at the image's file changes. */
const FILE_CODES: readonly (string | null)[] = ["unsupported_media"];

/** Whether a task says something of what it was to do: others were taken back or lost. */
function isWord({ kind, state, code }: TaskOutcome): boolean {
  if (state === "finished") return true;
  if (state !== "failed") return false;
  return FILE_CODES.includes(code) || (kind === "predict" && MODEL_CODES.includes(code));
}

/** How far a part of a frame is. */
interface PartState {
  /** The round under way, or the one that `outcome` is of. */
  round: number;
  /** What has the last word; null while something is under way. */
  outcome: TaskOutcome | null;
}
type Outcomes = (number: number, of: Part) => PartState;

/** How the tasks of frames ended. */
async function outcomesOf(
  { database }: Parts,
  row: ExperimentRow,
  frames: readonly OpenFrame[],
): Promise<Outcomes> {
  const keys = frames.flatMap(({ number }) =>
    PARTS.flatMap((of) => ROUNDS.map((round) => keyOf(row, number, { of, round }))),
  );
  const { rows } = await database.execute<TaskOutcome>(sql`
    SELECT idempotency_key AS key, kind, state, result, errors -> -1 ->> 'code' AS code FROM task
     WHERE idempotency_key IN ${textList(keys)} AND ended_at IS NOT NULL`);
  const byKey = new Map(rows.map((outcome) => [outcome.key, outcome]));
  return (number, of) => {
    let lost: TaskOutcome | null = null;
    for (const round of ROUNDS) {
      const outcome = byKey.get(keyOf(row, number, { of, round }));
      if (!outcome) return { round, outcome: null };
      if (isWord(outcome)) return { round, outcome };
      lost = outcome;
    }
    return { round: ROUNDS.length - 1, outcome: lost };
  };
}

/** A frame that both models have done with. */
interface EndedFrame extends OpenFrame {
  /** What each found; null where it failed, or the frame was not shown to both. */
  found: Record<Role, Prediction[] | null>;
  /** Whether the frame could be shown to both. */
  isShown: boolean;
}

/** How a frame ended; null while something is under way. */
function endOf(frame: OpenFrame, outcomes: Outcomes): EndedFrame | null {
  const none = { baseline: null, candidate: null };
  if (frame.storageKey === null) return { ...frame, found: none, isShown: false };
  const { outcome: image } = outcomes(frame.number, "image");
  if (image && image.state !== "finished") return { ...frame, found: none, isShown: false };
  const [baseline, candidate] = ROLES.map((role) => outcomes(frame.number, role).outcome);
  if (!baseline || !candidate) return null;
  // A part that was lost each time, or an image that is none, is no word on either model.
  if (![baseline, candidate].every(isModelWord)) return { ...frame, found: none, isShown: false };
  const found = { baseline: foundBy(baseline), candidate: foundBy(candidate) };
  return { ...frame, found, isShown: true };
}

/** Whether a task says something of its model: what it found, or that it cannot. */
const isModelWord = ({ state, code }: TaskOutcome): boolean =>
  state === "finished" || (state === "failed" && MODEL_CODES.includes(code));

function foundBy({ state, result }: TaskOutcome): Prediction[] | null {
  const parsed = TASK_KINDS.predict.result.safeParse(result);
  if (state !== "finished" || !parsed.success) return null;
  return parsed.data.frames[0]?.predictions ?? null;
}

/** Scores frames by what their reviewers left, each once. */
async function scoreFrames(
  parts: Parts,
  { row, job }: { row: ExperimentRow; job: JobRow },
  frames: readonly EndedFrame[],
): Promise<void> {
  const truthOf = await truths(parts, job, frames);
  const scored = frames.map((frame) => {
    const { found, isShown, number } = frame;
    const { baseline, candidate } = found;
    // Who fails on a frame has found nothing that is worth anything.
    const score = (one: Prediction[] | null) =>
      one === null ? 0 : frameScore(row, truthOf(frame), one);
    return {
      number,
      baseline_score: isShown ? score(baseline) : null,
      candidate_score: isShown ? score(candidate) : null,
      baseline_failed: isShown && baseline === null,
      candidate_failed: isShown && candidate === null,
    };
  });
  await parts.database.execute(sql`
    UPDATE experiment_frame f SET scored_at = now(), baseline_score = s.baseline_score,
      candidate_score = s.candidate_score, baseline_failed = s.baseline_failed,
      candidate_failed = s.candidate_failed
      FROM jsonb_to_recordset(${jsonb(scored)}) AS s(number bigint, baseline_score float8,
        candidate_score float8, baseline_failed boolean, candidate_failed boolean)
     WHERE f.number = s.number AND f.experiment_id = ${row.experimentId}::uuid
       AND f.scored_at IS NULL`);
}

type TruthRow = Record<string, unknown> & {
  videoId: string;
  frameIndex: number;
  class: string;
  bbox: TruthBox["bbox"];
};

/** What reviewers left on frames: what is shown of the job, but for what they rejected. */
async function truths(
  { database }: Parts,
  job: JobRow,
  frames: readonly OpenFrame[],
): Promise<(frame: OpenFrame) => TruthBox[]> {
  const meant: SQL = sql`jsonb_to_recordset(${jsonb(
    frames.map(({ videoId, frameIndex }) => ({ video_id: videoId, frame_index: frameIndex })),
  )}) AS m(video_id uuid, frame_index int)`;
  const { rows } = await database.execute<TruthRow>(sql`
    SELECT a.video_id::text AS "videoId", a.frame_index AS "frameIndex", c.name AS class,
      jsonb_build_array(a.x1, a.y1, a.x2, a.y2) AS bbox
      FROM ${meant} JOIN annotation a ON a.video_id = m.video_id AND a.frame_index = m.frame_index
      JOIN job_class c ON c.job_id = a.job_id AND c.number = a.class_number
     WHERE a.job_id = ${job.id}::uuid AND a.review <> 'rejected' AND ${shown(job.threshold)}
       AND NOT ${repeated(job.threshold)}
     ORDER BY a.id`);
  const nameOf = ({ videoId, frameIndex }: Pick<OpenFrame, "videoId" | "frameIndex">) =>
    `${videoId}.${frameIndex}`;
  const byFrame = Map.groupBy(rows, nameOf);
  return (frame) => byFrame.get(nameOf(frame)) ?? [];
}

type ScoreRow = Record<string, unknown> & FrameScore;

/** The scores so far, in the order in which they came, and how often each model failed. */
export async function reviewedScores(
  { database }: Pick<Parts, "database">,
  { experimentId }: Pick<ExperimentRow, "experimentId">,
): Promise<ReviewedScores> {
  const own = sql`experiment_id = ${experimentId}::uuid AND scored_at IS NOT NULL`;
  const { rows: scores } = await database.execute<ScoreRow>(sql`
    SELECT baseline_score AS baseline, candidate_score AS candidate FROM experiment_frame
     WHERE ${own} AND baseline_score IS NOT NULL ORDER BY scored_at, number`);
  const { rows } = await database.execute<{ baseline: number; candidate: number }>(sql`
    SELECT count(*) FILTER (WHERE baseline_failed)::int AS baseline,
      count(*) FILTER (WHERE candidate_failed)::int AS candidate FROM experiment_frame WHERE ${own}`);
  const [failures] = rows;
  return {
    scores,
    baselineFailures: failures?.baseline ?? 0,
    candidateFailures: failures?.candidate ?? 0,
  };
}

/** Nobody waits any longer for what an experiment has under way. */
export async function dropFrameTasks(
  { database }: Pick<Parts, "database">,
  { experimentId, source: from }: Pick<ExperimentRow, "experimentId" | "source">,
): Promise<void> {
  if (from === "reviewed") await requestCancel(database, { subject: subjectOf(experimentId) });
}
