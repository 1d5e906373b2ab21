// What the commands of npm share: options with the nearest known one named, one exit code for what
// was not understood, one line for what was expected to fail, and colour for people alone.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type ParseArgsConfig, parseArgs, styleText } from "node:util";
import { nearest } from "../../shared/detector/vocabulary.ts";

/** Exit codes: it was done; it failed; it was not understood, and nothing was done. */
export const EXIT = { done: 0, failed: 1, notUnderstood: 2 } as const;

/** The command was not understood. */
export class UsageError extends Error {}

/** The text of a command's `--help`; `bootstrap.mjs` prints it before anything is installed. */
export const usageOf = (command: string): string =>
  readFileSync(join(import.meta.dirname, `${command}.txt`), "utf8");

/** Arguments by `parseArgs`; an unknown option is a `UsageError` that names the nearest one. */
export function readArguments<Config extends ParseArgsConfig>(config: Config) {
  try {
    return parseArgs(config);
  } catch (thrown) {
    const { message } = thrown as Error;
    const unknown = /^Unknown option '--?([^']+)'/.exec(message)?.[1];
    if (unknown === undefined) throw new UsageError(message.split(". ")[0]);
    const known = Object.keys(config.options ?? {});
    throw new UsageError(`there is no option --${unknown}${meant(unknown, known, "--")}`);
  }
}

/** `; did you mean x?` for a word that resembles a known one, else the known ones. */
export function meant(word: string, known: readonly string[], prefix = ""): string {
  const near = nearest(word, known);
  if (near) return `; did you mean ${prefix}${near}?`;
  return `; there are: ${known.map((one) => prefix + one).join(", ")}`;
}

/** Runs a command to its end, and tells in one line how it failed. */
export async function runCommand(command: string, main: () => Promise<void>) {
  // Whoever reads the output may have seen enough of it, as `head` does.
  process.stdout.on("error", () => process.exit());
  try {
    await main();
  } catch (thrown) {
    const { text, code } = describeFailure(command, thrown);
    process.stderr.write(`${paint("red", text.trimEnd(), process.stderr)}\n`);
    process.exit(code);
  }
}

function describeFailure(command: string, thrown: unknown): { text: string; code: number } {
  const { message, stack = message } = thrown as Error;
  if (thrown instanceof UsageError) {
    return {
      text: `${message}\nWhat there is: ${command} -- --help`,
      code: EXIT.notUnderstood,
    };
  }
  if (thrown instanceof TypeError && message === "fetch failed") {
    const advice = "the stack does not answer; look at it, or start it with npm start";
    return { text: `${message}: ${advice}`, code: EXIT.failed };
  }
  // A fault of ours shows where; whatever else fails says all that helps.
  const isFault = /^(Type|Reference|Range|Syntax)Error$/.test((thrown as Error).name);
  return { text: isFault ? stack : message, code: EXIT.failed };
}

/** Colour where people read it: on a terminal that NO_COLOR does not forbid. */
export const paint = (
  style: Parameters<typeof styleText>[0],
  text: string,
  stream: NodeJS.WriteStream = process.stdout,
): string => styleText(style, text, { stream });
