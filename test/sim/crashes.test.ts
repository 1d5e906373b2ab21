// Eight writers and a compactor on one partition, each killed at random steps and begun again: what
// is left must be as if nobody had ever died.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { collect, compact } from "../../edge/markets/store/compact.ts";
import type { WriterParts } from "../../edge/markets/store/objects.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const ROWS = 24;
const ROUNDS = 12;
const WRITERS = 8;
/** Chance of dying before, and again after, each step. */
const MORTALITY = 0.12;
const SERIES = { library: "power.demand", symbol: "raced" };

class KillError extends Error {}

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

/** A seeded source of numbers in [0, 1): the generator mulberry32. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const counts = { kills: 0, attempts: 0, vintages: 0, compactions: 0, retired: 0, orphans: 0 };

/** The store's parts, each of whose steps may be the process's last: before it, or just after. */
function mortal(random: () => number, inlineRowsMax: number): WriterParts {
  const dies = () => {
    if (random() >= MORTALITY) return;
    counts.kills++;
    throw new KillError("killed");
  };
  const wrapped = <Target extends object>(target: Target): Target =>
    new Proxy(target, {
      get: (from, name) => {
        const value = Reflect.get(from, name) as unknown;
        if (typeof value !== "function") return value;
        return async (...given: unknown[]) => {
          dies();
          const result = await (value as (...given: unknown[]) => unknown).apply(from, given);
          dies();
          return result;
        };
      },
    });
  const { bucket, pause } = world.writer;
  return { database: wrapped(world.database), bucket: wrapped(bucket), pause, inlineRowsMax };
}

const killed = (thrown: unknown): boolean =>
  thrown instanceof Error && (thrown instanceof KillError || killed(thrown.cause));

/** Begins again until it is through; only a kill is a reason. */
async function untilDone(work: () => Promise<unknown>) {
  for (;;) {
    counts.attempts++;
    try {
      return await work();
    } catch (thrown) {
      if (!killed(thrown)) throw thrown;
    }
  }
}

const valuesOf = (round: number) => Array.from({ length: ROWS }, (_, hour) => round * 100 + hour);

it("survives kills at every step of eight writers and a compactor", async () => {
  const seed = Number(process.env.SEED ?? 20_261_121);
  for (let round = 1; round <= ROUNDS; round++) {
    const writers = Array.from({ length: WRITERS }, (_, index) => {
      const parts = mortal(seeded(seed + round * 100 + index), index % 2 === 0 ? 0 : 100);
      return untilDone(() => commitHours({ writer: parts }, SERIES.symbol, FROM, valuesOf(round)));
    });
    const compactor = mortal(seeded(seed + round * 100 + 99), 100);
    const compaction = untilDone(() => compact(compactor, SERIES));
    await Promise.all([...writers, compaction]);
    if ((await compact(world.writer, SERIES)) > 0) counts.compactions++;
  }

  const { rows: vintages } = await world.database.execute<{
    seq: number;
    as_of: string;
    live_rows: number;
    rising: boolean;
  }>(sql`
    SELECT seq::int, as_of::text, live_rows::int,
      as_of > lag(as_of, 1, '-infinity') OVER (ORDER BY seq) AS rising
      FROM vintage JOIN series ON id = series_id WHERE symbol = ${SERIES.symbol} ORDER BY seq`);
  counts.vintages = vintages.length;
  expect(vintages.map(({ seq }) => seq)).toEqual(valuesOf(0).slice(1, ROUNDS + 1));
  expect(vintages.every(({ rising, live_rows }) => rising && live_rows === ROWS)).toBe(true);

  const checkStates = async () => {
    for (const { seq, as_of } of vintages) {
      const reading = await world.store.read({ ...SERIES, asOf: Date.parse(as_of) });
      const rows = await reading.rows();
      expect(rows.map(({ values }) => values[0])).toEqual(valuesOf(seq));
      expect(rows.map(({ datetime }) => datetime)).toEqual(
        valuesOf(0).map((hour) => FROM + hour * HOUR),
      );
    }
  };
  await checkStates();

  const swept = await collect(world.writer, { now: Date.now() + 1_000, graceMs: 0 });
  Object.assign(counts, swept);
  await checkStates();
  const { objects } = await world.bucket.list({ prefix: "v1/" });
  const { rows: named } = await world.database.execute<{ object_key: string }>(
    sql`SELECT object_key FROM segment`,
  );
  expect(objects.map(({ key }) => key).sort()).toEqual(named.map((row) => row.object_key).sort());
  expect(counts.kills).toBeGreaterThan(ROUNDS);
  expect(counts.orphans).toBeGreaterThan(0);
  expect(counts.retired).toBeGreaterThan(0);
  console.info(`crashes: ${JSON.stringify(counts)}`);
});
