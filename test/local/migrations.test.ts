// Migrations beside a service that works. Goal: whoever uses a table meanwhile is not held up, and
// a migration whose table is in use is applied once it is free.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterEach, expect, inject, it } from "vitest";
import { MIGRATIONS, migrateDatabase } from "../../edge/local/databases.ts";
import { superuser } from "../../edge/local/postgres.ts";
import { copyDatabases } from "../support/postgres.ts";

const open: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of open.splice(0).reverse()) await end();
});

async function connect(connection: pg.ClientConfig): Promise<pg.Client> {
  const client = new pg.Client(connection);
  await client.connect();
  open.push(() => client.end());
  return client;
}

/** The markets migrations, and one more that changes a table. */
function laterRelease(): string {
  const folder = mkdtempSync(join(tmpdir(), "vantage-migrations-"));
  open.push(() => rmSync(folder, { recursive: true }));
  cpSync(MIGRATIONS.markets, folder, { recursive: true });
  const journal = join(folder, "meta/_journal.json");
  const { entries, ...rest } = JSON.parse(readFileSync(journal, "utf8"));
  const last = entries.at(-1);
  entries.push({ ...last, idx: last.idx + 1, when: last.when + 1, tag: "9999_later" });
  writeFileSync(journal, JSON.stringify({ ...rest, entries }));
  writeFileSync(join(folder, "9999_later.sql"), 'ALTER TABLE "series" ADD COLUMN "later" int;');
  return folder;
}

it("waits for a table that is in use without holding up those who ask for it after", async () => {
  const postgres = inject("postgres");
  const name = `markets_${crypto.randomUUID().slice(0, 8)}`;
  const names = { markets: name, vision: `${name}_v`, graph: `${name}_g` };
  await copyDatabases(postgres, names);
  const connection = superuser(postgres.port, postgres.credentials.superuser, name);
  const holder = await connect(connection);
  await holder.query("BEGIN; LOCK TABLE series IN ACCESS SHARE MODE");
  const migrated = migrateDatabase("markets", connection, laterRelease());
  const watcher = await connect(connection);
  const waiting = async () => {
    const { rows } = await watcher.query(`
      SELECT count(*)::int AS n FROM pg_locks JOIN pg_class ON pg_class.oid = relation
       WHERE relname = 'series' AND NOT granted AND mode = 'AccessExclusiveLock'`);
    return rows[0].n;
  };
  await expect.poll(waiting, { interval: 20 }).toBe(1);
  // It stands behind the migration, which steps back.
  const reader = await connect({ ...connection, statement_timeout: 30_000 });
  expect((await reader.query("SELECT count(*)::int AS n FROM series")).rows).toEqual([{ n: 0 }]);
  await holder.query("COMMIT");
  await migrated;
  const { rows } = await reader.query("SELECT later FROM series");
  expect(rows).toEqual([]);
});
