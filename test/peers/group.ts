// What a group is, and how its scripts are run.

import { join } from "node:path";
import { execute } from "./environments.ts";
import { type Outcome, parseOutcomes } from "./known.ts";

export interface GroupContext {
  /** The interpreter of the group's environment. */
  python: string;
  /** The group's folder under `.vantage/peers`. */
  folder: string;
  /** Milliseconds until the run's time is up. */
  msLeft(): number;
}

export interface Group {
  /** Its checks, in the order of their lines. */
  run(context: GroupContext): Promise<Outcome[]>;
}

/** A Python script, and the case that all of its own lie under. */
export interface Script {
  script: `${string}/${string}.py`;
  case: string;
  args: readonly string[];
}

/** Runs one script of a group and takes what it says. */
export async function runScript(
  { python, msLeft }: GroupContext,
  { script, case: name, args }: Script,
): Promise<Outcome[]> {
  const path = join(import.meta.dirname, script);
  const ending = await execute([python, path, ...args], {
    msMax: msLeft(),
    env: { PYTHONDONTWRITEBYTECODE: "1", OPENBLAS_NUM_THREADS: "1", POLARS_MAX_THREADS: "2" },
  });
  return parseOutcomes(name, ending.output, ending);
}
