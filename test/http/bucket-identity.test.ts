// A database and a bucket that do not belong together. Goal: nothing of a bucket is deleted, and
// nothing is written to it, for a database that is not its own, until an operator adopts it.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, inject, it } from "vitest";
import { IDENTITY_KEY, requireOwnBucket } from "../../edge/http/bucket-identity.ts";
import { type Database, openDatabase } from "../../edge/http/database.ts";
import { createLog } from "../../edge/http/log.ts";
import { databaseUrls } from "../../edge/local/databases.ts";
import { materialize } from "../../edge/markets/ingest/materialization.ts";
import type { IngestParts } from "../../edge/markets/ingest/parts.ts";
import { PIPELINES } from "../../edge/markets/ingest/pipelines.ts";
import { adopt, collect, keepHouse } from "../../edge/markets/store/compact.ts";
import { NAMED_OBJECTS } from "../../edge/markets/store/housekeeping.ts";
import { Secret } from "../../shared/secret.ts";
import { DAY, systemClock } from "../../shared/time.ts";
import { ask, register } from "../support/vision.ts";
import { commitHours, createDatabases, createWorld, HOUR, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const HOURS = Array.from({ length: 5_000 }, (_, hour) => hour);

let world: World;
const log = { ...createLog("test"), info() {}, warning() {}, error() {} };
const foreign = { code: "bad_configuration", message: expect.stringContaining("-- adopt") };

const keys = async () => (await world.bucket.list({})).objects.map(({ key }) => key);
const own = () => ({ database: world.database, bucket: world.bucket, named: NAMED_OBJECTS });
/** A handle of the same database that knows of no check before. */
function anew(): Database {
  const { endpointPort, credentials } = inject("postgres");
  const names = { markets: world.databaseName, vision: "none", graph: "none" };
  return openDatabase(new Secret(databaseUrls(endpointPort, credentials, names).marketsWriter));
}
const identity = async () => (await world.bucket.get(IDENTITY_KEY))?.json();
const house = (database: Database, graceMs = 0) => ({
  ...world.writer,
  database,
  log,
  clock: systemClock,
  graceMs,
});

beforeAll(async () => {
  // Where neither a database nor a bucket has an identity yet.
  world = await createWorld({ databases: await createDatabases() });
});

describe("a bucket without an identity", () => {
  it("is left alone where the database names nothing and it holds something", async () => {
    await world.bucket.put("v1/power.demand/lost/l0/1.parquet", "rows");
    await expect(keepHouse(house(world.database))).rejects.toMatchObject(foreign);
    expect(await keys()).toEqual(["v1/power.demand/lost/l0/1.parquet"]);
    await world.bucket.delete("v1/power.demand/lost/l0/1.parquet");
  });

  it("is no database's that names objects which it lacks", async () => {
    await commitHours(world, "erco", FROM, HOURS);
    const [key = ""] = await keys();
    const bytes = await (await world.bucket.get(key))?.arrayBuffer();
    await world.bucket.delete(key);
    const database = anew();
    await expect(
      requireOwnBucket({ ...own(), database }, { mayAdopt: true }),
    ).rejects.toMatchObject(foreign);
    expect(await keys()).toEqual([]);
    await world.bucket.put(key, bytes as ArrayBuffer);
  });

  it("is its database's from the first minute in which it holds all that is named", async () => {
    const database = anew();
    await requireOwnBucket({ ...own(), database });
    expect(await identity()).toBeUndefined();
    await world.tick(Math.floor(systemClock() / 60_000) * 60_000);
    expect(await identity()).toEqual({ id: expect.any(String) });
    await requireOwnBucket({ ...own(), database });
    // It is missed where it is gone: an empty bucket may be a wrong one.
    const text = JSON.stringify(await identity());
    await world.bucket.delete(IDENTITY_KEY);
    await expect(requireOwnBucket({ ...own(), database: anew() })).rejects.toMatchObject(foreign);
    await world.bucket.put(IDENTITY_KEY, text);
  });

  it("passes where whoever gave it its identity was stopped before it was written", async () => {
    const { bucket: whole } = world;
    const text = JSON.stringify(await identity());
    await whole.delete(IDENTITY_KEY);
    await world.database.execute(sql`UPDATE bucket_identity SET is_in_bucket = false`);
    const put = () => Promise.reject(new Error("killed"));
    const stopped = { get: whole.get.bind(whole), list: whole.list.bind(whole), put };
    await expect(
      requireOwnBucket({ ...own(), database: anew(), bucket: stopped }, { mayAdopt: true }),
    ).rejects.toThrow("killed");
    const database = anew();
    await requireOwnBucket({ ...own(), database });
    // Stopped after the bucket had it, and before that was noted: it is found and noted.
    await whole.put(IDENTITY_KEY, text);
    await requireOwnBucket({ ...own(), database });
    await requireOwnBucket({ ...own(), database }, { mayAdopt: true });
    await whole.delete(IDENTITY_KEY);
    await expect(requireOwnBucket({ ...own(), database: anew() })).rejects.toMatchObject(foreign);
    await whole.put(IDENTITY_KEY, text);
  });

  it("is looked at once for all who ask meanwhile, and that is no refusal", async () => {
    const text = JSON.stringify(await identity());
    await world.bucket.delete(IDENTITY_KEY);
    const database = anew();
    const asked = Array.from({ length: 5 }, () =>
      requireOwnBucket({ ...own(), database }, { mayAdopt: true }),
    );
    await Promise.all(asked);
    expect(JSON.stringify(await identity())).toBe(text);
  });
});

describe("a database that is not the bucket's", () => {
  let other: Database;
  beforeAll(async () => {
    other = openDatabase(new Secret((await createDatabases()).marketsWriter));
  });

  it("deletes nothing and writes nothing", async () => {
    const before = await keys();
    expect(before.length).toBeGreaterThan(1);
    await expect(keepHouse(house(other))).rejects.toMatchObject(foreign);
    // What follows the check is not met: none of the other parts is needed.
    const parts = { ...house(other), pipelines: PIPELINES } as unknown as IngestParts;
    // Nor are the fields of an execution, or a journal.
    const [execution, journal] = [{ job: PIPELINES[0]?.job }, {}] as unknown as [
      Parameters<typeof materialize>[1],
      Parameters<typeof materialize>[2],
    ];
    await expect(materialize(parts, execution, journal)).rejects.toMatchObject(foreign);
    expect(await keys()).toEqual(before);
  });

  it("has the bucket once an operator adopts it, and what it does not name goes after its grace", async () => {
    const before = await keys();
    const listed = await adopt({ database: other, bucket: world.bucket });
    expect(listed).toBe(before.length - 1);
    await keepHouse(house(other, 35 * DAY));
    expect(await keys()).toEqual(before);
    const later = { now: systemClock() + HOUR, graceMs: 0 };
    expect(await collect({ ...world.writer, database: other }, later)).toMatchObject({
      orphans: listed,
    });
    expect(await keys()).toEqual([IDENTITY_KEY]);
    await expect(
      requireOwnBucket({ ...own(), database: anew() }, { mayAdopt: true }),
    ).rejects.toMatchObject(foreign);
  });
});

describe("vision", () => {
  it("changes nothing beside a bucket of another database, and its health says why", async () => {
    const vision = await createWorld({ services: ["vision"], databases: await createDatabases() });
    await vision.media.put(IDENTITY_KEY, JSON.stringify({ id: crypto.randomUUID() }));
    await vision.media.put("ws/a/videos/b/source.mp4", "another's");
    const health = async () => (await fetch(`${vision.urls.vision}/healthz`)).json();
    expect(await health()).toMatchObject({
      status: "degraded",
      detail: expect.stringContaining("different identities"),
    });
    const refused = await ask(vision.urls.vision, "POST", "/auth/register", {
      body: { email: "a@example.com", password: "a long enough one", display_name: "A" },
    });
    expect(refused).toMatchObject({ status: 500, body: { code: "bad_configuration" } });
    await vision.tick(systemClock());
    expect(vision.logs.join("\n")).toMatch(/"duty":"bucket".*bad_configuration/s);
    await vision.media.delete([IDENTITY_KEY, "ws/a/videos/b/source.mp4"]);
    await register(vision.urls.vision);
    await vision.tick(systemClock());
    expect(await health()).toEqual({ status: "ok" });
    expect(await (await vision.media.get(IDENTITY_KEY))?.json()).toEqual({
      id: expect.any(String),
    });
  });
});
