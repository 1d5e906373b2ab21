// What may not stand in a log or in an error that people read, cut out whatever the caller passes:
// values under names of secrets, passwords and secrets within addresses, and authorization values.
// Both logs, the services' and the GPU node's, write nothing that did not pass here.

/** Stands where a secret was. */
export const REDACTED = "[redacted]";
const CIRCULAR = "[circular]";

const SECRET_NAME =
  /key$|api.?key|token|secret|password|authorization|cookie|signature|credential/i;
const SECRET_PARAMETER =
  /([?&][^=&?\s]*(?:key|token|secret|password|signature|credential|sig)=)[^&\s"']+/gi;
/** What an address may be a part of: it holds neither spaces nor quotes. */
const WORD = /[^\s"']+/g;
const USER_IN_URL = /(\/\/[^:/@\s]*:)[^@/\s]+@/g;
const AUTHORIZATION = /\b(bearer|basic|apikey)\s+[\w.~+/=-]+/gi;

/** Characters of a text and of an error's message; enough to understand, too few to flood a log. */
const TEXT_MAX = 4_000;
const MESSAGE_MAX = 2_000;
const STACK_LINES_MAX = 8;
const CAUSES_MAX = 3;

export interface RedactionOptions {
  /**
   * Whether an address loses its whole query. False: only parameters with a secret's name lose
   * their values. A presigned address carries its permission in the query as a whole.
   */
  wholeQueries: boolean;
  /** The field in which an error's own code is written. */
  codeField: "code" | "error";
}

/** Text without passwords in addresses, secret parameters and authorization values. */
export type RedactText = (text: string) => string;

export interface Redaction {
  text: RedactText;
  /** A thrown value as plain JSON: its name, message, code, stack and causes. */
  error(thrown: unknown): unknown;
  /** Any value as plain JSON, at every depth; what contains itself is cut where it does. */
  value(value: unknown): unknown;
}

/** The redaction of one log. */
export function createRedaction({ wholeQueries, codeField }: RedactionOptions): Redaction {
  const text: RedactText = (raw) => {
    const withoutUsers = raw.replace(USER_IN_URL, `$1${REDACTED}@`);
    const whole = wholeQueries ? withoutUsers.replace(WORD, withoutQuery) : withoutUsers;
    return whole
      .replace(SECRET_PARAMETER, `$1${REDACTED}`)
      .replace(AUTHORIZATION, `$1 ${REDACTED}`)
      .slice(0, TEXT_MAX);
  };

  const error = (thrown: unknown, depth = 0): unknown => {
    if (!(thrown instanceof Error)) return text(String(thrown));
    const code = "code" in thrown && thrown.code ? { [codeField]: value(thrown.code) } : {};
    const cause =
      thrown.cause && depth < CAUSES_MAX ? { cause: error(thrown.cause, depth + 1) } : {};
    return {
      name: text(String(thrown.name)),
      message: text(withoutParameters(thrown.message)).slice(0, MESSAGE_MAX),
      ...code,
      stack: (thrown.stack ?? "")
        .split("\n")
        .map((line) => text(line.trim()))
        .filter((line) => line.startsWith("at "))
        .slice(0, STACK_LINES_MAX),
      ...cause,
    };
  };

  const within = (name: string, raw: unknown, around: readonly object[]): unknown => {
    if (SECRET_NAME.test(name)) return REDACTED;
    if (raw instanceof Error) return error(raw);
    if (typeof raw === "string") return text(raw);
    if (typeof raw === "bigint") return raw.toString();
    if (typeof raw !== "object" || raw === null) return raw;
    if (around.includes(raw)) return CIRCULAR;
    const holders = [...around, raw];
    if ("toJSON" in raw && typeof raw.toJSON === "function") {
      return within(name, raw.toJSON(name), holders);
    }
    if (Array.isArray(raw)) return raw.map((item) => within("", item, holders));
    return Object.fromEntries(
      Object.entries(raw).map(([field, inner]) => [field, within(field, inner, holders)]),
    );
  };
  const value = (raw: unknown) => within("", raw, []);

  return { text, error: (thrown) => error(thrown), value };
}

/**
 * A word without the query of the address that it holds. Searched for by its parts, since a pattern
 * of a whole address begins anew at every letter of a long word.
 */
function withoutQuery(word: string): string {
  const address = word.indexOf("://");
  const query = address < 0 ? -1 : word.indexOf("?", address);
  return query < 0 ? word : `${word.slice(0, query)}?${REDACTED}`;
}

/** A failed statement's message carries its parameters, which may be thousands of rows. */
const withoutParameters = (message: string): string => message.replace(/\nparams:[\s\S]*$/, "");
