// The state of every partition of a pipeline, read off its executions, for the repair schedule and
// the console's grid.

import { sql } from "drizzle-orm";
import { isoDay } from "../../../shared/time.ts";
import type { PartitionState } from "../../../shared/wire/markets.ts";
import { type Database, epochMs } from "../../http/database.ts";
import { type RowOf, rowsOf, selection, typed } from "../../http/selection.ts";
import { expectedUntil } from "./completeness.ts";
import { at, EXECUTION, HAS_COMMITTED, hasCommitted, STATE } from "./ledger.ts";
import {
  latestPartition,
  type Partitions,
  partitionRange,
  partitionsBetween,
  shiftPartition,
} from "./partition.ts";
import type { Pipeline } from "./pipeline.ts";

const NEWEST = selection({
  partition: EXECUTION.partition,
  run_id: EXECUTION.id,
  state: STATE,
  /** Epoch milliseconds. */
  created_at: epochMs(sql`created_at`),
  finished_at: EXECUTION.finishedAt,
  error_code: EXECUTION.errorCode,
  reason: typed<string | null>(sql`coalesce(error_detail, metadata->>'empty_reason')`),
});
type NewestExecution = RowOf<typeof NEWEST>;

/**
 * The state of each key, in the order given. A partition is materialized when an execution that
 * covered all of it succeeded, unless a later execution of its own failed or came late, and partial
 * where those that covered it left some of its series as they were. While an
 * execution of the partition is queued or running, or waits for its provider, that is its state,
 * whatever was before. A partition without a value so far waits for the next execution until it
 * owes one.
 */
export async function partitionStates(
  database: Database,
  pipeline: Pipeline,
  keys: readonly string[],
  now: number,
): Promise<PartitionState[]> {
  const { job, partitions, lookbackMs } = pipeline;
  const ranges = keys.map((key) => partitionRange(partitions, key, now));
  const from = ranges.reduce((min, range) => Math.min(min, range.from), Infinity);
  const to = ranges.reduce((max, range) => Math.max(max, range.to), -Infinity);
  if (keys.length === 0) return [];
  const [first, last] = [keys.toSorted()[0], keys.toSorted().at(-1)];
  // An execution covers its own partition and what it looks back on: no other need be read.
  const completed = sql`job = ${job} AND ${HAS_COMMITTED}
    AND partition BETWEEN ${first}::date AND ${isoDay(to + lookbackMs)}::date
    AND covered_from < ${at(to)} AND covered_to > ${at(from)}`;
  const [newest, covering, revisions] = await Promise.all([
    rowsOf(database, NEWEST)`
      SELECT DISTINCT ON (run.partition) ${NEWEST}
        FROM run WHERE job = ${job} AND partition BETWEEN ${first}::date AND ${last}::date
       ORDER BY run.partition, run.created_at DESC`,
    database.execute<Covering>(sql`
      SELECT state, ${epochMs(sql`covered_from`)} AS "from",
        ${epochMs(sql`covered_to`)} AS "to",
        ${epochMs(sql`max(created_at)`)} AS created_at
        FROM run WHERE ${completed} GROUP BY state, covered_from, covered_to`),
    database.execute<{ partition: string; rows: number }>(sql`
      SELECT key AS partition, sum(value::int)::int AS rows FROM run, jsonb_each_text(revised)
       WHERE ${completed} AND revised <> '{}' GROUP BY key`),
  ]);
  const byKey = new Map(newest.map((execution) => [execution.partition, execution]));
  const revised = new Map(revisions.rows.map(({ partition, rows }) => [partition, rows]));
  return keys.map((partition, index) => {
    const range = ranges[index] ?? { from: 0, to: 0 };
    const execution = byKey.get(partition);
    const covered = covering.rows.filter((one) => one.from <= range.from && one.to >= range.to);
    return {
      partition,
      state: stateOf(execution, covered, now < expectedUntil(pipeline, partition)),
      run_id: execution?.run_id ?? null,
      finished_at: execution?.finished_at ?? null,
      error_code: execution?.error_code ?? null,
      reason: execution?.reason ?? null,
      revised_rows: revised.get(partition) ?? 0,
    };
  });
}

/** Executions that covered one stretch of valid time; instants in epoch milliseconds. */
interface Covering extends Record<string, unknown> {
  state: "succeeded" | "partial";
  from: number;
  to: number;
  /** When the newest of them was queued. */
  created_at: number;
}

function stateOf(
  execution: NewestExecution | undefined,
  covered: readonly Covering[],
  isExpected: boolean,
): PartitionState["state"] {
  const state = execution?.state;
  if (state === "queued" || state === "waiting" || state === "running") return state;
  const coveredAt = Math.max(...covered.map(({ created_at }) => created_at));
  const isNewest = coveredAt >= (execution?.created_at ?? -Infinity);
  if ((state === "failed" || state === "late") && !isNewest) return state;
  if (covered.some((one) => one.state === "succeeded")) return "materialized";
  if (covered.length > 0) return "partial";
  return hasCommitted({ state }) && isExpected ? "waiting" : "missing";
}

/** The newest keys up to `last`, newest first; none while no partition is in range yet. */
export function recentKeys(
  partitions: Partitions,
  count: number,
  now: number,
  last = latestPartition(partitions, now),
): string[] {
  if (last < partitions.first) return [];
  const back = shiftPartition(partitions, last, 1 - count);
  return partitionsBetween(
    partitions,
    back > partitions.first ? back : partitions.first,
    last,
    now,
  );
}

/** The oldest partition that a schedule of the job ever aimed at, or null. */
export async function firstExpected(database: Database, job: string): Promise<string | null> {
  const { rows } = await database.execute<{ first: string }>(sql`
    SELECT partition::text AS first FROM run WHERE job = ${job} AND trigger = 'schedule'
     ORDER BY run.partition LIMIT 1`);
  return rows[0]?.first ?? null;
}
