// Torch's own wheels in an environment of the project, which the engine is then built with. The
// folder is there whole or not at all: it is made beside its place and renamed.

import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";
import { environmentCommands, findPython, NO_PYTHON } from "./python.ts";
import { ROOT } from "./state.ts";

/** Where the wheels lie; `findTorch` of engine.mjs and native/torch.cmake look there. */
export const WHEELS = join(ROOT, ".vantage/engine");

/** What is pinned: torch for the CPU, or all that CUDA needs but a driver. */
export const REQUIREMENTS = {
  cpu: join(ROOT, "native/requirements.txt"),
  cuda: join(ROOT, "native/requirements-cuda.txt"),
} as const;

/** What an environment was made of: the texts of its requirements, the file that includes others
 * first. */
const MARK = "vantage-requirements";

export interface WheelOptions {
  /** A file of pins with hashes, which may include another of its folder. */
  requirements: string;
  /** The environment's folder. */
  folder: string;
  /** What pip is given; its output goes where this process's goes. */
  environment?: Readonly<Record<string, string | undefined>>;
}

/**
 * Installs what the requirements pin; false where that is there already. What another process left
 * halfway is removed first; what was there before stays until the new one is whole.
 */
export async function installWheels(options: WheelOptions): Promise<boolean> {
  const { requirements, folder, environment = process.env } = options;
  removeRemains(folder);
  const wanted = textOf(requirements);
  if (installedAt(folder) === wanted) return false;
  const python = await findPython();
  if (!python) throw new Error(`Nothing was installed: ${NO_PYTHON}.`);
  const partial = besideOf(folder, "partial");
  fs.mkdirSync(dirname(folder), { recursive: true });
  try {
    for (const command of environmentCommands(python, { folder: partial, requirements })) {
      const code = await run(command, {
        ...environment,
        PIP_REQUIRE_HASHES: "1",
        PIP_NO_CACHE_DIR: "1",
      });
      if (code !== 0) throw new Error(`Nothing was installed: ${command.join(" ")} failed.`);
    }
    nameRuntime(partial);
    fs.writeFileSync(join(partial, MARK), wanted);
    const old = besideOf(folder, "old");
    if (fs.existsSync(folder)) fs.renameSync(folder, old);
    fs.renameSync(partial, folder);
  } finally {
    removeRemains(folder, { own: true });
  }
  return true;
}

/** Names the runtime of onnxruntime's wheel as the npm package's binding asks for it. */
function nameRuntime(folder: string) {
  for (const python of fs.readdirSync(join(folder, "lib"))) {
    const runtimes = join(folder, "lib", python, "site-packages/onnxruntime/capi");
    if (!fs.existsSync(runtimes)) continue;
    const names = fs.readdirSync(runtimes).filter((name) => /^libonnxruntime\.so\.1\./.test(name));
    const [name] = names;
    if (name) fs.symlinkSync(name, join(runtimes, "libonnxruntime.so.1"));
  }
}

/** Removes the environment; false where there is none. */
export function removeWheels(folder: string): boolean {
  removeRemains(folder);
  if (!fs.existsSync(folder)) return false;
  // At once, so that no half of it is ever built with.
  fs.renameSync(folder, besideOf(folder, "old"));
  removeRemains(folder, { own: true });
  return true;
}

/** Whether an environment is what a requirements file pins. */
export const isInstalled = (folder: string, requirements: string): boolean =>
  installedAt(folder) === textOf(requirements);

/** Names of the pinned packages of an environment, with versions; null where there is none. */
export function installedPins(folder: string): string[] | null {
  const text = installedAt(folder);
  return text === null ? null : pinsOf(text);
}

/** `name==version` of each requirement. */
export const pinsOf = (text: string): string[] => text.match(/^[a-z0-9-]+==[^\s\\]+/gm) ?? [];

/** The text of a requirements file, and behind it those that it includes. */
export function textOf(requirements: string): string {
  const text = fs.readFileSync(requirements, "utf8");
  const included = text.match(/(?<=^-r ).+$/gm) ?? [];
  return [text, ...included.map((name) => textOf(join(dirname(requirements), name)))].join("");
}

function installedAt(folder: string): string | null {
  try {
    return fs.readFileSync(join(folder, MARK), "utf8");
  } catch {
    return null;
  }
}

const besideOf = (folder: string, what: "partial" | "old") => `${folder}.${what}.${process.pid}`;

/** Folders beside the environment that a process left that is no more, or this one. */
function removeRemains(folder: string, { own = false } = {}) {
  const parent = dirname(folder);
  if (!fs.existsSync(parent)) return;
  const pattern = new RegExp(`^${basename(folder)}\\.(partial|old)\\.(\\d+)$`);
  for (const name of fs.readdirSync(parent)) {
    const pid = Number(pattern.exec(name)?.[2] ?? 0);
    if (pid && (pid === process.pid ? own : !isAlive(pid)))
      fs.rmSync(join(parent, name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Runs a program to its end with this process's streams; resolves to its exit code. */
function run(
  [program, ...args]: readonly [string, ...string[]],
  env: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  return new Promise((resolve) => {
    const child = spawn(program, args, { stdio: ["ignore", "inherit", "inherit"], env });
    const end = (signal: NodeJS.Signals) => child.kill(signal);
    process.once("SIGTERM", end);
    process.once("SIGINT", end);
    child.once("error", () => resolve(1));
    child.once("close", (code) => {
      process.off("SIGTERM", end);
      process.off("SIGINT", end);
      resolve(code ?? 1);
    });
  });
}
