// What an execution does with its partition: fetch → gate → commit each series → read back and
// check → say what was materialized.

import { Failure } from "../../../shared/errors.ts";
import { iso } from "../../../shared/time.ts";
import { requireOwnBucket } from "../../http/bucket-identity.ts";
import type { Database } from "../../http/database.ts";
import { NAMED_OBJECTS } from "../store/housekeeping.ts";
import { type Head, listExecutionVintages, listHeads } from "../store/listings.ts";
import type { Range } from "../store/rows.ts";
import { type CheckResult, readBack, type StoredWindow } from "./check.ts";
import { type Completeness, completeRange, judgeCompleteness } from "./completeness.ts";
import {
  type FetchedSeries,
  type Finding,
  finding,
  type GateContext,
  type GateReport,
} from "./gate.ts";
import { recordSeen } from "./graph.ts";
import { type Journal, notingFetcher } from "./journal.ts";
import type { ClaimedExecution, Materialization } from "./ledger.ts";
import { holdingPartition, partitionRange } from "./partition.ts";
import type { IngestParts } from "./parts.ts";
import { type FetchResult, type Pipeline, requirePipeline } from "./pipeline.ts";
import { comparePublication } from "./publications.ts";
import { sentencesOf } from "./rules.ts";
import { type Commits, commitSeries } from "./series-commits.ts";

/** What an execution wrote, as its `metadata` tells the operator; instants as ISO 8601. */
export interface MaterializationMetadata {
  rows_written: number;
  /** How many of the rows written are flagged as reconstructed. */
  rows_reconstructed: number;
  rows_fetched: number;
  /** Rows and documents of the answer that could not be read, or contradict themselves. */
  left_out: number;
  /** All instruments that were read back, or fetched, whether they changed or not. */
  instrument_ids: string[];
  /** Instruments with rows that were inserted, revised or retracted. */
  changed_instrument_ids: string[];
  /** Newest knowledge time that was read back or committed; null where there are no rows. */
  as_of: string | null;
  /** Newest vintage of each series covered, by `library.symbol`. */
  store_version: Record<string, number>;
  source_url: string;
  /** Whether all that the execution writes is a reconstruction. */
  vintage_reconstructed: boolean;
  sandbox: boolean;
  covered: { from: string; to: string };
  /** Why the partition has no rows, or none yet; null when it has them. */
  empty_reason: string | null;
  findings: Finding[];
  check: CheckResult;
}

/**
 * Materializes a claimed execution's partition. Fails with `gate_rejected` when nothing may be
 * written, with `not_released` when the partition is not published yet, with `lease_lost` when
 * another process took over, and as the provider's source and the store do.
 */
export async function materialize(
  parts: IngestParts,
  execution: ClaimedExecution,
  journal: Journal,
): Promise<Materialization & { metadata: MaterializationMetadata }> {
  const pipeline = requirePipeline(parts.pipelines, execution.job);
  await requireOwnBucket({ ...parts, named: NAMED_OBJECTS }, { mayAdopt: true });
  const now = parts.clock();
  const partition = partitionRange(pipeline.partitions, execution.partition, now);
  const window = executionWindow(pipeline, execution, partition);
  const heads = await ownHeads(parts.database, pipeline);
  const upstreams = {
    ...parts.upstreams,
    fetcher: notingFetcher(parts.upstreams.fetcher, journal, parts.clock),
  };
  const answer = await pipeline.fetch(upstreams, { partition, window, now });
  const fetched = datedBy(answer, parts.clock());
  journal.note("info", "fetched", { series: fetched.series.length, rows: rowsOf(fetched.series) });
  await journal.flush();
  const leftOut = fetched.leftOut ?? [];
  const context = { partition, window, now: parts.clock(), hasLeftOut: leftOut.length > 0 };
  const comparison = await comparePublication(parts.database, pipeline, fetched);
  const report = judge(pipeline, fetched, comparison.findings, context);
  const { accepted } = report;
  const findings = [...leftOut, ...report.findings];
  for (const { samples: _, ...noted } of findings) journal.note(noted.severity, "gate", noted);
  const commits = await commitSeries(
    parts,
    { execution, pipeline, window, heads },
    { ...fetched, isPartial: fetched.isPartial || report.isPartial || leftOut.length > 0 },
    accepted,
  );
  findings.push(...commits.refused, ...missing(execution, fetched.series, heads, window));
  findings.push(...comparison.ofChanges(commits.changedAt, context.now));
  const errors = findings.filter(({ severity }) => severity === "error");
  const key = execution.partition;
  const completeness = judgeCompleteness(pipeline, accepted, { key, partition }, context.now);
  const nothingLeft = commits.refused.length === accepted.length && errors.length > 0;
  // Nothing at all is wrong with an answer only once something is owed.
  const onlyAwaited =
    errors.every(({ rule }) => rule === "no_rows") && isOpen(completeness, context.now);
  if (nothingLeft && !onlyAwaited) throw rejected(errors, findings, fetched);
  journal.note("info", "committed", { series: accepted.length, vintages: commits.vintages });
  await journal.flush();
  await recordInGraph(parts, execution, accepted);
  const lasting = onlyAwaited ? [] : errors;
  const written = { ...context, series: accepted, leftOut, errors: lasting };
  const empty =
    isOpen(completeness, context.now) || completeness.complete ? completeness.reason : null;
  const { check, ...stored } = await readBack(parts, pipeline, { ...written, empty });
  journal.note(check.passed ? "info" : "error", "checked", check);
  const metadata: MaterializationMetadata = {
    ...(await recordOf(parts.database, execution, { accepted, commits, stored })),
    rows_fetched: rowsOf(fetched.series),
    left_out: leftOut.reduce((total, { count }) => total + count, 0),
    source_url: fetched.sourceUrl,
    vintage_reconstructed: execution.reconstructed,
    sandbox: fetched.sandbox,
    covered: { from: iso(window.from), to: iso(window.to) },
    empty_reason: completeness.reason,
    findings,
    check,
  };
  if (!completeness.complete && (pipeline.release || !isOpen(completeness, context.now))) {
    throw new Failure("not_released", completeness.reason ?? key, { data: { ...metadata } });
  }
  // What lies ahead of the partition is a forecast: it materializes no partition.
  const covered = completeRange(pipeline, accepted, { key, window, now: context.now });
  const revised = byPartition(pipeline, commits.changedAt);
  const partialReason = lasting.length > 0 ? sentencesOf(lasting).join("; ") : null;
  return { metadata, covered, revised, partialReason };
}

/** An answer that says to be published in the future, by a wrong offset perhaps, came by now. */
function datedBy(answer: FetchResult, now: number): FetchResult {
  const { publishedAt, findings = [] } = answer;
  if (publishedAt === undefined || publishedAt <= now) return answer;
  const noted = finding("warning", "published_ahead", 1, iso(publishedAt));
  return { ...answer, publishedAt: now, findings: [...findings, noted] };
}

const rowsOf = (series: readonly FetchedSeries[]) =>
  series.reduce((total, { rows }) => total + rows.length, 0);

interface MaterializedRows {
  accepted: readonly FetchedSeries[];
  commits: Commits;
  stored: StoredWindow;
}

/**
 * What an execution covered, and what of it it changed over all its attempts. The latter is from
 * the store, since an earlier attempt may have committed before it was lost.
 */
async function recordOf(
  database: Database,
  execution: ClaimedExecution,
  { accepted, commits, stored }: MaterializedRows,
): Promise<
  Pick<
    MaterializationMetadata,
    | "rows_written"
    | "rows_reconstructed"
    | "instrument_ids"
    | "changed_instrument_ids"
    | "as_of"
    | "store_version"
  >
> {
  const libraries = [...new Set(accepted.map(({ library }) => library))];
  const [vintages, heads] = await Promise.all([
    listExecutionVintages(database, execution.run_id),
    libraries.length > 0 ? listHeads(database, libraries) : new Map<string, Head>(),
  ]);
  const rowsIn = (written: typeof vintages) => written.reduce((total, { rows }) => total + rows, 0);
  const asOf = vintages.reduce((newest, one) => Math.max(newest, one.asOf), stored.asOf);
  // The rows of a vintage that an earlier attempt committed are not known any more.
  const earlier = accepted.filter(({ library, symbol }) => {
    const all = vintages.filter((one) => one.library === library && one.symbol === symbol);
    return all.length > (commits.vintagesOf.get(`${library} ${symbol}`) ?? 0);
  });
  return {
    rows_written: rowsIn(vintages),
    rows_reconstructed: rowsIn(vintages.filter(({ reconstructed }) => reconstructed)),
    instrument_ids: [...new Set([...instrumentsOf(accepted), ...stored.instrumentIds])],
    changed_instrument_ids: [
      ...new Set([...commits.changedInstruments, ...instrumentsOf(earlier)]),
    ],
    as_of: asOf > 0 ? iso(asOf) : null,
    store_version: Object.fromEntries(
      accepted.flatMap(({ library, symbol }) => {
        const head = heads.get(`${library} ${symbol}`);
        return head ? [[`${library}.${symbol}`, head.seq]] : [];
      }),
    ),
  };
}

const instrumentsOf = (series: readonly FetchedSeries[]) => [
  ...new Set(series.flatMap(({ rows }) => rows.map(({ instrumentId }) => instrumentId))),
];

/** The gate's report, unless the answer as a whole was found wrong. */
function judge(
  pipeline: Pipeline,
  fetched: FetchResult,
  ofPublication: readonly Finding[],
  context: GateContext,
): GateReport {
  const noticed = [...(fetched.findings ?? []), ...ofPublication];
  const report = pipeline.gate(fetched.series, context);
  const spoiled = noticed.some(({ severity }) => severity === "error");
  return {
    ...report,
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

/** Whether a partition without its values may still get them in time. */
const isOpen = ({ complete, until }: Completeness, now: number) => !complete && now < until;

function byPartition({ partitions }: Pipeline, instants: readonly number[]) {
  const counts: Record<string, number> = {};
  for (const instant of instants) {
    const key = holdingPartition(partitions, instant);
    counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}

/** The catalog graph is optional: whatever is wrong with it, the execution goes on. */
async function recordInGraph(
  { graph, log, clock }: IngestParts,
  execution: ClaimedExecution,
  accepted: readonly FetchedSeries[],
) {
  if (!graph) return;
  const seen = accepted.map(({ library, symbol, rows }) => ({
    library,
    symbol,
    instrumentIds: [...new Set(rows.map(({ instrumentId }) => instrumentId))],
  }));
  await recordSeen(graph, seen, clock()).catch((error: unknown) =>
    log.warning("graph_not_recorded", { ...execution, error }),
  );
}

/** A forward execution's window looks back and ahead; a reconstruction's is its partition. */
function executionWindow(pipeline: Pipeline, execution: ClaimedExecution, partition: Range): Range {
  if (execution.reconstructed) return partition;
  const { lookbackMs, lookaheadMs = 0 } = pipeline;
  return { from: partition.from - lookbackMs, to: partition.to + lookaheadMs };
}

/**
 * The finding that names series with rows in a forward execution's window and none in the
 * provider's answer. Nothing is committed for them, and above all no retraction; the check fails,
 * so that somebody looks.
 */
function missing(
  execution: ClaimedExecution,
  fetched: readonly FetchedSeries[],
  heads: ReadonlyMap<string, Head>,
  window: Range,
): Finding[] {
  if (execution.reconstructed) return [];
  const sent = new Set(fetched.map(({ library, symbol }) => `${library} ${symbol}`));
  const absent = [...heads].filter(
    ([name, head]) => !sent.has(name) && head.validMax >= window.from,
  );
  if (absent.length === 0) return [];
  const symbols = absent.map(([name]) => name.split(" ")[1]);
  const where = symbols.toSorted().join(" ");
  return [{ severity: "error", rule: "missing_series", count: absent.length, where }];
}

const rejected = (errors: readonly Finding[], findings: readonly Finding[], fetched: FetchResult) =>
  new Failure(
    "gate_rejected",
    `the quality gate refused the rows: ${sentencesOf(errors).join("; ")}`,
    { data: { findings, source_url: fetched.sourceUrl } },
  );
