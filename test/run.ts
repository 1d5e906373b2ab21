// `npm test`: tidy · types · lint · tests · statuses, with one true closing line. With `--long` and
// `--peers`, as CI has it, long tests and the reference tools follow. Types, lint and statuses
// count as one check each; the rest are the counts of vitest and of the tools. Whatever failed is
// told again just before the closing line: of a long output, its end is what people see. So are
// what failed beside other tests and passed alone, and what was cut off.

import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, constants, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { LONG } from "./support/durations.ts";
import { type Counts, countsOfRun, vitest, withSecondLook } from "./support/vitest-runs.ts";

/** A failure is shown in whole where it happened; so many of its lines are shown again. */
const FAILURE_LINES = 12;

const ROOT = resolve(import.meta.dirname, "..");
/** What the run and all that it starts leave behind. Short: sockets lie in it. */
const scratch = mkdtempSync(join(tmpdir(), "vt-"));
// Another user passes through it: Postgres refuses to be root.
chmodSync(scratch, 0o711);
process.env.TMPDIR = scratch;
const reports = mkdtempSync(join(scratch, "reports-"));
process.once("exit", () => {
  try {
    // Something may still be written by what the exit ends.
    rmSync(scratch, { recursive: true, force: true, maxRetries: 5 });
  } catch {
    // A disk that a killed test had mounted is no failure of this run: it stays.
  }
});
// A signal may come to this process alone, which ends what it began as it exits.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.once(signal, () => process.exit(128 + constants.signals[signal]));
}
const bin = (name: string) => join(ROOT, "node_modules/.bin", name);

interface Ending {
  passed: boolean;
  /** Of a program that is not live. */
  output: string;
}

/** Runs a program; unless it is live, its output is shown when it ended, in one piece. */
function run(command: string, args: string[], live: boolean): Promise<Ending> {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: ROOT, stdio: live ? "inherit" : "pipe" });
    const endIt = () => child.kill();
    process.once("exit", endIt);
    const parts: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (part) => parts.push(part));
    child.on("close", (code) => {
      process.off("exit", endIt);
      const output = Buffer.concat(parts).toString();
      process.stdout.write(output);
      done({ passed: code === 0, output });
    });
  });
}

async function check(name: string, command: string, args: string[]): Promise<Counts> {
  const started = performance.now();
  const { passed, output } = await run(command, args, false);
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  process.stdout.write(`${passed ? "✓" : "✗"} ${name} (${seconds} s)\n`);
  const failures = passed ? [] : [`${name}\n${output}`];
  return { passed: Number(passed), failed: Number(!passed), skipped: 0, failures };
}

// Hundreds of processes load the same packages and our own sources: each is compiled once.
process.env.NODE_COMPILE_CACHE ??= join(ROOT, ".vantage/compile-cache");

/** What the reference tools may take. */
const PEERS_MINUTES = 10;

/**
 * What the reference tools say of us, within their time. A known difference is no success: it
 * counts as skipped.
 */
async function peers(): Promise<Counts> {
  const report = join(reports, "peers.json");
  const limit = `--minutes=${PEERS_MINUTES}`;
  const args = [join(ROOT, "test/peers/main.ts"), limit, `--report=${report}`];
  const ended = await run(process.execPath, args, true);
  const beyond = ended.passed ? [] : ["peers: failed outside a case"];
  if (!existsSync(report)) return { passed: 0, failed: 1, skipped: 0, failures: beyond };
  const told = JSON.parse(readFileSync(report, "utf8")) as Counts & { known: number };
  return {
    passed: told.passed,
    failed: ended.passed ? told.failed : Math.max(told.failed, 1),
    skipped: told.skipped + told.known,
    failures: told.failures.length > 0 ? told.failures : beyond,
  };
}

/**
 * All tests, by two runs beside one another, which take about as long: one of what computes, with a
 * process a core, and one of what waits for databases, sockets and deadlines for much of its time,
 * with one more. In a single run, files that compute would follow each other, and so would those
 * that wait.
 */
function sharesOfTests(): string[][] {
  const cores = Math.max(2, availableParallelism());
  return [
    ["--project=programs", `--maxWorkers=${cores}`],
    ["--project=!programs", `--maxWorkers=${cores + 1}`],
  ];
}

/** Shows failures in short. */
function show(title: string, mark: string, failures: readonly string[]) {
  if (failures.length > 0) process.stdout.write(`\n${title}:\n`);
  for (const failure of failures) {
    const [first = "", ...lines] = stripVTControlCharacters(failure).trim().split("\n");
    const shown = lines.slice(0, FAILURE_LINES).map((line) => `    ${line}\n`);
    process.stdout.write(`${mark} ${first}\n${shown.join("")}`);
  }
}

const PEERS = "--peers";
const LONG_TOO = "--long";
const MINUTES = /^--minutes=(\d+)$/;
const given = process.argv.slice(2);
const isGiven = (flag: string) => given.includes(flag);
const isOwn = (arg: string) => arg === PEERS || arg === LONG_TOO || MINUTES.test(arg);
const only = given.filter((arg) => !isOwn(arg));
const minutes = given.map((arg) => MINUTES.exec(arg)?.[1]).find((text) => text !== undefined);
/** Until when tests are cut off, so that the reference tools have their time. */
const testMinutes = Number(minutes ?? 0) - (isGiven(PEERS) ? PEERS_MINUTES : 0);
const deadline = minutes === undefined ? {} : { until: Date.now() + testMinutes * 60_000 };
if (minutes !== undefined && testMinutes <= 0) {
  process.stderr.write(
    `--minutes=${minutes} leaves no time for tests; ${PEERS} takes ${PEERS_MINUTES}\n`,
  );
  process.exit(2);
}
const results: Counts[] = [];
/** What failed beside other tests and passed alone. */
const unsteady: string[] = [];
/** Files that the deadline cut off. */
const cut: string[] = [];
if (only.length > 0) {
  const tests = await vitest(reports, only, deadline);
  cut.push(...tests.cut);
  results.push(countsOfRun(tests));
} else {
  results.push(countsOfRun(await vitest(reports, ["test/tidy.test.ts"])));
  results.push(
    ...(await Promise.all([
      check("types: Workers", bin("tsc"), ["-p", "tsconfig.edge.json"]),
      check("types: Node", bin("tsc"), ["-p", "tsconfig.node.json"]),
      check("types: browsers", bin("tsc"), ["-p", "tsconfig.client.json"]),
      check("lint", bin("biome"), ["check", "--error-on-warnings", "."]),
    ])),
  );
  const requests = join(reports, "requests.log");
  process.env.TEST_LOG = requests;
  const left = isGiven(LONG_TOO) ? [] : ["--exclude", `**/*${LONG}`];
  const args = ["--exclude", "test/tidy.test.ts", ...left];
  const tests = await withSecondLook(reports, args, { shares: sharesOfTests(), ...deadline });
  unsteady.push(...tests.unsteady);
  cut.push(...tests.cut);
  results.push(countsOfRun(tests));
  // Long files may wait for a faster machine; without the others nothing is known of a change.
  const lost = tests.cut.filter((one) => one.endsWith(".test.ts") && !one.endsWith(LONG));
  const failures = lost.map((path) => `${path}\nnot run to its end within ${minutes} minutes`);
  results.push({ passed: 0, failed: lost.length, skipped: -lost.length, failures });
  const pairs = join(ROOT, "test/pairs.ts");
  results.push(await check("every declared status seen", process.execPath, [pairs, requests]));
}
if (isGiven(PEERS)) results.push(await peers());
show(`Skipped, as ${minutes} minutes were over`, "-", cut);
show("Failed beside other tests, and passed alone: races that want to be found", "!", unsteady);
show(
  "What failed",
  "✗",
  results.flatMap((counts) => counts.failures),
);
const total = (name: "passed" | "failed" | "skipped") =>
  results.reduce((sum, counts) => sum + counts[name], 0);
const failed = total("failed");
process.stdout.write(`${total("passed")} passed, ${failed} failed, ${total("skipped")} skipped\n`);
process.exitCode = failed > 0 ? 1 : 0;
