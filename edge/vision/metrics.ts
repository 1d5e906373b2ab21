// `/metrics` of the vision service: what all its isolates counted together, and how the queue and
// the nodes stand now.

import { gauge, type Metric } from "../../shared/metrics.ts";
import { Tally } from "../../shared/tally.ts";
import type { App } from "../http/app.ts";
import { isUnavailable } from "../http/database.ts";
import { addMetricsRoute } from "../http/metrics.ts";
import { countOpenIncidents } from "./auth/incidents/incidents.ts";
import type { Parts } from "./base/parts.ts";
import { countersOf, sendCounts, VISION_TABLE } from "./base/tally.ts";
import {
  databaseLatencyMs,
  type Overview,
  oldestQueuedSeconds,
  overviewOf,
} from "./tasks/status.ts";

/** Registers the route; without `METRICS_TOKEN` it answers as a path that is not there. */
export function addMetrics(app: App<Parts>, version: string) {
  addMetricsRoute(app, {
    tokenOf: ({ metricsToken }) => metricsToken,
    list: (parts) => listMetrics(parts, version),
  });
}

/** Every metric, at the clock's instant. */
async function listMetrics(parts: Parts, version: string): Promise<Metric[]> {
  // What this isolate has not sent yet belongs to the whole.
  await sendCounts(parts);
  const [counts, database] = await Promise.all([countsOf(parts), databaseState(parts)]);
  return [
    ...(counts?.metrics ?? []),
    gauge(
      "vantage_vision_counters_start_time_seconds",
      "Since when everything above is counted.",
      counts ? [{ value: counts.since / 1_000 }] : [],
    ),
    gauge("vantage_vision_counters_up", "1 where what all isolates counted is told, else 0.", [
      { value: Number(counts !== null) },
    ]),
    gauge("vantage_vision_build_info", "1, of the release that answers.", [
      { labels: { version }, value: 1 },
    ]),
    gauge("vantage_vision_database_up", "1 where the database answers, else 0.", [
      { value: Number(database !== null) },
    ]),
    gauge(
      "vantage_vision_database_latency_seconds",
      "Time that the database takes to answer: the middle one of five statements.",
      database ? [{ value: database.latencyMs / 1_000 }] : [],
    ),
    gauge(
      "vantage_vision_incidents_open",
      "Incidents of the installation that are not over, by what is wrong.",
      (database?.incidents ?? []).map(({ kind, open: value }) => ({ labels: { kind }, value })),
    ),
    ...overviewMetrics(database?.overview ?? null, parts.clock()),
  ];
}

/**
 * What was counted, and since when: epoch milliseconds. Null where the object that sums it does not
 * answer: this isolate's own part would look as if the counters had begun anew.
 */
async function countsOf(parts: Parts): Promise<{ since: number; metrics: Metric[] } | null> {
  try {
    const { since, series } = await countersOf(parts).read();
    const counted = new Tally(VISION_TABLE);
    counted.add(series);
    return { since, metrics: counted.metrics() };
  } catch (error) {
    parts.log.error("metrics", { error });
    return null;
  }
}

interface DatabaseState {
  latencyMs: number;
  overview: Overview;
  incidents: Awaited<ReturnType<typeof countOpenIncidents>>;
}

/** What the database tells; null of one that does not answer, of which the others still tell. */
async function databaseState({
  database,
  health,
  clock,
  log,
}: Parts): Promise<DatabaseState | null> {
  try {
    // The handle that gives up early: who scrapes does not wait long.
    const latencyMs = await databaseLatencyMs(health, clock);
    const [overview, incidents] = await Promise.all([
      overviewOf(database, "installation"),
      countOpenIncidents(database),
    ]);
    return { latencyMs, overview, incidents };
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    log.error("metrics", { error });
    return null;
  }
}

/** How queues and nodes stand; announced without samples where it is not known. */
function overviewMetrics(overview: Overview | null, now: number): Metric[] {
  const { queues = [], nodes = null, stuck = [] } = overview ?? {};
  const counts = nodes && {
    ready: nodes.ready,
    busy: nodes.busy,
    draining: nodes.draining,
    lost: nodes.lost,
  };
  return [
    gauge(
      "vantage_vision_tasks",
      "Tasks that are not over: waiting, delayed until they are due, running.",
      queues.flatMap(({ name: kind, lane, depth, delayed, running }) =>
        Object.entries({ waiting: depth - delayed, delayed, running }).map(([state, value]) => ({
          labels: { kind, lane, state },
          value,
        })),
      ),
    ),
    gauge(
      "vantage_vision_queue_oldest_seconds",
      "How long the first in line of a kind has waited; none where none waits.",
      queues.flatMap((queue) => {
        const value = oldestQueuedSeconds([queue], now);
        return value === null ? [] : [{ labels: { kind: queue.name, lane: queue.lane }, value }];
      }),
    ),
    gauge(
      "vantage_vision_tasks_stuck",
      "Running tasks that do not behave as their own history lets expect.",
      stuck.map(({ kind, tasks: value }) => ({ labels: { kind }, value })),
    ),
    gauge(
      "vantage_vision_nodes",
      "GPU nodes that were not revoked, by what they are at.",
      Object.entries(counts ?? {}).map(([state, value]) => ({ labels: { state }, value })),
    ),
    gauge(
      "vantage_vision_lines_open",
      "Live nodes that keep a direct line.",
      nodes ? [{ value: nodes.lines }] : [],
    ),
  ];
}
