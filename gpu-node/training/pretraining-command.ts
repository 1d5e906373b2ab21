// `npm run models -- pretrain`: what was asked for, checked, and the engine that does it.

import { resolve } from "node:path";
import { loadEngine } from "../../native/load.ts";
import { VARIANT_NAMES } from "../../shared/detector/detector.ts";
import { PretrainingRefusal, pretrain } from "./pretraining.ts";

/** As the command line has them. */
export interface PretrainArguments {
  variant: string;
  size: string;
  epochs: string;
  batch: string;
  seed: string;
  out?: string | undefined;
  threads: string;
  device: string;
  modelsDir: string;
  say: (line: string) => void;
}

/**
 * Pre-trains in this process, which has to be one of its own, with ENGINE_ENVIRONMENT. Fails with
 * PretrainingRefusal.
 */
export async function pretrainHere(folder: string, given: PretrainArguments): Promise<void> {
  const { say, modelsDir, device } = given;
  if (!given.out) throw new PretrainingRefusal("say where the weights are to be written: --out");
  const variant = VARIANT_NAMES.find((name) => name === `det26${given.variant.slice(-1)}`);
  if (!variant || !/^(?:det26)?.$/.test(given.variant))
    throw new PretrainingRefusal(`--variant is n, s, m, l or x, not ${given.variant}`);
  const out = resolve(given.out);
  const options = {
    folder: resolve(folder),
    out,
    variant,
    size: whole("--size", given.size, { min: 64, max: 1024, step: 32 }),
    epochs: whole("--epochs", given.epochs, { min: 1, max: 10_000 }),
    batch: whole("--batch", given.batch, { min: 2, max: 256 }),
    seed: whole("--seed", given.seed, { min: 0, max: 2 ** 32 - 1 }),
    cpuThreads: Number(given.threads),
    device: device === "cuda" ? ("cuda" as const) : ("cpu" as const),
  };
  const loaded = loadEngine();
  if ("missing" in loaded) throw new PretrainingRefusal(loaded.missing);
  await pretrain({ ...options, modelsDir, native: loaded.native, say });
  say(`Wrote ${out}: the backbone and the neck of ${variant}.`);
  say(`Let runs start from it: npm run models -- install ${given.out} --name NAME`);
}

function whole(
  flag: string,
  text: string,
  { min, max, step = 1 }: { min: number; max: number; step?: number },
): number {
  const value = Number(text);
  if (/^\d{1,10}$/.test(text) && value >= min && value <= max && value % step === 0) return value;
  const multiple = step > 1 ? ` a multiple of ${step}` : "";
  throw new PretrainingRefusal(`${flag} is${multiple} ${min} to ${max}, not ${text}`);
}
