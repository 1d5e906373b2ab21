// The store against a naive list in memory, on the real Postgres and object store: random commits
// with revisions, retractions and reconstructions, then reads at every kind of knowledge time.

import { sql } from "drizzle-orm";
import fc from "fast-check";
import { beforeAll, describe, expect, it } from "vitest";
import { commit, INLINE_ROWS_MAX } from "../../edge/markets/store/commit.ts";
import type { Range, Row } from "../../edge/markets/store/plan.ts";
import { Failure } from "../../shared/errors.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const HOURS = 24;

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

interface Command {
  at: number;
  length: number;
  rows: { offset: number; instrument: string; value: number }[];
  reconstructed: boolean;
  /** Vintages above it become objects. */
  inlineRowsMax: number;
}

interface Known {
  datetime: number;
  instrumentId: string;
  value: number;
  asOf: number;
  reconstructed: boolean;
}

/** What the store knew after each vintage: the naive model. */
type History = { asOf: number; rows: Known[] }[];

const command: fc.Arbitrary<Command> = fc.record({
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

const read = fc.record({
  vintage: fc.nat(),
  shift: fc.constantFrom(-1, 0, 1, Infinity),
  start: fc.integer({ min: -2, max: HOURS + 2 }),
  length: fc.integer({ min: 0, max: HOURS }),
});

const inRange = (datetime: number, range: Range) => datetime >= range.from && datetime < range.to;

/** Commits one command to the store and to the model, and checks that both saw the same change. */
async function step(
  symbol: string,
  { at, length, rows, reconstructed, inlineRowsMax }: Command,
  history: History,
) {
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
  const before = history.at(-1)?.rows ?? [];
  const writer = { ...world.writer, inlineRowsMax };
  const vintage = await commitHours({ writer }, symbol, covered.from, [], {
    rows: incoming,
    covered,
    reconstructed,
  });
  const old = new Map(before.map((row) => [`${row.datetime} ${row.instrumentId}`, row]));
  const asOf = vintage?.asOf ?? NaN;
  const next = incoming.map((row): Known => {
    const { datetime, instrumentId } = row;
    const value = row.values[0] ?? NaN;
    const known = old.get(`${datetime} ${instrumentId}`);
    const unchanged =
      known && (known.value === value || (known.value !== known.value && value !== value));
    return unchanged ? known : { datetime, instrumentId, value, asOf, reconstructed };
  });
  const outside = before.filter((row) => !inRange(row.datetime, covered));
  const after = [...outside, ...next];
  const changed =
    after.length !== before.length ||
    next.some((row) => Number.isNaN(row.asOf) || row.asOf === asOf);
  expect(vintage !== null).toBe(changed);
  if (vintage) {
    expect(vintage.seq).toBe(history.length + 1);
    expect(vintage.asOf).toBeGreaterThan(history.at(-1)?.asOf ?? 0);
    history.push({ asOf: vintage.asOf, rows: after });
  }
}

const wire = (rows: readonly Known[]) =>
  rows
    .map((row) => [
      row.datetime,
      row.instrumentId,
      Number.isNaN(row.value) ? null : row.value,
      row.asOf,
      row.reconstructed,
    ])
    .sort(
      (left, right) =>
        Number(left[0]) - Number(right[0]) || (String(left[1]) < String(right[1]) ? -1 : 1),
    );

describe("the store", () => {
  it("agrees with a list in memory on every state it ever had", async () => {
    let series = 0;
    const commands = fc.array(command, { minLength: 1, maxLength: 8 });
    const property = fc.asyncProperty(
      commands,
      fc.array(read, { maxLength: 6 }),
      async (steps, reads) => {
        const symbol = `model${series++}`;
        const history: History = [];
        for (const one of steps) await step(symbol, one, history);
        if (history.length === 0) return;
        for (const { vintage, shift, start, length } of reads) {
          const asOf = (history[vintage % history.length]?.asOf ?? 0) + shift;
          const range = { from: FROM + start * HOUR, to: FROM + (start + length) * HOUR + 1 };
          const reading = await world.store.read({
            library: "power.demand",
            symbol,
            asOf: asOf === Infinity ? undefined : asOf,
            start: range.from,
            end: range.to - 1,
          });
          const known = history.filter((one) => one.asOf <= asOf).at(-1)?.rows ?? [];
          const got = (await reading.rows()).map((row) => ({
            ...row,
            value: row.values[0] ?? NaN,
          }));
          expect(wire(got)).toEqual(wire(known.filter((row) => inRange(row.datetime, range))));
          expect(got.every((row) => row.asOf <= asOf)).toBe(true);
        }
        const count = history.at(-1)?.rows.length ?? 0;
        const counted = (rowsMax: number) =>
          world.store.read({ library: "power.demand", symbol, rowsMax });
        expect(await (await counted(count)).rows()).toHaveLength(count);
        if (count > 0) {
          await expect(counted(count - 1)).rejects.toMatchObject({ data: { rows: count } });
        }
      },
    );
    const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
    await fc.assert(property, { numRuns: 80, ...seed });
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
