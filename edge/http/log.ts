// One JSON line per event on standard output. Secrets are cut here, whatever the caller passes.

import { iso, systemClock } from "../../shared/time.ts";

type Level = "info" | "warning" | "error";
export type Fields = Readonly<Record<string, unknown>>;

const SECRET_NAME =
  /key$|api.?key|token|secret|password|authorization|cookie|signature|credential/i;
const SECRET_IN_URL =
  /([?&][^=&\s]*(?:key|token|secret|password|signature|credential|sig)=)[^&\s"']+/gi;
const USER_IN_URL = /(\/\/[^:/@\s]*:)[^@/\s]+@/g;
const BEARER = /\b(bearer|basic|apikey)\s+[\w.~+/=-]+/gi;

const MESSAGE_LENGTH_MAX = 2_000;

/** Text with URL passwords, secret query values and authorization values cut out. */
export const scrub = (text: string): string =>
  text
    .replace(USER_IN_URL, "$1[redacted]@")
    .replace(SECRET_IN_URL, "$1[redacted]")
    .replace(BEARER, "$1 [redacted]");

/** Query values for the log: those whose names are known to be harmless, the rest redacted. */
export function loggableQuery(query: Record<string, string[]>, harmless: ReadonlySet<string>) {
  const entries = Object.entries(query).map(([name, values]) => [
    scrub(name).slice(0, 64),
    harmless.has(name) ? values.join(",").slice(0, 200) : "[redacted]",
  ]);
  return Object.fromEntries(entries) as Record<string, string>;
}

/** A failed statement's message carries its parameters, which may be thousands of rows. */
const withoutParameters = (message: string) =>
  message.replace(/\nparams:[\s\S]*$/, "").slice(0, MESSAGE_LENGTH_MAX);

/** Name, message, stack and causes of a thrown value, scrubbed. */
export function describeError(thrown: unknown, depth = 0): unknown {
  if (!(thrown instanceof Error)) return scrub(String(thrown));
  return {
    name: thrown.name,
    message: scrub(withoutParameters(thrown.message)),
    ...("code" in thrown && thrown.code ? { error: thrown.code } : {}),
    stack: (thrown.stack ?? "")
      .split("\n")
      .map((line) => scrub(line.trim()))
      .filter((line) => line.startsWith("at "))
      .slice(0, 8),
    ...(thrown.cause && depth < 3 ? { cause: describeError(thrown.cause, depth + 1) } : {}),
  };
}

/** The line for an event, without its newline. */
export function logLine(service: string, level: Level, event: string, fields: Fields): string {
  const entry = { at: iso(systemClock()), level, service, event, ...fields };
  return JSON.stringify(entry, (name, value: unknown) => {
    if (SECRET_NAME.test(name)) return "[redacted]";
    if (value instanceof Error) return describeError(value);
    if (typeof value === "string") return scrub(value);
    return value;
  });
}

/** A logger of one service: `log.info("tick", { schedule })`. */
export interface Log {
  info(event: string, fields?: Fields): void;
  warning(event: string, fields?: Fields): void;
  error(event: string, fields?: Fields): void;
}

export function createLog(service: string): Log {
  const write =
    (level: Level) =>
    (event: string, fields: Fields = {}) =>
      console.log(logLine(service, level, event, fields));
  return { info: write("info"), warning: write("warning"), error: write("error") };
}
