// Rollouts as rows, and the log of their moves. A move changes a rollout's state or stage and is
// written down in one statement, of the state that its maker saw: of two at once one comes too
// late.

import { type SQL, sql } from "drizzle-orm";
import { device } from "../../../../db/vision/fleet.ts";
import { rollout, rolloutDevice, rolloutMove } from "../../../../db/vision/rollouts.ts";
import { model, modelExport } from "../../../../db/vision/training.ts";
import { assert, Failure } from "../../../../shared/errors.ts";
import type { ModelState } from "../../../../shared/wire/fleet.ts";
import type {
  Confirmation,
  Rollout,
  RolloutDevice,
  RolloutFigures,
  RolloutFile,
  RolloutGates,
  RolloutMove,
  RolloutState,
} from "../../../../shared/wire/rollouts.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { MoveRule } from "../../auth/logged-moves.ts";
import type { Page } from "../../base/api.ts";
import { breaksReference, idList, textList } from "../../base/sql.ts";
import {
  CRASH_LOOP,
  ENDED,
  fellSilent,
  hasLeft,
  isFor,
  isLive,
  isLost,
  sendingBack,
} from "./devices.ts";
import { type DeviceSample, type FleetCounts, figuresOf } from "./gates.ts";

/** Rollouts of a workspace that are under way at once. */
const ROLLING_MAX = 100;
/** Devices whose latencies and scores are compared: as many tell what all would. */
const DEVICES_SAMPLED_MAX = 5_000;

const r = columnsOf(rollout, "r");
const ROLLOUT = selection({
  rolloutId: r.id,
  workspaceId: r.workspaceId,
  group: r.groupName,
  tags: r.tags,
  modelId: r.modelId,
  exportId: r.exportId,
  file: typed<RolloutFile>(r.file),
  gates: typed<RolloutGates>(r.gates),
  confirm: typed<Confirmation>(r.confirm),
  confidence: r.confidence,
  minAgent: r.minAgent,
  stages: r.stages,
  stage: r.stage,
  stageSince: r.stageSince,
  /** Minutes since, by the database's clock. */
  stageMinutes: sql<number>`extract(epoch FROM now() - r.stage_since)::float8 / 60`,
  state: typed<RolloutState>(r.state),
  reason: r.reason,
  createdAt: r.createdAt,
  updatedAt: r.updatedAt,
});
/** A rollout. */
export type RolloutRow = RowOf<typeof ROLLOUT>;

const notThere = () => new Failure("not_found", "no such rollout in your workspaces");

/** What a new rollout is. */
export interface NewRollout {
  workspaceId: string;
  group: string | null;
  tags: readonly string[];
  exportId: string;
  modelId: string;
  file: RolloutFile;
  storageKey: string;
  gates: RolloutGates;
  confirm: Confirmation;
  confidence: number;
  minAgent: string;
  stages: readonly number[];
  actorId: string;
}

const noSuchExport = () => new Failure("not_found", "no such export of a model in your workspaces");

const e = columnsOf(modelExport, "e");
const m = columnsOf(model, "m");
/** What is asked of an export `e` of a model `m`. */
const EXPORT_FILE = selection({
  workspaceId: e.workspaceId,
  modelId: e.modelId,
  state: e.state,
  format: e.format,
  output: e.output,
  batch: e.batch,
  height: e.height,
  width: e.width,
  sha256: e.sha256,
  size: e.bytes,
  storageKey: e.storageKey,
  task: m.task,
  classes: m.classes,
});

/**
 * The file of an export, as devices need to know it. Fails with `not_found` for one of another
 * workspace, with `state_conflict` where its file is not there, and with `invalid_request` for a
 * file that devices do not run: they take `end_to_end`, one image at a time.
 */
export async function rolloutFile(
  database: Database,
  workspaces: readonly string[],
  exportId: string,
  admit: (workspaceId: string) => void,
): Promise<Pick<NewRollout, "workspaceId" | "modelId" | "file" | "storageKey">> {
  const rows = await rowsOf(database, EXPORT_FILE)`
    SELECT ${EXPORT_FILE} FROM model_export e JOIN model m ON m.id = e.model_id
     WHERE e.id = ${exportId}::uuid AND e.workspace_id IN ${idList(workspaces)}`;
  const [row] = rows;
  if (!row) throw noSuchExport();
  const { workspaceId, modelId, storageKey, task, classes, sha256, size } = row;
  admit(workspaceId);
  if (storageKey === null || sha256 === null || size === null) {
    throw new Failure(
      "state_conflict",
      `export_id: the export is ${row.state}; there is no file yet`,
    );
  }
  if (row.format !== "onnx" || row.output !== "end_to_end") {
    const detail = `export_id: devices run onnx with the output end_to_end, not ${row.format} ${row.output}`;
    throw new Failure("invalid_request", detail);
  }
  if (row.batch !== null && row.batch !== 1) {
    const detail = `export_id: devices look at one image at a time; this file takes ${row.batch}`;
    throw new Failure("invalid_request", detail);
  }
  const image_size: [number, number] = [row.height, row.width];
  const runs = { format: "onnx", runtime: "onnxruntime" } as const;
  const file = { ...runs, sha256, size, task, classes, image_size };
  return { workspaceId, modelId, storageKey, file };
}

/** A move, as a part of the statement whose part `moved` has the rollouts that were moved. */
export const noteMove = (
  kind: (typeof RolloutMove.shape.kind.options)[number],
  { actorId = null, figures = null }: { actorId?: string | null; figures?: RolloutFigures | null },
): SQL => sql`
  INSERT INTO rollout_move (workspace_id, rollout_id, kind, stage, reason, figures, actor_id)
  SELECT workspace_id, id, ${kind}, stage, reason, ${figures ? jsonb(figures) : sql`NULL::jsonb`},
    ${actorId}::uuid FROM moved RETURNING rollout_id`;

/**
 * Makes a rollout; returns its id. Fails with `state_conflict` where the workspace has as many
 * under way as it may, and with `not_found` where the export was deleted meanwhile.
 */
export async function createRollout(database: Database, one: NewRollout): Promise<string> {
  const id = crypto.randomUUID();
  const made = sql`
    WITH moved AS (
      INSERT INTO rollout (id, workspace_id, group_name, tags, model_id, export_id, file,
        storage_key, gates, confirm, confidence, min_agent, stages, created_by)
      SELECT ${id}::uuid, ${one.workspaceId}::uuid, ${one.group}::text,
        ARRAY${textList(one.tags)}, ${one.modelId}::uuid, ${one.exportId}::uuid,
        ${jsonb(one.file)}, ${one.storageKey}, ${jsonb(one.gates)}, ${jsonb(one.confirm)},
        ${one.confidence}::float8, ${one.minAgent},
        ARRAY(SELECT value::float8 FROM jsonb_array_elements_text(${JSON.stringify(one.stages)}::jsonb)),
        ${one.actorId}::uuid
       WHERE (SELECT count(*) FROM rollout WHERE workspace_id = ${one.workspaceId}::uuid
         AND state IN ('rolling', 'paused')) < ${ROLLING_MAX}::int
      RETURNING id, workspace_id, stage, reason),
    held AS (INSERT INTO rollout_hold (rollout_id, model_id, export_id)
      SELECT id, ${one.modelId}::uuid, ${one.exportId}::uuid FROM moved)
    ${noteMove("create", { actorId: one.actorId })}`;
  const { rows } = await database.execute(made).catch((thrown: unknown) => {
    if (breaksReference(thrown)) throw noSuchExport();
    throw thrown;
  });
  if (rows.length > 0) return id;
  const detail = `${ROLLING_MAX} rollouts are under way, which is as many as may be; abort some`;
  throw new Failure("state_conflict", detail, { data: { rollouts_max: ROLLING_MAX } });
}

/** Rollouts of the workspaces, newest first. */
export async function listRollouts(
  database: Database,
  workspaces: readonly string[],
  page: Page & { status?: RolloutState | undefined },
): Promise<RolloutRow[]> {
  const rows = await rowsOf(database, ROLLOUT)`
    SELECT ${ROLLOUT} FROM rollout r WHERE r.workspace_id IN ${idList(workspaces)}
       AND (${page.status ?? null}::text IS NULL OR r.state = ${page.status ?? null}::text)
     ORDER BY r.created_at DESC, r.id LIMIT ${page.limit}::int OFFSET ${page.offset}::int`;
  return rows;
}

/** A rollout of the workspaces; fails with `not_found`. */
export async function findRollout(
  database: Database,
  workspaces: readonly string[],
  rolloutId: string,
): Promise<RolloutRow> {
  const rows = await rowsOf(database, ROLLOUT)`
    SELECT ${ROLLOUT} FROM rollout r WHERE r.id = ${rolloutId}::uuid
       AND r.workspace_id IN ${idList(workspaces)}`;
  const [row] = rows;
  if (!row) throw notThere();
  return row;
}

/** Rollouts that are on their way, those that were moved longest ago first. */
export async function rollingRollouts(database: Database, limit: number): Promise<RolloutRow[]> {
  const rows = await rowsOf(database, ROLLOUT)`
    SELECT ${ROLLOUT} FROM rollout r WHERE r.state = 'rolling'
     ORDER BY r.updated_at, r.id LIMIT ${limit}::int`;
  return rows;
}

/**
 * Counts over the devices of a rollout, all or those that it was given to since its stage began,
 * without those that left it. Looks of a device beyond the median's, of two devices the busier
 * one's, count by their shares.
 */
export async function fleetCounts(
  database: Database,
  rolloutId: string,
  { since }: { since: "ever" | "stage" },
): Promise<FleetCounts> {
  const { rows } = await database.execute<FleetCounts & Record<string, unknown>>(sql`
    WITH one AS (
      SELECT o.state, o.state IN ${ENDED} OR ${fellSilent} AS ended, o.failure, o.inferences::float8 AS good,
        o.inference_failures::float8 AS wrong,
        (o.inferences + o.inference_failures)::float8 AS looks,
        NOT ${isLost} AND (o.reported_at IS NOT NULL OR coalesce(${isLive}, false)) AS heard
        FROM rollout_device o JOIN device d ON d.id = o.device_id
        JOIN rollout r ON r.id = o.rollout_id LEFT JOIN device_state s ON s.device_id = o.device_id
       WHERE o.rollout_id = ${rolloutId}::uuid AND NOT ${hasLeft}
         AND (${since} = 'ever' OR o.assigned_at >= r.stage_since)),
    most AS (
      SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY looks DESC) AS looks FROM one
       WHERE heard AND looks > 0)
    SELECT count(*)::int AS taken, count(*) FILTER (WHERE heard)::int AS heard,
      count(*) FILTER (WHERE heard AND state = 'confirmed')::int AS confirmed,
      count(*) FILTER (WHERE heard AND ended)::int AS failed,
      count(*) FILTER (WHERE heard AND ended AND failure LIKE ${`${CRASH_LOOP}%`})::int
        AS "crashLoops",
      coalesce(round(sum(good * least(1, most.looks / nullif(one.looks, 0)))
        FILTER (WHERE heard)), 0)::float8 AS inferences,
      coalesce(round(sum(wrong * least(1, most.looks / nullif(one.looks, 0)))
        FILTER (WHERE heard)), 0)::float8 AS "inferenceFailures"
      FROM one CROSS JOIN most`);
  const [counts] = rows;
  assert(counts, "an aggregate has one row");
  return counts;
}

/** What the devices of a rollout made of it. */
export async function rolloutFigures(
  database: Database,
  rolloutId: string,
): Promise<RolloutFigures> {
  const counts = await fleetCounts(database, rolloutId, { since: "ever" });
  // Ids are random, and so is the sample.
  const { rows } = await database.execute<DeviceSample & Record<string, unknown>>(sql`
    SELECT o.latency_ms AS "latencyMs", p.latency_ms AS "formerLatencyMs",
      to_jsonb(o.scores) AS scores, to_jsonb(p.scores) AS "formerScores"
      FROM rollout_device o
      JOIN rollout_device p ON p.rollout_id = o.former_id AND p.device_id = o.device_id
     WHERE o.rollout_id = ${rolloutId}::uuid AND o.reported_at IS NOT NULL
     ORDER BY o.device_id LIMIT ${DEVICES_SAMPLED_MAX}::int`);
  return figuresOf(counts, rows);
}

/** A rollout as it goes over the wire; in lists without comparing its devices' measurements. */
export async function rolloutRecord(
  database: Database,
  row: RolloutRow,
  { isListed = false }: { isListed?: boolean } = {},
): Promise<Rollout> {
  const { rows } = await database.execute<{
    states: Record<ModelState, number>;
    population: number;
  }>(
    sql`
    SELECT coalesce((SELECT jsonb_object_agg(state, count) FROM (
        SELECT state, count(*)::int AS count FROM rollout_device
         WHERE rollout_id = ${row.rolloutId}::uuid GROUP BY state) AS by_state), '{}') AS states,
      (SELECT count(*)::int FROM rollout r JOIN device d ON ${isFor}
        WHERE r.id = ${row.rolloutId}::uuid) AS population`,
  );
  const { states = {} as Record<string, number>, population = 0 } = rows[0] ?? {};
  const of = (state: ModelState) => states[state] ?? 0;
  return {
    rollout_id: row.rolloutId,
    workspace_id: row.workspaceId,
    group: row.group,
    tags: row.tags,
    model_id: row.modelId,
    export_id: row.exportId,
    file: row.file,
    confidence: row.confidence,
    confirm: row.confirm,
    min_agent: row.minAgent,
    stages: row.stages,
    stage: row.stage,
    stage_since: row.stageSince,
    gates: row.gates,
    status: row.state,
    reason: row.reason,
    population,
    devices: {
      pending: of("pending"),
      downloading: of("downloading"),
      verifying: of("verifying"),
      staged: of("staged"),
      active: of("active"),
      confirmed: of("confirmed"),
      rolled_back: of("rolled_back"),
      failed: of("failed"),
    },
    figures: isListed
      ? figuresOf(await fleetCounts(database, row.rolloutId, { since: "ever" }), [])
      : await rolloutFigures(database, row.rolloutId),
    created_at: row.createdAt,
    updated_at: row.updatedAt,
  };
}

const o = columnsOf(rolloutDevice, "o");
const DEVICE: SQL<RolloutDevice> = selection({
  device_id: o.deviceId,
  name: columnsOf(device, "d").name,
  bucket: o.bucket,
  version: sql<string>`o.version::text`,
  status: typed<ModelState>(o.state),
  failure: o.failure,
  crashes: o.crashes,
  inferences: o.inferences,
  inference_failures: o.inferenceFailures,
  latency_p50_ms: o.latencyMs,
  assigned_at: o.assignedAt,
  reported_at: o.reportedAt,
});

/** The devices of a rollout, by their buckets. */
export async function listRolloutDevices(
  database: Database,
  { rolloutId }: RolloutRow,
  page: Page & { status?: ModelState | undefined },
): Promise<RolloutDevice[]> {
  return await rowsOf(database, DEVICE)`
    SELECT ${DEVICE} FROM rollout_device o JOIN device d ON d.id = o.device_id
     WHERE o.rollout_id = ${rolloutId}::uuid
       AND (${page.status ?? null}::text IS NULL OR o.state = ${page.status ?? null}::text)
     ORDER BY o.bucket, o.device_id LIMIT ${page.limit}::int OFFSET ${page.offset}::int`;
}

const n = columnsOf(rolloutMove, "n");
const MOVE: SQL<RolloutMove> = selection({
  move_id: n.id,
  rollout_id: n.rolloutId,
  kind: typed<RolloutMove["kind"]>(n.kind),
  stage: n.stage,
  reason: n.reason,
  figures: typed<RolloutMove["figures"]>(n.figures),
  actor_id: n.actorId,
  at: n.at,
});

/** The moves of a rollout, newest first. */
export async function listRolloutMoves(
  database: Database,
  { rolloutId }: RolloutRow,
  { limit, offset }: Page,
): Promise<RolloutMove[]> {
  return await rowsOf(database, MOVE)`
    SELECT ${MOVE} FROM rollout_move n WHERE n.rollout_id = ${rolloutId}::uuid
     ORDER BY n.id DESC LIMIT ${limit}::int OFFSET ${offset}::int`;
}

/** From which states each of people's moves is allowed, and where it leads. */
const MOVES = {
  pause: { from: ["rolling"], to: "paused" },
  resume: { from: ["paused"], to: "rolling" },
  abort: { from: ["rolling", "paused", "completed"], to: "aborted" },
} as const satisfies Record<string, MoveRule<RolloutState>>;
export type PeoplesMove = keyof typeof MOVES;

/**
 * Pauses, resumes or aborts a rollout. An abort sends its devices back to what they confirmed
 * before. Fails with `state_conflict` where its state does not allow it.
 */
export async function moveRollout(
  database: Database,
  row: RolloutRow,
  { move, actorId }: { move: PeoplesMove; actorId: string },
): Promise<void> {
  const { from, to } = MOVES[move];
  const reason = move === "abort" ? "somebody called it off" : null;
  const moved = sql`
    WITH moved AS (
      UPDATE rollout SET state = ${to}, reason = ${reason}::text, updated_at = now(),
        stage_since = CASE WHEN ${move === "resume"}::boolean THEN now() ELSE stage_since END
       WHERE id = ${row.rolloutId}::uuid AND state IN ${textList(from)}
      RETURNING id, workspace_id, stage, reason)
    ${noteMove(move, { actorId })}`;
  const after = move === "abort" ? sendingBack(row.rolloutId) : [];
  const [rows] = await batch(database, [moved, ...after]);
  if (rows?.length) return;
  const now = await findRollout(database, [row.workspaceId], row.rolloutId);
  throw new Failure("state_conflict", `a rollout that is ${now.state} cannot be ${PAST[move]}`);
}

const PAST = { pause: "paused", resume: "resumed", abort: "aborted" } as const;
