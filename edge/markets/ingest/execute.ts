// One execution of a pipeline's partition: claim it, materialize it, and record how it ended. Safe
// to repeat at any point: commits are content-idempotent, rows fetched before another execution
// committed are fetched again, and the ledger's fence keeps a late process from ending the
// execution.

import { Failure } from "../../../shared/errors.ts";
import { HOUR, MINUTE } from "../../../shared/time.ts";
import { asFailure } from "../../http/database.ts";
import { awaited, expectedAt, expectedUntil } from "./completeness.ts";
import { sendReleased } from "./dispatch.ts";
import { type Journal, openJournal } from "./journal.ts";
import {
  type ClaimedExecution,
  claimExecution,
  completeExecution,
  type ExecutionError,
  failExecution,
  renewLease,
  requeueExecution,
} from "./ledger.ts";
import { materialize } from "./materialization.ts";
import type { IngestParts } from "./parts.ts";
import { findPipeline, type Pipeline, type Release } from "./pipeline.ts";

const BACKOFF_MS = 10_000;
const BACKOFF_MS_MAX = 300_000;
/** Queues hold a message at most this long. */
const DELAY_MS_MAX = 12 * HOUR;

/** Pause between two attempts before a release is expected, and once it is late. */
const PROBE_MS = 30 * MINUTE;

const RETRYABLE: ReadonlySet<string> = new Set([
  "upstream_unavailable",
  "upstream_truncated",
  "store_unavailable",
  "commit_conflict",
  "internal",
]);

/**
 * Executes what a queue delivered; an execution that is not queued any more is left alone. Whatever
 * goes wrong with the provider or the data is recorded, not thrown.
 */
export async function executeQueued(parts: IngestParts, runId: string): Promise<void> {
  const execution = await claimExecution(parts.database, runId, parts.clock(), parts.leaseMs);
  if (!execution) return parts.log.info("run_not_queued", { run_id: runId });
  const started = parts.clock();
  parts.log.info("run_started", { ...execution });
  const journal = openJournal(parts, execution);
  const { attempt, partition } = execution;
  journal.note("info", "started", { attempt, partition });
  const stopHeartbeat = startHeartbeat(parts, execution);
  try {
    const result = await materialize(parts, execution, journal);
    const ms = parts.clock() - started;
    const [level, state] =
      result.partialReason === null
        ? (["info", "succeeded"] as const)
        : (["warning", "partial"] as const);
    journal.note(level, state, { ms });
    await journal.flush();
    await completeExecution(parts.database, execution, result, parts.clock());
    parts.log[level](`run_${state}`, { ...execution, rows: result.metadata.rows_written, ms });
  } catch (thrown) {
    await recordFailure(parts, execution, journal, asFailure(thrown));
  } finally {
    stopHeartbeat();
  }
  // Where this fails, the minute cron does it.
  if (execution.trigger === "backfill") await sendReleased(parts).catch(() => {});
}

/** Renews the lease for as long as the process lives, however slow the provider is. */
function startHeartbeat(parts: IngestParts, execution: ClaimedExecution): () => void {
  const timer = setInterval(() => {
    // A heartbeat that fails is made up by the next; if none gets through, the lease expires.
    renewLease(parts.database, execution, parts.clock() + parts.leaseMs).catch(() => {});
  }, parts.leaseMs / 3);
  return () => clearInterval(timer);
}

/**
 * Ends a failed attempt: the execution waits for its provider, comes again after a backoff, or ends
 * for good.
 */
async function recordFailure(
  parts: IngestParts,
  execution: ClaimedExecution,
  journal: Journal,
  thrown: unknown,
) {
  const { database, log } = parts;
  const code = thrown instanceof Failure ? thrown.code : "internal";
  if (code === "lease_lost") return log.warning("run_lease_lost", { ...execution });
  const data = thrown instanceof Failure ? thrown.data : {};
  const now = parts.clock();
  const pipeline = findPipeline(parts.pipelines, execution.job);
  const retryAfterMs = Number(data.retry_after_s ?? 0) * 1_000;
  const next = nextAttempt(execution, { code, retryAfterMs, pipeline }, now);
  const error: ExecutionError = {
    code,
    detail: detailOf(thrown, { execution, pipeline, now }),
    metadata: Object.keys(data).length > 0 ? data : null,
  };
  if (next === null) {
    const state = code === "not_released" ? "late" : "failed";
    journal.note("error", state, { code, reason: error.detail });
    await journal.flush();
    log.error(`run_${state}`, { ...execution, error: thrown });
    return failExecution(database, execution, { state, error }, now);
  }
  const { waits, delayMs } = next;
  journal.note("warning", waits ? "waits" : "retries", {
    code,
    reason: error.detail,
    delay_s: Math.round(delayMs / 1_000),
  });
  await journal.flush();
  log.warning("run_retries", { ...execution, delay_ms: delayMs, error: thrown });
  await requeueExecution(database, execution, { error, availableAt: now + delayMs, waits });
  if (delayMs > DELAY_MS_MAX) return; // The minute cron sends what has been available for a while.
  await parts.send(execution.job, [execution.run_id], Math.ceil(delayMs / 1_000));
}

/** What is said of a failed attempt; of one that waits, until when. */
function detailOf(
  thrown: unknown,
  { execution, pipeline, now }: Pick<AttemptFailure, "pipeline"> & Attempt,
): string {
  if (!(thrown instanceof Failure)) return "an internal error; the log holds it";
  if (thrown.code !== "not_released" || !pipeline) return thrown.message;
  return awaited(execution.partition, waitsUntil(pipeline, execution), now);
}

interface Attempt {
  execution: ClaimedExecution;
  now: number;
}

/** A tick that takes a partition again, such as a repair's, opens a window of its own. */
function waitsUntil(pipeline: Pipeline, { partition, scheduled_at }: ClaimedExecution): number {
  const until = expectedUntil(pipeline, partition);
  const { release } = pipeline;
  return release && scheduled_at ? Math.max(until, scheduled_at + release.windowMs) : until;
}

/**
 * How long an execution leaves its provider alone: most of all before the release is expected, at
 * which it asks again, and once it is late.
 */
function pauseOf(
  pipeline: Pipeline,
  { everyMs }: Release,
  { execution: { partition }, now }: Attempt,
): number {
  const { at } = expectedAt(pipeline, partition);
  if (now < at) return Math.min(PROBE_MS, Math.max(at - now, MINUTE));
  return now < expectedUntil(pipeline, partition) ? everyMs : Math.max(everyMs, PROBE_MS);
}

interface AttemptFailure {
  /** The failure's code. */
  code: string;
  /** How long the provider asked us to stay away; 0 when it did not say. */
  retryAfterMs: number;
  pipeline: Pipeline | undefined;
}

/**
 * When a failed attempt is made again; null: never. `waits` says that the attempt does not count:
 * its provider had nothing yet.
 */
function nextAttempt(
  execution: ClaimedExecution,
  { code, retryAfterMs, pipeline }: AttemptFailure,
  now: number,
): { waits: boolean; delayMs: number } | null {
  const waits = code === "not_released";
  if (!waits && !RETRYABLE.has(code)) return null;
  const { attempt, attempts_max, trigger } = execution;
  if (pipeline?.release) {
    const pauseMs = pauseOf(pipeline, pipeline.release, { execution, now });
    // Inside its release window a scheduled execution waits its provider's failures out, too.
    const isOut = trigger === "schedule" && attempt >= attempts_max;
    const isOpen = now + pauseMs <= waitsUntil(pipeline, execution);
    if (isOpen && (waits || isOut))
      return { waits: true, delayMs: Math.max(pauseMs, retryAfterMs) };
  }
  if (waits || attempt >= attempts_max) return null;
  const backoffMs = Math.min(BACKOFF_MS * 2 ** (attempt - 1), BACKOFF_MS_MAX);
  return { waits: false, delayMs: Math.max(backoffMs, Math.min(retryAfterMs, DELAY_MS_MAX)) };
}
