// One run: fetch → gate → commit each series → read back and check → record what was materialised.
// Safe to repeat at any point: commits are content-idempotent, rows fetched before another run
// committed are fetched again, and the ledger's fence keeps a late process from ending the run.

import { Failure } from "../../../shared/errors.ts";
import { HOUR, iso } from "../../../shared/time.ts";
import { asFailure, type Database } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import { commitAll } from "../store/commit.ts";
import { type Head, listHeads, listRunVintages } from "../store/listings.ts";
import type { WriterParts } from "../store/objects.ts";
import type { Range, Row } from "../store/plan.ts";
import type { Store } from "../store/store.ts";
import { readBack } from "./check.ts";
import {
  type FetchedSeries,
  type Finding,
  type GateContext,
  type GateReport,
  mayRetract,
} from "./gate.ts";
import { recordSeen } from "./graph.ts";
import { type Journal, notingFetcher, openJournal } from "./journal.ts";
import {
  type ClaimedRun,
  claimRun,
  failRun,
  type RunError,
  releaseHeldRuns,
  renewLease,
  requeueRun,
  succeedRun,
} from "./ledger.ts";
import { holdingPartition, latestPartition, partitionRange } from "./partition.ts";
import {
  type Fetched,
  type Pipeline,
  type Release,
  requirePipeline,
  type Upstreams,
} from "./pipeline.ts";
import { comparePublication } from "./publications.ts";

export interface IngestParts extends WriterParts {
  pipelines: readonly Pipeline[];
  store: Store;
  /** The catalog graph, where there is one. */
  graph: Database | null;
  upstreams: Upstreams;
  log: Log;
  clock: () => number;
  leaseMs: number;
  /** Puts a run on its queue, to be delivered after the delay. */
  send: (job: string, runIds: readonly string[], delaySeconds?: number) => Promise<void>;
}

const BACKOFF_MS = 10_000;
const BACKOFF_MS_MAX = 300_000;
/** Queues hold a message at most this long. */
const DELAY_MS_MAX = 12 * HOUR;
const SERIES_AT_ONCE = 24;

const RETRYABLE: ReadonlySet<string> = new Set([
  "upstream_unavailable",
  "upstream_truncated",
  "store_unavailable",
  "commit_conflict",
  "internal",
]);

/** Executes a queued run; a run that is not queued any more is left alone. */
export async function executeRun(parts: IngestParts, runId: string): Promise<void> {
  const run = await claimRun(parts.database, runId, parts.clock(), parts.leaseMs);
  if (!run) return parts.log.info("run_not_queued", { run_id: runId });
  const started = parts.clock();
  parts.log.info("run_started", { ...run });
  const journal = openJournal(parts, run);
  journal.note("info", "started", { attempt: run.attempt, partition: run.partition });
  const stopHeartbeat = startHeartbeat(parts, run);
  try {
    const done = await materialize(parts, run, journal);
    const ms = parts.clock() - started;
    journal.note("info", "succeeded", { ms });
    await journal.flush();
    await succeedRun(parts.database, run, done, parts.clock());
    parts.log.info("run_succeeded", { ...run, rows: done.metadata.rows_written, ms });
  } catch (thrown) {
    await recordFailure(parts, run, journal, asFailure(thrown));
  } finally {
    stopHeartbeat();
  }
  // Where this fails, the minute cron does it.
  if (run.trigger === "backfill") await sendReleased(parts).catch(() => {});
}

/** Sends the backfills' runs whose turn it is. */
export async function sendReleased(parts: IngestParts): Promise<void> {
  const released = await releaseHeldRuns(parts.database, parts.clock());
  for (const [job, runs] of Map.groupBy(released, (run) => run.job)) {
    await parts.send(
      job,
      runs.map((run) => run.runId),
    );
  }
}

/** Renews the lease for as long as the process lives, however slow the provider is. */
function startHeartbeat(parts: IngestParts, run: ClaimedRun): () => void {
  const timer = setInterval(() => {
    // A heartbeat that fails is made up by the next; if none gets through, the lease expires.
    renewLease(parts.database, run, parts.clock() + parts.leaseMs).catch(() => {});
  }, parts.leaseMs / 3);
  return () => clearInterval(timer);
}

/**
 * Ends a failed attempt: the run waits for its provider, comes again after a backoff, or ends for
 * good.
 */
async function recordFailure(
  parts: IngestParts,
  run: ClaimedRun,
  journal: Journal,
  thrown: unknown,
) {
  const code = thrown instanceof Failure ? thrown.code : "internal";
  if (code === "lease_lost") return parts.log.warning("run_lease_lost", { ...run });
  const data = thrown instanceof Failure ? thrown.data : {};
  const error: RunError = {
    code,
    detail: thrown instanceof Failure ? thrown.message : "an internal error; the log holds it",
    metadata: Object.keys(data).length > 0 ? data : null,
  };
  const now = parts.clock();
  const release = parts.pipelines.find(({ job }) => job === run.job)?.release ?? null;
  const askedMs = Number(data.retry_after_s ?? 0) * 1_000;
  const next = nextAttempt(run, { code, askedMs, release }, now);
  if (next === null) {
    const state = code === "not_released" ? "late" : "failed";
    journal.note("error", state, { code, reason: error.detail });
    await journal.flush();
    parts.log.error(`run_${state}`, { ...run, error: thrown });
    return failRun(parts.database, run, { state, error }, now);
  }
  const { waits, delayMs } = next;
  journal.note("warning", waits ? "waits" : "retries", {
    code,
    reason: error.detail,
    delay_s: Math.round(delayMs / 1_000),
  });
  await journal.flush();
  parts.log.warning("run_retries", { ...run, delay_ms: delayMs, error: thrown });
  await requeueRun(parts.database, run, { error, availableAt: now + delayMs, waits });
  // A longer wait is the minute cron's: it sends what has been available for a while.
  if (delayMs <= DELAY_MS_MAX) await parts.send(run.job, [run.run_id], Math.ceil(delayMs / 1_000));
}

/** When a failed attempt is made again; null: never. */
function nextAttempt(
  run: ClaimedRun,
  { code, askedMs, release }: { code: string; askedMs: number; release: Release | null },
  now: number,
): { waits: boolean; delayMs: number } | null {
  const waits = code === "not_released";
  if (!waits && !RETRYABLE.has(code)) return null;
  const opens = run.trigger === "schedule" && release ? (run.scheduled_at ?? 0) : -Infinity;
  // Inside its release window a run waits its provider's failures out, too.
  const inWindow = release ? now + release.everyMs <= opens + release.windowMs : false;
  if (inWindow && release && (waits || run.attempt >= run.attempts_max)) {
    return { waits: true, delayMs: Math.max(release.everyMs, askedMs) };
  }
  if (waits || run.attempt >= run.attempts_max) return null;
  const backoffMs = Math.min(BACKOFF_MS * 2 ** (run.attempt - 1), BACKOFF_MS_MAX);
  return { waits: false, delayMs: Math.max(backoffMs, Math.min(askedMs, DELAY_MS_MAX)) };
}

async function materialize(parts: IngestParts, run: ClaimedRun, journal: Journal) {
  const pipeline = requirePipeline(parts.pipelines, run.job);
  const now = parts.clock();
  const partition = partitionRange(pipeline.partitions, run.partition, now);
  const window = runWindow(pipeline, run, partition);
  const heads = await ownHeads(parts.database, pipeline);
  const upstreams = {
    ...parts.upstreams,
    fetcher: notingFetcher(parts.upstreams.fetcher, journal, parts.clock),
  };
  const fetched = await pipeline.fetch(upstreams, { partition, window, now });
  const rowsFetched = fetched.series.reduce((total, { rows }) => total + rows.length, 0);
  journal.note("info", "fetched", { series: fetched.series.length, rows: rowsFetched });
  await journal.flush();
  const context = { partition, window, now: parts.clock() };
  const compared = await comparePublication(parts.database, pipeline, fetched);
  const { accepted, findings } = judge(pipeline, fetched, compared.findings, context);
  for (const { samples: _, ...found } of findings)
    journal.note(found.severity, "gate", { ...found });
  const commits = await commitSeries(parts, { run, pipeline, window, heads }, fetched, accepted);
  findings.push(...commits.refused, ...missing(run, fetched.series, heads, window));
  findings.push(...compared.ofChanges(commits.changedAt, context.now));
  const errors = findings.filter(({ severity }) => severity === "error");
  const nothingLeft = commits.refused.length === accepted.length && errors.length > 0;
  if (nothingLeft) throw rejected(errors, findings, fetched);
  journal.note("info", "committed", { series: accepted.length, vintages: commits.vintages });
  await journal.flush();
  await recordInGraph(parts, run, accepted);
  const check = await readBack(parts.store, pipeline, { ...context, series: accepted, errors });
  journal.note(check.passed ? "info" : "error", "checked", { ...check });
  // From the store, not from this attempt: an earlier attempt may have committed before it was
  // lost.
  const vintages = await listRunVintages(parts.database, run.run_id);
  const names = vintages.map(({ library, symbol }) => `${library}.${symbol}`);
  const newest = vintages.reduce((latest, { asOf }) => Math.max(latest, asOf), 0);
  const changed = accepted.filter(({ library, symbol }) => names.includes(`${library}.${symbol}`));
  const metadata = {
    rows_written: vintages.reduce((total, { rows }) => total + rows, 0),
    rows_fetched: rowsFetched,
    instrument_ids: instrumentsOf(changed),
    as_of: vintages.length > 0 ? iso(newest) : null,
    store_version: Object.fromEntries(vintages.map(({ seq }, index) => [names[index], seq])),
    source_url: fetched.sourceUrl,
    vintage_reconstructed: run.reconstructed,
    sandbox: fetched.sandbox,
    covered: { from: iso(window.from), to: iso(window.to) },
    findings,
    check,
  };
  if (isAwaited(pipeline, run) && !isComplete(pipeline, accepted, partition)) {
    throw new Failure("not_released", `${run.partition} is not published yet`, { data: metadata });
  }
  // What lies ahead of the partition is a forecast: it materializes no partition.
  const covered = { from: window.from, to: partition.to };
  return { metadata, covered, revised: byPartition(pipeline, commits.changedAt) };
}

const instrumentsOf = (series: readonly FetchedSeries[]) => [
  ...new Set(series.flatMap(({ rows }) => rows.map(({ instrumentId }) => instrumentId))),
];

/** The gate's report, unless the answer as a whole was found wrong. */
function judge(
  pipeline: Pipeline,
  fetched: Fetched,
  ofPublication: readonly Finding[],
  context: GateContext,
): GateReport {
  const noticed = [...(fetched.findings ?? []), ...ofPublication];
  const report = pipeline.gate(fetched.series, context);
  const spoiled = noticed.some(({ severity }) => severity === "error");
  return {
    accepted: spoiled ? [] : report.accepted,
    findings: [...noticed, ...report.findings],
  };
}

/** Heads of the series that are the pipeline's own. */
async function ownHeads(database: Database, { libraries, owns }: Pipeline) {
  const heads = await listHeads(database, libraries);
  if (!owns) return heads;
  return new Map([...heads].filter(([name]) => owns(name.split(" ")[1] ?? "")));
}

/** Only a schedule expects a partition to be published; who asks by hand is told what there is. */
const isAwaited = ({ release }: Pipeline, { trigger }: ClaimedRun) =>
  release !== null && trigger === "schedule";

function isComplete(
  { complete }: Pipeline,
  accepted: readonly FetchedSeries[],
  partition: Range,
): boolean {
  if (complete) return complete(accepted, partition);
  const isInside = ({ datetime }: Row) => datetime >= partition.from && datetime < partition.to;
  return accepted.some(({ rows }) => rows.some(isInside));
}

function byPartition({ partitions }: Pipeline, instants: readonly number[]) {
  const counts: Record<string, number> = {};
  for (const instant of instants) {
    const key = holdingPartition(partitions, instant);
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

/** The catalog graph is optional: whatever is wrong with it, the run goes on. */
async function recordInGraph(
  { graph, log, clock }: IngestParts,
  run: ClaimedRun,
  accepted: readonly FetchedSeries[],
) {
  if (!graph) return;
  const seen = accepted.map(({ library, symbol, rows }) => ({
    library,
    symbol,
    instrumentIds: [...new Set(rows.map(({ instrumentId }) => instrumentId))],
  }));
  await recordSeen(graph, seen, clock()).catch((error: unknown) =>
    log.warning("graph_not_recorded", { ...run, error }),
  );
}

/** A forward run looks back and ahead; a reconstruction covers its own partition only. */
function runWindow(pipeline: Pipeline, run: ClaimedRun, partition: Range): Range {
  if (run.reconstructed) return partition;
  const { lookbackMs, lookaheadMs = 0 } = pipeline;
  return { from: partition.from - lookbackMs, to: partition.to + lookaheadMs };
}

/** Whether a run that somebody asked for writes forward vintages: only of the newest partition. */
export const isReconstruction = ({ partitions }: Pipeline, partition: string, now: number) =>
  partition !== latestPartition(partitions, now);

/**
 * Series that have rows in a forward run's window and none in the provider's answer. Nothing is
 * committed for them, least of all a retraction; the check fails, so that somebody looks.
 */
function missing(
  run: ClaimedRun,
  fetched: readonly FetchedSeries[],
  heads: ReadonlyMap<string, Head>,
  window: Range,
): Finding[] {
  if (run.reconstructed) return [];
  const sent = new Set(fetched.map(({ library, symbol }) => `${library} ${symbol}`));
  const absent = [...heads].filter(
    ([name, head]) => !sent.has(name) && head.validMax >= window.from,
  );
  if (absent.length === 0) return [];
  const symbols = absent.map(([name]) => name.split(" ")[1]);
  const where = symbols.toSorted().join(" ");
  return [{ severity: "error", rule: "missing_series", count: absent.length, where }];
}

interface CommitContext {
  run: ClaimedRun;
  pipeline: Pipeline;
  window: Range;
  /** Heads of the series when the provider was asked. */
  heads: ReadonlyMap<string, Head>;
}

interface Commits {
  /** A finding for each series whose commit was refused. */
  refused: Finding[];
  vintages: number;
  /** Valid times of the rows revised or retracted. */
  changedAt: number[];
}

/** Commits every accepted series. */
async function commitSeries(
  parts: IngestParts,
  { run, pipeline, window, heads }: CommitContext,
  { sourceUrl, sandbox, publishedAt }: Fetched,
  accepted: readonly FetchedSeries[],
): Promise<Commits> {
  const { reconstructed, partition, run_id: runId } = run;
  const done: Commits = { refused: [], vintages: 0, changedAt: [] };
  for (let index = 0; index < accepted.length; index += SERIES_AT_ONCE) {
    await keepLease(parts, run);
    const batch = accepted.slice(index, index + SERIES_AT_ONCE);
    const requests = batch.map(({ library, symbol, rows }) => ({
      library,
      symbol,
      rows,
      valueColumns: pipeline.valueColumns,
      runId,
      sourceUrl,
      reconstructed,
      sandbox,
      mayRetract,
      askedAtSeq: heads.get(`${library} ${symbol}`)?.seq ?? 0,
      sourcePublishedAt: publishedAt ?? null,
    }));
    const outcomes = await commitAll(parts, { covered: window, partition }, requests);
    for (const [place, outcome] of outcomes.entries()) {
      if (outcome.status === "rejected") {
        done.refused.push(massRetraction(outcome.reason, batch[place]?.symbol ?? ""));
      } else if (outcome.value) {
        done.vintages++;
        done.changedAt.push(...outcome.value.changedAt);
      }
    }
  }
  return done;
}

/** The finding of a commit refused for what it would retract; other failures are thrown. */
function massRetraction(thrown: unknown, where: string): Finding {
  if (!(thrown instanceof Failure) || thrown.code !== "gate_rejected") throw thrown;
  const count = Number(thrown.data.retracted);
  return { severity: "error", rule: "mass_retraction", count, where };
}

async function keepLease(parts: IngestParts, run: ClaimedRun) {
  if (await renewLease(parts.database, run, parts.clock() + parts.leaseMs)) return;
  throw new Failure("lease_lost", "another process took this run over, or it was canceled");
}

const rejected = (errors: readonly Finding[], findings: readonly Finding[], fetched: Fetched) =>
  new Failure(
    "gate_rejected",
    `the quality gate refused the rows: ${errors
      .map(({ rule, count, where }) => `${rule} (${count}: ${where})`)
      .join("; ")}`,
    { data: { findings, source_url: fetched.sourceUrl } },
  );
