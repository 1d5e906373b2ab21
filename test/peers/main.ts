// `npm run peers [-- group …]`: what we write and compute, checked with the reference tools of the
// people who use it. Without a group, those that CI runs. README.md says what the lines mean.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { meant, readArguments, runCommand, UsageError } from "../../edge/local/command-line.ts";
import { whole } from "../../shared/scalars.ts";
import { annotators } from "./annotators.ts";
import { contract } from "./contract.ts";
import { devices } from "./devices.ts";
import { engine } from "./engine.ts";
import { type Environment, ensureEnvironment } from "./environments.ts";
import { elsewhere, exports } from "./exports.ts";
import { formats } from "./formats.ts";
import type { Group } from "./group.ts";
import {
  count,
  type Judgement,
  judge,
  KnownDifferences,
  MARKS,
  type Outcome,
  summaryLine,
} from "./known.ts";
import { markets } from "./markets.ts";
import { masks } from "./masks.ts";
import { metrics } from "./metrics.ts";
import { readers } from "./readers.ts";
import { serving } from "./serving.ts";
import { training } from "./training.ts";

const GROUPS: Readonly<Record<string, Group>> = {
  formats,
  annotators,
  exports,
  devices,
  elsewhere,
  readers,
  contract,
  metrics,
  markets,
  serving,
  training,
  masks,
  engine,
};
/** Small enough for every run; the others are asked for by name. */
const DEFAULT_GROUPS = ["formats", "exports", "contract", "metrics"];
const MINUTES_DEFAULT = 30;
const HANG_MS = 60_000;

const print = (line: string) => process.stdout.write(`${line}\n`);

function show({ case: name, verdict, detail }: Judgement) {
  const [first = "", ...more] = detail.split("\n");
  print(`${MARKS[verdict]} ${name}${first ? ` · ${first}` : ""}`);
  for (const line of more) print(`    ${line}`);
}

async function outcomesOf(
  name: string,
  environment: Environment,
  msLeft: () => number,
): Promise<Outcome[]> {
  if ("missing" in environment)
    return [{ case: name, outcome: "skipped", detail: environment.missing }];
  if (msLeft() < 0) return [{ case: name, outcome: "skipped", detail: "the run's time is up" }];
  try {
    return await (GROUPS[name] as Group).run({ ...environment, msLeft });
  } catch (thrown) {
    const detail = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
    return [{ case: name, outcome: "failed", detail }];
  }
}

interface Arguments {
  names: string[];
  /** All groups may take so many minutes; what does not fit is skipped by name. */
  minutes: number;
  /** A file for the counts and failures, for the program that started this one. */
  report: string | undefined;
}

function parse(): Arguments {
  const { values, positionals } = readArguments({
    allowPositionals: true,
    options: {
      minutes: { type: "string", default: String(MINUTES_DEFAULT) },
      report: { type: "string" },
    },
  });
  const unknown = positionals.find((name) => !(name in GROUPS));
  if (unknown !== undefined)
    throw new UsageError(`there is no group ${unknown}${meant(unknown, Object.keys(GROUPS))}`);
  const minutes = whole(1).safeParse(values.minutes);
  if (!minutes.success)
    throw new UsageError(`--minutes ${JSON.stringify(values.minutes)} is not a number above 0`);
  const names = positionals.length > 0 ? positionals : DEFAULT_GROUPS;
  return { names, minutes: minutes.data, report: values.report };
}

await runCommand("npm run peers", main);

async function main() {
  const { names, minutes, report } = parse();
  const deadline = performance.now() + minutes * 60_000;
  const msLeft = () => deadline - performance.now();
  // Scripts end at the deadline; this is for a service that hangs.
  setTimeout(() => {
    print("peers: still not done after its time");
    process.exit(1);
  }, msLeft() + HANG_MS).unref();
  const known = KnownDifferences.parse(
    JSON.parse(readFileSync(join(import.meta.dirname, "known.json"), "utf8")),
  );
  // They are installed beside each other, and while the first group runs.
  const environments = new Map(names.map((name) => [name, ensureEnvironment(name, msLeft())]));
  const judged: Judgement[] = [];
  for (const [name, environment] of environments) {
    const started = performance.now();
    const own = judge(await outcomesOf(name, await environment, msLeft), known, [name]);
    for (const one of own) show(one);
    judged.push(...own);
    print(`${name}: ${((performance.now() - started) / 1_000).toFixed(0)} s`);
  }
  const counts = count(judged);
  print(summaryLine(counts));
  const failures = judged
    .filter(({ verdict }) => verdict === "failed")
    .map((one) => `${one.case}\n${one.detail}`);
  if (report) writeFileSync(report, JSON.stringify({ ...counts, failures }));
  process.exit(counts.failed > 0 ? 1 : 0);
}
