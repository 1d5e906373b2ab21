// What collection deletes of a bucket. Goal: a database that is not the bucket's, because its
// address is wrong or it was set back, costs no object.

import { beforeAll, beforeEach, expect, it } from "vitest";
import { collect } from "../../edge/markets/store/compact.ts";
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
async function putUnnamed(count: number) {
  for (let index = 0; index < count; index++)
    await world.bucket.put(`v1/power.demand/lost/l0/${index}.parquet`, "rows");
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
  const early = { ...later(), graceMs: DAY, unnamedMs: 0 };
  expect(await collect(world.writer, early)).toMatchObject({ orphans: 0 });
  expect(await keys()).toHaveLength(21);
  // Many that are young are as many: they do not go one by one as they age.
  await putUnnamed(21);
  for (const bounds of [early, later()])
    await expect(collect(world.writer, bounds)).rejects.toMatchObject({
      message: expect.stringMatching(
        /does not name 21 of the bucket's 22 objects, where 20 at most/,
      ),
    });
  expect(await keys()).toHaveLength(22);
  await world.bucket.delete("v1/power.demand/lost/l0/20.parquet");
  expect(await collect(world.writer, later())).toMatchObject({ orphans: 20 });
  expect(await keys()).toEqual(named);
});
