// The flag of rows that a forward commit learns: a true vintage where the store learned the row in
// time, a reconstruction where it could have been learned long before.

import { beforeAll, beforeEach, expect, it } from "vitest";
import { commit } from "../../edge/markets/store/commit.ts";
import { systemClock } from "../../shared/time.ts";
import { createWorld, DAY, HOUR, type World } from "../support/world.ts";

const LIBRARY = "power.demand";
const WITHIN = 2 * DAY;

let world: World;
/** The newest hour that is over. */
let newest: number;
let symbol: string;
let series = 0;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});
beforeEach(() => {
  newest = Math.floor(systemClock() / HOUR) * HOUR - HOUR;
  symbol = `s${++series}`;
});

/** Commits values by their age in hours; the covered range is the ten days up to a day ahead. */
const learn = (values: Record<number, number>, more: { reconstructed?: boolean } = {}) =>
  commit(world.writer, {
    library: LIBRARY,
    symbol,
    valueColumns: ["value"],
    runId: "run",
    partition: "2026-01-10",
    sandbox: false,
    sourceUrl: "https://api.eia.gov/v2/",
    covered: { from: newest - 10 * DAY, to: newest + DAY },
    reconstructed: false,
    publishedWithinMs: WITHIN,
    ...more,
    rows: Object.entries(values).map(([age, value]) => ({
      datetime: newest - Number(age) * HOUR,
      instrumentId: `${LIBRARY}.${symbol}`,
      values: [value],
    })),
  });

/** The flags in the store by the age of their rows. */
async function flags() {
  const range = { from: -Infinity, to: Infinity };
  const [rows = []] = await world.store.readAll([{ library: LIBRARY, symbol }], range);
  return Object.fromEntries(
    rows.map(({ datetime, reconstructed }) => [(newest - datetime) / HOUR, reconstructed]),
  );
}
const vintages = async () =>
  (await world.store.vintages({ library: LIBRARY, symbol, limit: 10 })).map(
    ({ reconstructed, inserted, revised, liveRows }) => [
      reconstructed,
      inserted,
      revised,
      liveRows,
    ],
  );

it("flags the look-back of a first commit, and not what it learns in time or ahead", async () => {
  const vintage = await learn({ 200: 1, 50: 2, 40: 3, 0: 4, [-20]: 5 });
  expect(vintage).toMatchObject({ seq: 2, inserted: 5 });
  expect(await flags()).toEqual({ 200: true, 50: true, 40: false, 0: false, [-20]: false });
  expect(await vintages()).toEqual([
    [true, 2, 0, 2],
    [false, 3, 0, 5],
  ]);
});

it("flags no revision, whoever wrote the row first", async () => {
  await learn({ 200: 1, 100: 1 }, { reconstructed: true });
  await learn({ 200: 2, 100: 1, 150: 1, 0: 1 });
  expect(await flags()).toEqual({ 200: false, 100: true, 150: true, 0: false });
});

it("flags no row that comes back after it was retracted", async () => {
  await learn({ 200: 1, 100: 1 });
  await learn({ 100: 1 });
  await learn({ 200: 1, 100: 1, 90: 1 });
  expect(await flags()).toEqual({ 200: false, 100: true, 90: true });
});

it("writes nothing where only the flag would change", async () => {
  await learn({ 200: 1, 0: 4 });
  const before = await vintages();
  expect(await learn({ 200: 1, 0: 4 })).toBeNull();
  expect(await learn({ 200: 1, 0: 4 }, { reconstructed: true })).toBeNull();
  expect(await vintages()).toEqual(before);
});

it("commits rows that are all late as one vintage", async () => {
  expect(await learn({ 200: 1, 100: 2 })).toMatchObject({ seq: 1, inserted: 2 });
  expect(await flags()).toEqual({ 200: true, 100: true });
});
