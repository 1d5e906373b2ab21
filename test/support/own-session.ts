// A session of a test's own at a world's vision database, which tells how much was read in it.

import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import pg from "pg";
import { inject } from "vitest";
import type { Database } from "../../edge/http/database.ts";
import { superuser } from "../../edge/local/postgres.ts";
import type { World } from "./world.ts";

/** Opens it; `end` closes it. */
export async function ownSession({ visionDatabase }: World) {
  const { rows } = await visionDatabase.execute<{ name: string }>(
    sql`SELECT current_database() AS name`,
  );
  const { port, credentials } = inject("postgres");
  const client = new pg.Client(superuser(port, credentials.superuser, rows[0]?.name ?? ""));
  await client.connect();
  // What reads use of a database: statements one by one, and some in one transaction.
  const database = Object.assign(drizzle(client), {
    batch: async (statements: Promise<unknown>[]) => {
      const results = [];
      for (const one of statements) results.push(await one);
      return results;
    },
    // Of the two drivers' types the statements' answers alone are asked for.
  }) as unknown as Database;
  /** Rows of a table, since the session's own counts were handed over, which is once in a while. */
  const read = async (table: string) => {
    const told = await client.query<{ read: number }>(
      `SELECT (seq_tup_read + coalesce(idx_tup_fetch, 0))::int AS read
         FROM pg_stat_xact_user_tables WHERE relname = $1`,
      [table],
    );
    return told.rows[0]?.read ?? NaN;
  };
  return {
    database,
    /** Rows of a table that an act reads, by whatever way. */
    async rowsRead(table: string, act: () => Promise<unknown>): Promise<number> {
      await client.query("BEGIN");
      const before = await read(table);
      await act();
      const after = await read(table);
      await client.query("ROLLBACK");
      return after - before;
    },
    end: () => client.end(),
  };
}
