// Knowledge times at which nothing can become known any more. Goal: a read as of one is the same
// for ever, and is cached as such; commits that are stamped first and seen last change no answer.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { openDatabase } from "../../edge/http/database.ts";
import { settledTime } from "../../edge/markets/store/settled-time.ts";
import { openStore } from "../../edge/markets/store/store.ts";
import { Secret } from "../../shared/secret.ts";
import { HOUR, iso, MINUTE, systemClock } from "../../shared/time.ts";
import { beginTransaction, type Transaction } from "../support/transactions.ts";
import { commitHours, createWorld, type World } from "../support/world.ts";

const FROM = Date.UTC(2000, 0, 1);
const BOUND_MS = 2 * MINUTE;

let world: World;
let others: Transaction | null = null;
beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
  await commitHours(world, "erco", FROM, [1, 2, 3]);
  await commitHours(world, "pjm", FROM, [4, 5, 6]);
});
beforeEach(() => {
  others = null;
});
afterEach(() => others?.commit());

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${world.urls.markets}${path}`, { headers });
const series = (query: string) => get(`/series?library=power.demand&symbol=erco${query}`);
const panel = (query: string, headers: Record<string, string> = {}) =>
  get(`/panel?library=power.demand&symbols=erco,pjm${query}`, headers);

/**
 * A commit that is under way: stamped, and not to be seen before it ends. It waits for the row that
 * remembers its payload, which it writes after the head of its series.
 */
async function underWay(symbol: string, value: number) {
  others = await beginTransaction(world.database);
  await others.query(`SELECT FROM ingest_memo JOIN series s ON s.id = series_id
    WHERE s.symbol = '${symbol}' FOR UPDATE OF ingest_memo`);
  const committed = commitHours(world, symbol, FROM, [value, value, value]);
  await others.awaited();
  return async () => {
    await others?.commit();
    others = null;
    return committed;
  };
}

/** The rows of a panel, and the knowledge time that it tells. */
const told = async (response: Response) => ({
  asOf: response.headers.get("X-As-Of"),
  rows: await response.json(),
});

describe("an as_of that lies behind", () => {
  it("is settled though the series has not changed since: cached, with a length and ranges", async () => {
    const store = openStore(world, { settledAfterMs: 1_000 });
    const head = (await store.read({ library: "power.demand", symbol: "erco" })).asOf ?? 0;
    const at = (asOf: number) =>
      store.read({ library: "power.demand", symbol: "erco", asOf }).then((one) => one.immutable);
    await expect.poll(() => at(head + 1)).toBe(true);
    expect(await at(systemClock() + HOUR)).toBe(false);
    expect(await at(head)).toBe(true);
    // With the bound as it is by default, only what lies further behind.
    const byDefault = await series(`&as_of=${iso(systemClock())}`);
    expect(byDefault.headers.get("Cache-Control")).not.toContain("immutable");
  });

  it("is not settled at the bound while a commit may be under way, and is beyond it", async () => {
    const end = await underWay("erco", 7);
    const stamped = systemClock();
    const store = openStore(world, { settledAfterMs: BOUND_MS });
    const read = { library: "power.demand", symbol: "erco" } as const;
    // The commit was stamped before now, and joins what is read as of now.
    const now = await store.read({ ...read, asOf: stamped });
    expect(now.immutable).toBe(false);
    const before = await store.read({ ...read, asOf: stamped - BOUND_MS - MINUTE });
    expect(before.immutable).toBe(true);
    const vintage = await end();
    expect(vintage?.asOf).toBeLessThanOrEqual(stamped);
    const after = await store.read({ ...read, asOf: stamped });
    expect(after.identity).not.toBe(now.identity);
    const again = await store.read({ ...read, asOf: stamped - BOUND_MS - MINUTE });
    expect(again.identity).toBe(before.identity);
  });

  it("cannot be overtaken: the database ends a commit's statement long before the bound", async () => {
    const { rows } = await world.database.execute<{ limit: string }>(
      sql`SELECT current_setting('statement_timeout') AS limit`,
    );
    expect(rows[0]?.limit).toBe("10s");
    expect(10_000 * 3).toBeLessThanOrEqual(BOUND_MS);
  });
});

describe("a panel", () => {
  it("tells a time that gives the same rows again, whatever commits were under way", async () => {
    const end = await underWay("pjm", 8);
    const asked = panel("");
    // The read waits for the commit that was stamped before it.
    await new Promise((resume) => setTimeout(resume, 200));
    await commitTo("erco", 9);
    await end();
    const first = await told(await asked);
    await commitTo("erco", 10);
    await commitTo("pjm", 11);
    expect(await told(await panel(`&as_of=${first.asOf}`))).toEqual(first);
  });

  it("asked as of the future tells when it was read, and is not held for ever", async () => {
    const future = await panel(`&as_of=${iso(systemClock() + HOUR)}`);
    expect(future.headers.get("Cache-Control")).not.toContain("immutable");
    const first = await told(future);
    expect(Date.parse(first.asOf ?? "")).toBeLessThanOrEqual(systemClock());
    await commitTo("erco", 12);
    expect(await told(await panel(`&as_of=${first.asOf}`))).toEqual(first);
  });

  it("tells no time where nothing was known yet", async () => {
    const early = await told(await panel("&as_of=2001-01-01"));
    expect(early).toEqual({ asOf: null, rows: [] });
  });

  it("gives ranges and its length where as_of fixes it", async () => {
    // Of one series the time of its newest vintage is settled at once.
    const asOf = (await series("")).headers.get("X-As-Of");
    const path = `&as_of=${asOf}&format=parquet`;
    const url = `${world.urls.markets}/panel?library=power.demand&symbols=erco${path}`;
    const part = (range: string) => fetch(url, { headers: { Range: range } });
    const whole = Buffer.from(await (await fetch(url)).arrayBuffer());
    const head = await fetch(url, { method: "HEAD" });
    expect(head.headers.get("Accept-Ranges")).toBe("bytes");
    expect(Number(head.headers.get("Content-Length"))).toBe(whole.length);
    for (let time = 0; time < 3; time++) {
      const given = await part("bytes=-262144");
      expect([given.status, given.headers.get("Content-Range")]).toEqual([
        206,
        `bytes 0-${whole.length - 1}/${whole.length}`,
      ]);
      expect(Buffer.from(await given.arrayBuffer()).equals(whole)).toBe(true);
    }
    expect((await part(`bytes=${whole.length}-`)).status).toBe(416);
    const latest = await panel("&format=parquet", { Range: "bytes=0-3" });
    expect([latest.status, latest.headers.get("Accept-Ranges")]).toEqual([200, null]);
  });
});

it("asks the database for nothing where the time lies far behind, and falls back where a commit hangs", async () => {
  const nowhere = openDatabase(new Secret("postgresql://a:b@127.0.0.1:1/x"));
  const long = systemClock() - 24 * HOUR;
  expect(await settledTime(nowhere, { asOf: long })).toBe(long);
  const end = await underWay("erco", 13);
  const before = systemClock();
  const settled = (await settledTime(world.database, { asOf: before })) ?? 0;
  expect(settled).toBeLessThanOrEqual(before - BOUND_MS + 5_000);
  await end();
});

const commitTo = (symbol: string, value: number) =>
  commitHours(world, symbol, FROM, [value, value, value]);
