// The feed of all commits while many overlap: whoever begins to follow it at any time is given
// every commit that ends from then on, once, also those stamped first and finished last.

import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import type { Database } from "../../edge/http/database.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { createSnapshot } from "../../edge/markets/store/listings.ts";
import { ChangePage } from "../../shared/wire/markets.ts";
import { dice } from "../support/dice.ts";
import { commitHours, createWorld, HOUR, type World } from "../support/world.ts";

const WRITERS = 10;
/** Commits begun or ended, and polls. */
const STEPS = process.env.LARGE === "1" ? 20_000 : 1_500;
const FROM = Date.UTC(2026, 0, 1);

let world: World;
const clients: pg.Client[] = [];
async function connect(database: string): Promise<pg.Client> {
  const { port, credentials } = inject("postgres");
  const client = new pg.Client(superuser(port, credentials.superuser, database));
  await client.connect();
  clients.push(client);
  return client;
}
beforeAll(async () => {
  world = await createWorld({ services: ["markets", "console"] });
});
afterAll(() => Promise.all(clients.map((client) => client.end())));

/** Of every commit, by its name in the feed, how many began before it. */
const ranks = new Map<string, number>();

/** A committer that stops between its statement and its COMMIT. */
class Writer {
  readonly symbol: string;
  readonly #client: pg.Client;
  /** The commit under way, as the feed will name it, and how many began before it. */
  pending: string | null = null;
  rank = 0;
  #hours = 0;
  constructor(symbol: string, client: pg.Client) {
    this.symbol = symbol;
    this.#client = client;
  }
  async begin() {
    await this.#client.query("BEGIN");
    // Drizzle's driver for pg answers as Neon's does, but for batches, which a commit does not use.
    const database = drizzle({ client: this.#client }) as unknown as Database;
    const writer = { ...world.writer, database };
    const at = FROM + this.#hours++ * HOUR;
    const vintage = await commitHours({ writer }, this.symbol, at, [Math.random()]);
    this.pending = `${this.symbol} ${vintage?.seq}`;
    this.rank = ranks.size;
    ranks.set(this.pending, this.rank);
  }
  async finish() {
    const name = this.pending ?? "";
    await this.#client.query("COMMIT");
    this.pending = null;
    return name;
  }
}

/** Follows the feed from the present on. */
class Follower {
  /** Ahead of the stamps of commits in a row, which may run before the clock by a millisecond. */
  since = new Date(Date.now() + 5).toISOString();
  readonly seen: string[] = [];
  async poll() {
    const query = new URLSearchParams({ since: this.since, limit: "7" });
    const response = await fetch(`${world.urls.markets}/changes?${query}`);
    const { changes, next, more } = ChangePage.parse(await response.json());
    this.seen.push(...changes.map((one) => `${one.symbol} ${one.store_version}`));
    this.since = next;
    return more;
  }
}

describe("following the feed while commits overlap", () => {
  it("delivers each commit that ends from then on exactly once, whoever else writes", async () => {
    const neighbour = await connect("postgres");
    await neighbour.query("BEGIN; SELECT pg_current_xact_id()");
    const writers: Writer[] = [];
    for (let index = 0; index < WRITERS; index++) {
      writers.push(new Writer(`writer${index}`, await connect(world.databaseName)));
    }
    const roll = dice(20_261_122);
    const pick = <Each>(all: readonly Each[]) => all[Math.floor(roll() * all.length)] as Each;
    const followers: { follower: Follower; due: string[]; oldestPending: number }[] = [];
    for (let step = 0; step < STEPS; step++) {
      const action = roll();
      if (action < 0.02 && followers.length < 40) {
        const follower = new Follower();
        // What is stamped but not finished now must still come.
        expect(await follower.poll()).toBe(false);
        expect(follower.seen).toEqual([]);
        const pending = writers.filter((one) => one.pending !== null).map(({ rank }) => rank);
        followers.push({ follower, due: [], oldestPending: Math.min(...pending) });
      } else if (action < 0.15 && followers.length > 0) await pick(followers).follower.poll();
      else {
        const writer = pick(writers);
        if (writer.pending === null) await writer.begin();
        else {
          const finished = await writer.finish();
          for (const { due } of followers) due.push(finished);
        }
      }
    }
    for (const writer of writers.filter(({ pending }) => pending !== null)) {
      const finished = await writer.finish();
      for (const { due } of followers) due.push(finished);
    }
    expect(followers.length).toBeGreaterThan(20);
    for (const { follower, due, oldestPending } of followers) {
      while (await follower.poll());
      const seen = new Set(follower.seen);
      expect(follower.seen).toHaveLength(seen.size);
      expect(due.filter((commit) => !seen.has(commit))).toEqual([]);
      // Finished before, but held back then by one that began earlier and was under way.
      const further = [...seen.difference(new Set(due))];
      expect(further.filter((commit) => (ranks.get(commit) ?? 0) < oldestPending)).toEqual([]);
    }
    await neighbour.query("COMMIT");
  });

  it("waits, naming a knowledge time, for a commit whose statement was carried out", async () => {
    const writer = new Writer("under_way", await connect(world.databaseName));
    await writer.begin();
    let made = false;
    const creating = createSnapshot(world.database, { name: "waits", note: "" }).then((one) => {
      made = true;
      return one;
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(made).toBe(false);
    await writer.finish();
    expect(await creating).toMatchObject({ name: "waits" });
  });
});
