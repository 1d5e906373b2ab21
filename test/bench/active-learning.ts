// Whether frames that the product suggests for labeling are worth more than frames by chance: blood
// cells' `train.txt` at 160 px, of which 20 frames are labeled, then 40, then 80. The first 20 are
// drawn by a seed, the same for both arms; more are drawn, or suggested by what the product does
// (`frame-suggestions.ts`). After each choice a model is trained from the same first weights in as
// many steps, and measured on `val.txt` after the last one. Nothing is chosen on what is measured.
//
// Trainings and suggestions are kept in `.vantage/bench/active-learning`: what was stopped or
// killed goes on, within a training from its last checkpoint.
// Run: npm run bench -- active-learning [--minutes N --seeds 3 --steps 600 --threads N --show]

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { availableParallelism, cpus, loadavg } from "node:os";
import { join, resolve } from "node:path";
import { readArguments, UsageError } from "../../edge/local/command-line.ts";
import { trainingOptions } from "../../gpu-node/training/settings.ts";
import type { TrainingOptions } from "../../native/index.d.ts";
import { ENGINE_ENVIRONMENT, loadEngine, type Native } from "../../native/load.ts";
import { whole } from "../../shared/scalars.ts";
import { TrainSettings } from "../../shared/wire/training.ts";
import { BLOOD_CLASSES } from "../support/blood-cells.ts";
import { dice } from "../support/dice.ts";
import { bloodSplit } from "../support/images.ts";
import { choosingVersion, suggestFrames } from "./frame-suggestions.ts";
import {
  type PlainResult,
  type PlainTraining,
  plainResult,
  plainTraining,
  weightsOf,
} from "./plain-training.ts";
import { codeVersion, writeWhole } from "./training-cells.ts";

const SIZE = 160;
const BATCH = 4;
/** Frames that are labeled; the first ones are the same for both arms. */
const COUNTS = [20, 40, 80] as const;
/** Where suggestions must not be worth less than frames by chance. */
const JUDGED_COUNT = 40;
const ARMS = ["random", "suggested"] as const;
type Arm = (typeof ARMS)[number];
const DIR = resolve(import.meta.dirname, "../../.vantage/bench/active-learning");

const { values } = readArguments({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    /** Ends after so long; the training under way writes a checkpoint. */
    minutes: { type: "string" },
    seeds: { type: "string", default: "3" },
    /** Of each training; a multiple of 20. */
    steps: { type: "string", default: "600" },
    /** Of a training; fewer where others use the machine. Figures do not depend on it. */
    threads: { type: "string", default: String(availableParallelism()) },
    /** Prints the table of what is done, and trains nothing. */
    show: { type: "boolean", default: false },
  },
});
const print = (line: string) => process.stdout.write(`${line}\n`);

function numberOf(name: "minutes" | "seeds" | "steps" | "threads", value: string): number {
  const parsed = whole(1).safeParse(value);
  if (!parsed.success) throw new UsageError(`--${name} must be a whole number above 0`);
  return parsed.data;
}

const STEPS = numberOf("steps", values.steps);
const THREADS = numberOf("threads", values.threads);
const SEEDS = Array.from({ length: numberOf("seeds", values.seeds) }, (_, seed) => seed);
/** So that every count of frames has whole epochs, and the last images are seen whole as long. */
const STEPS_UNIT = Math.max(...COUNTS) / BATCH;
if (STEPS % STEPS_UNIT !== 0) throw new UsageError(`--steps must be a multiple of ${STEPS_UNIT}`);
/** The part of a training in which images are seen whole, as they are measured. */
const WHOLE_SHARE = 1 / 6;

/** A training of so many frames that an arm chose. */
interface Cell {
  seed: number;
  arm: Arm;
  ids: string[];
}

/** What the cells of a run have in common. */
interface Bench {
  native: Native;
  version: string;
  stop: AbortSignal;
}

const digestOf = (value: unknown) =>
  createHash("sha256").update(JSON.stringify(value)).digest("hex").slice(0, 20);

function optionsOf(frames: number): TrainingOptions {
  const epochs = (STEPS * BATCH) / frames;
  const settings = TrainSettings.parse({
    epochs,
    image_size: SIZE,
    batch_size: BATCH,
    augmentation_overrides: { close_mosaic: Math.round(epochs * WHOLE_SHARE) },
  });
  return trainingOptions(settings, {
    classes: BLOOD_CLASSES.length,
    trainImages: frames,
    batch: BATCH,
  });
}

/** Both arms' first training is one; so is one whose frames are the same by chance. */
function trainingOf({ seed, ids }: Cell, { version }: Pick<Bench, "version">): PlainTraining {
  const options = optionsOf(ids.length);
  const key = digestOf([ids, seed, options, version]);
  return {
    path: join(DIR, key),
    ids,
    pixels: "labeled",
    options,
    seed,
    threads: THREADS,
    keepsWeights: true,
  };
}

/** The frames of `train.txt` in the order in which a seed draws them. */
function drawn(seed: number): string[] {
  const random = dice(seed + 1);
  // Seeds that are neighbours begin alike.
  for (let skipped = 0; skipped < 16; skipped++) random();
  return bloodSplit("train")
    .map((id) => ({ id, at: random() }))
    .sort((one, other) => one.at - other.at)
    .map(({ id }) => id);
}

/** The frames that the arm has labeled after the suggestions so far; null where one is missing. */
async function labeledOf(
  { seed, arm, count }: { seed: number; arm: Arm; count: number },
  { version }: Bench,
  suggest: (cell: Cell, budget: number) => Promise<string[] | null>,
): Promise<string[] | null> {
  const order = drawn(seed);
  if (arm === "random") return order.slice(0, count);
  let ids = order.slice(0, COUNTS[0]);
  for (const next of COUNTS.filter((one) => one > COUNTS[0] && one <= count)) {
    const cell = { seed, arm, ids };
    const budget = next - ids.length;
    const path = `${trainingOf(cell, { version }).path}.${budget}.${choosingVersion()}.next`;
    const chosen: string[] | null = existsSync(path)
      ? (JSON.parse(readFileSync(path, "utf8")) as string[]) // Written below.
      : await suggest(cell, budget);
    if (!chosen) return null;
    writeWhole(path, JSON.stringify(chosen));
    ids = [...ids, ...chosen];
  }
  return ids;
}

/** What the model of a cell, and the looks of frames, suggest; null where it is not trained yet. */
async function suggestedBy(cell: Cell, budget: number, bench: Bench): Promise<string[] | null> {
  const training = trainingOf(cell, bench);
  if (!plainResult(training) || bench.stop.aborted) return null;
  const others = bloodSplit("train").filter((id) => !cell.ids.includes(id));
  print(`${new Date().toISOString()} seed ${cell.seed}: ${budget} frames of ${others.length}`);
  const weights = readFileSync(weightsOf(training));
  const asked = {
    weights,
    size: SIZE,
    labeled: cell.ids,
    others,
    budget,
    dir: DIR,
    threads: THREADS,
  };
  return suggestFrames(asked, bench.stop);
}

type Row = Cell & { count: number; result: PlainResult };

/** Every training that is done, after those that the time allows. */
async function rowsOf(bench: Bench): Promise<Row[]> {
  const rows: Row[] = [];
  for (const seed of SEEDS)
    for (const count of COUNTS)
      for (const arm of ARMS) {
        const suggest = (cell: Cell, budget: number) =>
          values.show ? Promise.resolve(null) : suggestedBy(cell, budget, bench);
        const ids = await labeledOf({ seed, arm, count }, bench, suggest);
        if (!ids) continue;
        const cell = { seed, arm, ids };
        const result = await resultOf(cell, bench);
        if (result) rows.push({ ...cell, count, result });
      }
  return rows;
}

async function resultOf(cell: Cell, bench: Bench): Promise<PlainResult | null> {
  const training = trainingOf(cell, bench);
  const done = plainResult(training);
  if (done || values.show || bench.stop.aborted) return done;
  const { seed, arm, ids } = cell;
  print(`${new Date().toISOString()} seed ${seed}, ${ids.length} frames, ${arm}`);
  const began = performance.now();
  const limits = { stop: bench.stop, say: print };
  const made = await plainTraining(bench.native, DIR, { ...training, ...limits });
  const seconds = (performance.now() - began) / 1_000;
  const told = made
    ? `AP ${made.mAP.toFixed(3)}, AP50 ${made.mAP50.toFixed(3)}, ` +
      `${made.cpuSeconds.toFixed(0)} s of processor time`
    : "put aside";
  print(`  ${told}, ${seconds.toFixed(0)} s`);
  return made;
}

const mean = (all: readonly number[]) => all.reduce((sum, one) => sum + one, 0) / all.length;
const shown = (value: number) => value.toFixed(3).replace(/^(-?)0/, "$1");

function tell(rows: readonly Row[]) {
  print(`\ndet26n, ${SIZE} px, ${STEPS} steps of ${BATCH}, val.txt after the last one`);
  print("| frames | chosen | seeds | AP: mean (min to max) | AP50: mean (min to max) |");
  print("|---|---|---|---|---|");
  for (const count of COUNTS)
    for (const arm of count === COUNTS[0] ? ARMS.slice(0, 1) : ARMS) {
      const own = rows.filter((one) => one.count === count && one.arm === arm);
      if (own.length === 0) continue;
      const spread = (of: (result: PlainResult) => number) => {
        const all = own.map(({ result }) => of(result));
        return `${shown(mean(all))} (${shown(Math.min(...all))} to ${shown(Math.max(...all))})`;
      };
      const name = count === COUNTS[0] ? "both: at random" : arm;
      const cells = [spread(({ mAP }) => mAP), spread(({ mAP50 }) => mAP50)];
      print(`| ${count} | ${name} | ${own.length} | ${cells.join(" | ")} |`);
    }
  for (const count of COUNTS.slice(1)) {
    const apOf = (arm: Arm, seed: number) =>
      rows.find((one) => one.count === count && one.arm === arm && one.seed === seed)?.result.mAP;
    const pairs = SEEDS.flatMap((seed) => {
      const [random, suggested] = [apOf("random", seed), apOf("suggested", seed)];
      return random === undefined || suggested === undefined ? [] : [{ random, suggested }];
    });
    if (pairs.length === 0) continue;
    const [random, suggested] = [
      mean(pairs.map((one) => one.random)),
      mean(pairs.map((one) => one.suggested)),
    ];
    const each = pairs.map((one) => shown(one.suggested - one.random)).join(" · ");
    const goal = suggested >= random ? "reached" : "missed";
    const judged =
      count === JUDGED_COUNT && pairs.length === SEEDS.length ? `; goal, not below: ${goal}` : "";
    print(
      `${count} frames: suggested ${(suggested / random).toFixed(2)} times random's AP, ` +
        `apart by ${each}${judged}`,
    );
  }
}

async function main() {
  if (bloodSplit("train").length === 0) {
    print("SKIPPED: the images of blood cells are not on this machine");
    return;
  }
  Object.assign(process.env, ENGINE_ENVIRONMENT);
  const loaded = loadEngine();
  if ("missing" in loaded) throw new Error(loaded.missing);
  const { native } = loaded;
  mkdirSync(DIR, { recursive: true });
  const stop = new AbortController();
  const end = () => stop.abort();
  process.once("SIGTERM", end).once("SIGINT", end);
  const { minutes } = values;
  const limit =
    minutes === undefined ? undefined : setTimeout(end, numberOf("minutes", minutes) * 60_000);
  const version = codeVersion(native.describe().torch);
  const [load = 0] = loadavg();
  print(`${cpus()[0]?.model.trim()}, load ${load.toFixed(1)}, ${new Date().toISOString()}`);
  tell(await rowsOf({ native, version, stop: stop.signal }));
  clearTimeout(limit);
}

await main();
process.exit(0);
