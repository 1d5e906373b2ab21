// The store against a naive list in memory, on the real Postgres and object store: random commits
// with revisions, retractions and reconstructions, then reads at every kind of knowledge time.

import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { createLog } from "../../edge/http/log.ts";
import { archive } from "../../edge/markets/store/archive.ts";
import { commit, INLINE_ROWS_MAX } from "../../edge/markets/store/commit.ts";
import { collect, compact } from "../../edge/markets/store/compact.ts";
import { HeldRowGroups } from "../../edge/markets/store/held-row-groups.ts";
import type { Range, Row } from "../../edge/markets/store/rows.ts";
import { openStore, type Store } from "../../edge/markets/store/store.ts";
import { Failure } from "../../shared/errors.ts";
import { commitHours, createWorld, DAY, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const HOURS = 24;
const ALL = { from: -Infinity, to: Infinity };
/** Archives whatever compaction took, in objects of a few vintages. */
const ARCHIVE = { ageMs: -1_000, feedMin: 1, feedMax: 3, seriesMin: 1, seriesMax: 2 };

/** Room for the row groups of a few objects: some of a series' come back, others are driven out. */
const HELD_BYTES = 4_096;

let world: World;
let store: Store;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
  const { database, bucket } = world;
  store = openStore({ database, bucket, held: new HeldRowGroups(HELD_BYTES) });
});

interface Command {
  /** Compact and collect instead of committing. */
  compacts: boolean;
  at: number;
  length: number;
  rows: { offset: number; instrument: string; value: number }[];
  reconstructed: boolean;
  /** Vintages above it become objects. */
  inlineRowsMax: number;
}

/** One version of a row; null retracts it. */
interface Version {
  datetime: number;
  instrument: string;
  value: number | null;
  asOf: number;
  reconstructed: boolean;
}

/** The naive model of a series: everything it ever learned, in order. */
type History = Version[];

interface Question {
  asOf: number;
  range: Range;
  trueOnly?: boolean;
  knownBy?: number | undefined;
}

const command: fc.Arbitrary<Command> = fc.record({
  compacts: fc.nat(3).map((dice) => dice === 0),
  at: fc.nat(HOURS - 1),
  length: fc.integer({ min: 1, max: 8 }),
  rows: fc.uniqueArray(
    fc.record({
      offset: fc.nat(7),
      instrument: fc.constantFrom("x", "y"),
      value: fc.constantFrom(-1, 0, 1, 2.5, NaN),
    }),
    { selector: (row) => `${row.offset} ${row.instrument}`, maxLength: 12 },
  ),
  reconstructed: fc.boolean(),
  inlineRowsMax: fc.constantFrom(0, 2, 100),
});

const question = fc.record({
  version: fc.nat(),
  shift: fc.constantFrom(-1, 0, 1, Infinity),
  start: fc.integer({ min: -2, max: HOURS + 2 }),
  length: fc.integer({ min: 0, max: HOURS }),
  trueOnly: fc.boolean(),
  lateBy: fc.constantFrom(undefined, undefined, -HOUR, 0),
});

const inRange = (datetime: number, range: Range) => datetime >= range.from && datetime < range.to;
const nameOf = ({ datetime, instrument }: Version) => `${datetime} ${instrument}`;
const same = (left: number | null, right: number | null) => Object.is(left, right);

/** The state that a question asks for: the last visible version of each row, unless it retracts. */
function stateOf(history: History, { asOf, range, trueOnly, knownBy }: Question): Version[] {
  const visible = history.filter(
    (one) =>
      one.asOf <= asOf &&
      inRange(one.datetime, range) &&
      !(trueOnly && one.reconstructed) &&
      one.asOf <= one.datetime + (knownBy ?? Infinity),
  );
  const last = new Map(visible.map((one) => [nameOf(one), one]));
  return inOrder([...last.values()].filter(({ value }) => value !== null));
}

const inOrder = (versions: Version[]) =>
  versions.sort(
    (left, right) =>
      left.datetime - right.datetime ||
      (left.instrument < right.instrument ? -1 : Number(left.instrument > right.instrument)) ||
      left.asOf - right.asOf,
  );

/** Every version that held a value, with the time at which the next one ended it. */
function historyOf(history: History, { asOf, range }: Question) {
  const known = history.filter((one) => one.asOf <= asOf && inRange(one.datetime, range));
  return inOrder([...known])
    .filter(({ value }) => value !== null)
    .map((one) => {
      const next = known.find((later) => nameOf(later) === nameOf(one) && later.asOf > one.asOf);
      return [...wire(one), next?.asOf ?? null];
    });
}

/** Commits one command to the store and to the model, and checks that both saw the same change. */
async function step(symbol: string, one: Command, history: History, count: { vintages: number }) {
  const { at, length, rows, reconstructed, inlineRowsMax } = one;
  const covered = { from: FROM + at * HOUR, to: FROM + (at + length) * HOUR };
  const incoming = rows
    .filter((row) => row.offset < length)
    .map(
      (row): Row => ({
        datetime: covered.from + row.offset * HOUR,
        instrumentId: row.instrument,
        values: [row.value],
      }),
    );
  const writer = { ...world.writer, inlineRowsMax };
  const more = { rows: incoming, covered, reconstructed };
  const vintage = await commitHours({ writer }, symbol, covered.from, [], more);
  const current = stateOf(history, { asOf: Infinity, range: covered });
  const before = new Map(current.map((row) => [nameOf(row), row]));
  const version = { asOf: vintage?.asOf ?? NaN, reconstructed };
  const changes: Version[] = [];
  for (const { datetime, instrumentId: instrument, values } of incoming) {
    const next = { datetime, instrument, value: values[0] ?? NaN, ...version };
    const old = before.get(nameOf(next));
    before.delete(nameOf(next));
    if (!old || !same(old.value, next.value)) changes.push(next);
  }
  for (const gone of before.values()) changes.push({ ...gone, ...version, value: null });
  expect(vintage !== null).toBe(changes.length > 0);
  if (!vintage) return;
  expect(vintage.seq).toBe(++count.vintages);
  expect(vintage.asOf).toBeGreaterThan(history.at(-1)?.asOf ?? 0);
  history.push(...changes);
}

const wire = ({ datetime, instrument, value, asOf, reconstructed }: Version) => [
  datetime,
  instrument,
  value,
  asOf,
  reconstructed,
];

async function answers(symbol: string, { range, asOf, ...view }: Question & { history?: boolean }) {
  const reading = await store.read({
    library: "power.demand",
    symbol,
    start: range.from,
    end: range.to - 1,
    ...view,
    asOf: asOf === Infinity ? undefined : asOf,
  });
  const rows: unknown[] = [];
  for await (const batch of reading.batches()) {
    for (let row = 0; row < batch.length; row++) {
      const writer = batch.vintages[batch.vintage[row] ?? 0];
      expect(writer?.asOf).toBeLessThanOrEqual(asOf);
      const until = batch.knownTo?.[row];
      rows.push([
        batch.datetime[row],
        batch.instruments[batch.instrument[row] ?? 0],
        batch.values[0]?.[row],
        writer?.asOf,
        writer?.reconstructed,
        ...(until === undefined ? [] : [Number.isNaN(until) ? null : until]),
      ]);
    }
  }
  return rows;
}

describe("the store", () => {
  it("agrees with a list in memory on every state it ever had, through every compaction and archiving", async () => {
    let series = 0;
    const counts = { vintages: 0, compactions: 0, archived: 0, collected: 0, reads: 0, rows: 0 };
    const commands = fc.array(command, { minLength: 1, maxLength: 10 });
    const property = fc.asyncProperty(
      commands,
      fc.array(question, { maxLength: 6 }),
      async (steps, questions) => {
        const symbol = `model${series++}`;
        const history: History = [];
        const count = { vintages: 0 };
        for (const one of steps) {
          if (!one.compacts) await step(symbol, one, history, count);
          else if (await compact(world.writer, { library: "power.demand", symbol })) {
            counts.compactions++;
            const log = createLog("test");
            if (one.reconstructed)
              counts.archived += await archive({ ...world.writer, log }, ARCHIVE);
            const swept = await collect(world.writer, { now: Date.now() + 1_000, graceMs: 0 });
            counts.collected += swept.retired;
            expect(swept.orphans).toBe(0);
          }
        }
        counts.vintages += count.vintages;
        if (history.length === 0) return;
        for (const { version, shift, start, length, trueOnly, lateBy } of questions) {
          const asOf = (history[version % history.length]?.asOf ?? 0) + shift;
          const range = { from: FROM + start * HOUR, to: FROM + (start + length) * HOUR + 1 };
          // The model's rows lie in the past of its commits by this much.
          const knownBy = lateBy === undefined ? undefined : asOf - FROM - 6 * HOUR + lateBy;
          const one = { asOf, range, trueOnly, knownBy: asOf === Infinity ? undefined : knownBy };
          const got = await answers(symbol, one);
          expect(got).toEqual(stateOf(history, one).map(wire));
          const past = { asOf, range };
          const versions = await answers(symbol, { ...past, history: true });
          expect(versions).toEqual(historyOf(history, past));
          counts.reads += 2;
          counts.rows += got.length + versions.length;
        }
        const live = stateOf(history, { asOf: Infinity, range: ALL }).length;
        const counted = (rowsMax: number) =>
          world.store.read({ library: "power.demand", symbol, rowsMax });
        expect(await (await counted(live)).rows()).toHaveLength(live);
        if (live > 0) {
          await expect(counted(live - 1)).rejects.toMatchObject({ data: { rows: live } });
        }
      },
    );
    const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
    await fc.assert(property, { numRuns: 80, ...seed });
    expect(counts.compactions).toBeGreaterThan(20);
    expect(counts.archived).toBeGreaterThan(20);
    console.info(`model: ${JSON.stringify(counts)}`);
  });

  it("writes nothing when content is unchanged, however often it is committed", async () => {
    expect(await commitHours(world, "again", FROM, [1, null, 3])).toMatchObject({
      seq: 1,
      inserted: 3,
    });
    expect(await commitHours(world, "again", FROM, [1, null, 3])).toBeNull();
    expect(
      await commitHours(world, "again", FROM, [1, null, 3], { reconstructed: true }),
    ).toBeNull();
  });

  it("refuses what no catalog or isolate can hold", async () => {
    const row = (datetime: number) => ({ datetime, instrumentId: "x", values: [1] });
    const refused: [number, number, readonly number[]][] = [
      [FROM, FROM + 1, [FROM + 0.5]],
      [FROM, Date.UTC(9999, 11, 31) + 2 * DAY, [FROM]],
      [Date.UTC(0, 0, 1) - 3_000 * 365 * DAY, FROM, []],
      [FROM, FROM + DAY, Array.from({ length: 100_001 }, (_, index) => FROM + index)],
    ];
    for (const [from, to, datetimes] of refused) {
      const rows = datetimes.map(row);
      const attempt = commitHours(world, "refused", FROM, [], { rows, covered: { from, to } });
      await expect(attempt).rejects.toThrow(/whole number|years 1 to 9999|at most 100000/);
    }
    expect(await world.store.newestDatetime("power.demand", "refused", Infinity)).toBeNull();
  });

  it("stays a few objects when it only grows, from either end or around a gap", async () => {
    const symbol = "grows";
    const level1 = async () => {
      const { rows } = await world.database.execute<{ rows: number }>(sql`
        SELECT rows FROM segment JOIN series ON id = series_id
         WHERE symbol = ${symbol} AND level = 1 AND retired_at IS NULL ORDER BY segment.valid_min`);
      return rows.map((row) => row.rows);
    };
    const days = [0, 1, 2, 3, 4, -1, -2, -3, 40, 41, 20];
    for (const day of days) {
      await commitHours(world, symbol, FROM + day * DAY, Array(24).fill(day));
      await compact(world.writer, { library: "power.demand", symbol });
    }
    const sizes = await level1();
    expect(sizes.reduce((sum, rows) => sum + rows, 0)).toBe(24 * days.length);
    // No more objects than times that the history doubled.
    expect(sizes.length).toBeLessThanOrEqual(Math.log2(days.length));
    const reading = await world.store.read({ library: "power.demand", symbol });
    expect((await reading.rows()).map((row) => row.values[0])).toEqual(
      days.toSorted((left, right) => left - right).flatMap((day) => Array(24).fill(day)),
    );
    expect(reading.versionCount).toBe(24 * days.length);
    // A full object is left alone.
    await commitHours(world, symbol, Date.UTC(1990, 0, 1), Array(70_000).fill(1));
    await compact(world.writer, { library: "power.demand", symbol });
    const [first = 0, ...others] = await level1();
    expect(first).toBeGreaterThanOrEqual(65_536);
    await commitHours(world, symbol, FROM + 42 * DAY, [1]);
    await compact(world.writer, { library: "power.demand", symbol });
    expect((await level1())[0]).toBe(first);
    expect(others.length).toBeLessThanOrEqual(Math.log2(days.length));
  });

  it("keeps a large vintage as an object, exact and countable from the catalog", async () => {
    const values = Array.from({ length: INLINE_ROWS_MAX + 500 }, (_, hour) =>
      hour % 7 === 0 ? null : hour / 4,
    );
    const large = await commitHours(world, "large", FROM, values);
    expect(large).toMatchObject({ seq: 1, inserted: values.length });
    const { rows: objects } = await world.database.execute<{ object_key: string; bytes: number }>(
      sql`SELECT object_key, bytes FROM segment JOIN series ON id = series_id WHERE symbol = 'large'`,
    );
    expect(objects).toHaveLength(1);
    expect((await world.bucket.get(objects[0]?.object_key ?? ""))?.size).toBe(objects[0]?.bytes);
    const all = await world.store.read({ library: "power.demand", symbol: "large" });
    expect((await all.rows()).map((row) => row.values[0])).toEqual(
      values.map((value) => value ?? NaN),
    );
    await commitHours(world, "large", FROM, [42]);
    const first = await world.store.read({ library: "power.demand", symbol: "large", end: FROM });
    expect((await first.rows()).map((row) => row.values[0])).toEqual([42]);
    const capped = world.store.read({ library: "power.demand", symbol: "large", rowsMax: 100 });
    await expect(capped).rejects.toMatchObject({
      code: "row_cap_exceeded",
      data: { rows: 2_500, cap: 100 },
    });
  });

  it("gives exactly one vintage when eight writers commit the same content at once", async () => {
    for (const round of [1, 2, 3]) {
      const values = Array.from({ length: 24 }, (_, hour) => round * 100 + hour);
      const writers = Array.from({ length: 8 }, () => commitHours(world, "raced", FROM, values));
      const vintages = (await Promise.all(writers)).filter((vintage) => vintage !== null);
      expect(vintages.map((vintage) => vintage.seq)).toEqual([round]);
    }
  });

  it("serialises different writers: no vintage lost, sequence gapless, knowledge time rising", async () => {
    const writers = Array.from({ length: 8 }, (_, index) =>
      commitHours(world, "many", FROM + index * HOUR, [index]),
    );
    await Promise.all(writers);
    const { rows } = await world.database.execute<{
      seq: number;
      rising: boolean;
      live_rows: number;
    }>(sql`
      SELECT seq::int, as_of > lag(as_of, 1, '-infinity') OVER (ORDER BY seq) AS rising, live_rows::int
        FROM vintage JOIN series ON id = series_id WHERE symbol = 'many' ORDER BY seq`);
    expect(rows.map((row) => row.seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(rows.every((row) => row.rising)).toBe(true);
    expect(rows.at(-1)?.live_rows).toBe(8);
  });

  it("leaves no trace of a commit that crashed after writing its object", async () => {
    const values = Array.from({ length: INLINE_ROWS_MAX + 1 }, (_, hour) => hour);
    const crash = new Error("killed");
    const bucket = {
      get: world.bucket.get.bind(world.bucket),
      list: world.bucket.list.bind(world.bucket),
      delete: world.bucket.delete.bind(world.bucket),
      put: (async (...args: Parameters<typeof world.bucket.put>) => {
        await world.bucket.put(...args);
        throw crash;
      }) as typeof world.bucket.put,
    };
    const request = {
      library: "power.demand",
      symbol: "crashed",
      valueColumns: ["value"],
      rows: values.map((value, hour) => ({
        datetime: FROM + hour * HOUR,
        instrumentId: "i",
        values: [value],
      })),
      covered: { from: FROM, to: FROM + values.length * HOUR },
      reconstructed: false,
      sandbox: false,
      runId: "r",
      partition: "2026-01-01",
      sourceUrl: "https://api.eia.gov/v2/",
    };
    await expect(commit({ ...world.writer, bucket }, request)).rejects.toMatchObject({
      cause: crash,
    });
    const gone = world.store.read({ library: "power.demand", symbol: "crashed" });
    await expect(gone).rejects.toMatchObject({ code: "unknown_symbol" });
    expect(await commit(world.writer, request)).toMatchObject({ seq: 1, inserted: values.length });
  });

  it("refuses rows fetched before another run touched their range, and only those", async () => {
    await commitHours(world, "asked", FROM, [1, 2]);
    await commitHours(world, "asked", FROM, [1, 3]);
    const late = commitHours(world, "asked", FROM, [1, 2], { askedAtSeq: 1 });
    await expect(late).rejects.toMatchObject({ code: "commit_conflict" });
    const elsewhere = { askedAtSeq: 1 };
    expect(await commitHours(world, "asked", FROM + 9 * HOUR, [5], elsewhere)).toMatchObject({
      seq: 3,
    });
    expect(await commitHours(world, "asked", FROM, [1, 4], { askedAtSeq: 3 })).toMatchObject({
      seq: 4,
    });
  });

  it("never mixes sandbox and real data in one series", async () => {
    await commitHours(world, "mixed", FROM, [1], { sandbox: true });
    const real = commitHours(world, "mixed", FROM, [2], { sandbox: false });
    await expect(real).rejects.toBeInstanceOf(Failure);
    await expect(real).rejects.toMatchObject({ code: "sandbox_mixed" });
  });
});
