// Compaction: what commits added one by one becomes a few objects sorted by valid time that hold
// every version. It runs beside reads and commits, never blocks one and never changes an answer.

import { assert, Failure } from "../../../shared/errors.ts";
import { type Clock, iso, isoDay } from "../../../shared/time.ts";
import { adoptBucket, namesAmong, requireOwnBucket } from "../../http/bucket-identity.ts";
import { deleteDiscarded, discard, discardedAmong } from "../../http/discarded-objects.ts";
import type { Log } from "../../http/log.ts";
import { pagesOf } from "../../http/object-pages.ts";
import { ARCHIVE_POLICY, ARCHIVE_PREFIX, archive } from "./archive.ts";
import { type Plan, type PlannedSegment, planRead } from "./catalog.ts";
import { type Batch, BatchBuilder, type WrittenBy } from "./columns.ts";
import {
  type CompactedObject,
  type CompactionPolicy,
  forgetRetired,
  listRetired,
  NAMED_OBJECTS,
  retryChore,
  type Swap,
  swapSegments,
  takeChore,
  takePending,
} from "./housekeeping.ts";
import { putObject, type WriterParts } from "./objects.ts";
import type { Range } from "./rows.ts";
import { encodeHistory, inlineFrom } from "./segment.ts";
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

/**
 * A minute of the cron begins no compaction after so many milliseconds: the next one goes on. With
 * the last step, archiving and collection that stays below the 30 s of processor time that
 * Cloudflare gives a cron of each minute.
 */
const TURN_MS = 15_000;
const COLLECT = { intervalMs: 24 * 3_600_000, retryMs: 3_600_000 };
const ARCHIVE = { intervalMs: 3_600_000, retryMs: 60_000 };
/** Archiving takes no longer in a minute of the cron; the next one goes on. */
const ARCHIVE_TURN_MS = 5_000;
/** No read takes this long. */
const READ_MS_MAX = 3_600_000;
/** No commit or compaction takes this long: what it put is named by then, or never. */
const UNNAMED_MS = 24 * 3_600_000;
/** Objects named by nothing that killed commits may leave: so many, or this share of all. */
const ORPHANS_MAX = 20;
const ORPHAN_SHARE_MAX = 0.01;

/** An object ends at the first UTC month after 64 k rows, and has 128 k rows at most. */
const OBJECT_ROWS = 65_536;
const OBJECT_ROWS_MAX = 131_072;
/** A step takes no further object, and between objects no further row, after so many rows. */
const STEP_ROWS = 2 * OBJECT_ROWS_MAX;
/**
 * A step also takes neighbours of up to so many times its own rows, while they are small: each row
 * of a series that only grows is rewritten as often as its history doubles, and the series still
 * ends as few objects.
 */
const NEIGHBOUR_RATIO = 2;
const EVERYTHING = { from: -Infinity, to: Infinity };

/**
 * Compacts the vintages of a series that wait for it now, in steps from its first valid time to its
 * last; each step swaps its objects in and may be the last one, when `isOver` says so. Returns the
 * number of objects written; 0 when nothing waited, or when another compaction came first and its
 * objects hold.
 */
export async function compact(
  parts: WriterParts,
  { library, symbol }: { library: string; symbol: string },
  isOver: () => boolean = () => false,
): Promise<number> {
  const query = { library, symbol, asOf: Infinity, range: EVERYTHING };
  let written = 0;
  for (let upTo: number | null = null; ; ) {
    const plan = await planRead(parts.database, query);
    upTo ??= plan?.headSeq ?? 0;
    const step = plan && (await nextStep(parts, plan, upTo));
    if (!step) return written;
    const objects: CompactedObject[] = [];
    for await (const batch of objectBatches(versionsOf(parts, step.plan, step.range), step)) {
      objects.push(await putHistory(parts, batch, { ...plan, library, symbol }));
    }
    const swapped = await swapSegments(parts.database, { ...plan, ...step.taken, objects });
    if (!swapped) {
      await parts.bucket.delete(objects.map(({ objectKey }) => objectKey));
      return written;
    }
    written += objects.length;
    if (isOver()) return written;
  }
}

/** A stretch of valid time that compaction rewrites at once. */
interface Step {
  /** What holds its rows: compacted objects, and what waits. */
  plan: Plan;
  range: Range;
  /** Versions that it writes. */
  rows: number;
  /** What is left of them once its objects are swapped in. */
  taken: Pick<Swap, "retired" | "trimmed" | "flushed" | "shortened" | "rows">;
}

/**
 * The next stretch, or null when nothing up to a vintage waits: from the first row that waits on,
 * the compacted objects that such rows fall into while those objects are neighbours, and small
 * objects beside them. What lies between two rows far apart is left alone.
 */
async function nextStep(parts: WriterParts, plan: Plan, upTo: number): Promise<Step | null> {
  const history = plan.segments.filter(({ level }) => level === 1);
  const recent = plan.segments.filter(({ level, seq }) => level === 0 && seq <= upTo);
  const inline = plan.inline.filter(({ seq }) => seq <= upTo);
  if (recent.length === 0 && inline.length === 0) return null;
  const pending = { ...plan, inline, segments: recent };
  const stretch = await measure(versionsOf(parts, pending, EVERYTHING), history);
  const { end, counts } = stretch;
  const rows = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const compacted = withNeighbours(history, stretch, rows);
  const isWhole = (segment: PlannedSegment) => segment.validMax < end;
  const touched = recent.filter(({ seq }) => counts.has(seq));
  const shortened = inline.flatMap(({ seq, rows: kept }) => {
    const rest = inlineFrom(kept, end);
    return rest.t.length > 0 && rest.t.length < kept.t.length ? [{ seq, inline: rest }] : [];
  });
  return {
    plan: { ...pending, segments: [...compacted, ...recent] },
    range: { from: -Infinity, to: end },
    rows: compacted.reduce((sum, object) => sum + object.rows, rows),
    taken: {
      rows,
      retired: [...compacted, ...touched.filter(isWhole)].map(({ objectKey }) => objectKey),
      trimmed: touched
        .filter((segment) => !isWhole(segment))
        .map(({ objectKey, seq }) => ({
          objectKey,
          validMin: iso(end),
          rows: counts.get(seq) ?? 0,
        })),
      flushed: inline.filter(({ rows: kept }) => (kept.t.at(-1) ?? 0) < end).map(({ seq }) => seq),
      shortened,
    },
  };
}

/** Which compacted objects a stretch takes, and where it ends. */
interface Stretch {
  /** Indexes of its compacted objects: `[first, next)`. */
  first: number;
  next: number;
  /** Rows from here on wait for the next step; Infinity when none do. */
  end: number;
  /** Rows that waited, by the vintage that wrote them. */
  counts: Map<number, number>;
}

/** Follows the rows that wait, in their order, to the end of a stretch. */
async function measure(
  pending: AsyncIterable<Batch>,
  history: readonly PlannedSegment[],
): Promise<Stretch> {
  const stretch: Stretch = { first: -1, next: -1, end: Infinity, counts: new Map() };
  let [at, rows, before] = [0, 0, NaN];
  for await (const batch of pending) {
    for (let row = 0; row < batch.length; row++) {
      const instant = batch.datetime[row] as number;
      if (instant !== before) {
        while (at < history.length && (history[at] as PlannedSegment).validMax < instant) at++;
        const object = history[at];
        const isInside = object !== undefined && object.validMin <= instant;
        if (stretch.first < 0) [stretch.first, stretch.next] = [at, at];
        const { next } = stretch;
        if (isInside ? at > next : at !== next) {
          return { ...stretch, end: (history[next] as PlannedSegment).validMin };
        }
        if (isInside && at === next) {
          if (rows > 0 && rows + object.rows > STEP_ROWS)
            return { ...stretch, end: object.validMin };
          rows += object.rows;
          stretch.next++;
        }
        if (!isInside && rows >= STEP_ROWS) return { ...stretch, end: instant };
        before = instant;
      }
      const { seq } = batch.vintages[batch.vintage[row] as number] as WrittenBy;
      stretch.counts.set(seq, (stretch.counts.get(seq) ?? 0) + 1);
      rows++;
    }
  }
  return stretch;
}

/** The compacted objects of a stretch, and the small ones beside it. */
function withNeighbours(
  history: readonly PlannedSegment[],
  { first, next, end }: Stretch,
  pendingRows: number,
) {
  let [from, to] = [first, next];
  let rows = history.slice(from, to).reduce((sum, object) => sum + object.rows, pendingRows);
  const takes = (neighbour: PlannedSegment | undefined) => {
    if (!neighbour || neighbour.rows >= OBJECT_ROWS) return false;
    if (neighbour.rows > NEIGHBOUR_RATIO * rows) return false;
    if (rows + neighbour.rows > OBJECT_ROWS_MAX) return false;
    rows += neighbour.rows;
    return true;
  };
  while (takes(history[from - 1])) from--;
  // Rows that wait for the next step may fall into the objects after this one.
  while (end === Infinity && takes(history[to])) to++;
  return history.slice(from, to);
}

/**
 * Gathers sorted versions to the size of objects, cut where a month or at least an instant ends.
 * What must be cut within a month is cut in equal parts: a full object and a small rest would stay
 * so, and leave another rest with each revision.
 */
async function* objectBatches(versions: AsyncIterable<Batch>, { plan, rows: total }: Step) {
  const builder = new BatchBuilder(plan.valueColumns.length);
  const rowsMax = Math.ceil(total / Math.ceil(total / OBJECT_ROWS_MAX));
  for await (const batch of versions) {
    let from = 0;
    for (let row = 0; row < batch.length; row++) {
      const [before, now] = [
        row > 0 ? (batch.datetime[row - 1] as number) : builder.lastDatetime,
        batch.datetime[row] as number,
      ];
      const rows = builder.length + row - from;
      if (rows < Math.min(OBJECT_ROWS, rowsMax) || before === now) continue;
      if (rows < rowsMax && monthOf(before) === monthOf(now)) continue;
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
async function compactPending(
  parts: WriterParts & { log: Log },
  isOver: () => boolean,
): Promise<number> {
  let compacted = 0;
  while (!isOver()) {
    const series = await takePending(parts.database, COMPACTION_POLICY);
    if (!series) break;
    try {
      compacted += Math.sign(await compact(parts, series, isOver));
    } catch (error) {
      // One series that cannot be read must not keep the others waiting.
      parts.log.error("compaction_failed", { ...series, error });
    }
  }
  return compacted;
}

/** What keeping house works with. */
interface HouseParts extends WriterParts {
  log: Log;
  clock: Clock;
  /** How long an object is kept after nothing needs it any more, milliseconds. */
  graceMs: number;
}

/**
 * The minute cron's work on the store: compaction by policy, archiving once an hour, collection
 * once a day. Fails with `bad_configuration` where the bucket is another catalog's.
 */
export async function keepHouse(parts: HouseParts): Promise<void> {
  await requireOwnBucket({ ...parts, named: NAMED_OBJECTS }, { mayAdopt: true });
  const deadline = parts.clock() + TURN_MS;
  const compacted = await compactPending(parts, () => parts.clock() >= deadline);
  if (compacted > 0) parts.log.info("compacted", { series: compacted });
  // One that fails keeps the other from nothing.
  const archived = inTurn(parts.database, "archive", ARCHIVE, async () => {
    const end = parts.clock() + ARCHIVE_TURN_MS;
    const vintages = await archive(parts, ARCHIVE_POLICY, () => parts.clock() >= end);
    if (vintages > 0) parts.log.info("archived", { vintages });
    if (parts.clock() >= end) await retryChore(parts.database, "archive", ARCHIVE);
  });
  await archived.catch(() => {});
  await inTurn(parts.database, "collect", COLLECT, async () => {
    // A read may still be at what was replaced just now.
    const graceMs = Math.max(parts.graceMs, READ_MS_MAX);
    const bounds = { now: parts.clock(), graceMs, unnamedMs: UNNAMED_MS };
    parts.log.info("collected", await collect(parts, bounds));
  });
  await archived;
}

/** Does a chore when its time has come; one that fails has its turn again sooner. */
async function inTurn(
  database: WriterParts["database"],
  chore: string,
  times: { intervalMs: number; retryMs: number },
  work: () => Promise<void>,
) {
  if (!(await takeChore(database, chore, times.intervalMs))) return;
  try {
    await work();
  } catch (error) {
    await retryChore(database, chore, times);
    throw error;
  }
}

/** What a collection may delete; times in milliseconds. */
interface CollectionBounds {
  now: number;
  /** Since an object was retired, or since one that nothing names was listed. */
  graceMs: number;
  /** Since an object that nothing names was put: then it is listed. By default `graceMs`. */
  unnamedMs?: number;
}

/**
 * Deletes objects that no read can need, `graceMs` after they were retired, or after they were
 * listed as named by nothing: what commits or compactions left that died before the catalog named
 * it. Returns how many. Fails with `bad_configuration` where so many objects are named by nothing
 * that the catalog cannot be the bucket's; then nothing is listed and nothing deleted.
 */
export async function collect(
  { database, bucket }: WriterParts,
  bounds: CollectionBounds,
): Promise<{ retired: number; orphans: number }> {
  const { now, graceMs, unnamedMs = graceMs } = bounds;
  const found = await findUnnamed({ database, bucket }, now - unnamedMs);
  assertFew(found);
  await discard(database, found.unlisted);
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
  const orphans = await deleteDiscarded({ database, bucket, named: NAMED_OBJECTS }, { graceMs });
  return { retired, orphans };
}

/**
 * Makes the bucket the catalog's own, and lists all that it does not name to be deleted. Returns
 * how many objects that is.
 */
export async function adopt({
  database,
  bucket,
}: Pick<WriterParts, "database" | "bucket">): Promise<number> {
  await adoptBucket({ database, bucket });
  const { unlisted } = await findUnnamed({ database, bucket }, Infinity);
  await discard(database, unlisted);
  return unlisted.length;
}

/** The objects that nothing names, were put up to an instant and are not listed yet. */
async function findUnnamed(
  { database, bucket }: Pick<WriterParts, "database" | "bucket">,
  until: number,
): Promise<{ unlisted: string[]; objects: number; named: number }> {
  const found = { unlisted: [] as string[], objects: 0, named: 0 };
  for (const prefix of ["v1/", ARCHIVE_PREFIX]) {
    for await (const page of pagesOf(bucket, prefix)) {
      const keys = page.map(({ key }) => key);
      const names = await namesAmong({ database, named: NAMED_OBJECTS }, keys);
      found.objects += keys.length;
      found.named += names.size;
      const unnamed = page.filter(
        ({ key, uploaded }) => !names.has(key) && uploaded.getTime() <= until,
      );
      if (unnamed.length === 0) continue;
      const listed = await discardedAmong(database, keys);
      found.unlisted.push(...unnamed.map(({ key }) => key).filter((key) => !listed.has(key)));
    }
  }
  return found;
}

/** Fails where so many objects are named by nothing that the catalog cannot be the bucket's. */
function assertFew({ unlisted, objects, named }: Awaited<ReturnType<typeof findUnnamed>>) {
  const max = named === 0 ? 0 : Math.max(ORPHANS_MAX, ORPHAN_SHARE_MAX * objects);
  if (unlisted.length <= max) return;
  throw new Failure(
    "bad_configuration",
    `the catalog does not name ${unlisted.length} of the bucket's ${objects} objects, where ` +
      `${Math.floor(max)} at most are left by killed commits: the database is not the bucket's, or ` +
      "was set back. No object was deleted. Where the catalog is right, npm run backup -- adopt " +
      "lists them to be deleted",
  );
}
