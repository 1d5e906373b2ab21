// The way to Postgres: Neon's driver over HTTP, one statement or one batch a request.
// A connection string on the loopback points at the embedded stack's Neon-compatible endpoint.

import { NeonDbError, neon, neonConfig } from "@neondatabase/serverless";
import { type SQL, sql } from "drizzle-orm";
import { drizzle, type NeonHttpDatabase } from "drizzle-orm/neon-http";
import { Failure } from "../../shared/errors.ts";
import type { Secret } from "../../shared/secret.ts";

const LOOPBACK = /^(127\.0\.0\.1|localhost)$/;

const hosted = neonConfig.fetchEndpoint as (host: string, port: number | string) => string;
neonConfig.fetchEndpoint = (host, port) =>
  LOOPBACK.test(host) ? `http://${host}:${port}/sql` : hosted(host, port);

/** A handle on one database. */
export type Database = NeonHttpDatabase;

/**
 * A database handle; nothing is connected until the first statement. With `timeoutMs`, a statement
 * that is not answered in time is given up and fails.
 */
export function openDatabase(url: Secret, { timeoutMs }: { timeoutMs?: number } = {}): Database {
  if (timeoutMs === undefined) return drizzle({ client: neon(url.reveal()) });
  // The driver spreads these options into each of its requests, so each gets a signal of its own.
  const fetchOptions = {
    get signal() {
      return AbortSignal.timeout(timeoutMs);
    },
  };
  return drizzle({ client: neon(url.reveal(), { fetchOptions }) });
}

/**
 * Runs statements in one transaction, in order, all or none; returns the rows of each. `Rows` names
 * what a row of each statement holds.
 */
export async function batch<Rows extends readonly unknown[] = Record<string, unknown>[]>(
  database: Database,
  statements: { readonly [Index in keyof Rows]: SQL },
): Promise<{ [Index in keyof Rows]: Rows[Index][] }> {
  const [first, ...rest] = (statements as readonly SQL[]).map((one) => database.execute(one));
  const results = first ? await database.batch([first, ...rest]) : [];
  // What a raw statement answers is known to its caller alone.
  return results.map(({ rows }) => rows) as never;
}

/** An instant of a column as the wire shows it: UTC, to the millisecond. */
export const wireTime = (column: SQL): SQL =>
  sql`to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/**
 * True when the database could not be reached or is shutting down, as opposed to refusing a
 * statement.
 */
export function isUnavailable(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if (!(error instanceof NeonDbError)) continue;
    // Class 08: connection exceptions; 57P: operator intervention; 53: insufficient resources;
    // 55P03: a lock was waited for in vain.
    return !error.code || /^(08|57P|53|55P03)/.test(error.code);
  }
  return false;
}

/** The `Failure` for a database that does not answer; any other error, or `Failure`, as it came. */
export const asFailure = (thrown: unknown): unknown =>
  !(thrown instanceof Failure) && isUnavailable(thrown)
    ? new Failure("store_unavailable", "the database does not answer; try again", { cause: thrown })
    : thrown;
