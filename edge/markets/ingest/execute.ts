// One run: fetch → gate → commit each series → read back and check → record what was materialised.
// Safe to repeat at any point: commits are content-idempotent, rows fetched before another run
// committed are fetched again, and the ledger's fence keeps a late process from ending the run.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import { asFailure, type Database } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import { type CommitRequest, commit } from "../store/commit.ts";
import { type Head, listHeads, listRunVintages } from "../store/listings.ts";
import type { WriterParts } from "../store/objects.ts";
import type { Range } from "../store/plan.ts";
import type { Store } from "../store/store.ts";
import { readBack } from "./check.ts";
import { type FetchedSeries, type Finding, mayRetract } from "./gate.ts";
import { recordSeen } from "./graph.ts";
import {
  type ClaimedRun,
  claimRun,
  failRun,
  type RunError,
  renewLease,
  requeueRun,
  succeedRun,
} from "./ledger.ts";
import { latestPartition, partitionRange } from "./partition.ts";
import { type Fetched, type Pipeline, pipelineOf, type Upstreams } from "./pipelines.ts";

export interface IngestParts extends WriterParts {
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

const BACKOFF_SECONDS = 10;
const BACKOFF_SECONDS_MAX = 300;
/** Queues hold a message at most this long. */
const DELAY_SECONDS_MAX = 12 * 3_600;
const SERIES_AT_ONCE = 6;

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
  const stopHeartbeat = startHeartbeat(parts, run);
  try {
    const metadata = await materialize(parts, run);
    await succeedRun(parts.database, run, metadata, parts.clock());
    const ms = parts.clock() - started;
    parts.log.info("run_succeeded", { ...run, rows: metadata.rows_written, ms });
  } catch (thrown) {
    await recordFailure(parts, run, asFailure(thrown));
  } finally {
    stopHeartbeat();
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

async function recordFailure(parts: IngestParts, run: ClaimedRun, thrown: unknown) {
  const code = thrown instanceof Failure ? thrown.code : "internal";
  if (code === "lease_lost") return parts.log.warning("run_lease_lost", { ...run });
  const data = thrown instanceof Failure ? thrown.data : {};
  const error: RunError = {
    code,
    detail: thrown instanceof Failure ? thrown.message : "an internal error; the log holds it",
    metadata: Object.keys(data).length > 0 ? data : null,
  };
  if (!RETRYABLE.has(code) || run.attempt >= run.attempts_max) {
    parts.log.error("run_failed", { ...run, error: thrown });
    return failRun(parts.database, run, error, parts.clock());
  }
  const backoff = Math.min(BACKOFF_SECONDS * 2 ** (run.attempt - 1), BACKOFF_SECONDS_MAX);
  const asked = Math.min(Number(data.retry_after_s ?? 0), DELAY_SECONDS_MAX);
  const delaySeconds = Math.max(backoff, asked);
  parts.log.warning("run_retries", { ...run, delay_s: delaySeconds, error: thrown });
  await requeueRun(parts.database, run, error, parts.clock() + delaySeconds * 1_000);
  await parts.send(run.job, [run.run_id], delaySeconds);
}

async function materialize(parts: IngestParts, run: ClaimedRun) {
  const pipeline = pipelineOf(run.job);
  if (!pipeline) throw new Failure("unknown_job", `no pipeline is named ${run.job}`);
  const window = runWindow(pipeline, run, parts.clock());
  const heads = await listHeads(parts.database, pipeline.libraries);
  const fetched = await pipeline.fetch(parts.upstreams, window);
  const { accepted, findings } = pipeline.gate(fetched.series, { window, now: parts.clock() });
  const refused = await commitAll(parts, { run, pipeline, window, heads }, fetched, accepted);
  findings.push(...refused, ...missing(run, fetched.series, heads, window));
  const errors = findings.filter(({ severity }) => severity === "error");
  if (refused.length === accepted.length) throw rejected(errors, findings, fetched);
  await recordInGraph(parts, run, accepted);
  const written = { window, now: parts.clock(), series: accepted, errors };
  const check = await readBack(parts.store, pipeline, written);
  // From the store, not from this attempt: an earlier attempt may have committed before it was
  // lost.
  const vintages = await listRunVintages(parts.database, run.run_id);
  const names = vintages.map(({ library, symbol }) => `${library}.${symbol}`);
  const newest = vintages.reduce((latest, { asOf }) => Math.max(latest, asOf), 0);
  return {
    rows_written: vintages.reduce((total, { rows }) => total + rows, 0),
    rows_fetched: fetched.series.reduce((total, { rows }) => total + rows.length, 0),
    instrument_ids: [...new Set(names)],
    as_of: vintages.length > 0 ? iso(newest) : null,
    store_version: Object.fromEntries(vintages.map(({ seq }, index) => [names[index], seq])),
    source_url: fetched.sourceUrl,
    vintage_reconstructed: run.reconstructed,
    sandbox: fetched.sandbox,
    covered: { from: iso(window.from), to: iso(window.to) },
    findings,
    check,
  };
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

/** A run of the newest partition looks back; a reconstruction covers its own partition only. */
function runWindow(pipeline: Pipeline, run: ClaimedRun, now: number): Range {
  const range = partitionRange(pipeline.partitions, run.partition, now);
  return run.reconstructed ? range : { from: range.from - pipeline.lookbackMs, to: range.to };
}

/** Whether a run that somebody asked for writes forward vintages: only of the newest partition. */
export const isReconstruction = (partition: string, now: number): boolean =>
  partition !== latestPartition(now);

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

/** Commits every accepted series; returns a finding for each whose commit was refused. */
async function commitAll(
  parts: IngestParts,
  { run, pipeline, window, heads }: CommitContext,
  { sourceUrl, sandbox }: Fetched,
  accepted: readonly FetchedSeries[],
): Promise<Finding[]> {
  const { reconstructed, partition, run_id: runId } = run;
  const refused: Finding[] = [];
  for (let index = 0; index < accepted.length; index += SERIES_AT_ONCE) {
    await keepLease(parts, run);
    const batch = accepted.slice(index, index + SERIES_AT_ONCE);
    const commits = batch.map(async ({ library, symbol, rows }) => {
      const request: CommitRequest = {
        ...{ library, symbol, rows, valueColumns: pipeline.valueColumns, covered: window },
        ...{ runId, partition, sourceUrl, reconstructed, sandbox, mayRetract },
        askedAtSeq: heads.get(`${library} ${symbol}`)?.seq ?? 0,
      };
      await commit(parts, request).catch((thrown: unknown) => {
        if (!(thrown instanceof Failure) || thrown.code !== "gate_rejected") throw thrown;
        const count = Number(thrown.data.retracted);
        refused.push({ severity: "error", rule: "mass_retraction", count, where: symbol });
      });
    });
    await Promise.all(commits);
  }
  return refused;
}

async function keepLease(parts: IngestParts, run: ClaimedRun) {
  if (await renewLease(parts.database, run, parts.clock() + parts.leaseMs)) return;
  throw new Failure("lease_lost", "another process took this run over");
}

const rejected = (errors: readonly Finding[], findings: readonly Finding[], fetched: Fetched) =>
  new Failure(
    "gate_rejected",
    `the quality gate refused the rows: ${errors
      .map(({ rule, count, where }) => `${rule} (${count}: ${where})`)
      .join("; ")}`,
    { data: { findings, source_url: fetched.sourceUrl } },
  );
