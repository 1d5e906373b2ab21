// `/metrics`: the figures of ingest as Prometheus scrapes them, behind a token of their own, so
// that what scrapes cannot operate.

import { type Metric, type Sample, gauge as shownGauge } from "../../shared/metrics.ts";
import type { App } from "../http/app.ts";
import { addMetricsRoute } from "../http/metrics.ts";
import { type Count, readFigures } from "../markets/ingest/figures.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import { schedulesOf } from "../markets/ingest/pipeline.ts";
import { scheduleStates } from "../markets/ingest/ticks.ts";
import type { Console } from "./parameters.ts";

/** Registers the route; without `METRICS_TOKEN` it answers as a path that is not there. */
export function addMetrics(app: App<Console>) {
  addMetricsRoute(app, {
    tokenOf: ({ config }) => config.METRICS_TOKEN,
    list: ({ ingest }) => listMetrics(ingest),
  });
}

const gauge = (name: string, help: string, samples: readonly Sample[]): Metric =>
  shownGauge(`vantage_${name}`, help, samples);
const byKind = (label: string, counts: readonly Count[]): Sample[] =>
  counts.map(({ job, kind, count }) => ({
    labels: { pipeline: job, [label]: kind },
    value: count,
  }));
const byName = (label: string, values: ReadonlyMap<string, number>): Sample[] =>
  [...values].map(([name, value]) => ({ labels: { [label]: name }, value }));

/** Every metric, at the clock's instant. */
export async function listMetrics({ database, pipelines, clock }: IngestParts): Promise<Metric[]> {
  const jobs = pipelines.map(({ job }) => job);
  const [figures, states] = await Promise.all([
    readFigures(database, jobs, clock()),
    scheduleStates(database),
  ]);
  const { lastMinute, pending } = figures;
  const schedules = schedulesOf(pipelines).map(({ pipeline, schedule }) => ({
    labels: { pipeline: pipeline.job, schedule: schedule.name },
    state: states.get(schedule.name),
  }));
  return [
    gauge("runs_open", "Runs that have not ended.", byKind("state", figures.openRuns)),
    gauge(
      "runs_ended_24h",
      "Runs that ended in the last 24 hours; a gauge, since the ledger is not counted whole.",
      byKind("state", figures.endedRuns),
    ),
    gauge(
      "run_last_success_timestamp_seconds",
      "When the newest successful run of a pipeline ended.",
      byName("pipeline", figures.lastSuccess),
    ),
    gauge(
      "schedule_last_tick_timestamp_seconds",
      "The newest instant that a schedule fired at; none before its first tick.",
      schedules.flatMap(({ labels, state }) =>
        state ? [{ labels, value: state.lastTick / 1_000 }] : [],
      ),
    ),
    gauge(
      "schedule_enabled",
      "1 where a schedule is switched on, else 0.",
      schedules.map(({ labels, state }) => ({ labels, value: Number(state?.enabled ?? true) })),
    ),
    gauge(
      "scheduler_last_minute_timestamp_seconds",
      "The minute cron's last event; all that happens by itself hangs on it.",
      lastMinute === null ? [] : [{ value: lastMinute }],
    ),
    gauge(
      "incidents_open",
      "Partitions that failed or are late, stale series and failed checks, not over yet.",
      byKind("kind", figures.openIncidents),
    ),
    gauge("alerts_pending", "Alerts that the webhook has not taken yet.", [
      { value: figures.alertsPending },
    ]),
    gauge(
      "library_newest_datetime_timestamp_seconds",
      "The newest valid time of a library's series, forecasts included.",
      byName("library", figures.newestDatetime),
    ),
    gauge("compaction_pending_series", "Series with commits since their last compaction.", [
      { value: pending.series },
    ]),
    gauge("compaction_pending_vintages", "Their vintages.", [{ value: pending.vintages }]),
    gauge("compaction_pending_rows", "Their rows.", [{ value: pending.rows }]),
    gauge("compaction_pending_objects", "Their objects.", [{ value: pending.objects }]),
  ];
}
