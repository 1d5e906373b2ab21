// Runs of comparisons: a row, a task and a folder each. A session that nobody is to find any more
// is marked as forgotten first; its folder goes before its row, so that a crash leaves nothing
// behind.

import { sql } from "drizzle-orm";
import { comparisonSession } from "../../../../db/vision/comparisons.ts";
import { task } from "../../../../db/vision/schema.ts";
import { assert, Failure } from "../../../../shared/errors.ts";
import {
  ComparedFrame,
  ComparisonOutcome,
  ComparisonSummary,
  REPORT_BLOCK_FRAMES,
} from "../../../../shared/tasks/comparison-task.ts";
import type { TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { iso } from "../../../../shared/time.ts";
import { batch, type Database, isSilent } from "../../../http/database.ts";
import {
  columnsOf,
  joinedColumnsOf,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../../http/selection.ts";
import { jsonb, storable } from "../../../http/storable.ts";
import { discardObjects } from "../../base/discard.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { presignGet, target } from "../../tasks/objects.ts";
import { requestCancel } from "../../tasks/queue/interventions.ts";
import { submit } from "../../tasks/queue/wait.ts";
import type { SideModel } from "./compared-models.ts";
import {
  type ComparisonResult,
  ComparisonSettings,
  SessionInput,
  SessionModel,
} from "./records.ts";

/** Sessions of a workspace that are kept at once. */
const SESSIONS_MAX = 1_000;
/** What predictions on videos are kept for, too. */
const KEPT_DAYS = 1;
/** Sessions whose folders one minute lets go of; the next one takes the rest. */
const FORGOTTEN_MAX = 50;
const LOST = "the service was interrupted before the comparison began; run it again";

/** What the task of a session is part of. */
export const subjectOf = (sessionId: string) => `comparison:${sessionId}`;

/** Keys of a session's objects; an attempt's own are made of them. */
export const keysOf = (workspaceId: string, sessionId: string) => {
  const folder = `ws/${workspaceId}/comparisons/${sessionId}/`;
  return {
    folder,
    manifest: `${folder}manifest.json`,
    report: `${folder}frames.ndjson`,
    overlay: (rank: number) => `${folder}overlay-${rank}.jpg`,
  };
};

/** A session to begin. */
export interface NewSession {
  sessionId: string;
  workspaceId: string;
  comparisonId: string | null;
  settings: ComparisonSettings;
  models: readonly [SideModel, SideModel];
  input: SessionInput;
  /** Gives what the task looks at; may write to the session's folder. */
  footage: () => Promise<SessionFootage>;
  overlays: number;
  createdBy: string;
}

/** What a session's task looks at. */
export type SessionFootage = Pick<
  TaskPayload<"comparison">,
  "video" | "dataset" | "video_id" | "filename" | "fps" | "frames_max" | "split"
>;

/**
 * Begins a session; returns its task's id. Fails with `not_found` where its comparison was deleted
 * meanwhile, and with `state_conflict` where the workspace has as many as are kept.
 */
export async function startSession(
  parts: Parts,
  session: NewSession,
  { priority, attemptsMax }: { priority: number; attemptsMax: number },
): Promise<string> {
  const { sessionId, workspaceId } = session;
  await insertSession(parts.database, session);
  let isSubmitted = false;
  try {
    const payload = payloadOf(session, await session.footage());
    isSubmitted = true;
    const [enqueued] = await submit(parts, [
      {
        kind: "comparison",
        workspaceId,
        subject: subjectOf(sessionId),
        idempotencyKey: subjectOf(sessionId),
        priority,
        attemptsMax,
        payload,
      },
    ]);
    return enqueued?.taskId as string;
  } catch (thrown) {
    // A task that may have been enqueued keeps its session.
    if (!isSubmitted || !isSilent(thrown)) await forget(parts, sessionId);
    throw thrown;
  }
}

async function insertSession(database: Database, session: NewSession): Promise<void> {
  const { sessionId, workspaceId, comparisonId, settings, models, input, createdBy } = session;
  const there =
    comparisonId === null
      ? sql`SELECT 1`
      : sql`SELECT 1 FROM comparison WHERE id = ${comparisonId}::uuid FOR SHARE`;
  const [, inserted] = await batch<[unknown, { id: string }]>(database, [
    sql`SELECT FROM workspace WHERE id = ${workspaceId}::uuid FOR NO KEY UPDATE`,
    sql`
      WITH there AS (${there})
      INSERT INTO comparison_session (id, workspace_id, comparison_id, settings, models, input,
        created_by)
      SELECT ${sessionId}::uuid, ${workspaceId}::uuid, ${comparisonId}::uuid, ${jsonb(settings)},
        ${jsonb(models.map(({ session: own }) => own))}, ${jsonb(input)}, ${createdBy}::uuid
        FROM there WHERE (SELECT count(*) FROM comparison_session
          WHERE workspace_id = ${workspaceId}::uuid AND forgotten_at IS NULL) < ${SESSIONS_MAX}::int
      RETURNING id::text`,
  ]);
  if (inserted.length > 0) return;
  const { rows } = await database.execute<{ gone: boolean }>(sql`
    SELECT ${comparisonId}::uuid IS NOT NULL
      AND NOT EXISTS (SELECT FROM comparison WHERE id = ${comparisonId}::uuid) AS gone`);
  if (rows[0]?.gone) throw new Failure("not_found", "no such comparison in your workspaces");
  const detail = `the workspace has ${SESSIONS_MAX} results of comparisons; they go after a day`;
  throw new Failure("state_conflict", detail, { data: { sessions_max: SESSIONS_MAX } });
}

function payloadOf(
  { sessionId, workspaceId, settings, models, overlays }: NewSession,
  footage: SessionFootage,
): TaskPayload<"comparison"> {
  const keys = keysOf(workspaceId, sessionId);
  const [a, b] = models;
  return {
    session_id: sessionId,
    iou: settings.iou,
    classes: settings.classes,
    ...footage,
    models: [a.task, b.task],
    report: target(keys.report, "application/octet-stream"),
    overlays: Array.from({ length: overlays }, (_, rank) =>
      target(keys.overlay(rank), "image/jpeg"),
    ),
  };
}

const s = columnsOf(comparisonSession, "s");
const t = joinedColumnsOf(task, "t");
/** A session `s` with its task `t`. */
const SESSION = selection({
  sessionId: s.id,
  workspaceId: s.workspaceId,
  comparisonId: s.comparisonId,
  settings: s.settings,
  models: s.models,
  input: s.input,
  state: s.state,
  failure: s.failure,
  outcome: typed<ComparisonOutcome | null>(s.outcome),
  reportKey: s.reportKey,
  overlayKeys: s.overlayKeys,
  createdAt: s.createdAt,
  endedAt: s.endedAt,
  taskState: t.state,
  progress: typed<{ done: number; total: number } | null>(t.progress),
});
type SessionRow = RowOf<typeof SESSION>;

/** A session of the workspaces, with a page of its frames; fails with `not_found`. */
export async function findSession(
  parts: Parts,
  workspaces: readonly string[],
  { sessionId, ...page }: { sessionId: string; offset: number; limit: number },
): Promise<ComparisonResult> {
  const [row] = await rowsOf(parts.database, SESSION)`
    SELECT ${SESSION}
      FROM comparison_session s LEFT JOIN task t ON t.idempotency_key = ${subjectOf("")} || s.id
     WHERE s.id = ${sessionId}::uuid AND s.workspace_id IN ${idList(workspaces)}
       AND s.forgotten_at IS NULL`;
  if (row) return sessionRecord(parts, row, page);
  throw new Failure("not_found", "no such result in your workspaces; they are kept for a day");
}

async function sessionRecord(
  parts: Parts,
  row: SessionRow,
  page: { offset: number; limit: number },
): Promise<ComparisonResult> {
  const { outcome, progress } = row;
  const isRunning = row.state === "queued" && row.taskState === "running";
  const [modelA, modelB] = SessionModel.array().parse(row.models);
  assert(modelA && modelB, "a session has two models");
  const settings = ComparisonSettings.parse(row.settings);
  return {
    session_id: row.sessionId,
    comparison_id: row.comparisonId,
    workspace_id: row.workspaceId,
    status: isRunning ? "running" : row.state,
    failure: row.failure,
    progress: isRunning && progress ? { done: progress.done, total: progress.total } : null,
    model_a: modelA,
    model_b: modelB,
    iou: settings.iou,
    classes: settings.classes,
    input: SessionInput.parse(row.input),
    // In the order of its fields, and without what only the service needs.
    summary: outcome && ComparisonSummary.parse(outcome),
    frames: outcome && (await framesOf(parts, row, { ...page, outcome })),
    total: outcome?.frames_compared ?? null,
    ...page,
    created_at: row.createdAt,
    ended_at: row.endedAt,
  };
}

/** A page of a session's frames, out of the blocks of its report that hold them. */
async function framesOf(
  parts: Parts,
  { reportKey, overlayKeys }: Pick<SessionRow, "reportKey" | "overlayKeys">,
  { outcome, offset, limit }: { outcome: ComparisonOutcome; offset: number; limit: number },
): Promise<NonNullable<ComparisonResult["frames"]>> {
  const { report, frames_compared: total } = ComparisonOutcome.parse(outcome);
  const end = Math.min(total, offset + limit);
  if (reportKey === null || offset >= end) return [];
  const firstBlock = Math.floor(offset / REPORT_BLOCK_FRAMES);
  const from = report.blocks[firstBlock] ?? 0;
  const to = report.blocks[Math.ceil(end / REPORT_BLOCK_FRAMES)] ?? report.bytes;
  const range = { offset: from, length: to - from };
  const object = await parts.bucket.get(reportKey, { range });
  if (!object) throw new Failure("store_unavailable", "the result's frames are not there");
  const lines = (await object.text()).split("\n").filter(Boolean);
  const first = offset - firstBlock * REPORT_BLOCK_FRAMES;
  return Promise.all(
    lines.slice(first, first + end - offset).map(async (line, index) => {
      const overlay = overlayKeys?.[offset + index];
      const frame = ComparedFrame.parse(JSON.parse(line));
      return { ...frame, overlay_url: overlay ? await presignGet(parts, overlay) : null };
    }),
  );
}

/** Notes how a session ended, once; tells whether it is there and stands so now. */
export async function endSession(
  database: Database,
  sessionId: string,
  end:
    | { failure: string }
    | { outcome: ComparisonOutcome; reportKey: string; overlayKeys: string[] },
): Promise<boolean> {
  const set =
    "failure" in end
      ? sql`state = 'failed', failure = ${storable(end.failure)}`
      : sql`state = 'completed', outcome = ${jsonb(end.outcome)}, report_key = ${end.reportKey},
          overlay_keys = ARRAY(SELECT jsonb_array_elements_text(${jsonb(end.overlayKeys)})),
          bytes = ${bytesOf(end.outcome)}::bigint`;
  const own = sql`id = ${sessionId}::uuid AND forgotten_at IS NULL`;
  const [, there] = await batch<[unknown, { id: string }]>(database, [
    sql`UPDATE comparison_session SET ${set}, ended_at = now() WHERE ${own} AND state = 'queued'`,
    sql`SELECT id::text FROM comparison_session WHERE ${own}`,
  ]);
  return there.length > 0;
}

const bytesOf = ({ report, overlays }: ComparisonOutcome): number =>
  overlays.reduce((sum, bytes) => sum + bytes, report.bytes);

/** Has nobody find a session any more. */
async function forget(parts: Parts, sessionId: string): Promise<void> {
  await parts.database.execute(sql`
    UPDATE comparison_session SET forgotten_at = now() WHERE id = ${sessionId}::uuid`);
  await sweepSessions(parts, [sessionId]);
}

/** Deletes forgotten sessions of these ids with their objects, whatever their nodes still do. */
export async function sweepSessions(parts: Parts, ids: readonly string[]): Promise<void> {
  const { rows } = await parts.database.execute<{ id: string; workspaceId: string }>(sql`
    SELECT id::text, workspace_id::text AS "workspaceId" FROM comparison_session
     WHERE id IN ${idList(ids)} AND forgotten_at IS NOT NULL`);
  for (const { id, workspaceId } of rows) {
    await requestCancel(parts.database, { subject: subjectOf(id) });
    await discardObjects(parts, [keysOf(workspaceId, id).folder]);
    await parts.database.execute(sql`DELETE FROM comparison_session WHERE id = ${id}::uuid`);
  }
}

/**
 * The minute's duty: ends sessions that a crash kept from being enqueued, forgets what ended more
 * than a day ago, and deletes what was forgotten.
 */
export async function tendComparisons(parts: Parts): Promise<number> {
  const { database, clock } = parts;
  await database.execute(sql`
    UPDATE comparison_session s SET state = 'failed', failure = ${LOST}, ended_at = now()
     WHERE state = 'queued' AND created_at < now() - interval '5 minutes'
       AND NOT EXISTS (SELECT FROM task WHERE idempotency_key = ${subjectOf("")} || s.id)`);
  const { rows } = await database.execute<{ id: string }>(sql`
    WITH old AS (
      UPDATE comparison_session SET forgotten_at = now() WHERE forgotten_at IS NULL
         AND ended_at < ${iso(clock())}::timestamptz - ${KEPT_DAYS}::int * interval '1 day'
      RETURNING id)
    SELECT id::text FROM old
    UNION SELECT id::text FROM comparison_session WHERE forgotten_at IS NOT NULL
     LIMIT ${FORGOTTEN_MAX}::int`);
  await sweepSessions(
    parts,
    rows.map(({ id }) => id),
  );
  return rows.length;
}
