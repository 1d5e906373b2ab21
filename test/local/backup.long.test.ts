// Drills: what is lost of a service's database and bucket comes back from a backup, and answers are
// what they were, by hash. Goal: a backup that is whole restores all of it, and one that is not is
// named before anything is taken from it.

import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { S3Client } from "@aws-sdk/client-s3";
import { sql } from "drizzle-orm";
import pg from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, inject, it, vi } from "vitest";
import { IDENTITY_KEY, requireOwnBucket } from "../../edge/http/bucket-identity.ts";
import {
  compare,
  keepNewest,
  listBackups,
  makeBackup,
  noteBackup,
  readRecord,
  restoreObjects,
  withDatabase,
} from "../../edge/local/backup/backups.ts";
import { placeAt } from "../../edge/local/backup/places.ts";
import { S3Bucket } from "../../edge/local/backup/s3-bucket.ts";
import type { Source } from "../../edge/local/backup/sources.ts";
import { restoreDatabase } from "../../edge/local/backup/tables.ts";
import { databaseUrls, prepareDatabases } from "../../edge/local/databases.ts";
import { superuser } from "../../edge/local/postgres.ts";
import type { DatabaseNames } from "../../edge/local/rights.ts";
import { compact } from "../../edge/markets/store/compact.ts";
import { NAMED_OBJECTS as OF_MARKETS } from "../../edge/markets/store/housekeeping.ts";
import { NAMED_OBJECTS as OF_VISION } from "../../edge/vision/base/discard.ts";
import { systemClock } from "../../shared/time.ts";
import { type Api, newProject, register, uploadVideo } from "../support/scripted-node.ts";
import { commitHours, createDatabases, createWorld, type World } from "../support/world.ts";

const FROM = Date.UTC(2026, 0, 1);
const hours = (count: number, add = 0) => Array.from({ length: count }, (_, hour) => hour + add);
const silent = () => {};

const folder = mkdtempSync(join(tmpdir(), "vantage-backup-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

let world: World;
let names: Pick<DatabaseNames, "markets" | "vision">;
let person: Api;
let videoId: string;

const client = (endpoint: string) =>
  new S3Client({
    endpoint,
    region: "auto",
    forcePathStyle: true,
    credentials: { accessKeyId: "test", secretAccessKey: "test" },
    requestChecksumCalculation: "WHEN_REQUIRED",
    responseChecksumValidation: "WHEN_REQUIRED",
  });

/** Both services, with databases of these names and the buckets of a world. */
function sourcesOf(names: Pick<DatabaseNames, "markets" | "vision">, { s3Url }: World): Source[] {
  const { port, credentials } = inject("postgres");
  return (["markets", "vision"] as const).map((name) => ({
    name,
    connection: superuser(port, credentials.superuser, names[name]),
    bucket: {
      objects: new S3Bucket(client(s3Url), `vantage-${name}`),
      named: name === "markets" ? OF_MARKETS : OF_VISION,
    },
  }));
}

/** New databases that nothing was migrated into. */
async function emptyDatabases(): Promise<DatabaseNames> {
  const { port, credentials } = inject("postgres");
  const id = crypto.randomUUID().slice(0, 8);
  const fresh = { markets: `m_${id}`, vision: `v_${id}`, graph: `g_${id}` };
  const owner = new pg.Client(superuser(port, credentials.superuser));
  await owner.connect();
  for (const name of Object.values(fresh)) await owner.query(`CREATE DATABASE ${name}`);
  await owner.end();
  return fresh;
}

/** What both services answer of what they hold, as hashes. */
async function answersOf({ urls, media }: World): Promise<string[]> {
  const texts: (string | ArrayBuffer)[] = [];
  for (const query of [
    "library=power.demand&symbol=erco&start=2026-01-01",
    "library=power.demand&symbol=erco&start=2026-01-01&vintage=true_only",
    "library=power.demand&symbol=pjm&start=2026-01-01",
  ]) {
    const response = await fetch(`${urls.markets}/series?${query}`);
    expect(response.status).toBe(200);
    texts.push(await response.text());
  }
  const video = await (
    await fetch(`${urls.vision}/api/v1/videos/${videoId}`, {
      headers: { Authorization: `Bearer ${person.token}` },
    })
  ).text();
  expect(video).toContain(videoId);
  const { objects } = await media.list({ prefix: "ws/" });
  expect(objects.length).toBeGreaterThan(0);
  for (const { key } of objects) {
    texts.push(key, (await (await media.get(key))?.arrayBuffer()) as ArrayBuffer);
  }
  return [...texts, video].map((text) =>
    createHash("sha256")
      .update(typeof text === "string" ? text : Buffer.from(text))
      .digest("hex"),
  );
}

beforeAll(async () => {
  const databases = await createDatabases();
  const nameOf = (url: string) => new URL(url).pathname.slice(1);
  names = { markets: nameOf(databases.marketsWriter), vision: nameOf(databases.visionWriter) };
  world = await createWorld({ databases });
  await commitHours(world, "erco", FROM, hours(5_000));
  await compact(world.writer, { library: "power.demand", symbol: "erco" });
  await commitHours(world, "erco", FROM, hours(5_000, 1), { reconstructed: true });
  await commitHours(world, "pjm", FROM, hours(10));
  person = await register(world);
  const { project_id: projectId } = await newProject(person);
  videoId = (await uploadVideo(person, projectId)).video_id;
  await world.tick(systemClock());
});

const kept = () => placeAt(join(folder, "place"));

const identityIn = async (bucket: Pick<World["bucket"], "get">) =>
  (await bucket.get(IDENTITY_KEY))?.text();

describe("a backup", () => {
  it("holds rows and objects once, and a further one copies what is new", async () => {
    const first = await makeBackup(sourcesOf(names, world), kept(), silent);
    expect(first).toMatchObject({ kept: 0 });
    expect(first.copied).toBeGreaterThan(3);
    expect(Object.values(first.record.services).flatMap(({ missing }) => missing)).toEqual([]);
    await commitHours(world, "erco", FROM, hours(5_000, 2));
    const second = await makeBackup(sourcesOf(names, world), kept(), silent);
    expect([second.copied, second.kept]).toEqual([1, first.copied]);
    expect(await listBackups(kept())).toEqual([second.name, first.name]);
    expect(await keepNewest(kept(), 1)).toBe(1);
    expect(await listBackups(kept())).toEqual([second.name]);
  });

  it("names what the bucket lacks", async () => {
    const [markets] = sourcesOf(names, world);
    const { objects } = await world.bucket.list({ prefix: "v1/" });
    const key = objects[0]?.key ?? "";
    const bytes = await (await world.bucket.get(key))?.arrayBuffer();
    await world.bucket.delete(key);
    const { record } = await makeBackup(
      [markets as Source],
      placeAt(join(folder, "lacking")),
      silent,
    );
    expect(record.services.markets?.missing.map((one) => one.key)).toEqual([key]);
    await world.bucket.put(key, bytes as ArrayBuffer);
  });
});

describe("a whole backup", () => {
  const noted = async (connection: pg.ClientConfig) => {
    const client = new pg.Client(connection);
    await client.connect();
    try {
      const { rows } = await client.query<{ made_at: Date }>("SELECT made_at FROM database_backup");
      return rows.map(({ made_at }) => made_at.toISOString());
    } finally {
      await client.end();
    }
  };

  it("is noted in the vision database, one that lacks something or is older is not", async () => {
    const source = sourcesOf(names, world)[1] as Source;
    const notedAt = placeAt(join(folder, "noted"));
    const { record } = await makeBackup([source], notedAt, silent);
    expect(await noted(source.connection)).toEqual([record.made_at]);
    const { objects } = await world.media.list({ prefix: "ws/" });
    const key = objects[0]?.key ?? "";
    const bytes = await (await world.media.get(key))?.arrayBuffer();
    await world.media.delete(key);
    const lacking = await makeBackup([source], notedAt, silent);
    expect(lacking.record.services.vision?.missing).toMatchObject([{ key, required: true }]);
    await world.media.put(key, bytes as ArrayBuffer);
    await noteBackup(source, { ...record, made_at: "2026-01-01T00:00:00.000Z" });
    expect(await noted(source.connection)).toEqual([record.made_at]);
    // A clock that is ahead makes no backup of the future.
    await noteBackup(source, { ...record, made_at: "2999-01-01T00:00:00.000Z" });
    expect(Date.parse((await noted(source.connection))[0] ?? "")).toBeLessThan(
      systemClock() + 60_000,
    );
  });

  it("is the restored database's newest", async () => {
    const { fresh, record } = await restoreDatabases();
    const { port, credentials } = inject("postgres");
    const connection = superuser(port, credentials.superuser, fresh.vision);
    // What was dumped is of the one before.
    expect((await noted(connection)).every((one) => one < record.made_at)).toBe(true);
    await noteBackup({ name: "vision", connection }, record);
    expect(await noted(connection)).toEqual([record.made_at]);
  });
});

describe("a bucket of another database", () => {
  it("is not backed up, nor filled", async () => {
    const databases = await createDatabases();
    const there = await createWorld({ services: ["console"], databases });
    await there.bucket.put(IDENTITY_KEY, JSON.stringify({ id: crypto.randomUUID() }));
    const [markets] = sourcesOf(names, there);
    if (!markets) throw new Error("no source");
    const foreign = { code: "bad_configuration" };
    const other = placeAt(join(folder, "other"));
    await expect(makeBackup([markets], other, silent)).rejects.toMatchObject(foreign);
    expect(await listBackups(other)).toEqual([]);
    const [newest = ""] = await listBackups(kept());
    const record = await readRecord(kept(), newest);
    const restored = restoreObjects(markets, { place: kept(), record }, silent);
    await expect(restored).rejects.toMatchObject(foreign);
    expect((await there.bucket.list({})).objects.map(({ key }) => key)).toEqual([IDENTITY_KEY]);
    // An empty one is as foreign to a database that has an identity.
    await there.bucket.delete(IDENTITY_KEY);
    await expect(makeBackup([markets], other, silent)).rejects.toMatchObject(foreign);
  });
});

/** Restores the newest backup's databases under new names, ready for services. */
async function restoreDatabases({ from = kept(), isCopy = true } = {}) {
  const fresh = await emptyDatabases();
  const { port, credentials, endpointPort } = inject("postgres");
  const [newest = ""] = await listBackups(from);
  const record = await readRecord(from, newest);
  for (const service of ["markets", "vision"] as const) {
    const dump = record.services[service]?.database;
    if (!dump) throw new Error("no dump");
    const connection = superuser(port, credentials.superuser, fresh[service]);
    await restoreDatabase(connection, service, { dump, place: from, isCopy });
  }
  await prepareDatabases(port, credentials, fresh);
  return { fresh, record, urls: databaseUrls(endpointPort, credentials, fresh) };
}

describe("a drill", () => {
  it("without bucket and catalog: both come back elsewhere, and answers are equal", async () => {
    const before = await answersOf(world);
    const { fresh, record, urls } = await restoreDatabases();
    const there = await createWorld({ databases: urls });
    for (const source of sourcesOf(fresh, there)) {
      await restoreObjects(source, { place: kept(), record }, silent);
      expect(await compare(source)).toMatchObject({ missing: [], superfluous: [] });
    }
    expect(await answersOf(there)).toEqual(before);
    // A copy is not taken for what it is a copy of.
    for (const name of ["bucket", "media"] as const) {
      expect(await identityIn(there[name])).toMatch(/"id"/);
      expect(await identityIn(there[name])).not.toBe(await identityIn(world[name]));
    }
    // The two belong together: the minute's work is done, and writing goes on.
    await there.tick(systemClock());
    expect(there.logs.join("\n")).not.toMatch(/bad_configuration/);
    const writer = { ...there.writer, database: there.database };
    await commitHours({ writer }, "erco", FROM, hours(24, 7));
    const { rows } = await there.database.execute<{ seq: number }>(sql`
      SELECT max(seq)::int AS seq FROM vintage JOIN series ON id = series_id
       WHERE symbol = 'erco'`);
    expect(rows[0]?.seq).toBeGreaterThan(3);
  });

  it("without the bucket: its objects come back beside the catalog", async () => {
    const before = await answersOf(world);
    const [newest = ""] = await listBackups(kept());
    const record = await readRecord(kept(), newest);
    for (const bucket of [world.bucket, world.media]) {
      const { objects } = await bucket.list({});
      await bucket.delete(objects.map(({ key }) => key));
    }
    for (const source of sourcesOf(names, world)) {
      expect((await compare(source))?.missing.length).toBeGreaterThan(0);
      await restoreObjects(source, { place: kept(), record }, silent);
      expect((await compare(source))?.missing).toEqual([]);
    }
    expect(await answersOf(world)).toEqual(before);
  });

  it("without the catalog: that of the backup takes the bucket that is there", async () => {
    const { fresh } = await restoreDatabases({ isCopy: false });
    for (const source of sourcesOf(fresh, world)) {
      expect((await compare(source))?.missing).toEqual([]);
      const bucket = source.bucket?.objects.asBinding();
      const named = source.bucket?.named;
      if (!bucket || !named) throw new Error("a service without a bucket");
      await withDatabase(source, (database) => requireOwnBucket({ database, bucket, named }));
    }
  });

  it("with a damaged file: it is named, and nothing is taken from it", async () => {
    const files = await kept().list("objects/");
    const spoiled = files[0] ?? "";
    const path = join(folder, "place", spoiled);
    const whole = readFileSync(path);
    writeFileSync(path, Buffer.concat([whole.subarray(0, -1), Buffer.of((whole.at(-1) ?? 0) ^ 1)]));
    const { fresh, record, urls } = await restoreDatabases();
    const there = await createWorld({ databases: urls });
    const restored = Promise.all(
      sourcesOf(fresh, there).map((source) =>
        restoreObjects(source, { place: kept(), record }, silent),
      ),
    );
    await expect(restored).rejects.toThrow(`${spoiled} is not what was backed up`);
    writeFileSync(path, whole);
    const table = (await kept().list("backups/")).find((name) => name.endsWith("/series.copy.gz"));
    const rows = join(folder, "place", table ?? "");
    const packed = readFileSync(rows);
    writeFileSync(rows, packed.subarray(0, packed.length - 12));
    const empty = await emptyDatabases();
    const { port, credentials } = inject("postgres");
    const connection = superuser(port, credentials.superuser, empty.markets);
    const dump = record.services.markets?.database;
    if (!dump) throw new Error("no dump");
    const given = { dump, place: kept(), isCopy: true };
    await expect(restoreDatabase(connection, "markets", given)).rejects.toThrow();
    writeFileSync(rows, packed);
    // It holds tables by now, which a restore never overwrites.
    await expect(restoreDatabase(connection, "markets", given)).rejects.toThrow(
      /has tables already/,
    );
  });

  it("is the same over S3", async () => {
    const databases = await createDatabases();
    const there = await createWorld({ services: ["console", "vision"], databases });
    vi.stubEnv("AWS_ENDPOINT_URL_S3", there.s3Url);
    vi.stubEnv("AWS_REGION", "auto");
    vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
    vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
    vi.stubEnv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED");
    vi.stubEnv("AWS_RESPONSE_CHECKSUM_VALIDATION", "WHEN_REQUIRED");
    const remote = placeAt("s3://vantage-vision/copies/");
    const { record, copied } = await makeBackup(sourcesOf(names, world), remote, silent);
    expect(copied).toBeGreaterThan(3);
    const { fresh } = await restoreDatabases({ from: remote });
    const [markets] = sourcesOf(fresh, there);
    await restoreObjects(markets as Source, { place: remote, record }, silent);
    expect(await compare(markets as Source)).toMatchObject({ missing: [], superfluous: [] });
  });
});
