// `npm test`: tidy · types · lint · tests · statuses, with one true closing line. With `--peers`,
// as CI has it, the reference tools follow. Types, lint and statuses count as one check each; the
// rest are the counts of vitest and of the tools.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

const ROOT = resolve(import.meta.dirname, "..");
const reports = mkdtempSync(join(tmpdir(), "vantage-report-"));
const bin = (name: string) => join(ROOT, "node_modules/.bin", name);

/** Runs a program; its output is shown when it ended, in one piece. */
function run(command: string, args: string[], live: boolean): Promise<boolean> {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: ROOT, stdio: live ? "inherit" : "pipe" });
    const output: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr])
      stream?.on("data", (part) => output.push(part));
    child.on("close", (code) => {
      process.stdout.write(Buffer.concat(output));
      done(code === 0);
    });
  });
}

async function check(name: string, command: string, args: string[]): Promise<Counts> {
  const started = performance.now();
  const passed = await run(command, args, false);
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  process.stdout.write(`${passed ? "✓" : "✗"} ${name} (${seconds} s)\n`);
  return { passed: Number(passed), failed: Number(!passed), skipped: 0 };
}

/**
 * Vitest over some files. A crash that leaves no report, or fails outside a test, counts as a
 * failure.
 */
async function vitest(name: string, args: string[]): Promise<Counts> {
  const report = join(reports, `${name}.json`);
  const reporters = [
    "--reporter=default",
    "--reporter=test/support/durations.ts",
    "--reporter=json",
    `--outputFile.json=${report}`,
  ];
  const passed = await run(process.execPath, [bin("vitest"), "run", ...args, ...reporters], true);
  try {
    const { numPassedTests, numFailedTests, numPendingTests, numTodoTests } = JSON.parse(
      readFileSync(report, "utf8"),
    ) as Record<string, number>;
    const failed = numFailedTests ?? 0;
    return {
      passed: numPassedTests ?? 0,
      failed: passed ? failed : Math.max(failed, 1),
      skipped: (numPendingTests ?? 0) + (numTodoTests ?? 0),
    };
  } catch {
    return { passed: 0, failed: 1, skipped: 0 };
  }
}

// Hundreds of processes load the same packages and our own sources: each is compiled once.
process.env.NODE_COMPILE_CACHE ??= join(ROOT, ".vantage/compile-cache");

/**
 * What the reference tools say of us, within four minutes. A known difference is no success: it
 * counts as skipped.
 */
async function peers(): Promise<Counts> {
  const report = join(reports, "peers.json");
  const args = [join(ROOT, "test/peers/main.ts"), "--minutes=4", `--report=${report}`];
  const ended = await run(process.execPath, args, true);
  if (!existsSync(report)) return { passed: 0, failed: 1, skipped: 0 };
  const { passed, failed, known, skipped } = JSON.parse(readFileSync(report, "utf8")) as Counts & {
    known: number;
  };
  return { passed, failed: ended ? failed : Math.max(failed, 1), skipped: skipped + known };
}

const PEERS = "--peers";
const only = process.argv.slice(2).filter((arg) => arg !== PEERS);
const results: Counts[] = [];
if (only.length > 0) results.push(await vitest("only", only));
else {
  results.push(await vitest("tidy", ["test/tidy.test.ts"]));
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
  results.push(await vitest("tests", ["--exclude", "test/tidy.test.ts"]));
  const pairs = join(ROOT, "test/pairs.ts");
  results.push(await check("every declared status seen", process.execPath, [pairs, requests]));
}
if (process.argv.includes(PEERS)) results.push(await peers());
rmSync(reports, { recursive: true, force: true });
const total = (name: keyof Counts) => results.reduce((sum, counts) => sum + counts[name], 0);
const failed = total("failed");
process.stdout.write(`${total("passed")} passed, ${failed} failed, ${total("skipped")} skipped\n`);
process.exitCode = failed > 0 ? 1 : 0;
