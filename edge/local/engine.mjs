// Builds the training engine (native/) where torch is: once, and again when its sources or torch
// have changed. Without torch, or where it does not build, the product runs without training: that
// is said in a line, never an error. Plain JavaScript, no dependency.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  accessSync,
  constants,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { availableParallelism, totalmem } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const COMMANDS = ["start", "test", "gpu-node", "demo", "bench", "peers", "engine"];
const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const BUILD_MS_MAX = 900_000;
const LOCK_MS_MAX = 960_000;
const LOCK_POLL_MS = 200;
/** Memory of a compiler that reads torch's headers. */
const COMPILER_BYTES = 1.5 * 1024 ** 3;
const LOG_LINES = 15;
const DEBIAN = "/usr/lib/x86_64-linux-gnu";
const PYTHON_TORCH =
  "import importlib.util as u, os; s = u.find_spec('torch'); " +
  "print(os.path.dirname(s.origin) if s and s.origin else '')";

/**
 * The torch to build with, or null: a folder with include/ and lib/, and what tells it from others.
 * The order is that of native/torch.cmake.
 */
export async function findTorch(environment, root = ROOT) {
  const asked = environment.TORCH_ROOT || wheelAt(join(root, ".vantage/engine"));
  if (!asked) pythonTorch ??= execute("python3", ["-c", PYTHON_TORCH], { ms: 20_000 });
  const given = asked || (await pythonTorch).output.trim();
  for (const [folder, libraries] of [
    [given, `${given}/lib`],
    [given, `${given}/lib/x86_64-linux-gnu`],
    ["/usr", DEBIAN],
  ]) {
    const library = `${libraries}/libtorch_cpu.so`;
    if (!folder || !existsSync(library) || !existsSync(`${folder}/include/ATen/ATen.h`)) continue;
    // Debian's torch is as slow as its BLAS: without this one it counts as incomplete.
    if (folder === "/usr" && !existsSync(`${DEBIAN}/openblas-pthread`)) return null;
    const { size, mtimeMs } = statSync(library);
    // Wheels of CUDA lie beside torch's.
    const nvidia = join(folder, "../nvidia");
    const beside = existsSync(nvidia) ? readdirSync(nvidia).sort().join(" ") : "";
    const hasCuda = existsSync(`${libraries}/libtorch_cuda.so`);
    return { root: folder, hasCuda, mark: `${folder} ${size} ${mtimeMs} ${beside}`.trimEnd() };
  }
  return null;
}

/** Torch's folder in the environment that `npm run engine -- install` made, or null. */
export function wheelAt(environment) {
  const libraries = join(environment, "lib");
  if (!existsSync(libraries)) return null;
  const folders = readdirSync(libraries).map((name) =>
    join(libraries, name, "site-packages/torch"),
  );
  return folders.find((folder) => existsSync(`${folder}/lib/libtorch_cpu.so`)) ?? null;
}

/** Python is started once for this: it takes a moment, and packages of Debian do not change it. */
let pythonTorch;

const isThere = (program) =>
  (process.env.PATH ?? "").split(":").some((folder) => existsSync(`${folder}/${program}`));

/** Compiles with cmake-js into a folder; resolves to its exit code. */
function compile({ root, torch, into, log, cuda }) {
  const cores = Math.max(1, Math.min(availableParallelism(), totalmem() / COMPILER_BYTES));
  const args = [
    join(root, "node_modules/cmake-js/bin/cmake-js"),
    ...["build", "--directory", join(root, "native"), "--out", into],
    ...["--parallel", String(Math.floor(cores)), `--CDTORCH_ROOT=${torch.root}`],
    `--CDVANTAGE_CUDA=${cuda ? "ON" : "OFF"}`,
  ];
  return execute(process.execPath, args, { ms: BUILD_MS_MAX, log }).then(({ code }) => code);
}

/**
 * Leaves `native/build/vantage.node` as the sources say, or none, as on other machines than x64.
 * Several runs at once build once. Tests bring a `torch` and a `build` of their own.
 */
export async function ensureEngine(command, { root, torch, build = compile }) {
  if (!COMMANDS.includes(command)) return;
  if (build === compile && process.arch !== "x64") return;
  if (build === compile && !["cmake", "make", "g++"].every(isThere)) {
    if (command === "engine") say("The engine is not built: that takes cmake, make and g++.");
    return;
  }
  const installed = torch === undefined ? await findTorch(process.env, root) : torch;
  if (installed === null) return;
  const folder = join(root, "native/build");
  const paths = {
    addon: join(folder, "vantage.node"),
    stamp: join(folder, "stamp"),
    into: join(folder, "cmake"),
    log: join(folder, "build.log"),
  };
  const stamp = stampOf(root, installed);
  const known = () => (existsSync(paths.stamp) ? readFileSync(paths.stamp, "utf8") : "");
  // Whoever asks for the engine by name has it tried again, once that failed, for CUDA too.
  const isAsked = command === "engine";
  const isThereAlready = () =>
    existsSync(paths.addon) &&
    (known() === stamp || (!isAsked && known() === `${stamp} ${WITHOUT_CUDA}`));
  if (isThereAlready()) return;
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  } catch {
    say(`No training engine can be built in ${folder}, which is read-only: going on with what is.`);
    return;
  }
  const unlock = await lock(join(folder, "lock"));
  if (unlock === null) return;
  try {
    if (isThereAlready()) return;
    if (known() === `${stamp} failed` && !isAsked) {
      say(`The training engine does not build here (${paths.log}). Delete ${folder} to try again.`);
      return;
    }
    const started = performance.now();
    const seconds = () => Math.round((performance.now() - started) / 1000);
    say("Building the training engine (once, about a minute) …");
    // A build folder keeps settings of the torch it was made with, and that CUDA was left out; one
    // that was configured by half is never completed.
    const isConfigured = ["build.ninja", "Makefile"].some((name) =>
      existsSync(join(paths.into, name)),
    );
    const [machine, , shortcoming] = known().split(" ");
    if (!isConfigured || machine !== stamp.split(" ")[0] || shortcoming === WITHOUT_CUDA)
      rmSync(paths.into, WITH_CONTENTS);
    rmSync(paths.addon, WITH_CONTENTS);
    const built = join(paths.into, "vantage.node");
    const isBuilt = async (cuda) => {
      const { into, log } = paths;
      return (await build({ root, torch: installed, into, log, cuda })) === 0 && existsSync(built);
    };
    let done = await isBuilt(true);
    let made = stamp;
    if (!done && (installed.hasCuda || isThere("nvcc"))) {
      const log = join(folder, "build-cuda.log");
      if (existsSync(paths.log)) renameSync(paths.log, log);
      rmSync(paths.into, WITH_CONTENTS);
      made = `${stamp} ${WITHOUT_CUDA}`;
      say(`It does not build for CUDA here (${log}): building it for the CPU …`);
      done = await isBuilt(false);
    }
    if (!done) {
      writeFileSync(paths.stamp, `${stamp} failed`);
      const tail = existsSync(paths.log) ? readFileSync(paths.log, "utf8").trimEnd() : "";
      say(tail.split("\n").slice(-LOG_LINES).join("\n"));
      say(`The training engine did not build in ${seconds()} s: no training here (${paths.log}).`);
      return;
    }
    // A process that loads the addon meanwhile gets the whole file or none.
    copyFileSync(built, `${paths.addon}.partial`);
    renameSync(`${paths.addon}.partial`, paths.addon);
    writeFileSync(paths.stamp, made);
    say(`Built in ${seconds()} s.`);
  } finally {
    unlock();
  }
}

/** What the stamp says of an engine that was built for the CPU because it did not for CUDA. */
const WITHOUT_CUDA = "without-cuda";
/** Removes a folder with what is in it, or nothing where there is none. */
const WITH_CONTENTS = { recursive: true, force: true };
const say = (line) => process.stderr.write(`${line}\n`);

/** Two hashes: of the machine and its torch, and of the engine's sources. */
export function stampOf(root, torch) {
  const native = join(root, "native");
  const sources = ["CMakeLists.txt", "torch.cmake", "package.json"].concat(
    readdirSync(join(native, "src"), { recursive: true })
      .filter((name) => /\.(cpp|h|cu|cuh)$/.test(name))
      .sort()
      .map((name) => `src/${name}`),
  );
  const hash = createHash("sha256");
  for (const name of sources) hash.update(name).update(readFileSync(join(native, name)));
  const machine = [process.platform, process.arch, torch.mark, isThere("nvcc")].join(" ");
  return `${createHash("sha256").update(machine).digest("hex")} ${hash.digest("hex")}`;
}

/** Holds a lock file; resolves to what frees it, or to null when another held it for too long. */
async function lock(path) {
  const deadline = performance.now() + LOCK_MS_MAX;
  const mine = `${path}.${process.pid}`;
  writeFileSync(mine, `${process.pid} ${beginning(process.pid)}`);
  try {
    while (performance.now() < deadline) {
      try {
        linkSync(mine, path);
        return () => rmSync(path, { force: true });
      } catch (error) {
        if (error.code !== "EEXIST") throw error;
      }
      const [pid, began] = holder(path);
      // The holder was killed, or the machine was. Process ids come again, with other start times.
      if (pid && beginning(pid) !== began) rmSync(path, { force: true });
      else await new Promise((resolve) => setTimeout(resolve, LOCK_POLL_MS));
    }
  } finally {
    rmSync(mine, { force: true });
  }
  say(`Another build of the training engine holds ${path}: going on without.`);
  return null;
}

function holder(path) {
  try {
    return readFileSync(path, "utf8").split(" ");
  } catch {
    return [];
  }
}

/** When a process began, in ticks since the machine did; empty when it is gone. */
function beginning(pid) {
  try {
    const line = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The second field is the program's name, with whatever it contains.
    return line.slice(line.lastIndexOf(")") + 2).split(" ")[19] ?? "";
  } catch {
    return "";
  }
}

/** Runs a program to its end; its output goes to a log or is kept. */
function execute(program, args, { ms, log }) {
  return new Promise((resolve) => {
    const file = log ? openSync(log, "w") : "pipe";
    const stdio = ["ignore", file, log ? file : "ignore"];
    const child = spawn(program, args, { stdio });
    // Node's own limit would keep the process waiting for a program that is not there.
    const limit = setTimeout(() => child.kill("SIGKILL"), ms);
    const output = [];
    child.stdout?.on("data", (part) => output.push(part));
    const end = (code) => {
      clearTimeout(limit);
      resolve({ code: code ?? 1, output: output.join("") });
    };
    child.on("error", () => end(1));
    child.on("close", end);
  });
}
