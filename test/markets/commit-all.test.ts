// Committing and reading several series at once: each is what it would be by itself, whatever
// becomes of the others.

import { beforeAll, describe, expect, it } from "vitest";
import { commitAll } from "../../edge/markets/store/commit.ts";
import { createWorld, DAY, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 10);
const LIBRARY = "power.demand";
const shared = { covered: { from: FROM, to: FROM + DAY }, partition: "2026-01-10" };

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

interface SeriesRows {
  symbol: string;
  values: readonly number[];
  askedAtSeq?: number;
  mayWithdraw?: () => boolean;
}

const commitThem = (wanted: readonly SeriesRows[], runId = "run") =>
  commitAll(
    world.writer,
    shared,
    wanted.map(({ symbol, values, ...more }) => ({
      library: LIBRARY,
      symbol,
      valueColumns: ["value"],
      runId,
      ...more,
      reconstructed: false,
      sandbox: false,
      sourceUrl: "https://api.eia.gov/v2/",
      rows: values.map((value, hour) => ({
        datetime: FROM + hour * HOUR,
        instrumentId: `${LIBRARY}.${symbol}`,
        values: [value],
      })),
    })),
  );

const valuesOf = async (...symbols: string[]) => {
  const names = symbols.map((symbol) => ({ library: LIBRARY, symbol }));
  const all = await world.store.readAll(names, shared.covered);
  return all.map((rows) => rows.map(({ values }) => values[0]));
};

describe("several series", () => {
  it("are committed in the order they were given, new ones and known ones alike", async () => {
    const first = await commitThem([
      { symbol: "b", values: [1, 2] },
      { symbol: "a", values: [3] },
    ]);
    expect(first).toMatchObject([
      { status: "fulfilled", value: { seq: 1, inserted: 2 } },
      { status: "fulfilled", value: { seq: 1, inserted: 1 } },
    ]);
    const second = await commitThem([
      { symbol: "c", values: [5, 6, 7] },
      { symbol: "a", values: [3] },
      { symbol: "b", values: [1, 9] },
    ]);
    expect(second).toMatchObject([
      { value: { seq: 1, inserted: 3 } },
      { value: null },
      { value: { seq: 2, revised: 1 } },
    ]);
    expect(await valuesOf("b", "c", "a")).toEqual([[1, 9], [5, 6, 7], [3]]);
  });

  it("are refused one by one", async () => {
    const outcomes = await commitThem([
      { symbol: "a", values: [], mayWithdraw: () => false },
      { symbol: "b", values: [4, 4], askedAtSeq: 1 },
      { symbol: "c", values: [8, 6, 7], askedAtSeq: 1 },
    ]);
    expect(outcomes).toMatchObject([
      { status: "rejected", reason: { code: "gate_rejected" } },
      { status: "rejected", reason: { code: "commit_conflict" } },
      { status: "fulfilled", value: { seq: 2, revised: 1 } },
    ]);
    expect(await valuesOf("a", "b", "c")).toEqual([[3], [1, 9], [8, 6, 7]]);
  });

  it("that many writers commit at once are each written once", async () => {
    const all = ["x", "y", "z"].map((symbol) => ({ symbol, values: [1, 2, 3] }));
    const writers = await Promise.all([1, 2, 3, 4].map((n) => commitThem(all, `run ${n}`)));
    for (const index of [0, 1, 2]) {
      const own = writers.map((outcomes) => outcomes[index]);
      expect(own.every((outcome) => outcome?.status === "fulfilled")).toBe(true);
      const written = own.filter((outcome) => outcome?.status === "fulfilled" && outcome.value);
      expect(written).toHaveLength(1);
    }
  });

  it("are read together, with no rows of one that was never committed", async () => {
    const held = (await valuesOf("nobody", "a")).map((values) => values.length > 0);
    expect(held).toEqual([false, true]);
  });
});
