// Edits of a whole job take longer than the database and its callers give other statements. Goal:
// they are waited for, and nothing else is.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { inJob } from "../../../../edge/vision/labeling/jobs/jobs.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

const LIMIT = sql`SELECT current_setting('statement_timeout') AS "limit"`;

it("gives an edit of a job more time than any other statement", async () => {
  const database = world.visionDatabase;
  const { rows } = await database.execute(LIMIT);
  expect(rows).toEqual([{ limit: "10s" }]);
  expect(await inJob(database, randomUUID(), LIMIT)).toEqual([{ limit: "80s" }]);
  // Of a batch alone: the next statement on the same connection has its own.
  expect((await database.execute(LIMIT)).rows).toEqual(rows);
});

it("waits for one that takes longer than a caller waits elsewhere", async () => {
  const slow = sql`SELECT 1 AS one FROM pg_sleep(13)`;
  expect(await inJob(world.visionDatabase, randomUUID(), slow)).toEqual([{ one: 1 }]);
  await expect(world.visionDatabase.execute(slow)).rejects.toThrow();
});
