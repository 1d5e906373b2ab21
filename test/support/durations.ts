// How long each test file took, kept from run to run, so that the longest begin first: the last to
// begin should not run alone at the end. A checkout that never ran its tests has the committed
// times; `UPDATE=1 npm test` writes them anew.

import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import {
  BaseSequencer,
  type Reporter,
  type TestModule,
  type TestRunEndReason,
  type TestSpecification,
} from "vitest/node";
import { PROJECT_NAMES } from "./projects.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const MEASURED = join(ROOT, ".vantage/test-durations.json");
const COMMITTED = join(ROOT, "test/durations.json");
/** Shorter files are not worth a committed line. */
const COMMITTED_SECONDS_MIN = 3;

const SLOWEST_SHOWN = 10;

/** Seconds by file, relative to the checkout. */
export type Durations = Record<string, number>;

function read(path: string): Durations {
  try {
    return JSON.parse(readFileSync(path, "utf8")) as Durations;
  } catch {
    return {};
  }
}

/** What is known of every file's time; measured here before measured elsewhere. */
export const knownDurations = (): Durations => ({ ...read(COMMITTED), ...read(MEASURED) });

/** How files are named that `npm test` runs only with `--long`. */
export const LONG = ".long.test.ts";

/**
 * Long files last, so that a deadline cuts them alone, and of these the longest last where there is
 * one, so that it cuts few. Else projects one after the other, so that a process is reused; the
 * longest files of each first.
 */
export class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]) {
    const known = knownDurations();
    const names: readonly string[] = PROJECT_NAMES;
    const projectOf = ({ project }: TestSpecification) => names.indexOf(project.name);
    const isLong = ({ moduleId }: TestSpecification) => moduleId.endsWith(LONG);
    const secondsOf = ({ moduleId }: TestSpecification) => known[relative(ROOT, moduleId)] ?? 0;
    const longestFirst = (a: TestSpecification, b: TestSpecification) =>
      projectOf(a) - projectOf(b) || secondsOf(b) - secondsOf(a);
    const shortestFirst = (a: TestSpecification, b: TestSpecification) =>
      secondsOf(a) - secondsOf(b);
    const isLimited = Boolean(process.env.TEST_UNTIL);
    const others = files.filter((file) => !isLong(file)).sort(longestFirst);
    return [...others, ...files.filter(isLong).sort(isLimited ? shortestFirst : longestFirst)];
  }
}

/** Remembers how long every file took, and says which took longest. */
export default class DurationsReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], _: readonly unknown[], reason: TestRunEndReason) {
    // A test's own project is not this checkout's, and what was cut off took longer than is known.
    if (reason === "interrupted") return;
    if (modules.some((module) => pathOf(module).startsWith(".."))) return;
    const measured = new Map(modules.map((module) => [pathOf(module), secondsOf(module)]));
    const durations = new Map(Object.entries(read(MEASURED)));
    for (const path of modules.filter((module) => module.ok()).map(pathOf)) {
      durations.set(path, measured.get(path) ?? 0);
    }
    const present = longestFirst(durations).filter(([path]) => existsSync(join(ROOT, path)));
    mkdirSync(dirname(MEASURED), { recursive: true });
    write(MEASURED, present);
    if (process.env.UPDATE === "1") {
      write(
        COMMITTED,
        present.filter(([, seconds]) => seconds >= COMMITTED_SECONDS_MIN),
      );
    }
    if (modules.length <= SLOWEST_SHOWN) return;
    const lines = longestFirst(measured)
      .slice(0, SLOWEST_SHOWN)
      .map(([path, seconds]) => `${seconds.toFixed(1).padStart(7)} s  ${path}\n`);
    process.stdout.write(`\nThe slowest files:\n${lines.join("")}`);
  }
}

const pathOf = ({ moduleId }: TestModule) => relative(ROOT, moduleId);

/** Seconds of a file with its imports and hooks, to a tenth. */
function secondsOf(module: TestModule): number {
  const { collectDuration, setupDuration, duration } = module.diagnostic();
  return Math.round((collectDuration + setupDuration + duration) / 100) / 10;
}

const longestFirst = (durations: Map<string, number>) =>
  [...durations].toSorted(([, a], [, b]) => b - a);

/** Whoever reads the file meanwhile, as another run beside this one, finds the whole of it. */
function write(path: string, durations: [string, number][]) {
  const partial = `${path}.${process.pid}`;
  writeFileSync(partial, `${JSON.stringify(Object.fromEntries(durations), null, 2)}\n`);
  renameSync(partial, path);
}
