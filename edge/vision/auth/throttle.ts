// Slows guessing down: so many attempts a minute for each pair of email and address, and for each
// address. Nobody's own address is slowed by what others try, so a victim is never locked out.

import { sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import { iso, MINUTE } from "../../../shared/time.ts";
import type { Parts } from "../base/parts.ts";

export interface Limit {
  /** What is being throttled, such as `login 192.0.2.1`. */
  key: string;
  /** Attempts in a window of a minute. */
  most: number;
}

const WINDOW_MS = MINUTE;

/**
 * Cloudflare names the client's address; where it does not, all share one. Of IPv6 it is the
 * network: whoever has one address of it has them all.
 */
export function addressOf(request: { header(name: string): string | undefined }): string {
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

/**
 * Counts an attempt against every limit, in one statement; fails with `too_many_attempts` when one
 * is passed. The failure names the seconds until the window ends.
 */
export async function countAttempt(parts: Parts, limits: readonly Limit[]): Promise<void> {
  const now = parts.clock();
  // In one order everywhere, so that two statements cannot wait for each other.
  const keys = limits.map(({ key }) => key).sort();
  const { rows } = await parts.database.execute<{
    key: string;
    attempts: number;
    ends: number;
  }>(sql`
    INSERT INTO throttle AS t (key, attempts, window_ends_at)
    SELECT key, 1, ${iso(now + WINDOW_MS)}::timestamptz
      FROM jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb) WITH ORDINALITY AS k(key, n)
      ORDER BY n
    ON CONFLICT (key) DO UPDATE SET
      attempts = CASE WHEN t.window_ends_at <= ${iso(now)}::timestamptz THEN 1
        ELSE t.attempts + 1 END,
      window_ends_at = CASE WHEN t.window_ends_at <= ${iso(now)}::timestamptz
        THEN excluded.window_ends_at ELSE t.window_ends_at END
    RETURNING key, attempts, (extract(epoch FROM window_ends_at) * 1000)::float8 AS ends`);
  const passed = rows.filter(
    (row) => row.attempts > (limits.find(({ key }) => key === row.key)?.most ?? 0),
  );
  if (passed.length === 0) return;
  const seconds = Math.max(
    1,
    Math.ceil((Math.max(...passed.map(({ ends }) => ends)) - now) / 1000),
  );
  throw new Failure("too_many_attempts", `too many attempts; try again in ${seconds} s`, {
    data: { retry_after_seconds: seconds },
  });
}

/** Takes an attempt back: it was no guess, for it succeeded. */
export async function forgiveAttempt(parts: Parts, limits: readonly Limit[]): Promise<void> {
  const keys = limits.map(({ key }) => key).sort();
  await parts.database.execute(sql`
    UPDATE throttle SET attempts = attempts - 1 WHERE attempts > 0 AND key IN (
      SELECT key FROM throttle
        WHERE key IN (SELECT jsonb_array_elements_text(${JSON.stringify(keys)}::jsonb))
        ORDER BY key FOR UPDATE)`);
}
