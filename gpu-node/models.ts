// `npm run models -- …`: the segmentation models of this machine, and the first weights of its
// trainings. Bundles are installed by their operator, who accepts their licences; none is fetched
// unasked.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { ENGINE_ENVIRONMENT } from "../native/load.ts";
import { HEARTBEAT_SECONDS } from "../shared/tasks/node-protocol.ts";
import { modelsDirOf } from "./node/config.ts";
import { rerunWithProvider } from "./onnx/cuda.ts";
import { BUILTIN } from "./segmenters/builtin-info.ts";
import { sizeOf } from "./segmenters/bundle.ts";
import { BundleBroken, BundleMissing } from "./segmenters/failures.ts";
import { installBundle, verifySegmenter } from "./segmenters/install.ts";
import { describeBundle } from "./segmenters/manifest-draft.ts";
import { listBundles, listSegmenters } from "./segmenters/registry.ts";
import {
  checkedWeights,
  checkWeights,
  removeBundle,
  type WeightsOptions,
} from "./segmenters/weights.ts";
import { PretrainingRefusal } from "./training/pretraining.ts";
import { pretrainHere } from "./training/pretraining-command.ts";

/** What `bootstrap.mjs` prints too, before anything is installed. */
const USAGE = readFileSync(join(import.meta.dirname, "models.txt"), "utf8");

export interface Terminal {
  environment: Readonly<Record<string, string | undefined>>;
  say: (line: string) => void;
}

/** Runs one command and returns its exit code. */
export async function models(
  args: readonly string[],
  { environment, say }: Terminal,
): Promise<number> {
  const parsed = parse(args);
  const command = parsed?.positionals[0];
  const names = parsed?.positionals.slice(1) ?? [];
  if (!parsed || parsed.values.help || !command) {
    say(USAGE);
    return parsed?.values.help ? 0 : 2;
  }
  const modelsDir = modelsDirOf(environment);
  const { values } = parsed;
  const { threads, device } = values;
  if (!/^(cpu|cuda)$/.test(device) || !/^[1-9]\d{0,2}$/.test(threads)) {
    say(USAGE);
    return 2;
  }
  const settings = {
    modelsDir,
    cpuThreads: Number(threads),
    device: device as "cpu" | "cuda",
    log: (_level: string, event: string, fields?: Record<string, unknown>) =>
      say(`${event} ${JSON.stringify(fields ?? {})}`),
  };
  try {
    if (command === "list") await list(modelsDir, say);
    else if (command === "install" && names.length > 0)
      for (const name of names) await install(name, { modelsDir, weights: values }, say);
    else if (command === "remove" && names.length > 0)
      for (const name of names) await remove(name, modelsDir, say);
    else if (command === "pretrain" && names[0])
      await pretrainHere(names[0], { ...values, modelsDir, say });
    else if (command === "verify") return await verify(names, settings, say);
    else if (command === "describe" && names[0])
      say(JSON.stringify(await describeBundle(names[0], values), null, 2));
    else {
      say(USAGE);
      return 2;
    }
    return 0;
  } catch (error) {
    if (!isExpected(error)) throw error;
    say(error.message);
    return 1;
  }
}

/** What a bundle or the machine is at fault for; its message says all that helps. */
const isExpected = (error: unknown): error is Error =>
  error instanceof BundleBroken ||
  error instanceof BundleMissing ||
  error instanceof PretrainingRefusal ||
  (error instanceof Error && "syscall" in error);

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        help: { type: "boolean", default: false },
        device: { type: "string", default: "cpu" },
        threads: { type: "string", default: "2" },
        kind: { type: "string" },
        name: { type: "string" },
        title: { type: "string" },
        licence: { type: "string" },
        source: { type: "string" },
        variant: { type: "string", default: "n" },
        size: { type: "string", default: "320" },
        epochs: { type: "string", default: "100" },
        batch: { type: "string", default: "16" },
        seed: { type: "string", default: "0" },
        out: { type: "string" },
      },
    });
  } catch {
    return null;
  }
}

async function list(modelsDir: string, say: Terminal["say"]): Promise<void> {
  for (const info of await listSegmenters(modelsDir)) {
    say(`${info.name}  ${info.title}`);
    say(`  licence   ${info.licence}`);
    say(`  text      ${TEXT[info.text]}`);
    say(`  examples  ${EXEMPLAR[info.exemplar]}`);
    say(`  clicks    ${info.points ? "yes" : "no"}`);
    if (info.vocabulary.length > 0) say(`  words     ${info.vocabulary.join(", ")}`);
    for (const limit of info.limits) say(`  - ${limit}`);
  }
  const { weights, broken } = await listBundles(modelsDir);
  for (const { manifest } of weights) {
    say(`${manifest.name}  ${manifest.title}`);
    say(`  licence   ${manifest.licence}`);
    say(`  source    ${manifest.source}`);
    say(`  start of  trainings of ${manifest.variant} that ask for "${manifest.dataset}"`);
  }
  for (const { folder, reason } of broken) say(`${folder} cannot be used: ${reason}`);
}

const TEXT = { none: "none", closed: "the words below", open: "any noun phrase" };
const EXEMPLAR = { none: "none", same_image: "from the same picture", any_image: "from anywhere" };

async function remove(name: string, modelsDir: string, say: Terminal["say"]): Promise<void> {
  await removeBundle(modelsDir, name);
  say(`Removed ${name}. A node that runs stops offering it within ${HEARTBEAT_SECONDS} seconds.`);
}

async function install(
  from: string,
  options: { modelsDir: string; weights: WeightsOptions },
  say: Terminal["say"],
): Promise<void> {
  const { manifest, folder } = await installBundle(from, {
    ...options,
    onFile: ({ path, bytes }) => say(`  ${path}  ${megabytes(bytes)}`),
  });
  say(
    `Installed ${manifest.name} (${manifest.title}, ${megabytes(sizeOf(manifest))}) in ${folder}`,
  );
  say(`Licence: ${manifest.licence}. By using it you accept its terms.`);
  if (manifest.kind !== "weights") {
    say(`Try it: npm run models -- verify ${manifest.name}`);
    return;
  }
  say(`Source: ${manifest.source}`);
  say(
    `Runs of ${manifest.variant} start from it by pretrained: {"dataset": ` +
      `"${manifest.dataset}"}; a node that runs offers them within ${HEARTBEAT_SECONDS} seconds.`,
  );
}

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

/** All are looked at, so that one broken bundle hides no other. */
async function verify(
  names: readonly string[],
  settings: Parameters<typeof verifySegmenter>[1],
  say: Terminal["say"],
): Promise<number> {
  const { bundles, weights, broken } = await listBundles(settings.modelsDir);
  const all = [BUILTIN, ...[...bundles, ...weights].map(({ manifest }) => manifest.name)];
  let code = 0;
  for (const name of names.length > 0 ? names : all) {
    try {
      const set = weights.find(({ manifest }) => manifest.name === name);
      if (set) {
        await checkedWeights(set);
        await checkWeights(set.folder, set.manifest);
        say(`${name} is whole: weights of ${set.manifest.variant}`);
        continue;
      }
      const { device, openSeconds, lookSeconds } = await verifySegmenter(name, settings);
      say(
        `${name} works on ${device}: opened in ${openSeconds.toFixed(2)} s, looked in ` +
          `${lookSeconds.toFixed(2)} s`,
      );
    } catch (error) {
      if (!isExpected(error)) throw error;
      say(error.message);
      code = 1;
    }
  }
  if (names.length > 0) return code;
  for (const { folder, reason } of broken) say(`${folder} cannot be used: ${reason}`);
  return broken.length > 0 ? 1 : code;
}

// The libraries of a GPU are found where a process begins with their folders alone.
const rerun = import.meta.main && process.argv.includes("cuda") ? rerunWithProvider() : null;
if (rerun !== null) process.exitCode = rerun;
else if (import.meta.main) {
  // What the engine's libraries read as they are loaded.
  Object.assign(process.env, ENGINE_ENVIRONMENT);
  process.exitCode = await models(process.argv.slice(2), {
    environment: process.env,
    say: (line) => process.stdout.write(`${line}\n`),
  });
}
