// What the minute cron does for the store: compaction by policy, collection once a day.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["console"] });
});

const tick = () => world.tick(Date.now());
const commitObjects = async (symbol: string, count: number) => {
  const writer = { ...world.writer, inlineRowsMax: 0 };
  for (let hour = 0; hour < count; hour++) {
    await commitHours({ writer }, symbol, FROM + hour * HOUR, [hour]);
  }
};
const live = async (symbol: string) => {
  const { rows } = await world.database.execute<{ object_key: string; level: number }>(sql`
    SELECT object_key, level FROM segment JOIN series ON id = series_id
     WHERE symbol = ${symbol} AND retired_at IS NULL`);
  return rows;
};
const levels = async (symbol: string) => (await live(symbol)).map(({ level }) => level);

it("compacts series that reached a bound of the policy, whatever became of another", async () => {
  await commitObjects("below", 7);
  await commitObjects("full", 8);
  // Lost later: a bucket that lacked an object from the first would be taken for another's.
  await tick();
  await commitObjects("broken", 9);
  const [lost] = await live("broken");
  await world.bucket.delete(lost?.object_key ?? "");
  await tick();
  expect(await levels("below")).toEqual([0, 0, 0, 0, 0, 0, 0]);
  expect(await levels("full")).toEqual([1]);
  expect(await levels("broken")).toHaveLength(9);
  const log = world.logs.join("\n");
  expect(log).toMatch(/"event":"compacted".*"series":1/);
  expect(log).toMatch(/"event":"compaction_failed".*broken/);
  const { rows } = await world.database.execute(sql`
    SELECT pending_vintages::int AS vintages, pending_rows::int AS rows,
      pending_objects::int AS objects, generation::int
      FROM series WHERE symbol = 'full'`);
  expect(rows).toEqual([{ vintages: 0, rows: 0, objects: 0, generation: 1 }]);
});

it("compacts what has waited for a day, and leaves an empty queue alone", async () => {
  await commitHours(world, "waiting", FROM, [1]);
  await tick();
  expect(await levels("waiting")).toEqual([]);
  await world.database.execute(sql`
    UPDATE series SET compacted_at = now() - interval '25 hours' WHERE symbol IN ('waiting', 'full')`);
  await tick();
  expect([await levels("waiting"), await levels("full")]).toEqual([[1], [1]]);
  const { rows } = await world.database.execute(
    sql`SELECT generation::int FROM series WHERE symbol = 'full'`,
  );
  expect(rows).toEqual([{ generation: 1 }]);
});

it("lets a series rest whose compaction failed, and takes it up again later", async () => {
  const failures = () => world.logs.filter((line) => line.includes('"compaction_failed"')).length;
  const before = failures();
  await tick();
  expect(failures()).toBe(before);
  await world.database.execute(sql`
    UPDATE series SET compaction_tried_at = compaction_tried_at - interval '16 minutes'`);
  await tick();
  expect(failures()).toBe(before + 1);
});

it("collects once a day what was retired 35 days ago, and no orphan of today", async () => {
  const collections = () => world.logs.filter((line) => line.includes('"event":"collected"'));
  // The first tick of the store's life took the chore.
  await tick();
  expect(collections()).toHaveLength(1);
  await world.bucket.put("v1/power.demand/full/l0/orphan.parquet", "left by a killed commit");
  await world.database.execute(sql`
    UPDATE segment SET retired_at = retired_at - interval '36 days' WHERE retired_at IS NOT NULL`);
  await world.database.execute(sql`
    UPDATE housekeeping SET last_at = last_at - interval '25 hours'`);
  await tick();
  expect(collections()).toHaveLength(2);
  expect(collections()[1]).toMatch(/"retired":8,"orphans":0/);
  const { objects } = await world.bucket.list({ prefix: "v1/power.demand/full/" });
  const keys = objects.map(({ key }) => key);
  expect(keys.filter((key) => key.includes("/l1/"))).toHaveLength(1);
  expect(keys).toContain("v1/power.demand/full/l0/orphan.parquet");
  expect(keys).toHaveLength(2);
});
