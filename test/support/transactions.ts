// A transaction of a test's own beside those of a service: what a service meets when somebody else
// is at the same row.

import { sql } from "drizzle-orm";
import pg from "pg";
import { expect, inject } from "vitest";
import type { Database } from "../../edge/http/database.ts";
import { superuser } from "../../edge/local/postgres.ts";

export interface Transaction {
  query(statement: string): Promise<void>;
  /** Resolves when so many statements of others wait for what this one holds. */
  awaited(count?: number): Promise<void>;
  commit(): Promise<void>;
}

/** Changes a service's tables themselves: a trigger fails what a test wants failed. */
export async function alterTables(database: Database, ...statements: string[]): Promise<void> {
  const transaction = await beginTransaction(database);
  for (const statement of statements) await transaction.query(statement);
  await transaction.commit();
}

/** Begins one in a service's database. */
export async function beginTransaction(database: Database): Promise<Transaction> {
  const { port, credentials } = inject("postgres");
  const { rows } = await database.execute<{ name: string }>(sql`SELECT current_database() AS name`);
  const client = new pg.Client(superuser(port, credentials.superuser, rows[0]?.name));
  await client.connect();
  await client.query("BEGIN");
  const waiting = async () => {
    const found = await database.execute<{ count: number }>(sql`
      SELECT count(*)::int AS count FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock'`);
    return found.rows[0]?.count ?? 0;
  };
  return {
    query: async (statement) => void (await client.query(statement)),
    awaited: (count = 1) => expect.poll(waiting).toBeGreaterThanOrEqual(count),
    commit: async () => {
      await client.query("COMMIT");
      await client.end();
    },
  };
}
