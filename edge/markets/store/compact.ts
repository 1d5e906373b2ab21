// Compaction: what commits added one by one becomes a few objects sorted by valid time that hold
// every version. It runs beside reads and commits, never blocks one and never changes an answer.

import { assert } from "../../../shared/errors.ts";
import { type Clock, isoDay } from "../../../shared/time.ts";
import type { Log } from "../../http/log.ts";
import {
  type CompactedObject,
  type CompactionPolicy,
  forgetRetired,
  listNamedObjects,
  listRetired,
  type Plan,
  type PlannedSegment,
  planRead,
  retryChore,
  swapSegments,
  takeChore,
  takePending,
} from "./catalog.ts";
import { type Batch, BatchBuilder, type WrittenBy } from "./columns.ts";
import { putObject, type WriterParts } from "./objects.ts";
import type { Range } from "./plan.ts";
import { encodeHistory } from "./segment.ts";
import { versionsOf } from "./store.ts";

/**
 * A series is compacted when 64 vintages, 2,000 rows or 8 objects wait, or when any has waited for
 * a day; a commit that meets 16 objects compacts before it goes on.
 */
const COMPACTION_POLICY: CompactionPolicy = {
  vintages: 64,
  rows: 2_000,
  objects: 8,
  idleMs: 24 * 3_600_000,
  retryMs: 15 * 60_000,
};

/** A minute of the cron begins no compaction after so many milliseconds: the next one goes on. */
const TURN_MS = 40_000;
const COLLECT = { intervalMs: 24 * 3_600_000, retryMs: 3_600_000 };
/** No read, commit or compaction takes this long. */
const GRACE_MS = 24 * 3_600_000;

/** An object ends at the first UTC month after 64 k rows, and after 128 k rows in any case. */
const OBJECT_ROWS = 65_536;
const OBJECT_ROWS_MAX = 131_072;
const EVERYTHING = { from: -Infinity, to: Infinity };

/**
 * Compacts the vintages of a series that wait for it. Returns the number of objects written; 0 when
 * nothing waited, or when another compaction came first and its objects hold.
 */
export async function compact(
  parts: WriterParts,
  { library, symbol }: { library: string; symbol: string },
): Promise<number> {
  const query = { library, symbol, asOf: Infinity, range: EVERYTHING };
  const whole = await planRead(parts.database, query);
  const plan = whole && affected(whole);
  if (!plan) return 0;
  const objects: CompactedObject[] = [];
  for await (const batch of objectBatches(versionsOf(parts, plan, EVERYTHING), plan)) {
    objects.push(await putHistory(parts, batch, { ...plan, library, symbol }));
  }
  const swapped = await swapSegments(parts.database, {
    ...plan,
    retired: plan.segments.map(({ objectKey }) => objectKey),
    flushed: plan.inline.map(({ seq }) => seq),
    objects,
  });
  if (swapped) return objects.length;
  await parts.bucket.delete(objects.map(({ objectKey }) => objectKey));
  return 0;
}

/**
 * The part of a plan that compaction rewrites: what waits, the compacted objects whose valid time
 * it reaches into, and the neighbours of those objects that are not full yet. Without the
 * neighbours, a series that only grows would end as many small objects.
 */
function affected(plan: Plan): Plan | null {
  const recent = plan.segments.filter(({ level }) => level === 0);
  if (plan.inline.length === 0 && recent.length === 0) return null;
  const from = Math.min(
    ...plan.inline.map(({ rows }) => rows.t[0] ?? Infinity),
    ...recent.map(({ validMin }) => validMin),
  );
  const to = Math.max(
    ...plan.inline.map(({ rows }) => rows.t.at(-1) ?? -Infinity),
    ...recent.map(({ validMax }) => validMax),
  );
  const history = plan.segments.filter(({ level }) => level === 1);
  return { ...plan, segments: [...withNeighbours(history, { from, to }), ...recent] };
}

/**
 * Of disjoint objects in order, those that reach into a range, and on both sides the next ones
 * while they are small.
 */
function withNeighbours(history: readonly PlannedSegment[], { from, to }: Range) {
  const before = history.filter(({ validMax }) => validMax < from).length;
  let [first, last] = [before, history.filter(({ validMin }) => validMin <= to).length];
  let rows = 0;
  const takes = (neighbour: PlannedSegment | undefined) => {
    if (!neighbour || neighbour.rows >= OBJECT_ROWS) return false;
    rows += neighbour.rows;
    return rows <= OBJECT_ROWS_MAX;
  };
  while (takes(history[first - 1])) first--;
  while (takes(history[last])) last++;
  return history.slice(first, last);
}

/**
 * Gathers sorted versions to the size of objects, cut where a month or at least an instant ends.
 */
async function* objectBatches(versions: AsyncIterable<Batch>, { valueColumns }: Plan) {
  const builder = new BatchBuilder(valueColumns.length, OBJECT_ROWS);
  for await (const batch of versions) {
    let from = 0;
    for (let row = 0; row < batch.length; row++) {
      const [before, now] = [
        row > 0 ? (batch.datetime[row - 1] as number) : builder.lastDatetime,
        batch.datetime[row] as number,
      ];
      const rows = builder.length + row - from;
      if (rows < OBJECT_ROWS || before === now) continue;
      if (rows < OBJECT_ROWS_MAX && monthOf(before) === monthOf(now)) continue;
      builder.append(batch, from, row);
      yield builder.take();
      from = row;
    }
    builder.append(batch, from, batch.length);
  }
  if (builder.length > 0) yield builder.take();
}

const monthOf = (instant: number) => isoDay(instant).slice(0, 7);

async function putHistory(
  parts: WriterParts,
  batch: Batch,
  { library, symbol, valueColumns }: Plan & { library: string; symbol: string },
): Promise<CompactedObject> {
  const validMin = batch.datetime[0];
  const validMax = batch.datetime[batch.length - 1];
  assert(validMin !== undefined && validMax !== undefined, "an object holds rows");
  const month = monthOf(validMin).replace("-", "");
  const key = `v1/${library}/${symbol}/l1/p${month}/${crypto.randomUUID()}.parquet`;
  const written = await putObject(parts, key, encodeHistory(batch, valueColumns));
  const seqs = batch.vintages.map(({ seq }: WrittenBy) => seq);
  const [seqMin, seqMax] = seqs.reduce(
    ([min, max], seq) => [Math.min(min, seq), Math.max(max, seq)],
    [Infinity, -Infinity],
  );
  return { ...written, seqMin, seqMax, validMin, validMax, rows: batch.length };
}

/** Compacts the series that the policy names, the fullest first; returns how many. */
async function compactPending(parts: WriterParts & { log: Log; clock: Clock }): Promise<number> {
  let compacted = 0;
  const deadline = parts.clock() + TURN_MS;
  while (parts.clock() < deadline) {
    const series = await takePending(parts.database, COMPACTION_POLICY);
    if (!series) break;
    try {
      compacted += Math.sign(await compact(parts, series));
    } catch (error) {
      // One series that cannot be read must not keep the others waiting.
      parts.log.error("compaction_failed", { ...series, error });
    }
  }
  return compacted;
}

/** The minute cron's work on the store: compaction by policy, collection once a day. */
export async function keepHouse(parts: WriterParts & { log: Log; clock: Clock }): Promise<void> {
  const compacted = await compactPending(parts);
  if (compacted > 0) parts.log.info("compacted", { series: compacted });
  if (!(await takeChore(parts.database, "collect", COLLECT.intervalMs))) return;
  try {
    parts.log.info("collected", await collect(parts, { now: parts.clock(), graceMs: GRACE_MS }));
  } catch (error) {
    await retryChore(parts.database, "collect", COLLECT);
    throw error;
  }
}

/**
 * Deletes objects that no read can need: retired ones, and orphans of commits or compactions that
 * died before the catalog named them. Each is left alone for `graceMs` first. Returns how many.
 */
export async function collect(
  { database, bucket }: WriterParts,
  { now, graceMs }: { now: number; graceMs: number },
): Promise<{ retired: number; orphans: number }> {
  let retired = 0;
  for (;;) {
    const keys = await listRetired(database, graceMs);
    if (keys.length === 0) break;
    // Objects first: a crash in between leaves a row that names no object, and the next collection
    // takes that row.
    await bucket.delete(keys);
    await forgetRetired(database, keys);
    retired += keys.length;
  }
  let orphans = 0;
  for (let cursor: string | undefined; ; ) {
    const page = await bucket.list({ prefix: "v1/", ...(cursor ? { cursor } : {}) });
    const old = page.objects.filter(({ uploaded }) => uploaded.getTime() <= now - graceMs);
    const named = await listNamedObjects(
      database,
      old.map(({ key }) => key),
    );
    const unnamed = old.map(({ key }) => key).filter((key) => !named.has(key));
    if (unnamed.length > 0) await bucket.delete(unnamed);
    orphans += unnamed.length;
    if (!page.truncated) return { retired, orphans };
    cursor = page.cursor;
  }
}
