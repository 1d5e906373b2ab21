// One JSON line per event on standard output. Secrets and query strings are cut here, whatever the
// caller passes: presigned addresses carry their permission in the query.

import { iso, systemClock } from "../../shared/time.ts";

type Level = "info" | "warning" | "error";
export type Fields = Readonly<Record<string, unknown>>;

export interface Log {
  info(event: string, fields?: Fields): void;
  warning(event: string, fields?: Fields): void;
  error(event: string, fields?: Fields): void;
}

const SECRET_NAME = /api.?key|token|secret|password|authorization|cookie|signature|credential/i;
const QUERY = /(https?:\/\/[^\s"'?]*)\?[^\s"']*/gi;
const USER_IN_URL = /(\/\/[^:/@\s]*:)[^@/\s]+@/g;
const BEARER = /\b(bearer|basic)\s+[\w.~+/=-]+/gi;
const TEXT_MAX = 4_000;

/** Text without URL passwords, query strings and authorization values. */
export const scrub = (text: string): string =>
  text
    .replace(USER_IN_URL, "$1[redacted]@")
    .replace(QUERY, "$1?[redacted]")
    .replace(BEARER, "$1 [redacted]")
    .slice(0, TEXT_MAX);

/** Name, message, stack and causes of a thrown value, scrubbed. */
export function describeError(thrown: unknown, depth = 0): unknown {
  if (!(thrown instanceof Error)) return scrub(String(thrown));
  return {
    name: thrown.name,
    message: scrub(thrown.message),
    ...("code" in thrown && thrown.code ? { code: thrown.code } : {}),
    stack: (thrown.stack ?? "")
      .split("\n")
      .map((line) => scrub(line.trim()))
      .filter((line) => line.startsWith("at "))
      .slice(0, 8),
    ...(thrown.cause && depth < 3 ? { cause: describeError(thrown.cause, depth + 1) } : {}),
  };
}

export function logLine(level: Level, event: string, fields: Fields): string {
  const entry = { at: iso(systemClock()), level, service: "gpu-node", event, ...fields };
  return JSON.stringify(entry, (name, value: unknown) => {
    if (SECRET_NAME.test(name)) return "[redacted]";
    if (value instanceof Error) return describeError(value);
    if (typeof value === "string") return scrub(value);
    return value;
  });
}

/** A logger that writes lines where it is told; `more` stands in every one of them. */
export function createLog(write: (line: string) => void, more: Fields = {}): Log {
  const at =
    (level: Level) =>
    (event: string, fields: Fields = {}) =>
      write(logLine(level, event, { ...more, ...fields }));
  return { info: at("info"), warning: at("warning"), error: at("error") };
}

export const toStandardOutput = (line: string) => {
  process.stdout.write(`${line}\n`);
};
