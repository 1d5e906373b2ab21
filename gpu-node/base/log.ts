// One JSON line per event on standard output. Secrets and query strings are cut here, whatever the
// caller passes: presigned addresses carry their permission in the query.

import { createRedaction, type RedactText } from "../../shared/redaction.ts";
import { iso, systemClock } from "../../shared/time.ts";
import { isDiskFull } from "./failure.ts";

type Level = "info" | "warning" | "error";
export type Fields = Readonly<Record<string, unknown>>;

export interface Log {
  info(event: string, fields?: Fields): void;
  warning(event: string, fields?: Fields): void;
  error(event: string, fields?: Fields): void;
}

const redaction = createRedaction({ wholeQueries: true, codeField: "code" });

/** Text without URL passwords, query strings and authorization values. */
export const scrub: RedactText = redaction.text;

/** The line for an event, without its newline. */
export function logLine(level: Level, event: string, fields: Fields): string {
  const entry = { at: iso(systemClock()), level, service: "gpu-node", event, ...fields };
  return JSON.stringify(redaction.value(entry));
}

/** A logger that writes lines where it is told; `more` stands in every one of them. */
export function createLog(write: (line: string) => void, more: Fields = {}): Log {
  const at =
    (level: Level) =>
    (event: string, fields: Fields = {}) =>
      write(logLine(level, event, { ...more, ...fields }));
  return { info: at("info"), warning: at("warning"), error: at("error") };
}

/** Where standard output is a file on a full disk, lines are lost and the process goes on. */
export function outliveFullDisk() {
  process.stdout.on("error", (thrown) => {
    if (!isDiskFull(thrown)) throw thrown;
  });
}

export const toStandardOutput = (line: string) => {
  process.stdout.write(`${line}\n`);
};
