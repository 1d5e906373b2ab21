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
import {
  endRefusals,
  type OpenRefusal,
  openRefusals,
  type RefusedSeries,
  recordRefusals,
} from "./refusals.ts";

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
  const over: string[] = [];
  const commits: Commits = {
    refused: [],
    vintages: 0,
    changedAt: [],
    changedInstruments: [],
    vintagesOf: new Map(),
  };
  const open = await openRefusals(parts.database, execution.job);
  for (let index = 0; index < accepted.length; index += SERIES_AT_ONCE) {
    await keepLease(parts, execution);
    const batch = accepted.slice(index, index + SERIES_AT_ONCE);
    const rules = batch.map((series) => {
      const refusals = open.get(`${series.library} ${series.symbol}`) ?? [];
      return withdrawalRule(refusals, series.rows, window);
    });
    const requests = batch.map(({ library, symbol, rows }, position) => ({
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
      mayWithdraw: rules[position]?.mayWithdraw ?? (() => false),
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
        continue;
      }
      over.push(...(rules[position]?.settledBy(isPartial) ?? []));
      if (outcome.value) {
        commits.vintages += outcome.value.vintages;
        commits.changedAt.push(...outcome.value.changedAt);
        commits.changedInstruments.push(...outcome.value.changedInstruments);
        commits.vintagesOf.set(`${library} ${symbol}`, outcome.value.vintages);
      }
    }
  }
  await endRefusals(parts.database, execution, over, parts.clock());
  await recordRefusals(parts.database, execution, refused, parts.clock());
  return commits;
}

interface WithdrawalRule {
  /** A few rows may go, and those of which an operator accepted it. */
  mayWithdraw: (withdrawn: readonly Row[], stored: number) => boolean;
  /**
   * Refusals that are over once the series is committed: those that were made use of and, unless
   * the answer is known to lack rows, those whose newest row it was asked for.
   */
  settledBy: (isPartial: boolean) => string[];
}

/** The rule for one series, by what of it was refused, and the rows that its source sent. */
function withdrawalRule(
  refusals: readonly OpenRefusal[],
  rows: readonly Row[],
  window: Range,
): WithdrawalRule {
  const used = new Set<string>();
  const accepted = refusals.filter(({ isAccepted }) => isAccepted);
  return {
    mayWithdraw: (withdrawn, stored) => {
      if (mayRetract(withdrawn.length, stored)) return true;
      const sent = new Set(rows.map(keyOf));
      const inUse = accepted.filter((one) => hasWhatCame(one, sent, window));
      const isAccepted = (row: Row) => inUse.some((one) => one.withdrawn.has(keyOf(row)));
      if (!withdrawn.every(isAccepted)) return false;
      for (const { id } of inUse) used.add(id);
      return true;
    },
    settledBy: (isPartial) =>
      refusals
        .filter(({ id, newest }) => {
          const isAsked = newest >= window.from && newest < window.to;
          return used.has(id) || (isAsked && !isPartial);
        })
        .map(({ id }) => id),
  };
}

/** Whether the rows are sent that came in the place of those which an operator let go. */
function hasWhatCame(
  { inserted }: OpenRefusal,
  sent: ReadonlySet<string>,
  { from, to }: Range,
): boolean {
  const wanted = [...inserted].filter(([, datetime]) => datetime >= from && datetime < to);
  const missing = wanted.filter(([key]) => !sent.has(key));
  return mayRetract(missing.length, wanted.length);
}

async function keepLease(parts: IngestParts, execution: ClaimedExecution) {
  if (await renewLease(parts.database, execution, parts.clock() + parts.leaseMs)) return;
  throw new Failure("lease_lost", "another process took this run over, or it was canceled");
}
