// Attempts in windows of a minute, counted in a table of the service's own database: what slows
// guessing down. Which attempts count, against what and how many are too many, is the service's.

import { sql } from "drizzle-orm";
import { Failure } from "../../shared/errors.ts";
import { iso, MINUTE } from "../../shared/time.ts";
import type { Database } from "./database.ts";

/** A table of attempts by key, with the columns `attempts` and `window_ends_at`. */
export interface AttemptTable {
  name: "throttle" | "wrong_token";
  /** Its primary key and the type of that. */
  key: "key" | "bucket";
  type: "text" | "int";
}

/** What was counted of a key. */
export interface AttemptCount extends Record<string, unknown> {
  key: string;
  /** Attempts in the window, this one included. */
  attempts: number;
  /** End of the window, epoch milliseconds. */
  ends: number;
}

/**
 * Counts an attempt against each of these keys, in one statement; an attempt after the end of a
 * window begins the next one.
 */
export async function countAttempts(
  database: Database,
  table: AttemptTable,
  keys: readonly string[],
  now: number,
): Promise<AttemptCount[]> {
  const [name, key, type] = [table.name, table.key, table.type].map((word) => sql.raw(word));
  // In one order everywhere, so that two statements cannot wait for each other.
  const sorted = JSON.stringify(keys.toSorted());
  const { rows } = await database.execute<AttemptCount>(sql`
    INSERT INTO ${name} AS t (${key}, attempts, window_ends_at)
    SELECT k.value::${type}, 1, ${iso(now + MINUTE)}::timestamptz
      FROM jsonb_array_elements_text(${sorted}::jsonb) WITH ORDINALITY AS k(value, n) ORDER BY n
    ON CONFLICT (${key}) DO UPDATE SET
      attempts = CASE WHEN t.window_ends_at <= ${iso(now)}::timestamptz THEN 1
        ELSE t.attempts + 1 END,
      window_ends_at = CASE WHEN t.window_ends_at <= ${iso(now)}::timestamptz
        THEN excluded.window_ends_at ELSE t.window_ends_at END
    RETURNING t.${key}::text AS key, attempts,
      (extract(epoch FROM window_ends_at) * 1000)::float8 AS ends`);
  return rows;
}

/** Takes an attempt against each of these keys back: it was no guess, for it succeeded. */
export async function forgiveAttempts(
  database: Database,
  table: AttemptTable,
  keys: readonly string[],
): Promise<void> {
  const [name, key, type] = [table.name, table.key, table.type].map((word) => sql.raw(word));
  await database.execute(sql`
    UPDATE ${name} SET attempts = attempts - 1 WHERE attempts > 0 AND ${key} IN (
      SELECT ${key} FROM ${name}
        WHERE ${key} IN (SELECT k::${type} FROM jsonb_array_elements_text(
          ${JSON.stringify(keys)}::jsonb) k)
        ORDER BY ${key} FOR UPDATE)`);
}

/**
 * The `too_many_attempts` of a window that ends at this instant (epoch milliseconds); `what` names
 * the attempts to people. It carries the seconds until then.
 */
export function tooManyAttempts(what: string, ends: number, now: number): Failure {
  const seconds = Math.max(1, Math.ceil((ends - now) / 1_000));
  return new Failure("too_many_attempts", `too many ${what}; try again in ${seconds} s`, {
    data: { retry_after_seconds: seconds },
  });
}

/**
 * The address that attempts are counted for. Cloudflare names the client's address; where it
 * does not, all share one. Of IPv6 it is the /64 network: whoever has one address of it has them
 * all.
 */
export function clientAddress(request: { header(name: string): string | undefined }): string {
  const address = request.header("CF-Connecting-IP") ?? "unknown";
  const [head = "", tail] = address.split("::");
  // IPv4, also where it is written as the end of an IPv6 address.
  if (!address.includes(":") || address.includes(".")) return address;
  const groups = head.split(":").filter(Boolean);
  const rest = (tail ?? "").split(":").filter(Boolean);
  while (groups.length + rest.length < 8) groups.push("0");
  const network = [...groups, ...rest].slice(0, 4).map((group) => Number.parseInt(group, 16));
  return `${network.map((group) => group.toString(16)).join(":")}::/64`;
}
