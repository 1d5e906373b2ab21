// What slows guessing at secrets down, in a table of the service's own database. Everything is
// counted before a guess is looked at, so that many at once are no more than one after another.
//
// - Of an address so many guesses are answered in a minute.
// - Of an account, from wherever they come, the guesses are checked one after another: a few at
//   once, then one at a time. Who would wait too long is told to come again, and not checked.
// - Who was right before, at this address, waits in a line of their own: whatever others do
//   elsewhere, the owner of an account is let in.
// - Whose client proves by a signed mark that they were right before waits in a line of that mark,
//   wherever they are. It is read by the caller, who names that line and counts by the mark.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../shared/errors.ts";
import { DAY, iso, MINUTE } from "../../shared/time.ts";
import { batch, type Database, epochMs } from "./database.ts";

/** Turns of a line that are taken without a wait, and the time between any two more. */
export interface Pace {
  atOnce: number;
  gapMs: number;
}

/** The pace of guesses at one account. */
const GUESSES: Pace = { atOnce: 10, gapMs: 2_000 };
/** Nobody waits longer for their guess to be checked. */
const WAIT_MS_MAX = 8_000;
/** How long an address is remembered at which a guess was right. */
const KNOWN_MS = 30 * DAY;
/**
 * How long a mark counts that a client was given for a right guess. Longer than a session: when
 * that is over, the mark is needed.
 */
export const MARK_MS = 180 * DAY;

/** A table of attempts by key, with the columns `attempts` and `window_ends_at`. */
export interface AttemptTable {
  name: "throttle" | "wrong_token";
  /** Its primary key and the type of that. */
  key: "key" | "bucket";
  type: "text" | "int";
}

/** What was counted of a key. */
interface AttemptCount extends Record<string, unknown> {
  key: string;
  /** Attempts in the window, this one included. */
  attempts: number;
  /** End of the window, epoch milliseconds. */
  ends: number;
}

/** How many attempts a minute one thing allows. */
export interface Limit {
  /** What is being limited, such as `login 192.0.2.1`. */
  key: string;
  /** Attempts in a window of a minute. */
  attemptsMax: number;
}

/** Where a guess is counted. */
export interface Guess {
  /** Limits of its sender's address or mark; none where neither is known. */
  limits: readonly Limit[];
  /** The line of the account, or of a mark that was given for it. */
  line: string;
  /**
   * Where the sender's address is known: the mark that somebody was right there, and the line of
   * those who come from there once they were.
   */
  known: { mark: string; line: string } | null;
}

/** What guesses are counted with. */
interface ThrottleParts {
  database: Database;
  clock: () => number;
}

/**
 * Looks whether a guess is right, by `check`, which answers null where it is wrong. Fails with
 * `too_many_attempts` before that where there were too many; one that is right is taken back.
 */
export async function checkGuess<Match>(
  parts: ThrottleParts,
  table: AttemptTable,
  guess: Guess,
  check: () => Promise<Match | null>,
): Promise<Match | null> {
  await limitAttempts(parts, table, guess.limits);
  const line = await takeTurn(parts, table, guess);
  const match = await check();
  if (match === null) return null;
  const keys = guess.limits.map(({ key }) => key);
  if (keys.length > 0) await forgiveAttempts(parts.database, table, keys);
  await welcomeBack(parts, table, { line, mark: guess.known?.mark ?? null });
  return match;
}

/**
 * Counts an attempt against every limit, in one statement; fails with `too_many_attempts` when one
 * is passed. The failure names the seconds until the window ends.
 */
export async function limitAttempts(
  { database, clock }: ThrottleParts,
  table: AttemptTable,
  limits: readonly Limit[],
): Promise<void> {
  if (limits.length === 0) return;
  const now = clock();
  const maxByKey = new Map(limits.map(({ key, attemptsMax }) => [key, attemptsMax]));
  const counts = await countAttempts(database, table, [...maxByKey.keys()], now);
  const passed = counts.filter(({ key, attempts }) => attempts > (maxByKey.get(key) ?? 0));
  if (passed.length === 0) return;
  throw tooManyAttempts(Math.max(...passed.map(({ ends }) => ends)) - now);
}

/** The names of a table as they stand in a statement. */
const wordsOf = ({ name, key, type }: AttemptTable) => ({
  name: sql.raw(name),
  key: sql.raw(key),
  type: sql.raw(type),
});

const at = (instant: number): SQL => sql`${iso(instant)}::timestamptz`;
const intervalOf = ({ gapMs }: Pace): SQL => sql.raw(`interval '${gapMs} milliseconds'`);

/**
 * Takes the next turn in a line and waits for it; returns the line. `window_ends_at` of a line is
 * when all of it was checked, at one each `gapMs`; who is refused takes no turn.
 */
export async function takeTurn(
  { database, clock }: ThrottleParts,
  table: AttemptTable,
  { line, known }: Pick<Guess, "line" | "known">,
  pace = GUESSES,
): Promise<string> {
  const { name, key, type } = wordsOf(table);
  const now = clock();
  const { atOnce, gapMs } = pace;
  const free = (atOnce - 1) * gapMs;
  const { rows } = await database.execute<{ line: string; ends: number }>(sql`
    INSERT INTO ${name} AS t (${key}, attempts, window_ends_at)
    SELECT CASE WHEN EXISTS (SELECT FROM ${name}
        WHERE ${key} = ${known?.mark ?? null}::${type} AND window_ends_at > ${at(now)})
      THEN ${known?.line ?? null}::${type} ELSE ${line}::${type} END, 1, ${at(now + gapMs)}
    ON CONFLICT (${key}) DO UPDATE
      SET window_ends_at = greatest(t.window_ends_at, ${at(now)}) + ${intervalOf(pace)}
      WHERE t.window_ends_at <= ${at(now + free + WAIT_MS_MAX)}
    RETURNING t.${key}::text AS line, ${epochMs(sql`window_ends_at`)} AS ends`);
  const [turn] = rows;
  if (!turn) throw tooManyAttempts(gapMs);
  const wait = turn.ends - gapMs - free - now;
  if (wait > 0) await new Promise<void>((done) => setTimeout(done, wait));
  return turn.line;
}

/** Gives the turn of a right guess back, and marks its address as one that is known. */
async function welcomeBack(
  { database, clock }: ThrottleParts,
  table: AttemptTable,
  { line, mark }: { line: string; mark: string | null },
): Promise<void> {
  const { name, key, type } = wordsOf(table);
  const giveBack = sql`
    UPDATE ${name} SET window_ends_at = window_ends_at - ${intervalOf(GUESSES)}
     WHERE ${key} = ${line}::${type}`;
  const remember = sql`
    INSERT INTO ${name} (${key}, attempts, window_ends_at)
    SELECT ${mark}::${type}, 1, ${at(clock() + KNOWN_MS)} WHERE ${mark}::${type} IS NOT NULL
    ON CONFLICT (${key}) DO UPDATE SET window_ends_at = excluded.window_ends_at`;
  await batch(database, [giveBack, remember]);
}

/**
 * Counts an attempt against each of these keys, in one statement; an attempt after the end of a
 * window begins the next one.
 */
async function countAttempts(
  database: Database,
  table: AttemptTable,
  keys: readonly string[],
  now: number,
): Promise<AttemptCount[]> {
  const { name, key, type } = wordsOf(table);
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
      ${epochMs(sql`window_ends_at`)} AS ends`);
  return rows;
}

/** Takes an attempt against each of these keys back: it was no guess, for it succeeded. */
async function forgiveAttempts(
  database: Database,
  table: AttemptTable,
  keys: readonly string[],
): Promise<void> {
  const { name, key, type } = wordsOf(table);
  await database.execute(sql`
    UPDATE ${name} SET attempts = attempts - 1 WHERE attempts > 0 AND ${key} IN (
      SELECT ${key} FROM ${name}
        WHERE ${key} IN (SELECT k::${type} FROM jsonb_array_elements_text(
          ${JSON.stringify(keys)}::jsonb) k)
        ORDER BY ${key} FOR UPDATE)`);
}

/** The `too_many_attempts` of who may come again after so many milliseconds. */
function tooManyAttempts(milliseconds: number): Failure {
  const seconds = Math.max(1, Math.ceil(milliseconds / 1_000));
  return new Failure("too_many_attempts", `too many attempts; try again in ${seconds} s`, {
    data: { retry_after_seconds: seconds },
  });
}

/**
 * The address that attempts are counted for, or null where nobody can tell it: only Cloudflare
 * names it so that its sender cannot choose it. Of IPv6 it is the /64 network: whoever has one
 * address of it has them all.
 */
export function clientAddress(
  request: { header(name: string): string | undefined },
  behindCloudflare: boolean,
): string | null {
  const address = behindCloudflare ? request.header("CF-Connecting-IP") : undefined;
  if (address === undefined) return null;
  const [head = "", tail] = address.split("::");
  // IPv4, also where it is written as the end of an IPv6 address.
  if (!address.includes(":") || address.includes(".")) return address;
  const groups = head.split(":").filter(Boolean);
  const rest = (tail ?? "").split(":").filter(Boolean);
  while (groups.length + rest.length < 8) groups.push("0");
  const network = [...groups, ...rest].slice(0, 4).map((group) => Number.parseInt(group, 16));
  return `${network.map((group) => group.toString(16)).join(":")}::/64`;
}
