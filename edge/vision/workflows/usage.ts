// How deployed workflows are used: runs by version and hour, in buckets of the time that they took,
// so that percentiles of any window can be told. Counting is for show: what cannot be counted is
// logged and fails no run.

import { sql } from "drizzle-orm";
import { workflowUse } from "../../../db/vision/workflows.ts";
import { DAY, HOUR, iso } from "../../../shared/time.ts";
import type { UsageWindow, WorkflowUsage } from "../../../shared/wire/workflows.ts";
import type { Parts } from "../base/parts.ts";
import { keep } from "../base/retention.ts";
import { instant } from "../base/sql.ts";
import { type Counts, latencyBucket, percentile } from "../serving/endpoints/rollups.ts";

const WINDOW_MS: Readonly<Record<UsageWindow, number>> = {
  "24h": DAY,
  "7d": 7 * DAY,
  "30d": 30 * DAY,
};
/** Use is kept for 90 days. */
export const KEPT_USE = keep(workflowUse, "hour", { days: 90 });

/** A run of a deployed workflow that has ended. */
export interface WorkflowUse {
  workflowId: string;
  versionId: string;
  /** That it took. */
  milliseconds: number;
  ok: boolean;
  dryRun: boolean;
}

const hourOf = (now: number): number => now - (now % HOUR);

/** Counts a run, in one statement; never fails. */
export async function countUse(
  { database, clock, log }: Pick<Parts, "database" | "clock" | "log">,
  { workflowId, versionId, milliseconds, ok, dryRun }: WorkflowUse,
): Promise<void> {
  try {
    await database.execute(sql`
      INSERT INTO workflow_use AS u (version_id, hour, bucket, runs, failures, dry_runs)
      SELECT v.id, ${instant(hourOf(clock()))}, ${latencyBucket(milliseconds)}::smallint, 1,
        ${ok ? 0 : 1}::int, ${dryRun ? 1 : 0}::int
        FROM workflow_version v WHERE v.id = ${versionId}::uuid
      ON CONFLICT (version_id, hour, bucket) DO UPDATE SET runs = u.runs + 1,
        failures = u.failures + excluded.failures, dry_runs = u.dry_runs + excluded.dry_runs`);
  } catch (error) {
    log.warning("workflow_use", { workflow_id: workflowId, error });
  }
}

interface UseRow extends Record<string, unknown> {
  version: number;
  bucket: number;
  runs: number;
  failures: number;
  dryRuns: number;
}

/** What rows of use add up to. */
function figuresOf(rows: readonly UseRow[]): Omit<WorkflowUsage["versions"][number], "version"> {
  const latency: Counts = {};
  const sum = { runs: 0, failures: 0, dry_runs: 0 };
  for (const { bucket, runs, failures, dryRuns } of rows) {
    sum.runs += runs;
    sum.failures += failures;
    sum.dry_runs += dryRuns;
    latency[bucket] = (latency[bucket] ?? 0) + runs - failures;
  }
  const latency_ms = { p50: percentile(latency, 0.5), p95: percentile(latency, 0.95) };
  return { ...sum, latency_ms };
}

/** How a workflow was used in a window, whose beginning is a full hour. */
export async function workflowUsage(
  { database, clock }: Pick<Parts, "database" | "clock">,
  workflowId: string,
  window: UsageWindow,
): Promise<WorkflowUsage> {
  const since = hourOf(clock() - WINDOW_MS[window]);
  const { rows } = await database.execute<UseRow>(sql`
    SELECT v.version, u.bucket, sum(u.runs)::float8 AS runs, sum(u.failures)::float8 AS failures,
      sum(u.dry_runs)::float8 AS "dryRuns"
      FROM workflow_use u JOIN workflow_version v ON v.id = u.version_id
     WHERE v.workflow_id = ${workflowId}::uuid AND u.hour >= ${instant(since)}
     GROUP BY v.version, u.bucket ORDER BY v.version DESC, u.bucket`);
  const versions = [...Map.groupBy(rows, ({ version }) => version)].map(([version, own]) => ({
    version,
    ...figuresOf(own),
  }));
  return { workflow_id: workflowId, window, since: iso(since), ...figuresOf(rows), versions };
}
