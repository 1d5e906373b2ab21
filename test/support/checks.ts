// What the commands of `test/` share: a folder of their own, programs that count as one check each,
// and a closing line that is true to the run.

import { spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { constants, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { stripVTControlCharacters } from "node:util";
import type { Counts } from "./vitest-runs.ts";

/** The checkout. */
export const ROOT = resolve(import.meta.dirname, "../..");

/** A failure is shown in whole where it happened; so many of its lines are shown again. */
const FAILURE_LINES = 12;

/**
 * Makes the folder of what the run and all that it starts leave behind, which goes with it. Short:
 * sockets lie in it.
 */
export function openScratch(): string {
  const scratch = mkdtempSync(join(tmpdir(), "vt-"));
  // Another user passes through it: Postgres refuses to be root.
  chmodSync(scratch, 0o711);
  process.env.TMPDIR = scratch;
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
  // Hundreds of processes load the same packages and our own sources: each is compiled once.
  process.env.NODE_COMPILE_CACHE ??= join(ROOT, ".vantage/compile-cache");
  return mkdtempSync(join(scratch, "reports-"));
}

const bin = (name: string) => join(ROOT, "node_modules/.bin", name);

/** How a program ended. */
export interface Ending {
  passed: boolean;
  /** Of a program that is not live. */
  output: string;
}

/** Runs a program; unless it is live, its output is shown when it ended, in one piece. */
export function run(command: string, args: string[], live: boolean): Promise<Ending> {
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

/** Runs a program as one check. */
export async function check(name: string, command: string, args: string[]): Promise<Counts> {
  const started = performance.now();
  const { passed, output } = await run(command, args, false);
  const seconds = ((performance.now() - started) / 1_000).toFixed(1);
  process.stdout.write(`${passed ? "✓" : "✗"} ${name} (${seconds} s)\n`);
  const failures = passed ? [] : [`${name}\n${output}`];
  return { passed: Number(passed), failed: Number(!passed), skipped: 0, failures };
}

/** Types and lint, each as one check; with `repair`, what lint can mend is written. */
export async function staticChecks({ repair = false } = {}): Promise<Counts[]> {
  // What lint mends is what types look at.
  const lint = ["check", "--error-on-warnings", ...(repair ? ["--write"] : []), "."];
  const linted = check("lint", bin("biome"), lint);
  if (repair) await linted;
  return Promise.all([
    check("types: Workers", bin("tsc"), ["-p", "tsconfig.edge.json"]),
    check("types: Node", bin("tsc"), ["-p", "tsconfig.node.json"]),
    check("types: browsers", bin("tsc"), ["-p", "tsconfig.client.json"]),
    linted,
  ]);
}

/** Shows failures in short. */
export function show(title: string, mark: string, failures: readonly string[]) {
  if (failures.length > 0) process.stdout.write(`\n${title}:\n`);
  for (const failure of failures) {
    const [first = "", ...lines] = stripVTControlCharacters(failure).trim().split("\n");
    const shown = lines.slice(0, FAILURE_LINES).map((line) => `    ${line}\n`);
    process.stdout.write(`${mark} ${first}\n${shown.join("")}`);
  }
}

/** Shows what failed, and prints the closing line. The exit status follows from it. */
export function conclude(results: readonly Counts[]): void {
  show(
    "What failed",
    "✗",
    results.flatMap((counts) => counts.failures),
  );
  const total = (name: "passed" | "failed" | "skipped") =>
    results.reduce((sum, counts) => sum + counts[name], 0);
  const [passed, failed, skipped] = [total("passed"), total("failed"), total("skipped")];
  process.stdout.write(`${passed} passed, ${failed} failed, ${skipped} skipped\n`);
  process.exitCode = failed > 0 ? 1 : 0;
}
