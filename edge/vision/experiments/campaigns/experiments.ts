// Experiments as rows. Each write is of the revision that its maker saw, so of two at once one
// changes nothing: no sample is counted twice, and no end is overwritten.

import { type SQL, sql } from "drizzle-orm";
import { experiment } from "../../../../db/vision/experiments.ts";
import { Failure } from "../../../../shared/errors.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import { mayMove } from "../../auth/logged-moves.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { lockRegistry } from "../../models/registry.ts";
import type { Mark, TrafficCounts } from "./figures.ts";
import {
  Experiment,
  type ExperimentMetric,
  type ExperimentPlan,
  type ExperimentPromotion,
  type ExperimentReason,
  type ExperimentResults,
  type ExperimentRules,
  type ExperimentState,
} from "./records.ts";
import { type ExperimentMove, hasEnded, MOVES } from "./states.ts";

/** Experiments of a workspace that have not ended: each is looked at every minute. */
export const LIVE_MAX = 50;
/** Experiments of a workspace, ended ones among them. */
export const EXPERIMENTS_MAX = 1_000;
/** Experiments that one minute looks at, those that waited longest first. */
const LOOKS_MAX = 200;

const x = columnsOf(experiment, "x");
const EXPERIMENT = selection({
  experimentId: x.id,
  workspaceId: x.workspaceId,
  name: x.name,
  hypothesis: x.hypothesis,
  source: x.source,
  endpointId: x.endpointId,
  slug: x.slug,
  jobId: x.jobId,
  baselineModelId: x.baselineModelId,
  candidateModelId: x.candidateModelId,
  metric: typed<ExperimentMetric>(x.metric),
  rules: typed<ExperimentRules>(x.rules),
  /** With the terms on which an endpoint served both; of a job there are none. */
  plan: typed<ExperimentPlan & { terms?: string }>(x.plan),
  state: x.state,
  reason: typed<ExperimentReason | null>(x.reason),
  mark: typed<Mark | null>(x.mark),
  counted: typed<TrafficCounts | null>(x.counted),
  results: typed<ExperimentResults>(x.results),
  revision: x.revision,
  promotion: typed<ExperimentPromotion | null>(x.promotion),
  createdAt: x.createdAt,
  lookedAt: x.lookedAt,
  endedAt: x.endedAt,
});
/** An experiment. */
export type ExperimentRow = RowOf<typeof EXPERIMENT>;

/** An experiment as it goes over the wire: its members in one order, however they were stored. */
export const experimentRecord = (row: ExperimentRow): Experiment =>
  Experiment.parse({
    experiment_id: row.experimentId,
    workspace_id: row.workspaceId,
    name: row.name,
    hypothesis: row.hypothesis,
    source: row.source,
    endpoint_id: row.endpointId,
    slug: row.slug,
    job_id: row.jobId,
    baseline_model_id: row.baselineModelId,
    candidate_model_id: row.candidateModelId,
    metric: row.metric,
    rules: row.rules,
    plan: row.plan,
    status: row.state,
    reason: row.reason,
    results: row.results,
    promotion: row.promotion,
    created_at: row.createdAt,
    looked_at: row.lookedAt,
    ended_at: row.endedAt,
  });

/** Which experiments are meant; each member narrows it. */
export interface ExperimentFilter {
  state?: ExperimentState | undefined;
  limit: number;
  offset: number;
}

/** Experiments of the workspaces, newest first. */
export async function listExperiments(
  database: Database,
  workspaces: readonly string[],
  { state, limit, offset }: ExperimentFilter,
): Promise<ExperimentRow[]> {
  const ofState = state === undefined ? sql`` : sql`AND x.state = ${state}`;
  const rows = await rowsOf(database, EXPERIMENT)`
    SELECT ${EXPERIMENT} FROM experiment x WHERE x.workspace_id IN ${idList(workspaces)} ${ofState}
     ORDER BY x.created_at DESC, x.id LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows;
}

/** The experiment of this id, if it is of these workspaces; fails with `not_found`. */
export async function findExperiment(
  database: Database,
  workspaces: readonly string[],
  experimentId: string,
): Promise<ExperimentRow> {
  const rows = await rowsOf(database, EXPERIMENT)`
    SELECT ${EXPERIMENT} FROM experiment x
     WHERE x.id = ${experimentId}::uuid AND x.workspace_id IN ${idList(workspaces)}`;
  const [row] = rows;
  if (!row) throw new Failure("not_found", "no such experiment in your workspaces");
  return row;
}

/** Experiments that have not ended, in the order in which they are due to be looked at. */
export async function liveExperiments(database: Database): Promise<ExperimentRow[]> {
  const rows = await rowsOf(database, EXPERIMENT)`
    SELECT ${EXPERIMENT} FROM experiment x WHERE x.state IN ('running', 'paused')
     ORDER BY x.looked_at, x.id LIMIT ${LOOKS_MAX}::int`;
  return rows;
}

/** Notes that an experiment was looked at, in vain: its state and revision stay. */
export async function touchExperiment(
  { database }: Pick<Parts, "database">,
  { experimentId }: Pick<ExperimentRow, "experimentId">,
): Promise<void> {
  await database.execute(sql`
    UPDATE experiment SET looked_at = now() WHERE id = ${experimentId}::uuid`);
}

/** What makes an experiment. */
export type NewExperiment = Pick<
  ExperimentRow,
  | "workspaceId"
  | "name"
  | "hypothesis"
  | "source"
  | "endpointId"
  | "slug"
  | "jobId"
  | "baselineModelId"
  | "candidateModelId"
  | "metric"
  | "rules"
  | "plan"
  | "mark"
  | "results"
> & { createdBy: string };

/** Begins an experiment. Fails with `state_conflict` where the workspace has as many as it may. */
export async function createExperiment(
  { database }: Pick<Parts, "database">,
  made: NewExperiment,
): Promise<ExperimentRow> {
  const own = sql`${made.workspaceId}::uuid`;
  const insert = sql`
    WITH x AS (
      INSERT INTO experiment (id, workspace_id, name, hypothesis, source, endpoint_id, slug, job_id,
        baseline_model_id, candidate_model_id, metric, rules, plan, mark, results, created_by)
      SELECT ${crypto.randomUUID()}::uuid, ${own}, ${made.name}, ${made.hypothesis}, ${made.source},
        ${made.endpointId}::uuid, ${made.slug}::text, ${made.jobId}::uuid, ${made.baselineModelId}::uuid,
        ${made.candidateModelId}::uuid, ${made.metric}, ${jsonb(made.rules)}, ${jsonb(made.plan)},
        ${made.mark ? jsonb(made.mark) : sql`NULL`}, ${jsonb(made.results)},
        ${made.createdBy}::uuid
       WHERE (SELECT count(*) FROM experiment WHERE workspace_id = ${own}
         AND state IN ('running', 'paused')) < ${LIVE_MAX}::int
         AND (SELECT count(*) FROM experiment WHERE workspace_id = ${own}) < ${EXPERIMENTS_MAX}::int
      RETURNING *)
    SELECT ${EXPERIMENT} FROM x`;
  // Under a lock, so that of two at once the second one is counted too.
  const [, [row]] = await batch<[unknown, ExperimentRow]>(database, [
    lockRegistry(made.workspaceId),
    insert,
  ]);
  if (row) return row;
  const { rows } = await database.execute<{ count: number }>(sql`
    SELECT count(*)::int AS count FROM experiment WHERE workspace_id = ${own}`);
  const isFull = (rows[0]?.count ?? 0) >= EXPERIMENTS_MAX;
  const detail = isFull
    ? `the workspace has ${EXPERIMENTS_MAX} experiments; delete some that ended`
    : `the workspace has ${LIVE_MAX} experiments under way, which is as many as it may have`;
  const max = isFull ? EXPERIMENTS_MAX : LIVE_MAX;
  throw new Failure("state_conflict", detail, { data: { experiments_max: max } });
}

/** What a look or a move changes. */
export interface ExperimentChange {
  move?: ExperimentMove;
  reason?: ExperimentReason;
  results?: ExperimentResults;
  mark?: Mark | null;
  counted?: TrafficCounts | null;
}

/** Fails with `state_conflict` where an experiment's state does not allow a move. */
export function assertMovable({ state }: ExperimentRow, move: ExperimentMove): void {
  if (mayMove(MOVES[move], state)) return;
  const from = MOVES[move].from.join(" or ");
  throw new Failure("state_conflict", `the experiment is ${state}, and would have to be ${from}`, {
    data: { status: state },
  });
}

/** Changes an experiment as it was seen; null where somebody else changed it since. */
export async function changeExperiment(
  { database }: Pick<Parts, "database">,
  seen: ExperimentRow,
  { move, reason, ...given }: ExperimentChange,
): Promise<ExperimentRow | null> {
  const to = move ? MOVES[move].to : seen.state;
  const set: SQL[] = [sql`revision = revision + 1`, sql`looked_at = now()`];
  if (move) {
    set.push(sql`state = ${to}`, sql`reason = ${reason ?? null}::text`);
    if (hasEnded(to)) set.push(sql`ended_at = now()`);
  }
  if (given.results) set.push(sql`results = ${jsonb(given.results)}`);
  for (const name of ["mark", "counted"] as const) {
    const value = given[name];
    if (value === undefined) continue;
    set.push(sql`${sql.identifier(name)} = ${value ? jsonb(value) : sql`NULL`}`);
  }
  const rows = await rowsOf(database, EXPERIMENT)`
    WITH x AS (UPDATE experiment SET ${sql.join(set, sql`, `)}
      WHERE id = ${seen.experimentId}::uuid AND revision = ${seen.revision}::int
      RETURNING *)
    SELECT ${EXPERIMENT} FROM x`;
  return rows[0] ?? null;
}

/** Writes down what became of an experiment's promotion; null where somebody else did meanwhile. */
export async function notePromotion(
  { database }: Pick<Parts, "database">,
  seen: ExperimentRow,
  promotion: ExperimentPromotion,
): Promise<ExperimentRow | null> {
  const rows = await rowsOf(database, EXPERIMENT)`
    WITH x AS (UPDATE experiment SET promotion = ${jsonb(promotion)}, revision = revision + 1
      WHERE id = ${seen.experimentId}::uuid AND revision = ${seen.revision}::int
      RETURNING *)
    SELECT ${EXPERIMENT} FROM x`;
  return rows[0] ?? null;
}

/** Deletes an experiment and what it counted; what it promoted stays as it is. */
export async function deleteExperiment(
  { database }: Pick<Parts, "database">,
  { experimentId }: Pick<ExperimentRow, "experimentId">,
): Promise<void> {
  await database.execute(sql`DELETE FROM experiment WHERE id = ${experimentId}::uuid`);
}
