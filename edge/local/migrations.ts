// Migrations, applied beside services that work: each is a transaction that gives way to whoever
// uses a table. One with an index CONCURRENTLY locks nobody out; its statements are run one by
// one, and may be run again.

import { join } from "node:path";
import { readMigrationFiles } from "drizzle-orm/migrator";
import pg from "pg";
import { STATEMENT_MS_MAX } from "../http/database.ts";
import { ROOT } from "./state.ts";

/** Where the migrations of each database lie. */
export const MIGRATIONS = {
  markets: "db/markets/migrations",
  graph: "db/markets/graph-migrations",
  vision: "db/vision/migrations",
};
export type DatabaseName = keyof typeof MIGRATIONS;

/**
 * Longest wait of a migration for a table's lock: statements that ask for the table meanwhile queue
 * behind it. After that the migration is rolled back, and tried again later.
 */
const LOCK_MS_MAX = 2_000;
const LOCK_PAUSE_MS = 1_000;
/** Each try waits twice as long for the next: two minutes in all. */
const LOCK_TRIES_MAX = 7;
const LOCK_TIMED_OUT = "55P03";
/** Whoever migrates a database holds it; any number that nothing else of ours takes. */
const ADVISORY_LOCK = 7_205_759;
const POLL_MS = 200;
/** An index of a large table takes its time. */
const OTHERS_MS_MAX = 30 * 60_000;

type Migration = ReturnType<typeof readMigrationFiles>[number];

/**
 * Applies a database's migrations with the given connection, that of its owner; what is applied
 * already is left alone. By default all of them, or those of a folder. One after another migrates a
 * database. From then on the database ends statements that take too long, but for those of sessions
 * that ask for more time, as migrations do. Fails where others hold a table's lock for minutes; the
 * migrations before that one stand, and none is half applied but one with an index CONCURRENTLY,
 * whose statements are run again.
 */
export async function migrateDatabase(
  database: DatabaseName,
  connection: pg.ClientConfig,
  folder = join(ROOT, MIGRATIONS[database]),
): Promise<void> {
  const client = new pg.Client(connection);
  await client.connect();
  try {
    await client.query("SET statement_timeout = 0; SET client_min_messages = warning");
    await waitForOthers(client);
    for (const migration of await dueMigrations(client, folder)) {
      if (isConcurrent(migration)) await applyOpenly(client, migration);
      else await asLocksAllow(() => applyAtOnce(client, migration));
    }
    const { rows } = await client.query<{ name: string }>("SELECT current_database() AS name");
    await limitStatements(client, rows[0]?.name ?? "");
  } finally {
    await client.end();
  }
}

/** Sets how long statements of later sessions in a database may take. */
export async function limitStatements(connection: Pick<pg.Client, "query">, database: string) {
  const name = pg.escapeIdentifier(database);
  await connection.query(`ALTER DATABASE ${name} SET statement_timeout = ${STATEMENT_MS_MAX}`);
}

/** Asks again and again: a statement that waits would be waited for by indexes that are built. */
async function waitForOthers(client: pg.Client): Promise<void> {
  for (const until = Date.now() + OTHERS_MS_MAX; ; ) {
    const { rows } = await client.query<{ held: boolean }>(
      `SELECT pg_try_advisory_lock(${ADVISORY_LOCK}) AS held`,
    );
    if (rows[0]?.held) return;
    if (Date.now() > until) {
      const holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'";
      throw new Error(`somebody else has been migrating this database for too long: ${holder}`);
    }
    await pause(POLL_MS);
  }
}

/** Why a database is refused whose schema no migration of today's leads on. */
export const TOO_OLD =
  "the database is of a development version of Vantage whose migrations are no more: start over " +
  "with an empty one, locally by npm start -- --reset";

/**
 * What is not applied yet, in the table that drizzle's own migrator keeps too. Fails where what was
 * applied is older than all that there are.
 */
async function dueMigrations(client: pg.Client, folder: string): Promise<Migration[]> {
  await client.query(`
    CREATE SCHEMA IF NOT EXISTS drizzle;
    CREATE TABLE IF NOT EXISTS drizzle.__drizzle_migrations (
      id SERIAL PRIMARY KEY, hash text NOT NULL, created_at bigint)`);
  const { rows } = await client.query<{ last: string | null }>(
    "SELECT max(created_at) AS last FROM drizzle.__drizzle_migrations",
  );
  const last = Number(rows[0]?.last ?? 0);
  const all = readMigrationFiles({ migrationsFolder: folder });
  if (last > 0 && all.every(({ folderMillis }) => folderMillis > last)) throw new Error(TOO_OLD);
  return all.filter(({ folderMillis }) => folderMillis > last);
}

/** A migration's statements, without comments. */
const textOf = ({ sql }: Migration) => sql.join("").replaceAll(/--.*$/gm, "");

const isConcurrent = (migration: Migration) => /\bINDEX\s+CONCURRENTLY\b/i.test(textOf(migration));

const note = (client: pg.Client, { hash, folderMillis }: Migration) =>
  client.query("INSERT INTO drizzle.__drizzle_migrations (hash, created_at) VALUES ($1, $2)", [
    hash,
    folderMillis,
  ]);

async function applyAtOnce(client: pg.Client, migration: Migration): Promise<void> {
  await client.query(`BEGIN; SET LOCAL lock_timeout = ${LOCK_MS_MAX}`);
  try {
    for (const statement of migration.sql) await client.query(statement);
    await note(client, migration);
    await client.query("COMMIT");
  } catch (thrown) {
    await client.query("ROLLBACK");
    throw thrown;
  }
}

/**
 * Applies statements one by one, outside a transaction. An index that a process began and did not
 * end is of no use to anybody, and stands in the way: it goes first.
 */
async function applyOpenly(client: pg.Client, migration: Migration): Promise<void> {
  const { rows } = await client.query<{ name: string }>(`
    SELECT relname AS name FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
     WHERE NOT indisvalid AND relnamespace = 'public'::regnamespace`);
  for (const { name } of rows) {
    const isOwn = textOf(migration).includes(pg.escapeIdentifier(name));
    if (isOwn) await client.query(`DROP INDEX CONCURRENTLY ${pg.escapeIdentifier(name)}`);
  }
  for (const statement of migration.sql) await client.query(statement);
  await note(client, migration);
}

/** Tries again while somebody else holds a lock; all that a try did is undone before the next. */
async function asLocksAllow(work: () => Promise<void>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (thrown) {
      if ((thrown as { code?: string }).code !== LOCK_TIMED_OUT) throw thrown;
      if (tries === LOCK_TRIES_MAX) {
        const advice = "end that transaction (SELECT * FROM pg_stat_activity), then try again";
        throw new Error(`a long transaction holds a table that is to be changed: ${advice}`, {
          cause: thrown,
        });
      }
      await pause(LOCK_PAUSE_MS * 2 ** (tries - 1));
    }
  }
}

const pause = (milliseconds: number) => new Promise((done) => setTimeout(done, milliseconds));
