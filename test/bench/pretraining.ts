// What pre-training without labels gains where few images are labeled: det26n on blood cells, from
// scratch and from weights that were pre-trained on all images of `train.txt`, fine-tuned on the
// first 50 of a shuffled `train.txt` and measured on `val.txt` after the last epoch. Nothing is
// chosen on what is measured. Goes on where it stopped; results lie in
// `.vantage/bench/pretraining`.
// Run: npm run bench -- pretraining [--size 320 --epochs 100 --seeds 3]
//      [--pretrain-size 192 --pretrain-epochs 100]
// With LARGE=1 also 100 and 200 images.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { loadPretrained, readPretrained } from "../../gpu-node/training/pretrained-weights.ts";
import { pretrain } from "../../gpu-node/training/pretraining.ts";
import { trainingOptions } from "../../gpu-node/training/settings.ts";
import type { Engine, TrainingOptions } from "../../native/index.d.ts";
import { ENGINE_ENVIRONMENT, loadEngine } from "../../native/load.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { TrainSettings } from "../../shared/wire/training.ts";
import { BLOOD_CLASSES } from "../support/blood-cells.ts";
import { dice } from "../support/dice.ts";
import { bloodSplit, realData } from "../support/images.ts";
import { type PlainResult, plainTraining } from "./plain-training.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    size: { type: "string", default: "320" },
    epochs: { type: "string", default: "100" },
    "pretrain-size": { type: "string", default: "192" },
    "pretrain-epochs": { type: "string", default: "100" },
    seeds: { type: "string", default: "3" },
  },
});
const SIZE = Number(values.size);
const EPOCHS = Number(values.epochs);
const PRETRAIN_SIZE = Number(values["pretrain-size"]);
const PRETRAIN_EPOCHS = Number(values["pretrain-epochs"]);
const COUNTS = process.env.LARGE ? [50, 100, 200] : [50];
const VARIANT = "det26n";
const BATCH = 4;
const DIR = resolve(import.meta.dirname, "../../.vantage/bench/pretraining");
const MODELS = resolve(import.meta.dirname, "../../.vantage/models");
const print = (line: string) => process.stdout.write(`${line}\n`);

/**
 * Where the weights of a training come from, and its learning rate; null is the automatic one of a
 * run from scratch and of one that starts from a whole detector. A run that starts from pre-trained
 * weights, which have no head, has the last one's.
 */
const ARMS = [
  { name: "from scratch", isPretrained: false, rate: null },
  { name: "pre-trained", isPretrained: true, rate: null },
  { name: "pre-trained, at the rate from scratch", isPretrained: true, rate: 0.004 },
] as const;
type Arm = (typeof ARMS)[number];

Object.assign(process.env, ENGINE_ENVIRONMENT);
const loaded = loadEngine();
if ("missing" in loaded) throw new Error(loaded.missing);
const { native } = loaded;
mkdirSync(DIR, { recursive: true });

/** The order in which images of `train.txt` are labeled: the same for all. */
function labeled(count: number): string[] {
  const random = dice(7);
  const ids = bloodSplit("train").map((id) => ({ id, at: random() }));
  return ids
    .sort((one, other) => one.at - other.at)
    .slice(0, count)
    .map(({ id }) => id);
}

/** Weights of all images of `train.txt`, made once. */
async function pretrained(): Promise<string> {
  const out = join(DIR, `${VARIANT}-${PRETRAIN_SIZE}-${PRETRAIN_EPOCHS}.safetensors`);
  if (existsSync(out)) return out;
  const folder = join(DIR, "pictures");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  for (const id of bloodSplit("train")) {
    const file = realData(`bccd/images/${id}.jpg`);
    if (!file) throw new Error("the pictures of blood cells are not on this machine");
    writeFileSync(join(folder, `${id}.jpg`), readFileSync(file));
  }
  await pretrain({
    folder,
    out,
    variant: VARIANT,
    size: PRETRAIN_SIZE,
    epochs: PRETRAIN_EPOCHS,
    batch: 8,
    seed: 0,
    cpuThreads: 1,
    device: "cpu",
    modelsDir: MODELS,
    native,
    say: print,
  });
  return out;
}

function optionsOf(arm: Arm, images: number): TrainingOptions {
  const settings = TrainSettings.parse({
    variant: VARIANT,
    epochs: EPOCHS,
    image_size: SIZE,
    learning_rate: arm.rate,
    // Any source: what counts is that there is one.
    pretrained: arm.isPretrained ? { dataset: "cells" } : null,
  });
  return trainingOptions(settings, {
    classes: BLOOD_CLASSES.length,
    trainImages: images,
    batch: BATCH,
  });
}

interface Training {
  arm: Arm;
  count: number;
  seed: number;
  weights: string;
}

const PRETRAINING = [PRETRAIN_SIZE, PRETRAIN_EPOCHS];
const keyOf = ({ arm, count, seed }: Training) =>
  createHash("sha256")
    .update(JSON.stringify([arm, count, seed, SIZE, EPOCHS, arm.isPretrained && PRETRAINING]))
    .digest("hex")
    .slice(0, 16);

/** Trains, or goes on after the last checkpoint; a training that is done is read. */
async function trained(training: Training): Promise<PlainResult> {
  const { arm, count, seed, weights } = training;
  const begin = async (engine: Engine) => {
    const graph = detectorGraph(VARIANT, BLOOD_CLASSES.length);
    const first = await readPretrained(graph, { path: weights, format: "safetensors" });
    const temporary = join(DIR, "first.safetensors");
    const { lines } = await loadPretrained(engine, first, temporary);
    print(`  ${lines.join(" ")}`);
  };
  const result = await plainTraining(native, DIR, {
    path: join(DIR, keyOf(training)),
    ids: labeled(count),
    pixels: `train-${count}`,
    options: optionsOf(arm, count),
    seed,
    threads: 1,
    say: print,
    ...(arm.isPretrained ? { begin } : {}),
  });
  if (!result) throw new Error("the training was stopped");
  return result;
}

const mean = (numbers: readonly number[]) =>
  numbers.reduce((sum, one) => sum + one, 0) / Math.max(1, numbers.length);

print(`${cpus()[0]?.model.trim()}, load ${loadavg()[0]?.toFixed(1)}, ${new Date().toISOString()}`);
const weights = await pretrained();
const results = new Map<string, PlainResult[]>();
for (let seed = 0; seed < Number(values.seeds); seed++)
  for (const count of COUNTS)
    for (const arm of ARMS) {
      const result = await trained({ arm, count, seed, weights });
      const row = `${count} pictures, ${arm.name}`;
      results.set(row, [...(results.get(row) ?? []), result]);
      print(
        `${row}, seed ${seed}: AP50 ${result.mAP50.toFixed(3)}, AP ${result.mAP.toFixed(3)}, ` +
          `${result.cpuSeconds.toFixed(0)} s of processor time`,
      );
    }
print(`\n${VARIANT}, ${SIZE} px, ${EPOCHS} epochs of batch ${BATCH}`);
print(`Before: ${PRETRAIN_EPOCHS} epochs of ${PRETRAIN_SIZE} px, without labels`);
print("| labeled, start | AP50 by seed | mean | AP by seed | mean |");
print("|---|---|---|---|---|");
for (const [row, all] of results) {
  const column = (of: (result: PlainResult) => number) =>
    `${all.map((one) => of(one).toFixed(3)).join(" · ")} | ${mean(all.map(of)).toFixed(3)}`;
  print(`| ${row} | ${column(({ mAP50 }) => mAP50)} | ${column(({ mAP }) => mAP)} |`);
}
process.exit(0);
