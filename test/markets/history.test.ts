// What lies beyond the contract: histories, differences, revisions, snapshots and the feed, in
// workerd.

import { sql } from "drizzle-orm";
import pg from "pg";
import { beforeAll, describe, expect, inject, it } from "vitest";
import { superuser } from "../../edge/local/postgres.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import {
  Change,
  DiffRecord,
  Revisions,
  SeriesRecord,
  Snapshot,
  Vintage,
} from "../../shared/wire/markets.ts";
import { marketsReader } from "../support/markets-reader.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 10);
const at = (hour: number) => new Date(FROM + hour * HOUR).toISOString();
const ERCO = "library=power.demand&symbol=erco";

let world: World;
/** Knowledge times of erco's vintages. */
let known: string[];
beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
  const commits: [(number | null)[], boolean, number?][] = [
    [[10, 11, 12], true],
    [[10, 21, 12, 13], false],
    // The third hour is withdrawn, the second comes back to what it was.
    [[10, 11], false, 4],
  ];
  known = [];
  for (const [values, reconstructed, length] of commits) {
    const covered = { from: FROM, to: FROM + (length ?? values.length) * HOUR };
    const rows = values.map((value, index) => ({
      datetime: FROM + index * HOUR,
      instrumentId: "power.demand.erco",
      values: [value ?? NaN],
    }));
    const vintage = await commitHours(world, "erco", FROM, [], {
      rows,
      covered,
      reconstructed,
      sourceUrl: "https://example.com/?a=1,2",
      runId: "run-1",
      sourcePublishedAt: FROM,
    });
    known.push(new Date(vintage?.asOf ?? 0).toISOString());
  }
  await commitHours(world, "pjm", FROM + HOUR, [100, null]);
});

const { get, read, refusal } = marketsReader(() => world);

/** Begins a transaction with a statement; returns the way to end it. */
async function transaction(statement: string): Promise<() => Promise<void>> {
  const { port, credentials } = inject("postgres");
  const client = new pg.Client(superuser(port, credentials.superuser, world.databaseName));
  await client.connect();
  await client.query("BEGIN");
  await client.query(statement);
  return async () => {
    await client.query("COMMIT");
    await client.end();
  };
}

/** Every test runs on what was just committed, and again on what compaction made of it. */
describe.each(["as committed", "compacted"])("a series' past, %s", (how) => {
  beforeAll(async () => {
    if (how === "as committed") return;
    for (const symbol of ["erco", "pjm"]) {
      expect(await compact(world.writer, { library: "power.demand", symbol })).toBe(1);
    }
  });

  it("shows every version of every row, and when each was known", async () => {
    const rows = await read(SeriesRecord.array(), `/series?${ERCO}&includeHistory=true`);
    expect(rows.map((row) => [row.Datetime, row.value, row.known_from, row.known_to])).toEqual([
      [at(0), 10, known[0], null],
      [at(1), 11, known[0], known[1]],
      [at(1), 21, known[1], known[2]],
      [at(1), 11, known[2], null],
      [at(2), 12, known[0], known[2]],
      [at(3), 13, known[1], known[2]],
    ]);
    expect(rows.every((row) => row.as_of === row.known_from)).toBe(true);
    const early = await read(
      SeriesRecord.array(),
      `/series?${ERCO}&includeHistory=true&as_of=${known[1]}&start=${at(1)}&end=${at(1)}`,
    );
    expect(early.map((row) => [row.value, row.known_to])).toEqual([
      [11, known[1]],
      [21, null],
    ]);
  });

  it("answers as if no backfill had ever run", async () => {
    const values = async (query: string) =>
      (await read(SeriesRecord.array(), `/series?${ERCO}&vintage=true_only${query}`)).map((row) => [
        row.Datetime,
        row.value,
        row.vintage_reconstructed,
      ]);
    expect(await values("")).toEqual([[at(1), 11, false]]);
    expect(await values(`&as_of=${known[1]}`)).toEqual([
      [at(1), 21, false],
      [at(3), 13, false],
    ]);
    expect(await values(`&as_of=${known[0]}`)).toEqual([]);
  });

  it("answers each row by what was known some time before or after its Datetime", async () => {
    // The commits came this many seconds after the first hour.
    const late = Math.ceil((Date.parse(known[0] ?? "") - FROM) / 1_000);
    const rows = async (offset: string) =>
      (await read(SeriesRecord.array(), `/series?${ERCO}&as_of_offset=${offset}`)).map((row) => [
        row.Datetime,
        row.value,
      ]);
    expect(await rows("-PT10H")).toEqual([]);
    // Late enough for the second and third hour, an hour short for the first.
    const first = await rows(`PT${late - 3_600}S`);
    expect(first.map(([datetime]) => datetime)).not.toContain(at(0));
    expect(first.map(([datetime]) => datetime)).toContain(at(1));
    const always = await rows("P3650D");
    const latest = await read(SeriesRecord.array(), `/series?${ERCO}`);
    expect(always).toEqual(latest.map((row) => [row.Datetime, row.value]));
  });

  it("says where each row came from when asked", async () => {
    const [row] = await read(SeriesRecord.array(), `/series?${ERCO}&provenance=full`);
    expect(row).toMatchObject({
      store_version: 1,
      source_url: "https://example.com/?a=1,2",
      source_published_at: at(0),
      run_id: "run-1",
      vintage_reconstructed: true,
    });
    const csv = await (await get(`/series?${ERCO}&provenance=full&format=csv`)).text();
    const [header, first] = csv.split("\n");
    expect(header).toBe(
      "Datetime,instrument_id,value,as_of,vintage_reconstructed,store_version,source_url," +
        "source_published_at,run_id",
    );
    expect(first).toContain(',1,"https://example.com/?a=1,2",');
  });

  it("lists vintages with their counts, by page", async () => {
    const vintages = await read(Vintage.array(), `/vintages?${ERCO}`);
    expect(
      vintages.map((one) => [one.store_version, one.as_of, one.inserted, one.revised]),
    ).toEqual([
      [1, known[0], 3, 0],
      [2, known[1], 1, 1],
      [3, known[2], 0, 1],
    ]);
    expect(vintages.map((one) => [one.retracted, one.rows])).toEqual([
      [0, 3],
      [0, 4],
      [2, 2],
    ]);
    const page = await get(`/vintages?${ERCO}&limit=2`);
    const next = /<(.+)>; rel="next"/.exec(page.headers.get("Link") ?? "")?.[1] ?? "";
    expect(await read(Vintage.array(), next)).toEqual(vintages.slice(2));
    const between = await read(
      Vintage.array(),
      `/vintages?${ERCO}&since=${known[0]}&as_of=${known[1]}`,
    );
    expect(between).toEqual(vintages.slice(1, 2));
    expect(await read(Vintage.array(), `/vintages?${ERCO}&as_of=2020-01-01`)).toEqual([]);
  });

  it("tells two states apart: inserted, revised, retracted, and nothing for a round trip", async () => {
    const diff = (from?: string, to?: string) =>
      read(DiffRecord.array(), `/diff?${ERCO}&from=${from}${to ? `&to=${to}` : ""}`);
    const moved = (records: DiffRecord[]) =>
      records.map((one) => [one.Datetime, one.change, one.before?.value, one.after?.value]);
    expect(moved(await diff(known[0], known[1]))).toEqual([
      [at(1), "revised", 11, 21],
      [at(3), "inserted", undefined, 13],
    ]);
    expect(moved(await diff(known[0]))).toEqual([[at(2), "retracted", 12, undefined]]);
    expect(moved(await diff("2020-01-01", known[0]))).toHaveLength(3);
    expect(await diff(known[2])).toEqual([]);
  });

  it("shows prints by lag, and how far they moved", async () => {
    const lag = Math.ceil((Date.parse(known[2] ?? "") - FROM) / 1_000) + 60;
    const path = `/revisions?${ERCO}&lags=PT1H,PT${lag}S`;
    const { rows, statistics, column, as_of } = await read(Revisions, path);
    expect([column, as_of]).toEqual(["value", known[2]]);
    expect(rows.map((row) => row.prints.map((print) => print.value))).toEqual([
      [10],
      [11, 21, 11],
      [12, null],
      [13, null],
    ]);
    expect(rows[2]?.latest).toBeNull();
    expect(rows[1]?.first).toMatchObject({ value: 11, vintage_reconstructed: true });
    expect(rows[1]?.by_lag).toEqual({ PT1H: null, [`PT${lag}S`]: 11 });
    // Only the fourth hour was first printed by a true vintage, and it was withdrawn.
    expect(statistics).toMatchObject({ rows: 4, true_rows: 1, revised: 3, retracted: 2 });
    expect(statistics.first_to_latest.rows).toBe(0);
  });
});

describe("revision statistics", () => {
  it("are the moments of latest less earlier prints", async () => {
    await commitHours(world, "moments", FROM, [10, 20, 30]);
    await commitHours(world, "moments", FROM, [11, 20, 33]);
    const { statistics } = await read(
      Revisions,
      "/revisions?library=power.demand&symbol=moments&lags=P3650D",
    );
    const sd = Math.sqrt(((1 - 4 / 3) ** 2 + (4 / 3) ** 2 + (3 - 4 / 3) ** 2) / 2);
    expect(statistics.first_to_latest.sd).toBeCloseTo(sd, 12);
    expect(statistics.first_to_latest).toMatchObject({ rows: 3, mean: 4 / 3, max_abs: 3 });
    expect(statistics.by_lag.P3650D).toMatchObject({ rows: 3, mean: 0, sd: 0 });
  });
});

describe("snapshots", () => {
  const create = (body: object) =>
    fetch(`${world.urls.console}/api/snapshots`, {
      method: "POST",
      headers: {
        Authorization: `Bearer ${world.operatorToken}`,
        "Content-Type": "application/json",
      },
      body: JSON.stringify(body),
    });

  it("name a knowledge time whose answers never change, and are cached as such", async () => {
    await commitHours(world, "named", FROM, [1]);
    const created = await create({ name: "backtest", note: "before the revision" });
    expect(created.status).toBe(201);
    const snapshot = Snapshot.parse(await created.json());
    const path = "/series?library=power.demand&symbol=named&snapshot=backtest";
    const before = await get(path);
    expect(before.headers.get("Cache-Control")).toContain("immutable");
    const rows = await before.json();
    await commitHours(world, "named", FROM, [2]);
    expect(await (await get(path)).json()).toEqual(rows);
    expect(await read(Snapshot.array(), "/snapshots")).toContainEqual(snapshot);
    expect((await create({ name: "backtest" })).status).toBe(409);
    expect((await create({ name: "to come", as_of: "2999-01-01" })).status).toBe(422);
    expect((await create({ name: "to-come", as_of: "2999-01-01" })).status).toBe(422);
    expect((await create({ name: "bad", as_of: "soon" })).status).toBe(400);
    expect(await refusal("/series?library=power.demand&symbol=named&snapshot=no")).toEqual([
      404,
      "unknown_snapshot",
      'unknown snapshot "no"; GET /snapshots lists them',
    ]);
  });

  it("wait for commits that are under way", async () => {
    const commit = await transaction("LOCK TABLE snapshot IN ROW SHARE MODE");
    let done = false;
    const creating = create({ name: "waited" }).finally(() => {
      done = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(done).toBe(false);
    await commit();
    expect((await creating).status).toBe(201);
  });

  it("do not wait for a VACUUM of the vintages", async () => {
    const end = await transaction("LOCK TABLE vintage IN SHARE UPDATE EXCLUSIVE MODE");
    expect((await create({ name: "vacuumed" })).status).toBe(201);
    await end();
  });

  it("lie before every later commit, also when the clock was set back", async () => {
    // As if the snapshot had been taken before the clock went back by a minute.
    await world.database.execute(sql`
      INSERT INTO snapshot (name, as_of, note, created_at)
      VALUES ('ahead', now() + interval '1 minute', '', now())`);
    const snapshots = await read(Snapshot.array(), "/snapshots");
    const ahead = snapshots.find(({ name }) => name === "ahead")?.as_of ?? "";
    for (const symbol of ["new", "new"]) {
      const vintage = await commitHours(world, symbol, FROM, [Math.random()]);
      expect(vintage?.asOf).toBeGreaterThan(Date.parse(ahead));
    }
    await world.database.execute(
      sql`UPDATE snapshot SET as_of = now() - interval '1 second' WHERE name = 'ahead'`,
    );
  });
});

describe("the change feed", () => {
  const Page = (body: unknown) => {
    const { changes, next, more } = body as { changes: unknown[]; next: string; more: boolean };
    return { changes: Change.array().parse(changes), next, more };
  };
  const page = async (since: string, more = "") =>
    Page(await (await get(`/changes?since=${encodeURIComponent(since)}${more}`)).json());

  /** Symbols after a position, once no transaction of another test's holds the feed back. */
  const symbols = (since: string) => async () =>
    (await page(since)).changes.map((one) => one.symbol);
  const everything = async () => {
    const { rows } = await world.database.execute<{ count: number }>(
      sql`SELECT count(*)::int AS count FROM vintage`,
    );
    const listed = () => page("2020-01-01", "&limit=10000");
    const count = async () => (await listed()).changes.length;
    await expect.poll(count).toBe(rows[0]?.count);
    return listed();
  };

  it("gives every commit once, page by page", async () => {
    const all = await everything();
    let since = "2020-01-01";
    const seen: string[] = [];
    for (let pages = 0; pages < 100; pages++) {
      const one = await page(since, "&limit=2");
      seen.push(...one.changes.map((change) => `${change.symbol} ${change.store_version}`));
      since = one.next;
      if (!one.more) break;
    }
    expect(seen).toEqual(all.changes.map((one) => `${one.symbol} ${one.store_version}`));
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toContain("erco 3");
    expect((await page(since)).changes).toEqual([]);
    await commitHours(world, "fed", FROM, [1]);
    await expect.poll(symbols(since)).toEqual(["fed"]);
  });

  it("holds back what began before a transaction that has not ended", async () => {
    const { next } = await everything();
    const commit = await transaction(
      "LOCK TABLE vintage IN ROW EXCLUSIVE MODE; SELECT pg_current_xact_id()",
    );
    await commitHours(world, "later", FROM, [1]);
    expect((await page(next)).changes).toEqual([]);
    await commit();
    await expect.poll(symbols(next)).toEqual(["later"]);
  });
});

describe("refusals beyond the contract", () => {
  it.each([
    [`/series?${ERCO}&as_of_offset=10h`, 422, "invalid_request"],
    [`/series?${ERCO}&as_of_offset=-PT1H&includeHistory=true`, 422, "invalid_request"],
    [`/series?${ERCO}&as_of=2026-01-01&snapshot=x`, 422, "invalid_request"],
    [`/series?${ERCO}&vintage=maybe`, 422, "invalid_request"],
    [`/series?${ERCO}&format=xml`, 422, "invalid_request"],
    [`/diff?${ERCO}`, 422, "invalid_request"],
    [`/diff?${ERCO}&from=soon`, 400, "bad_datetime"],
    [`/diff?${ERCO}&from=2026-01-02&to=2026-01-01`, 422, "invalid_request"],
    ["/diff?library=power.demand&symbol=no&from=2026-01-01", 404, "unknown_symbol"],
    ["/vintages?library=no&symbol=no", 404, "unknown_library"],
    [`/revisions?${ERCO}&lags=1h`, 422, "invalid_request"],
    [`/revisions?${ERCO}&column=close`, 422, "invalid_request"],
    ["/panel?symbols=erco", 422, "invalid_request"],
    ["/panel?library=power.demand&symbols=erco&time_zone=Mars/Base", 422, "invalid_request"],
    ["/panel?library=power.demand&symbols=erco,no", 404, "unknown_symbol"],
    ["/changes?since=1~2", 400, "bad_datetime"],
    ["/changes?limit=0", 422, "invalid_request"],
    ["/libraries?x=1", 422, "invalid_request"],
  ])("%s is %i %s", async (path, status, code) => {
    expect((await refusal(path)).slice(0, 2)).toEqual([status, code]);
  });

  it("answer no route with the latest where as_of is mistyped", async () => {
    for (const query of [`series?${ERCO}`, `revisions?${ERCO}`, `vintages?${ERCO}`]) {
      expect(await refusal(`/${query}&asof=2026-01-31`)).toEqual([
        422,
        "invalid_request",
        "asof: unknown parameter; did you mean as_of?",
      ]);
    }
  });

  it("take nothing in that lies before a start between two milliseconds", async () => {
    const count = async (start: string) =>
      (await read(SeriesRecord.array(), `/series?${ERCO}&start=${start}&end=${at(0)}`)).length;
    expect(await count(at(0))).toBe(1);
    expect(await count(at(0).replace("Z", "001Z"))).toBe(0);
  });
});
