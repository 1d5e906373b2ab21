// Runs of vitest for `npm test`: what its report says, as counts and as failures that can be shown
// again, and a second look at what failed in the crowd.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { stripVTControlCharacters } from "node:util";

const ROOT = resolve(import.meta.dirname, "../..");
const VITEST = join(ROOT, "node_modules/vitest/vitest.mjs");

/** What a part of `npm test` came to. */
export interface Counts {
  passed: number;
  failed: number;
  skipped: number;
  /** A failure's name, then its first lines; a crash may leave fewer than were counted. */
  failures: string[];
}

/** A test file in vitest's report, of which these parts are read. */
interface FileReport {
  name: string;
  status: string;
  message: string;
  assertionResults: { status: string; fullName: string; failureMessages: string[] }[];
}

/** Whether a file failed, in a test or beside its tests. */
const isFailed = ({ status }: FileReport): boolean => status === "failed";

/** Counts of test files; one that failed beside its tests counts as a failure more. */
function countsOf(files: readonly FileReport[]): Counts {
  const tests = files.flatMap((file) => file.assertionResults);
  const having = (status: string) => tests.filter((test) => test.status === status).length;
  const [passed, failed] = [having("passed"), having("failed")];
  const beside = files.filter((file) => isFailed(file) && failuresOfTests(file).length === 0);
  return {
    passed,
    failed: failed + beside.length,
    skipped: tests.length - passed - failed,
    failures: files.filter(isFailed).flatMap((file) => {
      const ofTests = failuresOfTests(file);
      if (file.message === "" && ofTests.length > 0) return ofTests;
      return [`${relative(ROOT, file.name)}\n${file.message}`, ...ofTests];
    }),
  };
}

/** What failures would be called that passed: tests, and the file where none of its own failed. */
function passedNames(file: FileReport): string[] {
  const name = relative(ROOT, file.name);
  const tests = file.assertionResults.filter(({ status }) => status === "passed");
  const ofTests = tests.map(({ fullName }) => `${name} · ${fullName}`);
  return isFailed(file) ? ofTests : [name, ...ofTests];
}

/** The first line of a failure, which names its test. */
const nameOf = (failure: string): string =>
  stripVTControlCharacters(failure).trim().split("\n")[0] ?? "";

function failuresOfTests({ name, assertionResults }: FileReport): string[] {
  return assertionResults
    .filter(({ status }) => status === "failed")
    .map(
      (test) => `${relative(ROOT, name)} · ${test.fullName}\n${test.failureMessages.join("\n")}`,
    );
}

/** What a run of vitest came to; without files where it left no report. */
interface Run {
  files: FileReport[];
  /** Failures outside every test, such as a crash. */
  outside: string[];
  /** Files that the deadline cut off, and what failed outside tests as they were. */
  cut: string[];
}

/** Whether what vitest says is seen as it comes; `plain` leaves the terminal to other runs too. */
type Output = "inherit" | "plain" | "ignore";

const PLAIN = join(import.meta.dirname, "plain-reporter.ts");

/** How a run is shown, and when it is cut off, in milliseconds of the epoch. */
interface RunOptions {
  output?: Output;
  until?: number | undefined;
}

/**
 * Vitest with some arguments; its report is left in a folder. A crash that leaves no report is a
 * failure outside a test.
 */
export async function vitest(
  reports: string,
  args: readonly string[],
  { output = "inherit", until }: RunOptions = {},
): Promise<Run> {
  const dir = mkdtempSync(join(reports, "vitest-"));
  const [report, unhandled] = [join(dir, "report.json"), join(dir, "unhandled.ndjson")];
  const cutFiles = join(dir, "cut");
  const reporters = [
    `--reporter=${output === "plain" ? PLAIN : "default"}`,
    `--reporter=${join(import.meta.dirname, "durations.ts")}`,
    `--reporter=${join(import.meta.dirname, "unhandled-errors.ts")}`,
    `--reporter=${join(import.meta.dirname, "deadline.ts")}`,
    "--reporter=json",
    `--outputFile.json=${report}`,
  ];
  const deadline = { TEST_UNTIL: String(until ?? ""), TEST_CUT: cutFiles };
  const env = { ...process.env, TEST_UNHANDLED: unhandled, ...deadline };
  const passed = await ends([VITEST, "run", ...args, ...reporters], env, output);
  if (!existsSync(report)) return { files: [], outside: ["vitest left no report"], cut: [] };
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as {
    testResults: FileReport[];
  };
  const wereCut = linesOf(cutFiles);
  const files = testResults.map((file) => (wereCut.includes(file.name) ? givenUp(file) : file));
  const failures = linesOf(unhandled).map((line) => JSON.parse(line) as string);
  // Tests that are given up go on while what they use is taken down.
  const outside = wereCut.length > 0 ? [] : failures;
  const cut = [
    ...wereCut.map((path) => relative(ROOT, path)),
    ...(wereCut.length > 0 ? failures : []),
  ];
  const isTold = passed || outside.length > 0 || cut.length > 0 || files.some(isFailed);
  return { files, outside: isTold ? outside : ["vitest failed outside a test"], cut };
}

/** A file that was cut off: its tests that failed have failed, and no word on its own lines. */
function givenUp(file: FileReport): FileReport {
  const status = failuresOfTests(file).length > 0 ? "failed" : "passed";
  return { ...file, status, message: "" };
}

/** Lines of a file that may not be there. */
function linesOf(path: string): string[] {
  return existsSync(path) ? readFileSync(path, "utf8").split("\n").filter(Boolean) : [];
}

/** Runs a program of Node.js, which is ended with this one; whether it ended well. */
function ends(args: readonly string[], env: NodeJS.ProcessEnv, output: Output): Promise<boolean> {
  return new Promise((done) => {
    const stdio = output === "ignore" ? "ignore" : "inherit";
    const child = spawn(process.execPath, args, { cwd: ROOT, stdio, env });
    const endIt = () => child.kill();
    process.once("exit", endIt);
    child.on("close", (code) => {
      process.off("exit", endIt);
      done(code === 0);
    });
  });
}

/** Counts of a run. A file that the deadline cut off counts as one skipped test, and its tests. */
export function countsOfRun({ files, outside, cut }: Run): Counts {
  const { passed, failed, skipped, failures } = countsOf(files);
  return {
    passed,
    failed: failed + outside.length,
    skipped: skipped + cut.length,
    failures: [...failures, ...outside],
  };
}

/** How long the second look may take where there is a deadline. */
const SECOND_LOOK_MS = 6 * 60_000;
/** Of more failed files than these, none is looked at again: that is no chance. */
const SECOND_LOOK_FILES_MAX = 3;

interface SecondLookOptions extends RunOptions {
  /** Arguments of runs that together run all tests, beside one another. */
  shares?: readonly (readonly string[])[];
}

/**
 * Vitest over all tests. Thousands of them share the cores with hundreds of processes, and a race
 * that shows once in a hundred runs of its own would fail every other run of the whole: a file that
 * failed runs once more, alone. What passes then has passed, and is unsteady: a race of the test's
 * or of the product's, whose failure is told so that somebody looks for it.
 */
export async function withSecondLook(
  reports: string,
  args: readonly string[],
  { shares = [[]], output = "inherit", until }: SecondLookOptions = {},
): Promise<Run & { unsteady: string[] }> {
  const shown = output === "inherit" && shares.length > 1 ? "plain" : output;
  const runs = await Promise.all(
    shares.map((share) => vitest(reports, [...args, ...share], { output: shown, until })),
  );
  const first = {
    files: runs.flatMap(({ files }) => files),
    outside: runs.flatMap(({ outside }) => outside),
    cut: runs.flatMap(({ cut }) => cut),
  };
  const failed = first.files.filter(isFailed);
  if (failed.length === 0 || failed.length > SECOND_LOOK_FILES_MAX) {
    return { ...first, unsteady: [] };
  }
  if (output === "inherit") process.stdout.write("\nOnce more, alone:\n");
  const names = failed.map(({ name }) => name);
  const again = await vitest(reports, [...args, ...names, "--maxWorkers=1"], {
    output,
    // What failed is looked at after the deadline too, for a while: it may be a race.
    ...(until === undefined ? {} : { until: Math.max(until, Date.now()) + SECOND_LOOK_MS }),
  });
  const failedAgain = new Set(countsOf(again.files).failures.map(nameOf));
  const passedAgain = new Set(again.files.flatMap(passedNames));
  const failures = countsOf(failed).failures;
  const isPassed = (failure: string) => passedAgain.has(nameOf(failure));
  // What was left out the second time, or not reached, has still failed.
  const lost = failures.filter((one) => !isPassed(one) && !failedAgain.has(nameOf(one)));
  return {
    files: [...first.files.filter((file) => !isFailed(file)), ...again.files],
    outside: [...first.outside, ...again.outside, ...lost],
    // What ran again to its end is not cut any more.
    cut: [...first.cut.filter((path) => !names.includes(resolve(ROOT, path))), ...again.cut],
    unsteady: failures.filter(isPassed),
  };
}
