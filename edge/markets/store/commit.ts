// Writing the bitemporal store: one verb, `commit`. Content-idempotent and atomic per series. A
// crash before the single SQL statement leaves at most an orphan object, after it a whole vintage.

import { assert, Failure } from "../../../shared/errors.ts";
import {
  EARLIEST,
  insertVintage,
  LATEST,
  type Plan,
  planRead,
  planReads,
  remember,
} from "./catalog.ts";
import { compact } from "./compact.ts";
import { putObject, sha256, type WriterParts } from "./objects.ts";
import {
  type ChangedRow,
  canonicalText,
  diff,
  keyOf,
  type Range,
  type Row,
  sorted,
} from "./plan.ts";
import { batchOf, encodeChanges, encodeInline } from "./segment.ts";
import { stateOf } from "./store.ts";

/** Rows of one series, as its source answered for a range of valid time. */
export interface CommitRequest {
  library: string;
  symbol: string;
  valueColumns: readonly string[];
  /** The source's rows over the covered range; order is free, keys are unique. */
  rows: readonly Row[];
  /** What the source was asked for; a stored row inside it that `rows` lacks is retracted. */
  covered: Range;
  reconstructed: boolean;
  sandbox: boolean;
  runId: string;
  partition: string;
  /** Where the rows came from, without credentials. */
  sourceUrl: string;
  sourcePublishedAt?: number | null;
  /**
   * The series' head when the source was asked. If a later vintage touched the covered range since,
   * these rows may be the older ones, and the commit fails with `commit_conflict`.
   */
  askedAtSeq?: number;
  /** Whether a source may withdraw, or make null, this many of the rows stored in the range. */
  mayRetract?: (retracted: number, stored: number) => boolean;
}

/** A committed vintage; instants in epoch milliseconds, counts in rows. */
export interface Vintage {
  seq: number;
  asOf: number;
  inserted: number;
  revised: number;
  retracted: number;
  /** Valid times of the rows revised or retracted. */
  changedAt: readonly number[];
}

/** Vintages of up to so many rows stay inside the catalog. */
export const INLINE_ROWS_MAX = 2_000;
/** A commit holds its rows and the stored ones in memory; measured, 150,000 outgrow an isolate. */
const COMMIT_ROWS_MAX = 100_000;
/** A read opens every pending object; a commit that meets so many of them compacts first. */
const PENDING_OBJECTS_MAX = 16;
const ATTEMPTS_MAX = 40;
const PAUSE_MS_MAX = 50;

/**
 * Commits rows as a new vintage, or returns null when they change nothing. Of concurrent commits to
 * one series, the loser re-reads, compares again and retries. Fails with `commit_conflict`,
 * `gate_rejected` when `mayRetract` refuses, `sandbox_mixed`, or `store_unavailable`.
 */
export async function commit(parts: WriterParts, request: CommitRequest): Promise<Vintage | null> {
  return commitPrepared(parts, await prepare(request));
}

/** The terms that the requests of `commitAll` share. */
type SharedTerms = Pick<CommitRequest, "covered" | "partition">;

/**
 * Commits several series, each by itself as `commit` does; what they are compared with is asked for
 * in one statement. Outcomes are in the order of the requests.
 */
export async function commitAll(
  parts: WriterParts,
  { covered, partition }: SharedTerms,
  requests: readonly Omit<CommitRequest, keyof SharedTerms>[],
): Promise<PromiseSettledResult<Vintage | null>[]> {
  const prepared = await Promise.all(
    requests.map((request) => prepare({ ...request, covered, partition })),
  );
  const plans = await planReads(parts.database, {
    asOf: Infinity,
    range: covered,
    partition,
    series: prepared.map(({ request: { library, symbol, askedAtSeq }, payloadSha256 }) => ({
      library,
      symbol,
      changedSince: askedAtSeq,
      payloadSha256,
    })),
  });
  return Promise.allSettled(
    prepared.map((one, index) => commitPrepared(parts, one, plans[index] ?? null)),
  );
}

/** A request that was checked, sorted and hashed. */
type PreparedCommit = Pick<Attempt, "request" | "incoming" | "payloadSha256">;

async function prepare(request: CommitRequest): Promise<PreparedCommit> {
  checkRows(request);
  const incoming = sorted(request.rows);
  const payloadSha256 = await sha256(utf8(canonicalText(incoming, request.covered)));
  return { request, incoming, payloadSha256 };
}

/** `known` is the plan for the first attempt, null for a new series; unless given, one is made. */
async function commitPrepared(
  parts: WriterParts,
  prepared: PreparedCommit,
  known?: Plan | null,
): Promise<Vintage | null> {
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const plan = attempt === 1 && known !== undefined ? known : await planCommit(parts, prepared);
    const outcome = await attemptCommit(parts, { ...prepared, plan, attempt });
    if (outcome !== "conflict") return outcome;
    await parts.pause(Math.random() * Math.min(attempt * 8, PAUSE_MS_MAX));
  }
  const { library, symbol } = prepared.request;
  throw new Failure(
    "commit_conflict",
    `${library}/${symbol}: ${ATTEMPTS_MAX} commits lost the race`,
  );
}

interface Attempt {
  request: CommitRequest;
  incoming: Row[];
  payloadSha256: Uint8Array;
  /** The series' state; null when there is none yet. */
  plan: Plan | null;
  attempt: number;
}

function planCommit({ database }: WriterParts, { request, payloadSha256 }: PreparedCommit) {
  const { library, symbol, covered, partition, askedAtSeq } = request;
  return planRead(database, {
    library,
    symbol,
    asOf: Infinity,
    range: covered,
    memo: { partition, payloadSha256 },
    ...(askedAtSeq === undefined ? {} : { changedSince: askedAtSeq }),
  });
}

async function attemptCommit(
  parts: WriterParts,
  { request, incoming, payloadSha256, plan, attempt }: Attempt,
): Promise<Vintage | null | "conflict"> {
  const { library, symbol, covered, valueColumns, partition } = request;
  if (plan && plan.sandbox !== request.sandbox) throw sandboxMixed(request);
  assert(!plan || plan.valueColumns.join() === valueColumns.join(), "value columns never change");
  if (plan?.unchanged) return null;
  if (plan?.changed) {
    const detail = `${library}/${symbol}: another run committed since the source was asked`;
    throw new Failure("commit_conflict", detail);
  }
  if (plan && plan.pendingObjects >= PENDING_OBJECTS_MAX) {
    await compact(parts, { library, symbol });
    return "conflict";
  }
  const stored = plan ? await stateOf(parts, plan, covered) : [];
  const changes = diff(stored, incoming, covered);
  if (changes.rows.length === 0) {
    if (plan)
      await remember(parts.database, { ...plan, partition, payloadSha256, seq: plan.headSeq });
    return null;
  }
  const withdrawn = changes.retracted + nulled(stored, changes.rows);
  if (request.mayRetract && !request.mayRetract(withdrawn, stored.length)) {
    throw massRetraction(request, withdrawn, stored.length);
  }
  const contentSha256 = await sha256(utf8(canonicalText(changes.rows, covered)));
  const small = changes.rows.length <= (parts.inlineRowsMax ?? INLINE_ROWS_MAX);
  const committed = await insertVintage(parts.database, {
    ...request,
    seenSeq: plan?.headSeq ?? 0,
    sourcePublishedAt: request.sourcePublishedAt ?? null,
    changes,
    liveRows: (plan?.liveRows ?? 0) + changes.inserted - changes.retracted,
    contentSha256,
    payloadSha256,
    inline: small ? encodeInline(changes.rows, valueColumns) : null,
    segment: small ? null : await putSegment(parts, request, changes.rows, attempt),
  });
  if (!committed) return "conflict";
  const { inserted, revised, retracted, changedAt } = changes;
  return { ...committed, inserted, revised, retracted, changedAt };
}

/**
 * Writes the object under a key of its own attempt, so that collecting orphans can never hit a live
 * one.
 */
function putSegment(
  parts: WriterParts,
  { library, symbol, runId, valueColumns }: CommitRequest,
  rows: readonly ChangedRow[],
  attempt: number,
) {
  const bytes = encodeChanges(batchOf(rows, valueColumns.length), valueColumns);
  const unique = crypto.randomUUID().slice(0, 8);
  const name = `l0/${runId}-${attempt}-${unique}`;
  return putObject(parts, `v1/${library}/${symbol}/${name}.parquet`, bytes);
}

const utf8 = (text: string) => new TextEncoder().encode(text);

function checkRows({ rows, covered, valueColumns, symbol }: CommitRequest) {
  assert(covered.from < covered.to, "a commit covers some valid time");
  assert(!symbol.endsWith("__vintages"), "sidecar names are not symbols");
  assert(
    rows.length <= COMMIT_ROWS_MAX,
    `a commit holds at most ${COMMIT_ROWS_MAX} rows: split its covered range`,
  );
  assert(covered.from >= EARLIEST && covered.to <= LATEST, "a commit covers years 1 to 9999");
  const keys = new Set<string>();
  for (const row of rows) {
    assert(Number.isInteger(row.datetime), "a Datetime is a whole number of milliseconds");
    assert(
      row.datetime >= covered.from && row.datetime < covered.to,
      "rows lie in the covered range",
    );
    assert(row.values.length === valueColumns.length, "one value per value column");
    assert(!row.values.some((value) => Math.abs(value) === Infinity), "values are finite or NaN");
    keys.add(keyOf(row));
  }
  assert(keys.size === rows.length, "(Datetime, instrument_id) is unique in a commit");
}

/** How many stored rows the changes would make null, which withdraws them in all but name. */
function nulled(stored: readonly Row[], changes: readonly ChangedRow[]): number {
  const known = new Set(
    stored.filter(({ values }) => !values.every(Number.isNaN)).map((row) => keyOf(row)),
  );
  const empty = changes.filter(({ retracted, values }) => !retracted && values.every(Number.isNaN));
  return empty.filter((row) => known.has(keyOf(row))).length;
}

const massRetraction = ({ library, symbol }: CommitRequest, retracted: number, stored: number) =>
  new Failure(
    "gate_rejected",
    `${library}/${symbol}: the source lacks ${retracted} of the ${stored} rows stored for its window`,
    { data: { retracted, stored } },
  );

const sandboxMixed = ({ library, symbol, sandbox }: CommitRequest) =>
  new Failure(
    "sandbox_mixed",
    `${library}/${symbol} holds ${sandbox ? "real" : "sandbox"} data and may not take ` +
      `${sandbox ? "sandbox" : "real"} data; use another state folder, or npm start -- --reset`,
  );
