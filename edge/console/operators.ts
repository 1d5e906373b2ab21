// Who may operate: the holder of the one token that every console has, called `operator`, and those
// of further tokens, each with a name that is recorded with what they do.

import { z } from "zod";
import { Secret } from "../../shared/secret.ts";
import { secret } from "../http/config.ts";
import type { TokenHolder } from "../http/keys.ts";

/** The name of whoever holds `OPERATOR_TOKEN`. */
export const SOLE_OPERATOR = "operator";
const NAME = /^[A-Za-z0-9_-]{1,32}$/;
const TOKEN_CHARACTERS_MIN = 16;
const TOKEN_FORM = `must have ${TOKEN_CHARACTERS_MIN} characters or more`;

function problemOf(entries: readonly (readonly [name: string, token: string])[]): string | null {
  const [names, tokens] = [entries.map(([name]) => name), entries.map(([, token]) => token)];
  if (!names.every((name) => NAME.test(name))) {
    return "must be name:token,name:token with names of 1 to 32 letters, digits, _ -";
  }
  if (names.includes(SOLE_OPERATOR)) return `${SOLE_OPERATOR} is the name of OPERATOR_TOKEN`;
  if (tokens.some((token) => token.length < TOKEN_CHARACTERS_MIN)) {
    return `each token ${TOKEN_FORM}`;
  }
  const isUnique = [names, tokens].every((all) => new Set(all).size === all.length);
  return isUnique ? null : "names and tokens must be unique";
}

/** The token of the one that every console has. */
export const operatorToken = () =>
  secret().refine((token) => token.reveal().length >= TOKEN_CHARACTERS_MIN, TOKEN_FORM);

/** `name:token,name:token`; unset and empty are none. No error holds a token. */
export const operatorTokens = () =>
  z
    .string()
    .default("")
    .transform((text, context): TokenHolder[] => {
      const parts = text.split(",").map((one) => one.trim());
      const entries = parts.filter(Boolean).map((part) => {
        const colon = part.indexOf(":");
        return [part.slice(0, Math.max(colon, 0)).trim(), part.slice(colon + 1).trim()] as const;
      });
      const message = problemOf(entries);
      if (message) context.addIssue({ code: "custom", message });
      return entries.map(([name, token]) => ({ name, token: new Secret(token) }));
    });

/** Everybody who may operate. */
export const operatorsOf = (config: {
  OPERATOR_TOKEN: Secret;
  OPERATOR_TOKENS: readonly TokenHolder[];
}): TokenHolder[] => [
  { name: SOLE_OPERATOR, token: config.OPERATOR_TOKEN },
  ...config.OPERATOR_TOKENS,
];
