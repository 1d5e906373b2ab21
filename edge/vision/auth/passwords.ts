// Passwords: what is accepted, and how one is kept. A hash carries its own parameters, so that they
// may be raised later: an older hash still verifies and is replaced at the next login.

import { scrypt, timingSafeEqual } from "node:crypto";
import { Failure } from "../../../shared/errors.ts";
import { COMMON_PASSWORDS } from "./common-passwords.ts";
import { fromBase64url, toBase64url } from "./digest.ts";

/** Counted in characters. The upper bound only keeps a request from being a burden. */
export const PASSWORD_MIN = 8;
export const PASSWORD_MAX = 256;

/** 32 MiB of memory for each hash; three times the work of p = 1. */
const COST = { N: 2 ** 15, r: 8, p: 3 };
const HASH_BYTES = 32;
const SALT_BYTES = 16;
const MEMORY_MAX = 64 * 1024 * 1024;
/** Digits and signs that are appended to common passwords, and that guesses append as well. */
const ENDING_MAX = 4;

/** Fails with `invalid_request` for one that is too short, too common or the email itself. */
export function checkPassword(password: string, email: string): void {
  const refuse = (problem: string) =>
    new Failure("invalid_request", `password: ${problem}`, {
      data: { issues: [{ field: "password", problem }] },
    });
  const length = [...password].length;
  if (length < PASSWORD_MIN) throw refuse(`must have at least ${PASSWORD_MIN} characters`);
  if (length > PASSWORD_MAX) throw refuse(`must have at most ${PASSWORD_MAX} characters`);
  const lowered = password.toLowerCase();
  if (lowered === email || lowered === email.split("@")[0]) {
    throw refuse("must not be your email address");
  }
  if (isCommon(lowered)) throw refuse("is among the most common ones; choose another");
}

/** Whether a password is common, or a common one with up to four digits and signs at its end. */
function isCommon(lowered: string): boolean {
  if (new Set(lowered).size === 1) return true;
  for (let end = lowered.length; end >= lowered.length - ENDING_MAX; end--) {
    if (COMMON_PASSWORDS.has(lowered.slice(0, end))) return true;
    if (/\p{L}/u.test(lowered[end - 1] ?? "")) return false;
  }
  return false;
}

/** `scrypt$N$r$p$salt$hash` of a password, with a salt of its own. */
export async function hashPassword(password: string): Promise<string> {
  const salt = crypto.getRandomValues(new Uint8Array(SALT_BYTES));
  const hash = await derive(password, salt, COST);
  const { N, r, p } = COST;
  return ["scrypt", N, r, p, toBase64url(salt), toBase64url(hash)].join("$");
}

/** Whether the password matches, and whether its hash should be replaced by a stronger one. */
export async function verifyPassword(
  password: string,
  stored: string,
): Promise<{ matches: boolean; outdated: boolean }> {
  const [kind, N, r, p, salt, hash] = stored.split("$");
  if (kind !== "scrypt" || !salt || !hash) throw new Error("a stored password hash is malformed");
  const cost = { N: Number(N), r: Number(r), p: Number(p) };
  const expected = fromBase64url(hash);
  const derived = await derive(password, fromBase64url(salt), cost, expected.length);
  const outdated = cost.N !== COST.N || cost.r !== COST.r || cost.p !== COST.p;
  return { matches: timingSafeEqual(derived, expected), outdated };
}

/** Takes as long as a verification: what an unknown email gets instead of one. */
export async function verifyNothing(password: string): Promise<void> {
  await derive(password, new Uint8Array(SALT_BYTES), COST);
}

/** The same password in any of Unicode's spellings is one password. */
function derive(
  password: string,
  salt: Uint8Array,
  cost: { N: number; r: number; p: number },
  length = HASH_BYTES,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    scrypt(
      password.normalize("NFKC"),
      salt,
      length,
      { ...cost, maxmem: MEMORY_MAX },
      (thrown, key) => (thrown ? reject(thrown) : resolve(new Uint8Array(key))),
    );
  });
}
