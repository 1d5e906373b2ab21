// Python environments of the groups, under `.vantage/peers/<group>`: made once, and again when the
// pinned requirements or the interpreter have changed. None of it is part of the product.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const ROOT = resolve(import.meta.dirname, "../..");
/** The requirements are pinned for 3.11; newer ones have wheels of nearly all of them. */
const VERSION_MIN = [3, 11] as const;
const PROBE_MS_MAX = 20_000;
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

/** The interpreter to build with, and its version; null without one that is new enough. */
export async function findPython(): Promise<{ program: string; version: string } | null> {
  for (const program of ["python3.11", "python3"]) {
    const probe = "import pip, sys, venv; print('.'.join(map(str, sys.version_info[:3])))";
    const { code, output } = await execute([program, "-c", probe], { msMax: PROBE_MS_MAX });
    const [major = 0, minor = 0] = output.trim().split(".").map(Number);
    const isNewEnough = major === VERSION_MIN[0] && minor >= VERSION_MIN[1];
    if (code === 0 && isNewEnough) return { program, version: output.trim() };
  }
  return null;
}

export type Environment = { python: string; folder: string } | { missing: string };

/** The group's environment as its pinned requirements say, or why there is none. */
export async function ensureEnvironment(group: string, msMax: number): Promise<Environment> {
  const python = await findPython();
  if (!python) return { missing: "no Python 3.11 or newer with venv and pip on this machine" };
  const folder = join(ROOT, ".vantage/peers", group);
  const requirements = join(import.meta.dirname, group, "requirements.txt");
  const stamp = stampOf(python.version, readFileSync(requirements, "utf8"));
  const own = join(folder, "python/bin/python");
  if (isStamped(folder, "python", stamp)) return { python: own, folder };
  process.stderr.write(`Installing what ${group} needs into ${folder} (once) …\n`);
  rmSync(join(folder, "python"), { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const deadline = performance.now() + msMax;
  const steps: [string, ...string[]][] = [
    [python.program, "-m", "venv", "--without-pip", join(folder, "python")],
    [
      ...([python.program, "-m", "pip", "--python", own, "install", "--quiet"] as const),
      ...["--no-deps", "--no-compile", "--only-binary", ":all:", "--retries", "1"],
      ...["--disable-pip-version-check", "--no-input", "-r", requirements],
    ],
  ];
  for (const step of steps) {
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
