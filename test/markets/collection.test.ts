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

it("deletes nothing where the catalog does not name the bucket's objects", async () => {
  await putUnnamed(21);
  await expect(collect(world.writer, later())).rejects.toMatchObject({
    code: "bad_configuration",
    message: expect.stringMatching(/does not name 21 of the bucket's 21 objects, where 20 at most/),
  });
  expect(await keys()).toHaveLength(21);
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
  const early = { ...later(), orphanGraceMs: DAY };
  expect(await collect(world.writer, early)).toMatchObject({ orphans: 0 });
  expect(await keys()).toHaveLength(21);
  expect(await collect(world.writer, later())).toMatchObject({ orphans: 20 });
  expect(await keys()).toEqual(named);
});
