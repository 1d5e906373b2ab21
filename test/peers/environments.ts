// Python environments of the groups, under `.vantage/peers/<group>`: made once, and again when the
// pinned requirements or the interpreter have changed. None of it is part of the product.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { environmentCommands, findPython, NO_PYTHON } from "../../edge/local/python.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const OUTPUT_CHARACTERS_MAX = 4_000_000;

export interface Ending {
  code: number | null;
  timedOut: boolean;
  /** Both streams together. */
  output: string;
}

/** Runs a program to its end, or kills it and all it started when its milliseconds are over. */
export function execute(
  command: readonly [string, ...string[]],
  { msMax, cwd, env }: { msMax: number; cwd?: string; env?: Record<string, string> },
): Promise<Ending> {
  return new Promise((done) => {
    const [program, ...args] = command;
    const child = spawn(program, args, {
      cwd: cwd ?? ROOT,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
      detached: true,
    });
    let output = "";
    let timedOut = false;
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
      });
    }
    const end = () => {
      try {
        if (child.pid) process.kill(-child.pid, "SIGKILL");
      } catch {
        // Its group is gone.
      }
    };
    const limit = setTimeout(
      () => {
        timedOut = true;
        end();
      },
      Math.max(1, msMax),
    );
    process.once("exit", end);
    child.once("error", (error) => {
      output += error.message;
    });
    child.once("close", (code) => {
      clearTimeout(limit);
      process.off("exit", end);
      done({ code, timedOut, output });
    });
  });
}

export type Environment = { python: string; folder: string } | { missing: string };

/** The group's environment as its pinned requirements say, or why there is none. */
export async function ensureEnvironment(group: string, msMax: number): Promise<Environment> {
  const python = await findPython();
  if (!python) return { missing: NO_PYTHON };
  const folder = join(ROOT, ".vantage/peers", group);
  const requirements = join(import.meta.dirname, group, "requirements.txt");
  // A group without pins makes what it needs itself.
  if (!existsSync(requirements)) return { python: python.program, folder };
  const stamp = stampOf(python.version, readFileSync(requirements, "utf8"));
  const own = join(folder, "python/bin/python");
  if (isStamped(folder, "python", stamp)) return { python: own, folder };
  process.stderr.write(`Installing what ${group} needs into ${folder} (once) …\n`);
  rmSync(join(folder, "python"), { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const deadline = performance.now() + msMax;
  const made = { folder: join(folder, "python"), requirements };
  for (const step of environmentCommands(python, made)) {
    const ending = await execute(step, { msMax: deadline - performance.now() });
    if (ending.code !== 0) return { missing: `its environment was not installed: ${why(ending)}` };
  }
  writeFileSync(join(folder, "python.stamp"), stamp);
  return { python: own, folder };
}

/** The group's npm packages, by a lock of its own; null, or why they are not there. */
export async function ensurePackages(group: string, msMax: number): Promise<string | null> {
  const source = join(import.meta.dirname, group);
  const folder = join(ROOT, ".vantage/peers", group, "node");
  const files = ["package.json", "package-lock.json"];
  const texts = files.map((file) => readFileSync(join(source, file), "utf8"));
  const stamp = stampOf(process.version, ...texts);
  if (isStamped(join(folder, ".."), "node", stamp)) return null;
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  for (const file of files) copyFileSync(join(source, file), join(folder, file));
  const ending = await execute(
    ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"],
    { msMax, cwd: folder },
  );
  if (ending.code !== 0) return `npm packages were not installed: ${why(ending)}`;
  writeFileSync(join(folder, "../node.stamp"), stamp);
  return null;
}

function stampOf(...parts: readonly string[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(`${part}\0`);
  return hash.digest("hex");
}

function isStamped(folder: string, name: string, stamp: string): boolean {
  const path = join(folder, `${name}.stamp`);
  return existsSync(path) && readFileSync(path, "utf8") === stamp && existsSync(join(folder, name));
}

/** The last words of a program that failed. */
const why = ({ timedOut, output }: Ending) =>
  timedOut ? "it took too long" : (output.trim().split("\n").at(-1) ?? "").slice(0, 300);
