// One run: fetch → gate → commit each series → read back and check → record what was materialised.
// Safe to repeat at any point: commits are content-idempotent, and the ledger's fence keeps a
// process that woke late from recording anything.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import { asFailure } from "../../http/database.ts";
import type { Log } from "../../http/log.ts";
import { commit, type Vintage, type WriterParts } from "../store/commit.ts";
import type { Range } from "../store/plan.ts";
import type { Store } from "../store/store.ts";
import { readBack } from "./check.ts";
import type { FetchedSeries, Finding } from "./gate.ts";
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
  upstreams: Upstreams;
  log: Log;
  clock: () => number;
  leaseMs: number;
  /** Puts a run on its queue, to be delivered after the delay. */
  send: (job: string, runIds: readonly string[], delaySeconds?: number) => Promise<void>;
}

export const ATTEMPTS_MAX = 5;
const BACKOFF_SECONDS = 10;
const BACKOFF_SECONDS_MAX = 300;
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
  try {
    const metadata = await materialize(parts, run);
    await succeedRun(parts.database, run, metadata, parts.clock());
    parts.log.info("run_succeeded", {
      ...run,
      rows: metadata.rows_written,
      ms: parts.clock() - started,
    });
  } catch (thrown) {
    await recordFailure(parts, run, asFailure(thrown));
  }
}

async function recordFailure(parts: IngestParts, run: ClaimedRun, thrown: unknown) {
  const code = thrown instanceof Failure ? thrown.code : "internal";
  if (code === "lease_lost") return parts.log.warning("run_lease_lost", { ...run });
  const findings = thrown instanceof Failure ? thrown.data : {};
  const error: RunError = {
    code,
    detail: thrown instanceof Failure ? thrown.message : "an internal error; the log holds it",
    metadata: Object.keys(findings).length > 0 ? findings : null,
  };
  if (!RETRYABLE.has(code) || run.attempt >= ATTEMPTS_MAX) {
    parts.log.error("run_failed", { ...run, error: thrown });
    return failRun(parts.database, run, error, parts.clock());
  }
  const delaySeconds = Math.min(BACKOFF_SECONDS * 2 ** (run.attempt - 1), BACKOFF_SECONDS_MAX);
  parts.log.warning("run_retries", { ...run, delay_s: delaySeconds, error: thrown });
  await requeueRun(parts.database, run, error, parts.clock() + delaySeconds * 1_000);
  await parts.send(run.job, [run.run_id], delaySeconds);
}

async function materialize(parts: IngestParts, run: ClaimedRun) {
  const pipeline = pipelineOf(run.job);
  if (!pipeline) throw new Failure("unknown_job", `no pipeline is named ${run.job}`);
  const window = runWindow(pipeline, run, parts.clock());
  const fetched = await pipeline.fetch(parts.upstreams, window);
  await keepLease(parts, run);
  const report = pipeline.gate(fetched.series, { window, now: parts.clock() });
  const errors = report.findings.filter(({ severity }) => severity === "error");
  if (errors.length > 0) throw rejected(errors, report.findings, fetched);
  const committed = await commitAll(parts, run, pipeline, window, {
    ...fetched,
    series: report.accepted,
  });
  const check = await readBack(parts.store, pipeline, {
    window,
    now: parts.clock(),
    series: report.accepted,
  });
  const vintages = committed.filter(({ vintage }) => vintage !== null);
  const rows = ({ vintage }: Committed) =>
    vintage ? vintage.inserted + vintage.revised + vintage.retracted : 0;
  const newest = Math.max(...vintages.map(({ vintage }) => vintage?.asOf ?? 0));
  return {
    rows_written: vintages.reduce((total, one) => total + rows(one), 0),
    rows_fetched: fetched.series.reduce((total, series) => total + series.rows.length, 0),
    series_unchanged: committed.length - vintages.length,
    instrument_ids: vintages.map(({ library, symbol }) => `${library}.${symbol}`),
    as_of: vintages.length > 0 ? iso(newest) : null,
    store_version: Object.fromEntries(
      vintages.map(({ library, symbol, vintage }) => [`${library}.${symbol}`, vintage?.seq]),
    ),
    source_url: fetched.sourceUrl,
    vintage_reconstructed: run.reconstructed,
    sandbox: fetched.sandbox,
    covered: { from: iso(window.from), to: iso(window.to) },
    findings: report.findings,
    check,
  };
}

/** A run of the newest partition looks back; a reconstruction covers its own partition only. */
function runWindow(pipeline: Pipeline, run: ClaimedRun, now: number): Range {
  const range = partitionRange(pipeline.partitions, run.partition, now);
  return run.reconstructed ? range : { from: range.from - pipeline.lookbackMs, to: range.to };
}

/** Whether a run that somebody asked for writes forward vintages: only of the newest partition. */
export const isReconstruction = (partition: string, now: number): boolean =>
  partition !== latestPartition(now);

type Committed = Pick<FetchedSeries, "library" | "symbol"> & { vintage: Vintage | null };

async function commitAll(
  parts: IngestParts,
  run: ClaimedRun,
  pipeline: Pipeline,
  covered: Range,
  fetched: Fetched,
): Promise<Committed[]> {
  const { valueColumns } = pipeline;
  const { sourceUrl, sandbox } = fetched;
  const { reconstructed, partition, run_id: runId } = run;
  const committed: Committed[] = [];
  for (let index = 0; index < fetched.series.length; index += SERIES_AT_ONCE) {
    const batch = fetched.series.slice(index, index + SERIES_AT_ONCE);
    const vintages = batch.map(async ({ library, symbol, rows }) => {
      const provenance = { runId, partition, sourceUrl, reconstructed, sandbox };
      const vintage = await commit(parts, {
        library,
        symbol,
        rows,
        valueColumns,
        covered,
        ...provenance,
      });
      return { library, symbol, vintage };
    });
    committed.push(...(await Promise.all(vintages)));
    await keepLease(parts, run);
  }
  return committed;
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
