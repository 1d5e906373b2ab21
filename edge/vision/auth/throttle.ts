// What slows the guessing of passwords down, and the making of accounts.

import {
  type AttemptTable,
  checkGuess,
  type Guess,
  limitAttempts,
  type Pace,
  takeTurn,
} from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";
import { sha256 } from "./digest.ts";

const ATTEMPTS: AttemptTable = { name: "throttle", key: "key", type: "text" };

/** Attempts a minute: for one email from one address, and from one address. */
export const PER_PAIR = 5;
export const PER_ADDRESS = 20;

/**
 * Accounts that are made, or passwords that are reset, without a known address: five a second,
 * which keep a core or two busy with hashing. Each has one line, as nothing tells senders apart;
 * whoever wants to fill it has to send five a second all the while, and in a storm of n a second a
 * newcomer still wins 5 of n tries.
 */
const OPEN_LINE: Pace = { atOnce: 10, gapMs: 200 };

/** Who sends an attempt, and for which email. `address` is null where it is not known. */
export interface Attempt {
  email: string;
  address: string | null;
}

/** An attempt at a password. */
export interface PasswordAttempt extends Attempt {
  /** The account's session that the sender has a token of, living or not; null without one. */
  session: string | null;
}

/** Counts an attempt at a code of a password reset; those without a known address share a line. */
export async function countReset(parts: Parts, address: string | null): Promise<void> {
  if (address === null) {
    await takeTurn(parts, ATTEMPTS, { line: "reset", known: null }, OPEN_LINE);
  } else {
    const limit = { key: `reset ${address}`, attemptsMax: PER_ADDRESS };
    await limitAttempts(parts, ATTEMPTS, [limit]);
  }
}

const limitsOf = (verb: string, { email, address }: Attempt) =>
  address === null
    ? []
    : [
        { key: `${verb} ${address}`, attemptsMax: PER_ADDRESS },
        { key: `${verb} ${address} ${email}`, attemptsMax: PER_PAIR },
      ];

/**
 * Looks whether a password is right, by `check`; null where it is wrong. Who has a token of one of
 * the account's sessions is limited, and waits, by that session and no address: strangers cannot
 * fill its line, and a thief of the token has what they would have at an address that is known.
 */
export async function checkedPassword<Match>(
  parts: Parts,
  attempt: PasswordAttempt,
  check: () => Promise<Match | null>,
): Promise<Match | null> {
  const { email, address, session } = attempt;
  const guess: Guess = {
    limits: limitsOf("login", attempt),
    line: `account ${email}`,
    known: null,
  };
  if (session !== null) {
    guess.limits = [{ key: `login session ${session}`, attemptsMax: PER_PAIR }];
    guess.line += ` session ${session}`;
  }
  if (address !== null) {
    // Kept for weeks, so without the address itself.
    const mark = `known ${await sha256(`${address} ${email}`)}`;
    const line = session === null ? `${guess.line} ${address}` : guess.line;
    guess.known = { mark, line };
  }
  return checkGuess(parts, ATTEMPTS, guess, check);
}

/** Counts an attempt to make an account. Where no address is known, all wait in one fast line. */
export async function countRegistration(parts: Parts, attempt: Attempt): Promise<void> {
  await limitAttempts(parts, ATTEMPTS, limitsOf("register", attempt));
  if (attempt.address !== null) return;
  await takeTurn(parts, ATTEMPTS, { line: "register", known: null }, OPEN_LINE);
}
