// Writing the bitemporal store: one verb, `commit`. Content-idempotent and atomic per series. A
// crash before the single SQL statement leaves at most an orphan object, after it a whole vintage.

import { assert, Failure } from "../../../shared/errors.ts";
import {
  databaseNow,
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
  type Changes,
  canonicalText,
  diff,
  insertionsOf,
  isLate,
  keyOf,
  type Range,
  type Row,
  sorted,
} from "./rows.ts";
import { batchOf, encodeChanges, encodeInline } from "./segment.ts";
import { keyAt, stateOf, versionsOf } from "./store.ts";

/** Rows of one series, as its source answered for a range of valid time. */
export interface CommitRequest {
  library: string;
  symbol: string;
  valueColumns: readonly string[];
  /** The source's rows over the covered range; order is free, keys are unique. */
  rows: readonly Row[];
  /** What the source was asked for; a stored row inside it that `rows` lacks is retracted. */
  covered: Range;
  /** The source's answer is known to lack rows: a stored row that `rows` lacks stays. */
  isPartial?: boolean;
  /** Flags every row as reconstructed, as a backfill does. */
  reconstructed: boolean;
  /**
   * Longest time from the Datetime of a row to its first publication, milliseconds. A row that the
   * store never held and learns later than that is flagged as reconstructed; no limit if omitted.
   */
  publishedWithinMs?: number;
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
  /** Whether a source may retract, or make null, these of so many rows stored in the range. */
  mayWithdraw?: (withdrawn: readonly Row[], stored: number) => boolean;
}

/** A row that a commit would have changed, with the values stored and sent; null: no such row. */
export interface RefusedRow extends Omit<Row, "values"> {
  before: readonly number[] | null;
  after: readonly number[] | null;
}

/** What a commit would have changed; counts in rows. */
export interface RefusedChange {
  /** In the store's order. */
  rows: RefusedRow[];
  /** Rows stored in the covered range. */
  stored: number;
  inserted: number;
  /** Rows with other values, none of which are null in all of them. */
  revised: number;
  /** Rows that would be retracted, or become null. */
  withdrawn: number;
}

/** `mayWithdraw` refused a commit (`gate_rejected`). */
export class RefusedCommit extends Failure {
  readonly change: RefusedChange;

  constructor({ library, symbol }: CommitRequest, change: RefusedChange) {
    const detail =
      `${library}/${symbol}: the source lacks ${change.withdrawn} of the ${change.stored} rows ` +
      "stored for its window";
    super("gate_rejected", detail);
    this.change = change;
  }
}

/**
 * A committed vintage; instants in epoch milliseconds, counts in rows. Where late rows became a
 * vintage of their own, `seq` and `asOf` are those of the last vintage and counts are sums.
 */
export interface Vintage {
  seq: number;
  asOf: number;
  /** Vintages that the commit wrote: 2 where late rows became one. */
  vintages: number;
  inserted: number;
  revised: number;
  retracted: number;
  /** Valid times of the rows revised or retracted. */
  changedAt: readonly number[];
  /** Instruments of the rows inserted, revised or retracted. */
  changedInstruments: readonly string[];
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
 * `gate_rejected` when `mayWithdraw` refuses, `sandbox_mixed`, or `store_unavailable`.
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
  const text = canonicalText(incoming, request.covered);
  // The same rows as a whole answer may retract what they leave alone as a part.
  const payloadSha256 = await sha256(utf8(request.isPartial ? `${text}partial` : text));
  return { request, incoming, payloadSha256 };
}

/** `known` is the plan for the first attempt, null for a new series; unless given, one is made. */
async function commitPrepared(
  parts: WriterParts,
  prepared: PreparedCommit,
  known?: Plan | null,
): Promise<Vintage | null> {
  let current = prepared;
  let late: Vintage | null = null;
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const plan = attempt === 1 && known !== undefined ? known : await planCommit(parts, current);
    const outcome = await attemptCommit(parts, { ...current, plan, attempt });
    if (outcome !== "conflict") {
      const vintage: Vintage | null =
        late && outcome.vintage ? joined(late, outcome.vintage) : (outcome.vintage ?? late);
      if (outcome.isWhole) return vintage;
      late = vintage;
      current = afterVintage(current, outcome.vintage);
      continue;
    }
    await parts.pause(Math.random() * Math.min(attempt * 8, PAUSE_MS_MAX));
  }
  const { library, symbol } = prepared.request;
  throw new Failure(
    "commit_conflict",
    `${library}/${symbol}: ${ATTEMPTS_MAX} commits lost the race`,
  );
}

/** Both vintages of a commit that wrote its late rows first. */
const joined = (late: Vintage, last: Vintage): Vintage => ({
  ...last,
  vintages: late.vintages + last.vintages,
  inserted: late.inserted + last.inserted,
  changedInstruments: [...new Set([...late.changedInstruments, ...last.changedInstruments])],
});

/** The request after its own late rows were committed: that vintage is no other run's change. */
const afterVintage = (prepared: PreparedCommit, vintage: Vintage | null): PreparedCommit =>
  prepared.request.askedAtSeq === undefined || !vintage
    ? prepared
    : { ...prepared, request: { ...prepared.request, askedAtSeq: vintage.seq } };

/** Result of an attempt that did not conflict. */
interface Outcome {
  /** Null when nothing changed. */
  vintage: Vintage | null;
  /** False when only the late rows are committed. */
  isWhole: boolean;
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
): Promise<Outcome | "conflict"> {
  const { library, symbol, covered, valueColumns, partition } = request;
  if (plan && plan.sandbox !== request.sandbox) throw sandboxMixed(request);
  assert(!plan || plan.valueColumns.join() === valueColumns.join(), "value columns never change");
  if (plan?.unchanged) return { vintage: null, isWhole: true };
  if (plan?.changed) {
    const detail = `${library}/${symbol}: another run committed since the source was asked`;
    throw new Failure("commit_conflict", detail);
  }
  if (plan && plan.pendingObjects >= PENDING_OBJECTS_MAX) {
    await compact(parts, { library, symbol });
    return "conflict";
  }
  const stored = plan ? await stateOf(parts, plan, covered) : [];
  const changes = diff(
    stored,
    request.isPartial ? joinedWith(stored, incoming) : incoming,
    covered,
  );
  if (changes.rows.length === 0) {
    if (plan)
      await remember(parts.database, { ...plan, partition, payloadSha256, seq: plan.headSeq });
    return { vintage: null, isWhole: true };
  }
  const withdrawn = withdrawnOf(stored, changes.rows);
  if (request.mayWithdraw && !request.mayWithdraw(withdrawn, stored.length)) {
    throw new RefusedCommit(request, refusedChange(stored, changes, withdrawn.length));
  }
  const late = await findLateRows(parts, { request, plan, stored, changes });
  const isWhole = late.length === 0 || late.length === changes.rows.length;
  const written = isWhole ? changes : insertionsOf(late);
  const contentSha256 = await sha256(utf8(canonicalText(written.rows, covered)));
  const small = written.rows.length <= (parts.inlineRowsMax ?? INLINE_ROWS_MAX);
  const committed = await insertVintage(parts.database, {
    ...request,
    reconstructed: request.reconstructed || late.length > 0,
    seenSeq: plan?.headSeq ?? 0,
    sourcePublishedAt: request.sourcePublishedAt ?? null,
    changes: written,
    liveRows: (plan?.liveRows ?? 0) + written.inserted - written.retracted,
    contentSha256,
    payloadSha256: isWhole ? payloadSha256 : null,
    inline: small ? encodeInline(written.rows, valueColumns) : null,
    segment: small ? null : await putSegment(parts, request, written.rows, attempt),
  });
  if (!committed) return "conflict";
  const { inserted, revised, retracted, changedAt, rows } = written;
  const changedInstruments = [...new Set(rows.map(({ instrumentId }) => instrumentId))];
  const counts = { inserted, revised, retracted, changedAt, changedInstruments };
  return { vintage: { ...committed, vintages: 1, ...counts }, isWhole };
}

/** Rows with the stored ones that they lack, in order. */
function joinedWith(stored: readonly Row[], incoming: readonly Row[]): Row[] {
  const sent = new Set(incoming.map(keyOf));
  return sorted([...incoming, ...stored.filter((row) => !sent.has(keyOf(row)))]);
}

interface Comparison {
  request: CommitRequest;
  plan: Plan | null;
  stored: readonly Row[];
  changes: Changes;
}

/**
 * Inserted rows that the store learns later than they can have been published first. A row that
 * was retracted before and comes back is a revision, hence not among them.
 */
async function findLateRows(
  parts: WriterParts,
  { request, plan, stored, changes }: Comparison,
): Promise<ChangedRow[]> {
  const { reconstructed, publishedWithinMs = Infinity } = request;
  if (reconstructed || changes.inserted === 0 || publishedWithinMs === Infinity) return [];
  const now = plan?.now ?? (await databaseNow(parts.database));
  const known = new Set(stored.map(keyOf));
  const late = changes.rows.filter(
    (row) => isLate(row, now, publishedWithinMs) && !row.retracted && !known.has(keyOf(row)),
  );
  const [first, last] = [late[0], late.at(-1)];
  if (!plan || !first || !last) return late;
  const range = { from: first.datetime, to: last.datetime + 1 };
  for await (const batch of versionsOf(parts, plan, range)) {
    for (let row = 0; row < batch.length; row++) known.add(keyAt(batch, row));
  }
  return late.filter((row) => !known.has(keyOf(row)));
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

/** Stored rows that changes retract, or make null, which withdraws them in all but name. */
function withdrawnOf(stored: readonly Row[], changes: readonly ChangedRow[]): ChangedRow[] {
  const known = new Set(
    stored.filter(({ values }) => !values.every(Number.isNaN)).map((row) => keyOf(row)),
  );
  return changes.filter(
    (row) => row.retracted || (row.values.every(Number.isNaN) && known.has(keyOf(row))),
  );
}

function refusedChange(stored: readonly Row[], changes: Changes, withdrawn: number): RefusedChange {
  const before = new Map(stored.map((row) => [keyOf(row), row.values]));
  const rows = changes.rows.map(({ datetime, instrumentId, values, retracted }) => ({
    datetime,
    instrumentId,
    before: before.get(keyOf({ datetime, instrumentId, values })) ?? null,
    after: retracted ? null : values,
  }));
  const revised = changes.rows.length - changes.inserted - withdrawn;
  return { rows, stored: stored.length, inserted: changes.inserted, revised, withdrawn };
}

const sandboxMixed = ({ library, symbol, sandbox }: CommitRequest) =>
  new Failure(
    "sandbox_mixed",
    `${library}/${symbol} holds ${sandbox ? "real" : "sandbox"} data and may not take ` +
      `${sandbox ? "sandbox" : "real"} data; use another state folder, or npm start -- --reset`,
  );
