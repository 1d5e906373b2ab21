// What collection deletes of a bucket. Goal: a database that is not the bucket's, because its
// address is wrong or it was set back, costs no object.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, expect, it } from "vitest";
import { adopt, collect } from "../../edge/markets/store/compact.ts";
import { DAY, systemClock } from "../../shared/time.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const later = () => ({ now: systemClock() + HOUR, graceMs: 0 });

let world: World;

const keys = async () => {
  const { objects } = await world.bucket.list({ prefix: "v1/" });
  return objects.map(({ key }) => key);
};

/** Puts so many objects that no catalog names. */
async function putUnnamed(count: number, symbol = "lost") {
  for (let index = 0; index < count; index++)
    await world.bucket.put(`v1/power.demand/${symbol}/l0/${index}.parquet`, "rows");
}

beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
});

beforeEach(async () => {
  await world.bucket.delete(await keys());
});

const refused = (unnamed: number, max: number) => ({
  code: "bad_configuration",
  message: expect.stringContaining(
    `does not name ${unnamed} of the bucket's ${unnamed} objects, where ${max} at most`,
  ),
});

it("deletes nothing, not even one object, where the catalog names none of the bucket's", async () => {
  await putUnnamed(1);
  await expect(collect(world.writer, later())).rejects.toMatchObject(refused(1, 0));
  expect(await keys()).toHaveLength(1);
});

it("deletes the few that killed commits left, once they are old enough", async () => {
  await commitHours(
    world,
    "erco",
    FROM,
    Array.from({ length: 5_000 }, (_, hour) => hour),
  );
  const named = await keys();
  expect(named).toHaveLength(1);
  await putUnnamed(20);
  // They are listed, and their grace counts from then on, whatever their age is.
  const early = { ...later(), graceMs: DAY, unnamedMs: 0 };
  expect(await collect(world.writer, early)).toMatchObject({ orphans: 0 });
  expect(await keys()).toHaveLength(21);
  await world.database.execute(sql`
    UPDATE discarded_object SET discarded_at = discarded_at - interval '23 hours'`);
  expect(await collect(world.writer, early)).toMatchObject({ orphans: 0 });
  // One that a catalog of the past names again is found again.
  const [first = ""] = (await keys()).filter((key) => key.includes("/lost/"));
  await world.database.execute(sql`
    INSERT INTO vintage_archive (object_key, series_id, seq_min, seq_max, as_of_min, as_of_max,
      valid_min, valid_max, versions, bytes, sha256)
    SELECT ${first}::text, id, 1, 1, now(), now(), now(), now(), 1, 4, '' FROM series`);
  await world.database.execute(sql`
    UPDATE discarded_object SET discarded_at = discarded_at - interval '2 hours'`);
  expect(await collect(world.writer, early)).toMatchObject({ orphans: 19 });
  expect(await keys()).toEqual(expect.arrayContaining([...named, first]));
});

it("lists nothing where a catalog that was set back names too little, until an operator adopts", async () => {
  await commitHours(
    world,
    "pjm",
    FROM,
    Array.from({ length: 5_000 }, (_, hour) => hour),
  );
  const named = await keys();
  await putUnnamed(21, "forgotten");
  await expect(collect(world.writer, later())).rejects.toMatchObject({
    message: expect.stringMatching(
      /does not name 21 of the bucket's 2\d objects, where 20 at most/,
    ),
  });
  expect(await keys()).toHaveLength(named.length + 21);
  expect(await adopt(world.writer)).toBe(21);
  expect(await collect(world.writer, later())).toMatchObject({ orphans: 21 });
  expect(await keys()).toEqual(named);
});
