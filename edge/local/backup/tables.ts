// The rows of a database: copied out as one state of it, and copied into an empty database that the
// migrations have brought to the same schema.

import { createHash } from "node:crypto";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGunzip, createGzip } from "node:zlib";
import pg from "pg";
import { from as copyFrom, to as copyTo } from "pg-copy-streams";
import { z } from "zod";
import { type DatabaseName, MIGRATIONS, migrateDatabase } from "../migrations.ts";
import { ROOT } from "../state.ts";
import type { Place } from "./places.ts";

/** A database in a backup. */
export const DatabaseDump = z.object({
  /** When the newest migration that it has was made, as the journal of migrations numbers it. */
  migrated_at: z.number(),
  tables: z.array(
    z.object({
      name: z.string(),
      columns: z.array(z.string()),
      /** Rows as Postgres' COPY writes them, compressed by gzip; in the place of the backup. */
      file: z.string(),
      /** The hash of the uncompressed text, in hex. */
      sha256: z.string(),
      rows: z.number(),
    }),
  ),
  sequences: z.array(z.object({ name: z.string(), value: z.string() })),
});
export type DatabaseDump = z.infer<typeof DatabaseDump>;

const quoted = pg.escapeIdentifier;

/**
 * Begins a transaction that sees one state of the database until it ends, whatever is written
 * meanwhile, and that takes as long as it takes.
 */
export async function beginSnapshot(client: pg.Client): Promise<void> {
  await client.query("SET statement_timeout = 0");
  await client.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
}

/** Copies all rows, as the client's transaction sees them, into files of a folder. */
export async function dumpDatabase(
  client: pg.Client,
  place: Place,
  folder: string,
): Promise<DatabaseDump> {
  const tables: DatabaseDump["tables"] = [];
  for (const { name, columns } of await listTables(client)) {
    const file = `${folder}${name}.copy.gz`;
    const list = columns.map(quoted).join(", ");
    const copy = copyTo(`COPY (SELECT ${list} FROM ${quoted(name)}) TO STDOUT`);
    const seen = hashed();
    const rows = client.query(copy);
    const compressed = createGzip();
    await Promise.all([pipeline(rows, seen.through, compressed), place.write(file, compressed)]);
    tables.push({ name, columns, file, sha256: seen.sha256(), rows: copy.rowCount ?? 0 });
  }
  const { rows: sequences } = await client.query<DatabaseDump["sequences"][number]>(`
    SELECT sequencename AS name, last_value::text AS value FROM pg_sequences
     WHERE schemaname = 'public' AND last_value IS NOT NULL`);
  return { migrated_at: await migratedAt(client), tables, sequences };
}

/** The tables, those that others refer to first, with the columns that are stored as given. */
async function listTables(client: pg.Client): Promise<{ name: string; columns: string[] }[]> {
  const { rows } = await client.query<{ name: string; columns: string[]; needs: string[] }>(`
    SELECT c.relname AS name, (
      SELECT json_agg(a.attname ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         AND a.attgenerated = '') AS columns, (
      SELECT coalesce(json_agg(DISTINCT f.confrelid::regclass::text), '[]') FROM pg_constraint f
       WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.confrelid <> c.oid) AS needs
      FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
     ORDER BY 1`);
  const ordered: typeof rows = [];
  for (let left = rows; left.length > 0; ) {
    const done = new Set(ordered.map(({ name }) => name));
    const next = left.filter(({ needs }) =>
      needs.every((one) => done.has(one.replace(/^"(.*)"$/, "$1"))),
    );
    if (next.length === 0) throw new Error("tables refer to each other in a circle");
    ordered.push(...next);
    left = left.filter((one) => !next.includes(one));
  }
  return ordered;
}

async function migratedAt(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ at: string | null }>(
    "SELECT max(created_at)::text AS at FROM drizzle.__drizzle_migrations",
  );
  if (!rows[0]?.at) throw new Error("the database was never migrated");
  return Number(rows[0].at);
}

/**
 * Brings a database that nothing was ever migrated into to the dump's schema, fills it, and
 * migrates it on to this release's. A copy gives up the identity that it shares with the bucket of
 * what it is a copy of. Fails, and leaves the rows out, where a file is not what was
 * written.
 */
export async function restoreDatabase(
  connection: pg.ClientConfig,
  database: DatabaseName,
  { dump, place, isCopy }: { dump: DatabaseDump; place: Place; isCopy: boolean },
): Promise<void> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    await client.query("SET statement_timeout = 0");
    await assertEmpty(client);
    await migrateTo(connection, database, dump.migrated_at);
    await client.query("BEGIN");
    const names = dump.tables.map(({ name }) => quoted(name));
    for (const name of names) await client.query(`ALTER TABLE ${name} DISABLE TRIGGER USER`);
    // Migrations have put rows of their own into some.
    await client.query(`TRUNCATE ${names.join(", ")}`);
    for (const table of dump.tables) await fillTable(client, table, await place.read(table.file));
    for (const { name, value } of dump.sequences) {
      await client.query("SELECT setval(quote_ident($1)::regclass, $2::bigint)", [name, value]);
    }
    for (const name of names) await client.query(`ALTER TABLE ${name} ENABLE TRIGGER USER`);
    // The file ends the transaction of markets, so that there are no rows without it.
    const restored = readFileSync(join(ROOT, "db/markets/restored.sql"), "utf8");
    await client.query(database === "markets" ? restored : "COMMIT");
    await client.query("ANALYZE");
  } finally {
    await client.end();
  }
  await migrateDatabase(database, connection);
  if (!isCopy || database === "graph") return;
  const owner = new pg.Client(connection);
  await owner.connect();
  await owner.query("DELETE FROM bucket_identity").finally(() => owner.end());
}

async function assertEmpty(client: pg.Client): Promise<void> {
  const { rows } = await client.query<{ tables: number }>(`
    SELECT count(*)::int AS tables FROM pg_class
     WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')`);
  if (rows[0]?.tables === 0) return;
  throw new Error(
    "the database has tables already, and a restore never overwrites any: name a new, empty one",
  );
}

/** Applies the migrations up to one of the journal. */
async function migrateTo(connection: pg.ClientConfig, database: DatabaseName, at: number) {
  const own = join(ROOT, MIGRATIONS[database]);
  const journal = JSON.parse(readFileSync(join(own, "meta/_journal.json"), "utf8")) as {
    entries: { when: number }[];
  };
  if (journal.entries.every(({ when }) => when > at)) {
    const version = "a development version of Vantage whose migrations are no more";
    throw new Error(`the backup's ${database} database is of ${version}: restore it by that one`);
  }
  if (!journal.entries.some(({ when }) => when === at)) {
    throw new Error(`the backup's ${database} database is of a newer release than this one`);
  }
  const folder = mkdtempSync(join(tmpdir(), "vantage-migrations-"));
  try {
    cpSync(own, folder, { recursive: true });
    const entries = journal.entries.filter(({ when }) => when <= at);
    writeFileSync(join(folder, "meta/_journal.json"), JSON.stringify({ ...journal, entries }));
    await migrateDatabase(database, connection, folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function fillTable(
  client: pg.Client,
  { name, columns, file, sha256, rows }: DatabaseDump["tables"][number],
  body: Readable,
): Promise<void> {
  const copy = copyFrom(`COPY ${quoted(name)} (${columns.map(quoted).join(", ")}) FROM STDIN`);
  const seen = hashed();
  await pipeline(body, createGunzip(), seen.through, client.query(copy));
  if (seen.sha256() === sha256 && copy.rowCount === rows) return;
  throw new Error(`${file} is not what was backed up: its hash or its number of rows differs`);
}

/** A stream that passes bytes on; once it ended it knows their number and SHA-256, in hex. */
export function hashed() {
  const hash = createHash("sha256");
  let bytes = 0;
  const through = new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      hash.update(chunk);
      bytes += chunk.length;
      done(null, chunk);
    },
  });
  let digest: string | undefined;
  return { through, bytes: () => bytes, sha256: () => (digest ??= hash.digest("hex")) };
}
