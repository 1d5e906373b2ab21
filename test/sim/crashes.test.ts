// Eight writers, a compactor and an archiver on one partition, each killed at random steps and
// begun again: what is left must be as if nobody had ever died.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { IDENTITY_KEY } from "../../edge/http/bucket-identity.ts";
import { createLog, type Fields } from "../../edge/http/log.ts";
import { archive } from "../../edge/markets/store/archive.ts";
import { adopt, collect, compact } from "../../edge/markets/store/compact.ts";
import type { FeedPage, FeedQuery } from "../../edge/markets/store/listings.ts";
import type { WriterParts } from "../../edge/markets/store/objects.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const ROWS = 24;
const ROUNDS = 12;
const WRITERS = 8;
/** Chance of dying before, and again after, each step. */
const MORTALITY = 0.12;
/** Archives whatever compaction took, in objects of a few vintages. */
const ARCHIVE = { ageMs: -1_000, feedMin: 1, feedMax: 3, seriesMin: 1, seriesMax: 2 };
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

const counts = {
  kills: 0,
  attempts: 0,
  vintages: 0,
  compactions: 0,
  archived: 0,
  retired: 0,
  orphans: 0,
};

/** The store's parts, each of whose steps may be the process's last: before it, or just after. */
function mortal(random: () => number, inlineRowsMax: number): WriterParts {
  const dies = () => {
    if (random() >= MORTALITY) return;
    counts.kills++;
    throw new KillError("killed");
  };
  const lives = async (step: () => unknown) => {
    dies();
    const result = await step();
    dies();
    return result;
  };
  /** A statement that may be the last step of who waits for it; a batch takes it as it is. */
  const statement = <Query extends object>(query: Query): Query =>
    new Proxy(query, {
      get: (from, name) => {
        const value = Reflect.get(from, name) as unknown;
        if (typeof value !== "function") return value;
        if (name !== "then") return value.bind(from);
        return (...then: Parameters<Promise<unknown>["then"]>) => lives(() => from).then(...then);
      },
    });
  const wrapped = <Target extends object>(target: Target): Target =>
    new Proxy(target, {
      get: (from, name) => {
        const value = Reflect.get(from, name) as unknown;
        if (typeof value !== "function") return value;
        const call = (given: unknown[]) => value.apply(from, given) as unknown;
        if (name === "execute") return (...given: unknown[]) => statement(call(given) as object);
        return (...given: unknown[]) => lives(() => call(given));
      },
    });
  const { bucket, pause } = world.writer;
  return { database: wrapped(world.database), bucket: wrapped(bucket), pause, inlineRowsMax };
}

const killed = (thrown: unknown): boolean =>
  thrown instanceof Error && (thrown instanceof KillError || killed(thrown.cause));

/** The log of a process that dies of what it would log and go on from. */
const lastWords = {
  ...createLog("test"),
  error: (_: string, { error }: Fields) => {
    throw error;
  },
};

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

it("survives kills at every step of eight writers, a compactor and an archiver", async () => {
  const seed = Number(process.env.SEED ?? 20_261_121);
  for (let round = 1; round <= ROUNDS; round++) {
    const writers = Array.from({ length: WRITERS }, (_, index) => {
      const parts = mortal(seeded(seed + round * 100 + index), index % 2 === 0 ? 0 : 100);
      return untilDone(() => commitHours({ writer: parts }, SERIES.symbol, FROM, valuesOf(round)));
    });
    const compactor = mortal(seeded(seed + round * 100 + 99), 100);
    const compaction = untilDone(() => compact(compactor, SERIES));
    const archiver = { ...mortal(seeded(seed + round * 100 + 98), 100), log: lastWords };
    const archiving = untilDone(() => archive(archiver, ARCHIVE));
    await Promise.all([...writers, compaction, archiving]);
    if ((await compact(world.writer, SERIES)) > 0) counts.compactions++;
  }

  const vintages = await world.store.vintages({ ...SERIES, limit: 1_000 });
  counts.vintages = vintages.length;
  expect(vintages.map(({ seq }) => seq)).toEqual(valuesOf(0).slice(1, ROUNDS + 1));
  expect(vintages.map(({ liveRows }) => liveRows)).toEqual(vintages.map(() => ROWS));
  const asOfs = vintages.map(({ asOf }) => asOf);
  expect(asOfs).toEqual([...new Set(asOfs)].sort((left, right) => left - right));
  const listed: number[] = [];
  for (let since: FeedQuery["since"] = 0, more = true; more; ) {
    const page: FeedPage = await world.store.changes({ since, limit: 5 });
    listed.push(...page.entries.map(({ seq }) => seq));
    ({ next: since, more } = page);
  }
  expect(listed).toEqual(vintages.map(({ seq }) => seq));

  const checkStates = async () => {
    for (const { seq, asOf } of vintages) {
      const reading = await world.store.read({ ...SERIES, asOf });
      const rows = await reading.rows();
      expect(rows.map(({ values }) => values[0])).toEqual(valuesOf(seq));
      expect(rows.map(({ datetime }) => datetime)).toEqual(
        valuesOf(0).map((hour) => FROM + hour * HOUR),
      );
    }
  };
  await checkStates();
  const { rows: left } = await world.database.execute(sql`SELECT FROM vintage`);
  counts.archived = vintages.length - left.length;
  expect(counts.archived).toBeGreaterThan(0);

  // So many that it has to be an operator's wish.
  const unnamed = await adopt(world.writer);
  const swept = await collect(world.writer, { now: Date.now() + 1_000, graceMs: 0 });
  expect(swept.orphans).toBe(unnamed);
  Object.assign(counts, swept);
  await checkStates();
  const { objects } = await world.bucket.list({});
  const { rows: named } = await world.database.execute<{ object_key: string }>(
    sql`SELECT object_key FROM segment UNION ALL SELECT object_key FROM vintage_archive
      UNION ALL SELECT object_key FROM feed_archive`,
  );
  const keys = objects.map(({ key }) => key).filter((key) => key !== IDENTITY_KEY);
  expect(keys.sort()).toEqual(named.map((row) => row.object_key).sort());
  expect(counts.kills).toBeGreaterThan(ROUNDS);
  expect(counts.orphans).toBeGreaterThan(0);
  expect(counts.retired).toBeGreaterThan(0);
  console.info(`crashes: ${JSON.stringify(counts)}`);
});
