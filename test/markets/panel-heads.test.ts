// HEAD on a panel reads where only reading tells its status. It waits for a slot like any other
// large read, or a few of them would fill the isolate's memory.

import http from "node:http";
import { expect, it } from "vitest";
import { commitHours, createWorld, HOUR } from "../support/world.ts";

const FROM = Date.UTC(2000, 0, 1);
const COMMIT_ROWS = 65_000;
/** What an isolate lets work at once. */
const SLOTS = 2;

/** An answer that has begun and of which nothing is read. */
const leftUnread = (url: string) =>
  new Promise<http.IncomingMessage>((resolve, reject) => {
    http.get(url, resolve).on("error", reject);
  });

it("waits for its turn where it has to read, and tells what GET would", async () => {
  const world = await createWorld({
    services: ["markets", "console"],
    environment: { markets: { SERVICE_SERIES_MAX_ROWS: "120000" } },
  });
  for (const first of [0, COMMIT_ROWS]) {
    const values = Array.from({ length: COMMIT_ROWS }, (_, hour) => first + hour);
    await commitHours(world, "large", FROM + first * HOUR, values);
  }
  const of = (path: string, names: string) =>
    `${world.urls.markets}/${path}?library=power.demand&${names}=large&start=2000-01-01`;
  const head = async () => (await fetch(of("panel", "symbols"), { method: "HEAD" })).status;
  expect((await fetch(of("panel", "symbols"))).status).toBe(413);
  expect(await head()).toBe(413);

  const readers = await Promise.all(
    Array.from({ length: SLOTS }, () => leftUnread(`${of("series", "symbol")}&provenance=full`)),
  );
  expect(await head()).toBe(503);
  for (const reader of readers) reader.destroy();
  expect(await head()).toBe(413);
});
