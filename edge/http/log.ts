// One JSON line per event on standard output. Secrets are cut here, whatever the caller passes.

import { createRedaction, REDACTED, type RedactText } from "../../shared/redaction.ts";
import { iso, systemClock } from "../../shared/time.ts";

type Level = "info" | "warning" | "error";
/** What a line says beside its event. */
export type Fields = Readonly<Record<string, unknown>>;

const redaction = createRedaction({ wholeQueries: false, codeField: "error" });

/** Text without URL passwords, secret query values and authorization values. */
export const scrub: RedactText = redaction.text;

/** Query values for the log: those whose names are known to be harmless, the rest redacted. */
export function loggableQuery(query: Record<string, string[]>, harmless: ReadonlySet<string>) {
  const entries = Object.entries(query).map(([name, values]) => [
    scrub(name).slice(0, 64),
    harmless.has(name) ? values.join(",").slice(0, 200) : REDACTED,
  ]);
  return Object.fromEntries(entries) as Record<string, string>;
}

/** The line for an event, without its newline. */
export function logLine(service: string, level: Level, event: string, fields: Fields): string {
  const entry = { at: iso(systemClock()), level, service, event, ...fields };
  return JSON.stringify(redaction.value(entry));
}

/** A logger of one service: `log.info("tick", { schedule })`. */
export interface Log {
  info(event: string, fields?: Fields): void;
  warning(event: string, fields?: Fields): void;
  error(event: string, fields?: Fields): void;
}

/** The logger of a service: a line of JSON an event, without secrets, on the standard output. */
export function createLog(service: string): Log {
  const write =
    (level: Level) =>
    (event: string, fields: Fields = {}) =>
      console.log(logLine(service, level, event, fields));
  return { info: write("info"), warning: write("warning"), error: write("error") };
}
