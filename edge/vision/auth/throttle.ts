// Slows guessing down: so many attempts a minute for each pair of email and address, and for each
// address. Nobody's own address is slowed by what others try, so a victim is never locked out.

import { sql } from "drizzle-orm";
import { type AttemptTable, countAttempts, tooManyAttempts } from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";

/** How many attempts a minute one thing allows. */
export interface Limit {
  /** What is being throttled, such as `login 192.0.2.1`. */
  key: string;
  /** Attempts in a window of a minute. */
  attemptsMax: number;
}

const ATTEMPTS: AttemptTable = { name: "throttle", key: "key", type: "text" };

/**
 * The address that attempts are counted for. Cloudflare names the client's address; where it
 * does not, all share one. Of IPv6 it is the /64 network: whoever has one address of it has them
 * all.
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
export async function countAttempt(
  { database, clock }: Parts,
  limits: readonly Limit[],
): Promise<void> {
  const now = clock();
  const maxByKey = new Map(limits.map(({ key, attemptsMax }) => [key, attemptsMax]));
  const counts = await countAttempts(database, ATTEMPTS, [...maxByKey.keys()], now);
  const passed = counts.filter(({ key, attempts }) => attempts > (maxByKey.get(key) ?? 0));
  if (passed.length === 0) return;
  throw tooManyAttempts("attempts", Math.max(...passed.map(({ ends }) => ends)), now);
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
