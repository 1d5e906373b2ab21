// System packages that a command wants and this machine lacks. As root on Debian or Ubuntu they are
// installed, one visible line each; elsewhere the command to run is printed. Never more than that:
// what is missing is a capability less, not an error.

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { findTorch } from "./engine.mjs";

/** Left alone, apt takes the reference BLAS, which is several times slower. */
const TORCH = "libtorch-dev libopenblas0-pthread";

/**
 * Program, the package that has it, what is lost without it, and who wants it. Where that is more
 * than a program, `missing` names the packages.
 */
const WANTED = [
  {
    program: "ffmpeg",
    package: "ffmpeg",
    since: "5.1 or newer",
    loss: "no video can be read",
    commands: ["start", "test", "golden", "gpu-node", "device", "demo", "bench"],
  },
  {
    program: "unzip",
    package: "unzip",
    loss: "datasets are not held against a foreign reader",
    commands: ["test"],
  },
  {
    program: "libtorch and a C++ compiler",
    // Elsewhere the engine is not built: engine.mjs.
    isFor: () => process.arch === "x64",
    missing: async () => [
      ...["cmake", "make", "g++"].filter((program) => !isThere(program)),
      ...((await findTorch(process.env)) ? [] : [TORCH]),
    ],
    loss: "the training engine is not built",
    commands: ["start", "test", "gpu-node", "demo", "bench", "peers"],
  },
  {
    program: "chromium",
    package: "chromium",
    loss: "the console's pages are not driven in a browser",
    commands: ["test"],
  },
];
const INSTALL_MS_MAX = 300_000;

const isThere = (program) =>
  (process.env.PATH ?? "").split(":").some((folder) => existsSync(`${folder}/${program}`));

/** Installs what a command wants, where that is allowed and possible. */
export async function ensurePackages(command, { apt }) {
  for (const wanted of WANTED) {
    if (!wanted.commands.includes(command) || wanted.isFor?.() === false) continue;
    const missing = await (wanted.missing?.() ?? (isThere(wanted.program) ? [] : [wanted.package]));
    if (missing.length === 0) continue;
    const packages = missing.join(" ");
    const isDebian = existsSync("/etc/debian_version") && isThere("apt-get");
    const line = `apt-get install -y --no-install-recommends ${packages}`;
    if (!apt || !isDebian || process.getuid?.() !== 0) {
      const how = isDebian ? `sudo ${line}` : `install ${packages} ${wanted.since ?? ""}`.trim();
      process.stderr.write(`Without ${wanted.program}, ${wanted.loss}. To have it: ${how}\n`);
      continue;
    }
    process.stderr.write(`Installing ${packages}: ${line} (--no-apt refuses) …\n`);
    const installed =
      (await aptGet("install", packages)) ||
      // A fresh machine has no package lists yet.
      ((await aptGet("update")) && (await aptGet("install", packages)));
    if (!installed) {
      process.stderr.write(`${packages} could not be installed: ${wanted.loss}.\n`);
    }
  }
}

function aptGet(verb, packages) {
  const args = verb === "update" ? ["-q", "update"] : ["-q", "install", "-y"];
  if (packages) args.push("--no-install-recommends", ...packages.split(" "));
  return new Promise((resolve) => {
    const child = spawn("apt-get", args, {
      stdio: ["ignore", "ignore", "ignore"],
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
      timeout: INSTALL_MS_MAX,
    });
    child.on("error", () => resolve(false));
    child.on("exit", (code) => resolve(code === 0));
  });
}
