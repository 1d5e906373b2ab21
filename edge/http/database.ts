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
// The driver knows a failed request as its own error, but not an answer that breaks off, which it
// reads by itself: here an answer has come once all of it has.
neonConfig.fetchFunction = async (address: string, request: RequestInit) => {
  const response = await fetch(address, request);
  const { ok, status } = response;
  const text = await response.text();
  // All that the driver reads of an answer; another `Response` would cost as much as the first.
  return { ok, status, text: async () => text, json: async () => JSON.parse(text) as unknown };
};

/** A handle on one database. */
export type Database = NeonHttpDatabase;

/**
 * How long a request waits for the database, milliseconds. The database itself ends statements
 * before (`STATEMENT_MS_MAX`), so what nobody waits for any more does not go on.
 */
export const ANSWER_MS_MAX = 12_000;
/** The same where somebody asks for the health and does not wait long for it. */
export const HEALTH_MS_MAX = 1_500;
/** After this time the database ends a statement, milliseconds: a setting of each database. */
export const STATEMENT_MS_MAX = 10_000;

/** The same for what a person asked for and knows to be large, such as an edit of all there is. */
export const PATIENT_MS_MAX = 90_000;
const PATIENT_STATEMENT_MS_MAX = 80_000;
/** Between two questions of whether the database still answers, while such an edit is under way. */
export const ALIVE_MS = 1_000;

/** The handle that waits longer, by the one that does not. */
const patientHandles = new WeakMap<Database, Database>();

/**
 * A database handle; nothing is connected until the first statement. A statement, or a batch, that
 * is not answered within `timeoutMs` is given up and fails; it may have been done all the same.
 */
export function openDatabase(url: Secret, { timeoutMs = ANSWER_MS_MAX } = {}): Database {
  const database = openHandle(url, timeoutMs);
  patientHandles.set(database, openHandle(url, PATIENT_MS_MAX));
  return database;
}

function openHandle(url: Secret, timeoutMs: number): Database {
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

/**
 * `batch` for edits that may take longer than any other statement, by minutes, as long as the
 * database answers others: where it falls silent, the edit is given up like other statements.
 */
export async function patientBatch<Rows extends readonly unknown[] = Record<string, unknown>[]>(
  database: Database,
  statements: { readonly [Index in keyof Rows]: SQL },
): Promise<{ [Index in keyof Rows]: Rows[Index][] }> {
  const limit = String(PATIENT_STATEMENT_MS_MAX);
  const raise = sql`SELECT set_config('statement_timeout', ${limit}, true)`;
  const all = [raise, ...(statements as readonly SQL[])];
  const work = batch(patientHandles.get(database) ?? database, all);
  const ended = work.then(
    () => true,
    () => true,
  );
  while (!(await Promise.race([ended, pause()]))) {
    // Whatever else it says than nothing is an answer.
    const alive = database.execute(sql`SELECT 1 AS alive`).catch((thrown: unknown) => {
      if (isSilent(thrown)) throw thrown;
    });
    await Promise.race([ended, alive]);
  }
  const [, ...results] = await work;
  // The rows of what was asked, without those of the setting.
  return results as never;
}

const pause = () => new Promise<false>((done) => setTimeout(done, ALIVE_MS, false));

/**
 * Passes when the database can be read and written; fails, as a statement of its caller would, when
 * not. `table` is one that has to be there.
 */
export async function assertWritable(database: Database, table: string): Promise<void> {
  const { rows } = await database.execute<{ readOnly: boolean }>(sql`
    SELECT current_setting('transaction_read_only')::boolean AS "readOnly",
      EXISTS (SELECT FROM ${sql.identifier(table)}) AS holds`);
  if (!rows[0]?.readOnly) return;
  throw Object.assign(new NeonDbError("the database takes no writes"), { code: "25006" });
}

/**
 * Passes when the role of a database may change no table; fails with `store_unavailable` when it
 * may, as the tables' owner may too.
 */
export async function assertReader(database: Database): Promise<void> {
  const { rows } = await database.execute<{ writes: boolean }>(sql`
    SELECT EXISTS (SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace
      AND relkind IN ('r', 'p') AND (has_any_column_privilege(oid, 'INSERT, UPDATE')
        OR has_table_privilege(oid, 'DELETE, TRUNCATE'))) AS writes`);
  if (!rows[0]?.writes) return;
  const detail =
    "DATABASE_URL names a role that may write: the read API takes one that may only SELECT";
  throw new Failure("store_unavailable", detail);
}

/** An instant of a column as the wire shows it: UTC, to the millisecond. */
export const wireTime = (column: SQL): SQL =>
  sql`to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** The same in epoch milliseconds. */
export const epochMs = (column: SQL): SQL<number> =>
  sql`(extract(epoch FROM ${column}) * 1000)::float8`;

/**
 * SQL states of a database that cannot be worked with, as opposed to one that refuses a statement.
 * Class 08: connection exceptions; 53: insufficient resources, such as a full disk; 57P: operator
 * intervention; 57014: the time of a statement ran out; 55P03: a lock was waited for in vain;
 * 25006: it takes no writes. 3D: there is no such database; 42P01: it was not migrated; 28: it does
 * not let us in.
 */
const UNAVAILABLE = /^(08|53|57P|57014|55P03|25006|3D|42P01|28)/;
const FORBIDDEN = "42501";

/** The database's own error in a chain of causes. */
function databaseError(thrown: unknown): NeonDbError | null {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if (error instanceof NeonDbError) return error;
  }
  return null;
}

/** True when the database could not be reached or worked with. */
export function isUnavailable(thrown: unknown): boolean {
  const error = databaseError(thrown);
  if (!error) return false;
  // Rights not given yet, as opposed to a row that a policy refuses.
  if (error.code === FORBIDDEN) return error.message.startsWith("permission denied");
  return !error.code || UNAVAILABLE.test(error.code);
}

/**
 * True when the database gave no answer to a statement, not even a refusal: it may have been done.
 */
export function isSilent(thrown: unknown): boolean {
  const error = databaseError(thrown);
  return error !== null && (!error.code || /^(08|57P)/.test(error.code));
}

/** What is wrong with a database that is unavailable, for people; shows nothing of where it is. */
export function problemOf(thrown: unknown): string {
  const code = databaseError(thrown)?.code ?? "";
  if (code === "53100") return "the database's disk is full";
  if (code === "25006") return "the database takes no writes, as it does when its disk is full";
  if (/^(3D|42P01)/.test(code)) return "the database is missing or was not migrated";
  if (/^(28|42501)/.test(code)) return "the database does not let this service in";
  if (code === "57014" || code === "55P03") return "the database did not answer in time";
  return "the database does not answer";
}

/** The `Failure` for a database that does not answer; any other error, or `Failure`, as it came. */
export const asFailure = (thrown: unknown): unknown =>
  !(thrown instanceof Failure) && isUnavailable(thrown)
    ? new Failure("store_unavailable", `${problemOf(thrown)}; try again`, { cause: thrown })
    : thrown;
