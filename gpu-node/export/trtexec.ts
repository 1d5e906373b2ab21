// NVIDIA's `trtexec`: whether it is on this machine, and engines that it builds. An engine is for
// one GPU and one version of TensorRT, so what was built is kept by both, by the ONNX file's hash
// and by what was asked for. A build takes minutes; it runs in a process of its own.

import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readdir, rename, rm, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { systemClock } from "../../shared/time.ts";
import { TaskFailure } from "../base/failure.ts";
import { sha256OfFile } from "../base/file-hash.ts";
import { scrub } from "../base/log.ts";
import { lives, ownName } from "../base/processes.ts";
import { type EngineOptions, engineArguments } from "./tensorrt-options.ts";

/** Where NVIDIA's packages put it, without saying so to the path. */
const PROGRAMS = ["trtexec", "/usr/src/tensorrt/bin/trtexec"];
const ANSWER_MS_MAX = 20_000;
/** Engines that are kept; the one used longest ago goes first. */
const ENGINES_MAX = 16;
/** Its output tells nothing of how far it is: that it still works is all there is to say. */
const BUILDING_MS = 20_000;
const LINES_KEPT = 200;
const LINES_SHOWN = 5;

export interface Trtexec {
  program: string;
  /** Version of TensorRT, such as `10.8.0`. */
  version: string;
  /** The first GPU's name, as the driver says it. */
  gpu: string;
}

type Environment = Readonly<Record<string, string>>;

/**
 * The program and the GPU that it builds for; null where one of both is not here. Without an
 * environment, that of this process.
 */
export async function findTrtexec(environment?: Environment): Promise<Trtexec | null> {
  const query = ["--query-gpu=name", "--format=csv,noheader"];
  const gpu = (await said("nvidia-smi", query, environment))?.split("\n")[0]?.trim();
  if (!gpu) return null;
  for (const program of PROGRAMS) {
    const version = versionIn((await said(program, ["--help"], environment)) ?? "");
    if (version) return { program, version, gpu };
  }
  return null;
}

async function said(
  program: string,
  args: readonly string[],
  environment: Environment | undefined,
): Promise<string | null> {
  const options = { timeout: ANSWER_MS_MAX, ...(environment && { env: environment }) };
  return promisify(execFile)(program, args, options).then(
    ({ stdout, stderr }) => stdout + stderr,
    () => null,
  );
}

/** `[TensorRT v8601]` is 8.6.1; from version 10 on every part has two digits: `v100800`. */
function versionIn(text: string): string | null {
  const number = Number(/\[TensorRT v(\d+)\]/.exec(text)?.[1] ?? 0);
  if (number === 0) return null;
  const major = number >= 10_000 ? Math.floor(number / 10_000) : Math.floor(number / 1_000);
  const minor = number >= 10_000 ? Math.floor(number / 100) % 100 : Math.floor(number / 100) % 10;
  return `${major}.${minor}.${number % 100}`;
}

export interface EngineBuild {
  /** Folder of the engines that were built; it is made where it is not there. */
  folder: string;
  timeoutSeconds: number;
  signal: AbortSignal;
  trtexec: Trtexec;
  /** Is told once the program has begun, and again and again while it works, after how long. */
  onBuilding?: (seconds: number) => void;
  /** Milliseconds between. */
  everyMs?: number;
}

/**
 * The engine of an ONNX file, built now or before. Fails with `engine_not_built` and the program's
 * last lines, or as the signal says. `isNew` says which it was.
 */
export async function buildEngine(
  onnxPath: string,
  options: EngineOptions,
  { folder, trtexec, ...limits }: EngineBuild,
): Promise<{ path: string; isNew: boolean }> {
  const { signal } = limits;
  signal.throwIfAborted();
  await mkdir(folder, { recursive: true });
  const hash = await sha256OfFile(onnxPath, signal);
  const { program, version, gpu } = trtexec;
  const wanted = engineArguments(options);
  const machine = nameOf([version, gpu]);
  const path = join(folder, `${nameOf([hash, machine, ...wanted])}.plan`);
  if (await use(path)) return { path, isNew: false };
  const part = `${path}.part-${ownName()}`;
  const args = [
    `--onnx=${onnxPath}`,
    `--saveEngine=${part}`,
    `--timingCacheFile=${join(folder, `${machine}.timing`)}`,
    ...wanted,
  ];
  try {
    await build(program, args, limits);
    await rename(part, path);
  } catch (thrown) {
    signal.throwIfAborted();
    if ((thrown as { code?: unknown }).code !== "ENOENT") throw thrown;
    throw notBuilt("it wrote no engine");
  } finally {
    await rm(part, { force: true });
  }
  await tidy(folder);
  return { path, isNew: true };
}

const nameOf = (parts: readonly string[]) =>
  createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 32);

/** Whether an engine is there; it is then the one used last. */
async function use(path: string): Promise<boolean> {
  const now = new Date(systemClock());
  return utimes(path, now, now).then(
    () => true,
    () => false,
  );
}

const notBuilt = (why: string, cause?: unknown) =>
  new TaskFailure("engine_not_built", `trtexec built no engine: ${why}`, { cause });

type BuildLimits = Omit<EngineBuild, "folder" | "trtexec">;

function build(
  program: string,
  args: readonly string[],
  { timeoutSeconds, signal, onBuilding, everyMs = BUILDING_MS }: BuildLimits,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const tell = () => onBuilding?.((performance.now() - began) / 1_000);
    const child = spawn(program, args, {
      stdio: ["ignore", "pipe", "pipe"],
      signal,
      killSignal: "SIGKILL",
    });
    let isLate = false;
    const limit = setTimeout(() => {
      isLate = true;
      child.kill("SIGKILL");
    }, timeoutSeconds * 1_000);
    child.once("spawn", tell);
    const telling = setInterval(tell, everyMs);
    const lines: string[] = [];
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        lines.push(...text.split("\n").filter(Boolean));
        lines.splice(0, lines.length - LINES_KEPT);
      });
    }
    child.once("error", (cause) => {
      clearTimeout(limit);
      clearInterval(telling);
      reject(signal.aborted ? signal.reason : notBuilt("it did not start", cause));
    });
    child.once("close", (code, by) => {
      clearTimeout(limit);
      clearInterval(telling);
      if (code === 0) resolve();
      else if (isLate) reject(notBuilt(`it took longer than ${timeoutSeconds} s`));
      else reject(notBuilt(`${by ?? `exit status ${code}`}. ${lastWords(lines)}`));
    });
  });
}

/** The last lines that tell of errors, or simply the last. */
function lastWords(lines: readonly string[]): string {
  const errors = lines.filter((line) => line.includes("[E]"));
  const shown = (errors.length > 0 ? errors : lines).slice(-LINES_SHOWN);
  return shown.map(scrub).join(" | ");
}

/** Drops the engines used longest ago, and halves that a process left when it died. */
async function tidy(folder: string): Promise<void> {
  const names = await readdir(folder);
  const halves = names.filter((name) => {
    const [, owner] = name.split(".plan.part-");
    return owner !== undefined && !lives(owner);
  });
  for (const name of halves) await rm(join(folder, name), { force: true });
  const engines = await Promise.all(
    names
      .filter((name) => name.endsWith(".plan"))
      .map(async (name) => {
        const path = join(folder, name);
        return { path, at: (await stat(path)).mtimeMs };
      }),
  );
  engines.sort((one, other) => other.at - one.at);
  for (const { path } of engines.slice(ENGINES_MAX)) await rm(path, { force: true });
}
