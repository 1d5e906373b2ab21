// `npm test`: tidy · types · lint · tests, with one true closing line. With `--long` and `--peers`,
// as CI has it, long tests follow, whether every declared status was seen, and the reference tools.
// Types, lint and statuses count as one check each; the rest are the counts of vitest and of the
// tools. Whatever failed is told again just before the closing line: of a long output, its end is
// what people see. So are what failed beside other tests and passed alone, and what was cut off.

import { existsSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { check, conclude, openScratch, ROOT, run, show, staticChecks } from "./support/checks.ts";
import { LONG } from "./support/durations.ts";
import { type Counts, countsOfRun, vitest, withSecondLook } from "./support/vitest-runs.ts";

const reports = openScratch();

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
  results.push(...(await staticChecks()));
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
  // Some statuses are seen by long files alone.
  if (isGiven(LONG_TOO) && tests.cut.length === 0) {
    const pairs = join(ROOT, "test/pairs.ts");
    results.push(await check("every declared status seen", process.execPath, [pairs, requests]));
  }
}
if (isGiven(PEERS)) results.push(await peers());
show(`Skipped, as ${minutes} minutes were over`, "-", cut);
show("Failed beside other tests, and passed alone: races that want to be found", "!", unsteady);
conclude(results);
