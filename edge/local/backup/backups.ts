// Backups: rows of each database as one state of it, and every object that they name. An object is
// copied once, whichever backups hold it. A backup is there once its record is, which is written
// last.

import { createHash } from "node:crypto";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { createGunzip, createGzip } from "node:zlib";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { z } from "zod";
import { iso, systemClock } from "../../../shared/time.ts";
import { IDENTITY_KEY, keepIdentity, requireOwnBucket } from "../../http/bucket-identity.ts";
import type { Database } from "../../http/database.ts";
import type { DatabaseName } from "../migrations.ts";
import type { Place } from "./places.ts";
import type { ListedObject } from "./s3-bucket.ts";
import type { Source } from "./sources.ts";
import { beginSnapshot, DatabaseDump, dumpDatabase, hashed } from "./tables.ts";

const BACKUPS = "backups/";
const OBJECTS = "objects/";
const RECORD = "backup.json";
const COPIES_AT_ONCE = 8;

/** An object in a backup. */
const ObjectRecord = z.object({
  key: z.string(),
  bytes: z.number(),
  etag: z.string(),
  type: z.string().optional(),
  /** The hash of its bytes, in hex. */
  sha256: z.string(),
  /** The file that holds it, in the place of the backup. */
  file: z.string(),
});
type ObjectRecord = z.infer<typeof ObjectRecord>;

/** An object that the database named and its bucket lacked. */
const MissingObject = z.object({ key: z.string(), required: z.boolean() });

const BackupRecord = z.object({
  made_at: z.string(),
  services: z.partialRecord(
    z.enum(["markets", "vision", "graph"]),
    z.object({
      database: DatabaseDump,
      /** The file that lists its objects, one JSON a line, compressed by gzip. */
      objects: z.string().nullable(),
      bytes: z.number(),
      missing: z.array(MissingObject),
    }),
  ),
});
/** What a backup holds. */
export type BackupRecord = z.infer<typeof BackupRecord>;

/** What a backup came to. */
export interface MadeBackup {
  name: string;
  record: BackupRecord;
  /** Objects that were copied for it, and those that an earlier one had copied. */
  copied: number;
  kept: number;
}

/** Says a line to people. */
type Say = (line: string) => void;

/** The names of a place's whole backups, the newest first. */
export async function listBackups(place: Place): Promise<string[]> {
  const files = await place.list(BACKUPS);
  return files
    .filter((file) => file.endsWith(`/${RECORD}`))
    .map((file) => file.split("/")[1] ?? "")
    .toSorted()
    .toReversed();
}

/**
 * Backs the services up. Fails with `bad_configuration` where a bucket is not its database's: what
 * it lacks would be taken for lost.
 */
export async function makeBackup(
  sources: readonly Source[],
  place: Place,
  say: Say,
): Promise<MadeBackup> {
  const madeAt = iso(systemClock());
  const name = madeAt.replace(/[:.]/g, "-");
  const [newest] = await listBackups(place);
  const before = newest === undefined ? null : await readRecord(place, newest);
  const made: MadeBackup = { name, record: { made_at: madeAt, services: {} }, copied: 0, kept: 0 };
  const held = new Set(await place.list(OBJECTS));
  const files = new Set<string>();
  for (const source of sources) {
    const folder = `${BACKUPS}${name}/${source.name}/`;
    const { database, named } = await dumpSource(source, place, folder);
    const rows = database.tables.reduce((sum, table) => sum + table.rows, 0);
    say(`${source.name}: ${rows} rows of ${database.tables.length} tables`);
    made.record.services[source.name] = { database, objects: null, bytes: 0, missing: [] };
    if (!source.bucket) continue;
    const known = await objectsOf(place, before, source.name);
    const there = await holdings(source.bucket.objects, named);
    const objects: ObjectRecord[] = [];
    await each([...there.values()], COPIES_AT_ONCE, async (one) => {
      const old = known.get(one.key);
      const isKept = old?.etag === one.etag && old.bytes === one.size && held.has(old.file);
      const record = isKept ? old : await copyObject(source, one, place);
      // It was deleted since it was listed.
      if (!record) return void there.delete(one.key);
      objects.push(record);
      files.add(record.file);
      made[isKept ? "kept" : "copied"]++;
    });
    const list = `${folder}objects.jsonl.gz`;
    await writeLines(place, list, objects);
    const bytes = objects.reduce((sum, one) => sum + one.bytes, 0);
    const missing = [...named].filter(([key]) => !there.has(key));
    made.record.services[source.name] = {
      database,
      objects: list,
      bytes,
      missing: missing.map(([key, required]) => ({ key, required })),
    };
    say(`${source.name}: ${objects.length} objects, ${megabytes(bytes)}`);
  }
  // Another backup may have tidied up meanwhile.
  const left = new Set(await place.list(OBJECTS));
  const gone = [...files].filter((file) => !left.has(file)).length;
  if (gone > 0) throw new Error(`${gone} copied objects were deleted meanwhile: back up once more`);
  await place.write(`${BACKUPS}${name}/${RECORD}`, JSON.stringify(made.record));
  for (const source of sources) await noteBackup(source, made.record);
  return made;
}

/**
 * Writes down in the vision database that it has a whole backup, for the service that looks whether
 * there is one. A restored database has the one it came from: what it held itself of backups is of
 * the time before that one was made.
 */
export async function noteBackup(
  { name, connection }: Pick<Source, "name" | "connection">,
  { made_at, services }: BackupRecord,
): Promise<void> {
  const missing = services[name]?.missing;
  if (name !== "vision" || !missing || missing.some(({ required }) => required)) return;
  const client = new pg.Client(connection);
  await client.connect();
  try {
    // This machine's clock may be ahead: a backup of the future would be fresh for too long.
    await client.query(
      `INSERT INTO database_backup AS b (made_at) VALUES (least($1::timestamptz, now()))
       ON CONFLICT (id) DO UPDATE SET made_at = greatest(b.made_at, excluded.made_at)`,
      [made_at],
    );
  } finally {
    await client.end();
  }
}

/** Copies the rows of one state of a database, and lists what it names in the same. */
async function dumpSource(source: Source, place: Place, folder: string) {
  const client = new pg.Client(source.connection);
  await client.connect();
  try {
    if (source.bucket) {
      const { objects, named } = source.bucket;
      await requireOwnBucket({ database: databaseOf(client), bucket: objects.asBinding(), named });
    }
    await beginSnapshot(client);
    const database = await dumpDatabase(client, place, folder);
    const named = source.bucket ? await namedBy(client, source.bucket.named) : new Map();
    return { database, named: named as Map<string, boolean> };
  } finally {
    await client.end();
  }
}

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;

/** Reads what a backup holds. */
export async function readRecord(place: Place, name: string): Promise<BackupRecord> {
  const record = await text(await place.read(`${BACKUPS}${name}/${RECORD}`));
  return BackupRecord.parse(JSON.parse(record));
}

/** The objects that a database names, each with whether it is required. */
async function namedBy(client: pg.Client, named: Parameters<typeof sql.join>[0][number]) {
  const { rows } = await drizzle({ client }).execute<{ key: string; required: boolean }>(sql`
    SELECT key, bool_or(required) AS required FROM (${named}) n GROUP BY key ORDER BY key`);
  return new Map(rows.map(({ key, required }) => [key, required]));
}

/** Those of the keys that the bucket holds. */
async function holdings(
  bucket: NonNullable<Source["bucket"]>["objects"],
  keys: ReadonlyMap<string, boolean>,
): Promise<Map<string, ListedObject>> {
  const found = new Map<string, ListedObject>();
  for await (const page of bucket.pages()) {
    for (const one of page) if (keys.has(one.key)) found.set(one.key, one);
  }
  return found;
}

async function copyObject(
  { name, bucket }: Source,
  { key, size, etag }: ListedObject,
  place: Place,
): Promise<ObjectRecord | null> {
  const found = await bucket?.objects.read(key);
  if (!found) return null;
  // A name of its own for each version of a key, short and of safe characters whatever the key is.
  const id = createHash("sha256").update(`${name}\n${key}\n${etag}`).digest("hex");
  const file = `${OBJECTS}${id.slice(0, 2)}/${id}`;
  const seen = hashed();
  const sent = new PassThrough();
  await Promise.all([pipeline(found.body, seen.through, sent), place.write(file, sent)]);
  if (seen.bytes() !== size) throw new Error(`${key} came to ${seen.bytes()} of ${size} bytes`);
  const type = found.type === undefined ? {} : { type: found.type };
  return { key, bytes: size, etag, ...type, sha256: seen.sha256(), file };
}

/**
 * Restores the objects that a service's database names, and has the two belong together. Fails with
 * `bad_configuration` where the bucket is another database's.
 */
export async function restoreObjects(
  source: Source,
  { place, record }: { place: Place; record: BackupRecord },
  say: Say,
): Promise<void> {
  const { bucket } = source;
  if (!bucket) return;
  const binding = bucket.objects.asBinding();
  const named = await withDatabase(source, async (database, client) => {
    await keepIdentity({ database, bucket: binding });
    return namedBy(client, bucket.named);
  });
  const all = await objectsOf(place, record, source.name);
  const objects = new Map([...all].filter(([key]) => named.has(key)));
  const held = await holdings(bucket.objects, named);
  const left = [...objects.values()].filter(({ key, bytes }) => held.get(key)?.size !== bytes);
  await each(left, COPIES_AT_ONCE, async ({ key, file, sha256, type }) => {
    const seen = hashed();
    const sent = new PassThrough();
    const written = bucket.objects.write(key, sent, type);
    await Promise.all([pipeline(await place.read(file), seen.through, sent), written]);
    if (seen.sha256() === sha256) return;
    await bucket.objects.delete([key]);
    throw new Error(`${file} is not what was backed up: the hash of ${key} differs`);
  });
  say(`${source.name}: ${left.length} of ${objects.size} objects were written`);
}

/** How a bucket differs from what its database names. */
export interface Differences {
  /** Required objects that the bucket lacks. */
  missing: string[];
  /** Objects that nothing names: made again where they lack, listed to be deleted, or left over. */
  superfluous: string[];
  named: number;
}

/** Holds a service's database against its bucket. */
export async function compare({ connection, bucket }: Source): Promise<Differences | null> {
  if (!bucket) return null;
  const client = new pg.Client(connection);
  await client.connect();
  try {
    await beginSnapshot(client);
    const named = await namedBy(client, bucket.named);
    const superfluous: string[] = [];
    const missing = new Set([...named].filter(([, required]) => required).map(([key]) => key));
    for await (const page of bucket.objects.pages()) {
      for (const { key } of page) {
        missing.delete(key);
        if (!named.has(key) && key !== IDENTITY_KEY) superfluous.push(key);
      }
    }
    return { missing: [...missing], superfluous, named: named.size };
  } finally {
    await client.end();
  }
}

/** Works with a service's database as the services do. */
export async function withDatabase<Result>(
  { connection }: Source,
  work: (database: Database, client: pg.Client) => Promise<Result>,
): Promise<Result> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    return await work(databaseOf(client), client);
  } finally {
    await client.end();
  }
}

const databaseOf = (client: pg.Client) =>
  // Drizzle's driver for pg answers as Neon's does, but for batches, which nothing here uses.
  drizzle({ client }) as unknown as Database;

/**
 * Deletes all but the newest backups, the objects that none of these holds, and what older ones
 * left that were never ended. Returns how many whole backups it deleted.
 */
export async function keepNewest(place: Place, count: number): Promise<number> {
  const names = await listBackups(place);
  const kept = names.slice(0, count);
  const [newest = ""] = kept;
  const used = new Set<string>();
  for (const name of kept) {
    const record = await readRecord(place, name);
    for (const service of Object.keys(record.services) as DatabaseName[]) {
      for (const { file } of (await objectsOf(place, record, service)).values()) used.add(file);
    }
  }
  const gone = names.slice(count);
  // Records first: what is deleted in part is no backup any more.
  for (const name of gone) await place.delete([`${BACKUPS}${name}/${RECORD}`]);
  const files = await place.list(BACKUPS);
  const nameOf = (file: string) => file.split("/")[1] ?? "";
  // One that is newer than all is being made.
  const isGone = (name: string) => !kept.includes(name) && name < newest;
  await place.delete(files.filter((file) => isGone(nameOf(file))));
  await place.delete((await place.list(OBJECTS)).filter((file) => !used.has(file)));
  return gone.length;
}

async function objectsOf(
  place: Place,
  record: BackupRecord | null,
  service: DatabaseName,
): Promise<Map<string, ObjectRecord>> {
  const file = record?.services[service]?.objects;
  if (!file) return new Map();
  const list = await text((await place.read(file)).pipe(createGunzip()));
  const lines = list.split("\n").filter(Boolean);
  return new Map(
    lines.map((line) => {
      const one = ObjectRecord.parse(JSON.parse(line));
      return [one.key, one];
    }),
  );
}

async function writeLines(place: Place, file: string, lines: readonly object[]): Promise<void> {
  const compressed = createGzip();
  const written = lines.map((line) => `${JSON.stringify(line)}\n`);
  await Promise.all([pipeline(written, compressed), place.write(file, compressed)]);
}

/** Works through items, so many at a time; the first failure ends it. */
async function each<Item>(
  items: readonly Item[],
  atOnce: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const left = items.toReversed();
  const next = async () => {
    for (let item = left.pop(); item !== undefined; item = left.pop()) await work(item);
  };
  await Promise.all(Array.from({ length: atOnce }, next));
}
