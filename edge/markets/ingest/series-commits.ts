// Commits an execution's accepted series, each by itself. One that would withdraw too many rows is
// refused and recorded, unless an operator accepted just that.

import { Failure } from "../../../shared/errors.ts";
import { commitAll, RefusedCommit } from "../store/commit.ts";
import type { Head } from "../store/listings.ts";
import { keyOf, type Range, type Row } from "../store/rows.ts";
import { type FetchedSeries, type Finding, finding, mayRetract } from "./gate.ts";
import { type ClaimedExecution, renewLease } from "./ledger.ts";
import type { IngestParts } from "./parts.ts";
import type { FetchResult, Pipeline } from "./pipeline.ts";
import { acceptedRows, endRefusals, type RefusedSeries, recordRefusals } from "./refusals.ts";

const SERIES_AT_ONCE = 24;

/** What the commits of an execution share. */
interface CommitContext {
  execution: ClaimedExecution;
  pipeline: Pipeline;
  window: Range;
  /** Heads of the series when the provider was asked. */
  heads: ReadonlyMap<string, Head>;
}

/** What an execution committed. */
export interface Commits {
  /** A finding for each series whose commit was refused. */
  refused: Finding[];
  vintages: number;
  /** Valid times of the rows revised or retracted. */
  changedAt: number[];
  changedInstruments: string[];
  /** How many of the vintages are of a series, by `library symbol`. */
  vintagesOf: Map<string, number>;
}

/** Commits every accepted series; fails with `lease_lost`, and as `commit` does. */
export async function commitSeries(
  parts: IngestParts,
  { execution, pipeline, window, heads }: CommitContext,
  { sourceUrl, sandbox, publishedAt, isPartial = false }: FetchResult,
  accepted: readonly FetchedSeries[],
): Promise<Commits> {
  const { reconstructed, partition, run_id: runId } = execution;
  const refused: RefusedSeries[] = [];
  const commits: Commits = {
    refused: [],
    vintages: 0,
    changedAt: [],
    changedInstruments: [],
    vintagesOf: new Map(),
  };
  const acceptable = await acceptedRows(parts.database, execution);
  for (let index = 0; index < accepted.length; index += SERIES_AT_ONCE) {
    await keepLease(parts, execution);
    const batch = accepted.slice(index, index + SERIES_AT_ONCE);
    const requests = batch.map(({ library, symbol, rows }) => ({
      library,
      symbol,
      rows,
      valueColumns: pipeline.valueColumns,
      runId,
      sourceUrl,
      reconstructed,
      publishedWithinMs: pipeline.publishedWithinMs,
      sandbox,
      isPartial,
      mayWithdraw: withdrawalRule(acceptable.get(`${library} ${symbol}`)),
      askedAtSeq: heads.get(`${library} ${symbol}`)?.seq ?? 0,
      sourcePublishedAt: publishedAt ?? null,
    }));
    const outcomes = await commitAll(parts, { covered: window, partition }, requests);
    for (const [position, outcome] of outcomes.entries()) {
      const { library = "", symbol = "" } = batch[position] ?? {};
      if (outcome.status === "rejected") {
        if (!(outcome.reason instanceof RefusedCommit)) throw outcome.reason;
        const { change } = outcome.reason;
        refused.push({ library, symbol, change });
        commits.refused.push(finding("error", "mass_retraction", change.withdrawn, symbol));
      } else if (outcome.value) {
        commits.vintages += outcome.value.vintages;
        commits.changedAt.push(...outcome.value.changedAt);
        commits.changedInstruments.push(...outcome.value.changedInstruments);
        commits.vintagesOf.set(`${library} ${symbol}`, outcome.value.vintages);
      }
    }
  }
  await recordRefusals(parts.database, execution, refused, parts.clock());
  // An answer that lacks rows withdraws none: it tells nothing of what was refused before.
  const isTold = ({ library, symbol }: FetchedSeries) =>
    acceptable.has(`${library} ${symbol}`) &&
    !refused.some((one) => one.library === library && one.symbol === symbol);
  if (!isPartial)
    await endRefusals(parts.database, execution, accepted.filter(isTold), parts.clock());
  return commits;
}

/** A few rows may go, and those of which an operator accepted it. */
const withdrawalRule =
  (acceptable: ReadonlySet<string> | undefined) =>
  (withdrawn: readonly Row[], stored: number): boolean =>
    mayRetract(withdrawn.length, stored) || withdrawn.every((row) => acceptable?.has(keyOf(row)));

async function keepLease(parts: IngestParts, execution: ClaimedExecution) {
  if (await renewLease(parts.database, execution, parts.clock() + parts.leaseMs)) return;
  throw new Failure("lease_lost", "another process took this run over, or it was canceled");
}
