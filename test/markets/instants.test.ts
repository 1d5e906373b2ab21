// Instants in binary answers are of UTC to readers that are not ours: the session's zone of DuckDB
// moves what they look like, never which instant they are.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";
import { afterAll, beforeAll, expect, it } from "vitest";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 10, 6);
const folder = mkdtempSync(join(tmpdir(), "vantage-instants-"));
afterAll(() => rmSync(folder, { recursive: true }));

let world: World;
let known: number | undefined;
beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
  known = (await commitHours(world, "erco", FROM, [10, 20]))?.asOf;
});

it("writes Parquet whose instants DuckDB reads as instants, in whatever zone it works", async () => {
  const path = "/series?library=power.demand&symbol=erco&format=parquet&provenance=full";
  const answer = await fetch(world.urls.markets + path);
  const file = join(folder, "erco.parquet");
  writeFileSync(file, new Uint8Array(await answer.arrayBuffer()));
  const instance = await DuckDBInstance.create(":memory:");
  const connection = await instance.connect();
  await connection.run("SET TimeZone = 'America/Chicago'");
  const reader = await connection.runAndReadAll(
    `SELECT epoch_ms("Datetime") AS datetime, epoch_ms(as_of) AS as_of, typeof("Datetime") AS type,
       typeof(as_of) AS known_type, typeof(source_published_at) AS published_type FROM '${file}'`,
  );
  connection.closeSync();
  instance.closeSync();
  const instant = "TIMESTAMP WITH TIME ZONE";
  expect(reader.getRowObjects()).toEqual(
    [FROM, FROM + HOUR].map((datetime) => ({
      datetime: BigInt(datetime),
      as_of: BigInt(known ?? 0),
      type: instant,
      known_type: instant,
      published_type: instant,
    })),
  );
});
