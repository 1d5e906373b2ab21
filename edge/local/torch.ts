// `npm run engine`: which torch the training engine is built with, torch's own wheels or what the
// machine has. Optional, and by hand alone: gigabytes are downloaded.

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { EXIT, meant, readArguments, runCommand, UsageError, usageOf } from "./command-line.ts";
import { ROOT } from "./state.ts";
import { type ProviderAnswer, providerText } from "./torch-provider.ts";
import {
  installedPins,
  installWheels,
  isInstalled,
  pinsOf,
  REQUIREMENTS,
  removeWheels,
  textOf,
  WHEELS,
} from "./torch-wheels.ts";

const VERBS = ["install", "remove"];
const say = (line: string) => process.stdout.write(`${line}\n`);

async function main() {
  const { values, positionals } = readArguments({
    allowPositionals: true,
    options: { cuda: { type: "boolean" }, help: { type: "boolean" } },
  });
  const [verb, ...more] = positionals;
  if (values.help || verb === undefined) {
    process.stdout.write(usageOf("torch"));
    say(`\nNow: ${nowText()}`);
    return;
  }
  if (!VERBS.includes(verb)) throw new UsageError(`engine does not ${verb}${meant(verb, VERBS)}`);
  const extra = more[0] ?? (verb === "remove" && values.cuda ? "--cuda" : undefined);
  if (extra !== undefined) throw new UsageError(`${verb} takes no ${extra}`);
  if (verb === "remove") {
    const isGone = removeWheels(WHEELS);
    say(isGone ? `${WHEELS} is removed.` : "Torch's wheels were not installed: nothing to remove.");
  } else await install(values.cuda ? "cuda" : "cpu");
}

async function install(part: keyof typeof REQUIREMENTS) {
  const requirements = REQUIREMENTS[part];
  if (process.platform !== "linux" || process.arch !== "x64") {
    process.stderr.write("Torch's wheels are pinned for Linux x64 alone.\n");
    process.exitCode = EXIT.failed;
    return;
  }
  if (isInstalled(WHEELS, requirements)) {
    say(`They are there already: ${nowText()}`);
    if (part === "cuda") await proveProvider();
    return;
  }
  const size = part === "cuda" ? "3.1 GB are downloaded, 5.1 GB kept" : "0.6 GB, 1.1 GB kept";
  say(`Installing ${pinsOf(textOf(requirements)).length} wheels into ${WHEELS} (${size}) …`);
  await installWheels({ requirements, folder: WHEELS });
  say(`Installed: ${nowText()}`);
  if (part === "cuda") await proveProvider();
}

/** Has a process of the node's kind open a model on the GPU, or else on the CPU, and tells how. */
async function proveProvider() {
  const program = join(ROOT, "gpu-node/onnx/provider-probe-main.ts");
  const { stdout } = await promisify(execFile)(process.execPath, [program]);
  const said = JSON.parse(stdout.trim().split("\n").at(-1) ?? "") as ProviderAnswer;
  const { text, isWhole } = providerText(said);
  say(text);
  if (!isWhole) process.exitCode = EXIT.failed;
}

function nowText(): string {
  const pins = installedPins(WHEELS);
  if (pins === null) return "not installed; the engine is built with the torch of this machine.";
  const has = (name: string) => pins.some((pin) => pin.startsWith(`${name}==`));
  const torch = pins.find((pin) => pin.startsWith("torch=="))?.replace("==", " ");
  return `${torch} for ${has("nvidia-cuda-nvcc") ? "CUDA and the CPU" : "the CPU"}.`;
}

await runCommand("npm run engine", main);
