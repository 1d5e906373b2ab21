// Vintages that were archived: every answer about them is what it was, whatever the page, the
// knowledge time or the position that a follower of the feed holds.

import { readFileSync } from "node:fs";
import { sql } from "drizzle-orm";
import pg from "pg";
import { beforeAll, describe, expect, inject, it } from "vitest";
import { createLog } from "../../edge/http/log.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { archive } from "../../edge/markets/store/archive.ts";
import { collect, compact } from "../../edge/markets/store/compact.ts";
import type { FeedEntry, FeedPosition } from "../../edge/markets/store/entries.ts";
import type { ArchivePolicy } from "../../edge/markets/store/housekeeping.ts";
import { lastPublication } from "../../edge/markets/store/listings.ts";
import { systemClock } from "../../shared/time.ts";
import { dice } from "../support/dice.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const LIBRARIES = ["power.demand", "power.forecast"];
const SYMBOLS = ["one", "two"];
const ROUNDS = 12;
const HOURS = 6;
/** Archives all that compaction took, in objects of a few vintages. */
const POLICY: ArchivePolicy = {
  ageMs: -1_000,
  feedMin: 1,
  feedMax: 7,
  seriesMin: 2,
  seriesMax: 5,
};
const SERIES = LIBRARIES.flatMap((library) => SYMBOLS.map((symbol) => ({ library, symbol })));
const ALL = 1_000;

let world: World;
const archiveAll = (policy: ArchivePolicy, isOver?: () => boolean) =>
  archive({ ...world.writer, log: createLog("test") }, policy, isOver);

/** Commits a round: a value of each series, later than all before, and a revision. */
async function commitRound(round: number) {
  const random = dice(round);
  for (const { library, symbol } of SERIES) {
    const hours = Array.from({ length: HOURS }, () => Math.floor(random() * 4));
    await commitHours(world, symbol, FROM + ((round * 5) % 40) * HOUR, hours, {
      library,
      sourceUrl: `https://api.eia.gov/v2/${round}`,
      sourcePublishedAt: round % 3 === 0 ? FROM - round * HOUR : null,
      reconstructed: round % 4 === 0,
    });
  }
}

beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
  for (let round = 0; round < ROUNDS; round++) await commitRound(round);
  for (const series of SERIES) await compact(world.writer, series);
  // One series waits for compaction: nothing of it that waits is archived.
  await commitHours(world, "one", FROM, [-1, -2]);
});

const left = async () => {
  const { rows } = await world.database.execute<{ left: number }>(
    sql`SELECT count(*)::int AS left FROM vintage`,
  );
  return rows[0]?.left ?? 0;
};

/** Walks pages of the feed to their end. */
async function follow(since: number | FeedPosition, limit: number, library?: string) {
  const entries: FeedEntry[] = [];
  for (let from = since; ; ) {
    const page = await world.store.changes({ since: from, limit, library });
    expect(page.entries.length).toBeLessThanOrEqual(limit);
    entries.push(...page.entries);
    from = page.next;
    if (!page.more) return entries;
  }
}

/** Knowledge times around every third vintage of a series. */
async function instants(series: { library: string; symbol: string }) {
  const list = await world.store.vintages({ ...series, limit: ALL });
  return list.filter(({ seq }) => seq % 3 === 1).flatMap(({ asOf }) => [asOf - 1, asOf]);
}

/** Everything that the store answers of its vintages. */
async function answers() {
  const lists = await Promise.all(
    SERIES.map(async (series) => {
      const times = await instants(series);
      const at = async (asOf: number) => {
        const reading = await world.store.read({ ...series, asOf });
        const history = await world.store.read({ ...series, asOf, history: true });
        return {
          identity: reading.identity,
          rows: await reading.rows(),
          rowCount: reading.rowCount,
          versions: history.rowCount,
          provenance: [...(await reading.provenance())].sort(([one], [other]) => one - other),
          newest: await world.store.newestDatetime(series.library, series.symbol, asOf),
          since: await world.store.vintages({ ...series, since: asOf, limit: 3 }),
          until: await world.store.vintages({ ...series, asOf, limit: ALL }),
        };
      };
      const pages = [1, 4, ALL].map((limit) =>
        [0, 1, 6, ROUNDS - 1, ROUNDS + 5].map((afterSeq) =>
          world.store.vintages({ ...series, afterSeq, limit }),
        ),
      );
      return {
        states: await Promise.all(times.map(at)),
        pages: await Promise.all(pages.flat().map((page) => page)),
      };
    }),
  );
  const starts = await instants(SERIES[0] as (typeof SERIES)[number]);
  const feeds = [];
  for (const since of [0, ...starts.slice(1, 6), ...starts.slice(-1)]) {
    for (const library of [undefined, LIBRARIES[1]]) feeds.push(await follow(since, 5, library));
  }
  return {
    lists,
    feeds,
    everything: await follow(0, ALL),
    published: await lastPublication(world.database, LIBRARIES),
  };
}

describe("an archive of vintages", () => {
  it("takes nothing that is young or that the feed's objects lack", async () => {
    const before = await answers();
    expect(await archiveAll({ ...POLICY, ageMs: HOUR })).toBe(0);
    // Old vintages enough of a series, too few for an object of the feed; rows pending.
    expect(await archiveAll({ ...POLICY, feedMin: ALL })).toBe(0);
    // One object of the feed holds the first vintage of each series and little more.
    let step = 0;
    await archiveAll({ ...POLICY, feedMax: 2 }, () => step++ >= 1);
    expect(await archiveAll({ ...POLICY, feedMin: ALL })).toBe(0);
    expect(await left()).toBe(before.everything.length);
    expect(await answers()).toEqual(before);
  });

  it("changes no answer, at whichever step it stops", async () => {
    const before = await answers();
    expect(before.everything.length).toBe(await left());
    // A follower stands behind every fifth entry, each where the table put it.
    const positions = before.everything.filter((_, index) => index % 5 === 0);
    const followed = await Promise.all(positions.map((position) => follow(position, 3)));
    let archived = 0;
    for (const steps of [3, 9, 12]) {
      let step = 0;
      archived += await archiveAll(POLICY, () => step++ >= steps);
      expect(await answers()).toEqual(before);
    }
    archived += await archiveAll(POLICY);
    expect(archived).toBeGreaterThan(before.everything.length / 2);
    expect(await left()).toBe(before.everything.length - archived);
    expect(await answers()).toEqual(before);
    expect(await Promise.all(positions.map((position) => follow(position, 3)))).toEqual(followed);
    // What is stored is all named: collection takes none of it.
    const { orphans } = await collect(world.writer, { now: systemClock() + HOUR, graceMs: 0 });
    expect(orphans).toBe(0);
    expect(await answers()).toEqual(before);
  });

  it("leaves what waits for compaction and the newest vintage of a series", async () => {
    const before = await left();
    expect(await archiveAll(POLICY)).toBe(0);
    expect(await left()).toBe(before);
    const { rows } = await world.database.execute(sql`
      SELECT library || ' ' || symbol AS name FROM series
       WHERE head_seq NOT IN (SELECT seq FROM vintage WHERE series_id = series.id)`);
    expect(rows).toEqual([]);
  });

  it("goes on when the series do: a follower of pages is given each commit once", async () => {
    const before = await follow(0, ALL);
    let from: number | FeedPosition = 0;
    const names: string[] = [];
    const poll = async (pages: number) => {
      for (let page = 0; page < pages; page++) {
        const { entries, next } = await world.store.changes({ since: from, limit: 4 });
        names.push(...entries.map(({ library, symbol, seq }) => `${library} ${symbol} ${seq}`));
        from = next;
      }
    };
    for (let round = ROUNDS; round < ROUNDS + 4; round++) {
      await commitRound(round);
      for (const series of SERIES) await compact(world.writer, series);
      await archiveAll(POLICY);
      await poll(3);
    }
    await poll(60);
    const after = await follow(0, ALL);
    expect(after.length).toBeGreaterThan(before.length);
    expect(names).toEqual(after.map(({ library, symbol, seq }) => `${library} ${symbol} ${seq}`));
    expect(new Set(names).size).toBe(names.length);
  });

  it("by two processes at once is an archive by one", async () => {
    for (let round = ROUNDS + 4; round < ROUNDS + 8; round++) await commitRound(round);
    for (const series of SERIES) await compact(world.writer, series);
    const before = await answers();
    const follower = follow(0, 2);
    await Promise.all([archiveAll(POLICY), archiveAll(POLICY), archiveAll(POLICY)]);
    expect(await follower).toEqual(before.everything);
    expect(await answers()).toEqual(before);
  });

  it("goes on where a catalog was restored into another cluster", async () => {
    const names = (entries: readonly FeedEntry[]) =>
      entries.map(({ library, symbol, seq }) => `${library} ${symbol} ${seq}`);
    const before = await follow(0, ALL);
    const { port, credentials } = inject("postgres");
    const client = new pg.Client(superuser(port, credentials.superuser, world.databaseName));
    await client.connect();
    await client.query(readFileSync("db/markets/restored.sql", "utf8"));
    await client.end();
    const after = await follow(0, 3);
    expect(names(after).sort()).toEqual(names(before).sort());
    await commitRound(ROUNDS + 8);
    for (const series of SERIES) await compact(world.writer, series);
    await archiveAll(POLICY);
    const later = await follow(0, 3);
    expect(names(later).slice(0, after.length).sort()).toEqual(names(before).sort());
    expect(new Set(names(later)).size).toBe(later.length);
    expect(later.length).toBe(before.length + SERIES.length);
  });

  it("is what the service answers from, links, provenance and all", async () => {
    const get = async (path: string) => {
      const response = await fetch(new URL(path, world.urls.markets));
      expect(response.status).toBe(200);
      return response;
    };
    const list = await world.store.vintages({ library: "power.demand", symbol: "two", limit: ALL });
    const old = list[3];
    const asOf = new Date(old?.asOf ?? 0).toISOString();
    const page = await get("/vintages?library=power.demand&symbol=two&limit=2");
    expect(page.headers.get("link")).toContain("after=2");
    const query = `library=power.demand&symbol=two&as_of=${asOf}&provenance=full`;
    const rows = (await (await get(`/series?${query}`)).json()) as { source_url: string }[];
    expect(rows.length).toBeGreaterThan(0);
    const sources = new Set(list.slice(0, 4).map(({ sourceUrl }) => sourceUrl));
    for (const { source_url } of rows) expect(sources).toContain(source_url);
    const walked: unknown[] = [];
    for (let since = "1970-01-01"; ; ) {
      const { changes, next, more } = (await (
        await get(`/changes?limit=7&since=${since}`)
      ).json()) as {
        changes: unknown[];
        next: string;
        more: boolean;
      };
      walked.push(...changes);
      since = next;
      if (!more) break;
    }
    expect(walked).toHaveLength((await follow(0, ALL)).length);
  });

  it("is all that the database lets go", async () => {
    const gone = world.database.execute(sql`DELETE FROM vintage WHERE seq > 1`);
    await expect(gone).rejects.toMatchObject({
      cause: expect.objectContaining({ message: expect.stringContaining("is not archived") }),
    });
  });
});
