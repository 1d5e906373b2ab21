// When the releases of a stretch of time are expected, and when they came: for the calendar that
// operators look at.

import { sql } from "drizzle-orm";
import { DAY } from "../../../shared/time.ts";
import type { PartitionState } from "../../../shared/wire/markets.ts";
import { epochMs } from "../../http/database.ts";
import type { Range } from "../store/rows.ts";
import { expectedAt } from "./completeness.ts";
import { HAS_COMMITTED } from "./ledger.ts";
import { askablePartition, latestPartition, shiftPartition } from "./partition.ts";
import { partitionStates } from "./partition-states.ts";
import type { IngestParts } from "./parts.ts";
import type { Pipeline } from "./pipeline.ts";

/** The release of a partition; instants in epoch milliseconds. */
export interface CalendarRelease {
  pipeline: Pipeline;
  partition: string;
  expected: number;
  /** By a rule, not by the publisher's own calendar or its usual hour. */
  isDerived: boolean;
  /** When the first run of the partition that wrote true vintages had stored it; null: none has. */
  came: number | null;
  /** Null before it may be out. */
  state: PartitionState["state"] | null;
}

/** Publishers move a release by so much at most. */
const SHIFT_MAX_MS = 7 * DAY;

/** Pipelines whose provider releases each partition at a time of its own. */
export const releasingPipelines = (pipelines: readonly Pipeline[]): Pipeline[] =>
  pipelines.filter(({ release }) => release !== null);

/** The releases of these pipelines that are expected in a stretch of time, oldest first. */
export async function listReleases(
  parts: IngestParts,
  pipelines: readonly Pipeline[],
  range: Range,
): Promise<CalendarRelease[]> {
  const releases = await Promise.all(pipelines.map((one) => releasesOf(parts, one, range)));
  return releases.flat().toSorted((left, right) => left.expected - right.expected);
}

async function releasesOf(
  { database, clock }: IngestParts,
  pipeline: Pipeline,
  { from, to }: Range,
): Promise<CalendarRelease[]> {
  const { partitions, job } = pipeline;
  const due: Pick<CalendarRelease, "partition" | "expected" | "isDerived">[] = [];
  let key = shiftPartition(partitions, latestPartition(partitions, to + SHIFT_MAX_MS), 1);
  for (; key >= partitions.first; key = shiftPartition(partitions, key, -1)) {
    const { at: expected, isDerived } = expectedAt(pipeline, key);
    if (expected < from - SHIFT_MAX_MS) break;
    if (expected >= from && expected < to) due.push({ partition: key, expected, isDerived });
  }
  const now = clock();
  const last = askablePartition(partitions, now);
  const begun = due.filter(({ partition }) => partition <= last).map(({ partition }) => partition);
  const [newest, oldest] = [begun[0], begun.at(-1)];
  if (!newest || !oldest) return due.map((one) => ({ ...one, pipeline, came: null, state: null }));
  const [states, came] = await Promise.all([
    partitionStates(database, pipeline, begun, now),
    database.execute<{ partition: string; at: number }>(sql`
      SELECT partition::text, ${epochMs(sql`min(finished_at)`)} AS at FROM run
       WHERE job = ${job} AND partition BETWEEN ${oldest}::date AND ${newest}::date
         AND NOT reconstructed AND ${HAS_COMMITTED} GROUP BY partition`),
  ]);
  const cameAt = new Map(came.rows.map(({ partition, at }) => [partition, at]));
  const stateAt = new Map(states.map(({ partition, state }) => [partition, state]));
  return due.map((one) => ({
    ...one,
    pipeline,
    came: cameAt.get(one.partition) ?? null,
    state: stateAt.get(one.partition) ?? null,
  }));
}
