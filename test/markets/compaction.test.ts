// What compaction rewrites and what it leaves alone, step by step, and what a read fetches of what
// it wrote. No step changes an answer.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { compact } from "../../edge/markets/store/compact.ts";
import { HeldRowGroups } from "../../edge/markets/store/held-row-groups.ts";
import { ROW_GROUP_ROWS } from "../../edge/markets/store/segment.ts";
import { openStore, type ReadRequest } from "../../edge/markets/store/store.ts";
import { commitHours, createWorld, DAY, HOUR, type World } from "../support/world.ts";

const LIBRARY = "power.demand";
const FROM = Date.UTC(1980, 0, 1);
const COMMIT_ROWS = 100_000;
const LONG_ROWS = 4 * COMMIT_ROWS;

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
  const hours = (first: number) => Array.from({ length: COMMIT_ROWS }, (_, hour) => first + hour);
  for (let first = 0; first < LONG_ROWS; first += COMMIT_ROWS) {
    await commitHours(world, "long", FROM + first * HOUR, hours(first));
  }
  await compact(world.writer, { library: LIBRARY, symbol: "long" });
});

interface LiveObject {
  key: string;
  level: number;
  rows: number;
}

async function objects(symbol: string): Promise<LiveObject[]> {
  const { rows } = await world.database.execute<LiveObject & Record<string, unknown>>(sql`
    SELECT object_key AS key, level::int, rows FROM segment JOIN series ON id = series_id
     WHERE symbol = ${symbol} AND retired_at IS NULL ORDER BY segment.valid_min, object_key`);
  return rows;
}

const pending = async (symbol: string) => {
  const { rows } = await world.database.execute(sql`
    SELECT pending_vintages, pending_rows::int, pending_objects FROM series
     WHERE symbol = ${symbol}`);
  return rows[0];
};
const NOTHING_PENDING = { pending_vintages: 0, pending_rows: 0, pending_objects: 0 };

/**
 * Everything a series can answer at some knowledge times, and its whole history, as one text each:
 * to compare rows one by one takes seconds.
 */
async function answers(symbol: string, asOfs: readonly number[]) {
  const requests: Omit<ReadRequest, "library" | "symbol">[] = [
    { history: true },
    { trueOnly: true },
    ...asOfs.map((asOf) => ({ asOf })),
  ];
  const texts: string[] = [];
  for (const request of requests) {
    const reading = await world.store.read({ library: LIBRARY, symbol, ...request });
    const lines: string[] = [];
    for await (const { datetime, values, vintage, vintages, knownTo } of reading.batches()) {
      const seqs = Array.from(vintage, (code) => vintages[code]?.seq);
      const rows = [...datetime].map((instant, row) =>
        [instant, values[0]?.[row], seqs[row], knownTo?.[row]].join(),
      );
      lines.push(rows.join(";"));
    }
    texts.push(lines.join(";"));
  }
  return texts;
}

/** Compacts a step at a time; returns the rows that each step wrote, and checks after each one. */
async function compactBySteps(symbol: string, check: () => Promise<void>): Promise<number[]> {
  const written: number[] = [];
  for (;;) {
    const before = new Set((await objects(symbol)).map(({ key }) => key));
    if ((await compact(world.writer, { library: LIBRARY, symbol }, () => true)) === 0) break;
    const fresh = (await objects(symbol)).filter(({ key }) => !before.has(key));
    written.push(fresh.reduce((sum, { rows }) => sum + rows, 0));
    await check();
  }
  expect(await pending(symbol)).toEqual(NOTHING_PENDING);
  return written;
}

describe("compaction", () => {
  it("rewrites the objects that rows fall into, not those between them", async () => {
    const before = await objects("long");
    expect(before.map(({ level }) => level)).toEqual(Array(before.length).fill(1));
    const [first, last] = [before[0] as LiveObject, before.at(-1) as LiveObject];
    for (const hour of [0, LONG_ROWS - 1])
      await commitHours(world, "long", FROM + hour * HOUR, [-1]);
    const state = async () => {
      const reading = await world.store.read({ library: LIBRARY, symbol: "long" });
      return (await reading.rows()).map(({ values }) => values[0]);
    };
    const expected = await state();
    expect([expected.length, expected[0], expected[1], expected.at(-1)]).toEqual([
      LONG_ROWS,
      -1,
      1,
      -1,
    ]);
    // One text: comparing half a million numbers one by one takes seconds.
    const check = async () => expect(String(await state()) === String(expected)).toBe(true);
    expect(await compactBySteps("long", check)).toEqual([first.rows + 1, last.rows + 1]);
    const after = new Set((await objects("long")).map(({ key }) => key));
    expect(before.filter(({ key }) => !after.has(key))).toEqual([first, last]);
  });

  it("goes through vintages that reach from end to end a stretch at a time", async () => {
    const symbol = "sparse";
    const asOfs: number[] = [];
    const values: number[] = [];
    const put = async (from: number, given: readonly number[]) => {
      const vintage = await commitHours(world, symbol, FROM + from * HOUR, given);
      asOfs.push(vintage?.asOf ?? Number.NaN);
    };
    // Each object is too small to take the one before it along.
    for (const count of [60_000, 10_000, 3_000]) {
      const more = Array.from({ length: count }, (_, hour) => values.length + hour);
      await put(values.length, more);
      values.push(...more);
      await compact(world.writer, { library: LIBRARY, symbol });
    }
    const [first, middle, last] = await objects(symbol);
    expect([first?.rows, middle?.rows, last?.rows]).toEqual([60_000, 10_000, 3_000]);
    // Rows at both ends and none between: one vintage in the catalog, one as an object.
    for (const [revision, count] of [
      [1, 20],
      [2, 1_500],
    ] as const) {
      const revised = values.map((value, hour) =>
        hour < count || hour >= values.length - count ? -revision * 1e6 - value : value,
      );
      await put(0, revised);
    }
    expect(await pending(symbol)).toEqual({
      pending_vintages: 2,
      pending_rows: 3_040,
      pending_objects: 1,
    });
    const before = await answers(symbol, asOfs);
    const written = await compactBySteps(symbol, async () => {
      const after = await answers(symbol, asOfs);
      expect(after.map((text, request) => text === before[request])).toEqual(after.map(() => true));
    });
    expect(written).toEqual([60_000 + 1_520, 3_000 + 1_520]);
    expect((await objects(symbol)).map(({ key }) => key)).toContain(middle?.key);
    expect((await objects(symbol)).length).toBe(3);
  });

  it("takes at once what waits when it begins, however many steps that is", async () => {
    await commitHours(world, "sparse", FROM, [5]);
    await commitHours(world, "sparse", FROM + 72_999 * HOUR, [5]);
    expect(await compact(world.writer, { library: LIBRARY, symbol: "sparse" })).toBe(2);
    expect(await pending("sparse")).toEqual(NOTHING_PENDING);
  });

  it("leaves no rest behind with each revision of a month larger than an object", async () => {
    const symbol = "wide";
    const [instruments, hours] = [200, 700];
    const from = Date.UTC(2026, 0, 1);
    const put = async (first: number, count: number, revision: number) => {
      const covered = { from: from + first * HOUR, to: from + (first + count) * HOUR };
      const rows = Array.from({ length: count * instruments }, (_, index) => ({
        datetime: covered.from + Math.floor(index / instruments) * HOUR,
        instrumentId: `power.demand.${symbol}.${index % instruments}`,
        values: [index + revision],
      }));
      await commitHours(world, symbol, from, [], { rows, covered });
    };
    for (let first = 0; first < hours; first += hours / 2) await put(first, hours / 2, 0);
    await compact(world.writer, { library: LIBRARY, symbol });
    const sizes = async () => (await objects(symbol)).map(({ rows }) => rows);
    expect(await sizes()).toEqual([instruments * (hours / 2), instruments * (hours / 2)]);
    for (const revision of [1, 2, 3]) {
      await put(10, 1, revision);
      await compact(world.writer, { library: LIBRARY, symbol });
    }
    expect((await sizes()).length).toBe(2);
  });
});

describe("a read", () => {
  /** The store over a bucket that tells how many bytes it gave. */
  function measuredStore(held?: HeldRowGroups) {
    const sizes: number[] = [];
    const bucket = {
      get: async (...given: Parameters<World["bucket"]["get"]>) => {
        const object = await world.bucket.get(...given);
        const bytes = await object?.arrayBuffer();
        sizes.push(bytes?.byteLength ?? 0);
        return bytes && { arrayBuffer: async () => bytes };
      },
      // A part of the bucket, with what a read asks of it.
    } as unknown as World["bucket"];
    const parts = { database: world.database, bucket, ...(held && { held }) };
    return { store: openStore(parts), sizes };
  }

  it("fetches the row groups that its range reaches into, and nothing else", async () => {
    const { rows } = await world.database.execute<{ bytes: number; groups: number }>(sql`
      SELECT bytes, jsonb_array_length(index->'groups') AS groups FROM segment
        JOIN series ON id = series_id
       WHERE symbol = 'long' AND retired_at IS NULL ORDER BY segment.valid_min`);
    const [object] = rows;
    const { store, sizes } = measuredStore();
    const day = (start: number) =>
      store.read({ library: LIBRARY, symbol: "long", start, end: start + DAY - HOUR });
    const reading = await day(FROM + 300 * DAY);
    const got = (await reading.rows()).map(({ values }) => values[0]);
    expect(got).toEqual(Array.from({ length: 24 }, (_, hour) => 300 * 24 + hour));
    expect(sizes.length).toBe(1);
    const perGroup = (object?.bytes ?? 0) / (object?.groups ?? 1);
    expect(object?.groups).toBeGreaterThanOrEqual(8);
    expect(sizes[0]).toBeLessThan(2 * perGroup);
    // Half a year, wherever it begins: no more than three times the bytes of its own rows.
    sizes.length = 0;
    const start = FROM + 1_000 * HOUR;
    const end = start + (ROW_GROUP_ROWS - 1) * HOUR;
    const half = await store.read({ library: LIBRARY, symbol: "long", start, end });
    expect((await half.rows()).length).toBe(ROW_GROUP_ROWS);
    expect([sizes.length, (sizes[0] ?? 0) < 3 * perGroup]).toEqual([1, true]);
    // The whole series: every object once, without its footer.
    sizes.length = 0;
    const whole = await store.read({ library: LIBRARY, symbol: "long" });
    expect((await whole.rows()).length).toBe(LONG_ROWS);
    expect(sizes.length).toBe(rows.length);
  });

  it("opens a row group once for the short reads that come back to it", async () => {
    const { store, sizes } = measuredStore(new HeldRowGroups(1 << 20));
    const day = async (index: number) => {
      const start = FROM + index * DAY;
      const end = start + DAY - HOUR;
      const reading = await store.read({ library: LIBRARY, symbol: "long", start, end });
      const got = (await reading.rows()).map(({ values }) => values[0]);
      expect(got).toEqual(Array.from({ length: 24 }, (_, hour) => index * 24 + hour));
      return reading.isHeld;
    };
    expect([await day(300), await day(301), await day(300)]).toEqual([false, true, true]);
    expect(sizes.length).toBe(1);
    // A long read neither takes what is held nor drives it out.
    const whole = await store.read({ library: LIBRARY, symbol: "long" });
    expect((await whole.rows()).length).toBe(LONG_ROWS);
    sizes.length = 0;
    expect([await day(301), sizes.length]).toEqual([true, 0]);
    // Of two row groups side by side the one that is not held is fetched.
    const { rows } = await world.database.execute<{ to: number; bytes: number }>(sql`
      SELECT (g->>'validMax')::float8 AS to, bytes / jsonb_array_length(index->'groups') AS bytes
        FROM segment, jsonb_array_elements(index->'groups') g
       WHERE retired_at IS NULL AND (g->>'validMin')::float8 <= ${FROM + 300 * DAY}::float8
         AND (g->>'validMax')::float8 >= ${FROM + 300 * DAY}::float8
         AND series_id = (SELECT id FROM series WHERE symbol = 'long')`);
    const [group] = rows;
    expect(await day(Math.floor(((group?.to ?? 0) - FROM) / DAY))).toBe(false);
    expect([sizes.length, sizes[0]]).toEqual([1, expect.closeTo(group?.bytes ?? 0, -4)]);
  });

  it("holds the row groups that were used last, within its bytes", async () => {
    // Room for one: of 4,096 rows each version takes 18 bytes.
    const { store, sizes } = measuredStore(new HeldRowGroups(4_096 * 18 * 1.5));
    const day = async (index: number) => {
      const start = FROM + index * DAY;
      const query = { library: LIBRARY, symbol: "long", start, end: start };
      expect((await (await store.read(query)).rows()).length).toBe(1);
      return sizes.length;
    };
    expect([await day(300), await day(301), await day(900), await day(300)]).toEqual([1, 1, 2, 3]);
  });

  it("cuts what was learned later off the rows that it holds, too", async () => {
    const known: number[] = [];
    for (const value of [1, 2, 3]) {
      known.push((await commitHours(world, "revised", FROM, [value]))?.asOf ?? 0);
    }
    await compact(world.writer, { library: LIBRARY, symbol: "revised" });
    const { store, sizes } = measuredStore(new HeldRowGroups(1 << 20));
    const at = async (asOf?: number) => {
      const reading = await store.read({ library: LIBRARY, symbol: "revised", asOf, start: FROM });
      const versions: number[] = [];
      for await (const { length } of reading.versions()) versions.push(length);
      return [...(await reading.rows()).map(({ values }) => values[0]), ...versions];
    };
    expect(await at()).toEqual([3, 3]);
    expect(await at(known[0])).toEqual([1, 1]);
    expect(await at(known[1])).toEqual([2, 2]);
    expect(await at((known[0] ?? 0) - 1)).toEqual([]);
    expect(sizes.length).toBe(1);
  });
});
