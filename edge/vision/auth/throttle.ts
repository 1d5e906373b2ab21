// What slows the guessing of passwords down, and the making of accounts.

import {
  type AttemptTable,
  checkGuess,
  type Guess,
  limitAttempts,
  takeTurn,
} from "../../http/throttle.ts";
import type { Parts } from "../base/parts.ts";
import { sha256 } from "./digest.ts";

const ATTEMPTS: AttemptTable = { name: "throttle", key: "key", type: "text" };

/** Attempts a minute: for one email from one address, and from one address. */
export const PER_PAIR = 5;
export const PER_ADDRESS = 20;

/** Who sends an attempt, and for which email. `address` is null where it is not known. */
export interface Attempt {
  email: string;
  address: string | null;
}

const limitsOf = (verb: string, { email, address }: Attempt) =>
  address === null
    ? []
    : [
        { key: `${verb} ${address}`, attemptsMax: PER_ADDRESS },
        { key: `${verb} ${address} ${email}`, attemptsMax: PER_PAIR },
      ];

/** Looks whether a password is right, by `check`; null where it is wrong. */
export async function checkedPassword<Match>(
  parts: Parts,
  attempt: Attempt,
  check: () => Promise<Match | null>,
): Promise<Match | null> {
  const { email, address } = attempt;
  const guess: Guess = {
    limits: limitsOf("login", attempt),
    line: `account ${email}`,
    known: null,
  };
  if (address !== null) {
    // Kept for weeks, so without the address itself.
    const mark = `known ${await sha256(`${address} ${email}`)}`;
    guess.known = { mark, line: `${guess.line} ${address}` };
  }
  return checkGuess(parts, ATTEMPTS, guess, check);
}

/** Counts an attempt to make an account. Where no address is known, all wait in one line. */
export async function countRegistration(parts: Parts, attempt: Attempt): Promise<void> {
  await limitAttempts(parts, ATTEMPTS, limitsOf("register", attempt));
  if (attempt.address === null) await takeTurn(parts, ATTEMPTS, { line: "register", known: null });
}
