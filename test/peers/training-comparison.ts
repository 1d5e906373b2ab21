// The comparison of the group `training`: YOLO26n from scratch in Ultralytics and ours, the same
// images, epochs, batch and size, one thread each and in turn. The epoch is chosen inside
// train.txt, by each as it does; pycocotools measures both on val.txt. Each goes on where it was
// when the time was up; `EPOCHS=50` for longer trainings, `SEEDS=0,1,2` for the means of several.

import { existsSync, globSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import {
  cocoOf,
  type ImageCollection,
  imageSet,
  innerSplit,
  type LabeledImage,
} from "../bench/image-sets.ts";
import { chosenTraining, codeVersion, type Figures, keyOf } from "../bench/training-cells.ts";
import { cocoFigures, engineHere, runCell } from "../bench/training-process.ts";
import { ensureEnvironment, execute } from "./environments.ts";
import type { GroupContext } from "./group.ts";
import type { Outcome } from "./known.ts";

const EPOCHS = Number(process.env.EPOCHS ?? 30);
const SEEDS = (process.env.SEEDS ?? "0").split(",").map(Number);
const [BATCH, SIZE] = [16, 320];
/** Ours over theirs: images a second where bf16 pays, and what AP50 and AP are above. */
const GOALS = { speed: 1.6, figures: 0.03 };

interface TrainingFigures extends Figures {
  imagesPerSecond: number;
  torch: string;
}

/** One side of the comparison, with a seed. */
type Training = (seed: number) => Promise<TrainingFigures | null>;

const CASE = "training/comparison";
const UNFINISHED = "the time was up; the next run goes on";

/** A line for each training, and one for each goal once all of both are there. */
export async function compareTrainings(context: GroupContext): Promise<Outcome[]> {
  const wheels = await ensureEnvironment("training/wheels", context.msLeft());
  if ("missing" in wheels) return [{ case: CASE, outcome: "skipped", detail: wheels.missing }];
  const needed = await Promise.all([imageSet("blood"), engineHere()]).catch((why: Error) => why);
  if (needed instanceof Error) return [{ case: CASE, outcome: "skipped", detail: needed.message }];
  const [set, { bf16 }] = needed;
  const [torch = ""] = globSync(join(wheels.folder, "python/lib/python3.*/site-packages"));
  const own = bf16 ? "bf16" : "fp32";
  const ours = await measured(`ours in ${own}`, (seed) => trainOurs(context, own, seed));
  const theirs = await measured("ultralytics", (seed) =>
    trainTheirs(context, { set, torch, seed }),
  );
  const lines = [...ours.outcomes, ...theirs.outcomes];
  if (bf16) {
    const full = await measured("ours in fp32", (seed) => trainOurs(context, "fp32", seed));
    lines.push(...full.outcomes);
  }
  if (!ours.mean || !theirs.mean) return lines;
  return [...lines, ...goalsOf(ours.mean, theirs.mean, bf16)];
}

/** A line for each seed's training, and the means of all once they have ended. */
async function measured(name: string, train: Training) {
  const outcomes: Outcome[] = [];
  const all: TrainingFigures[] = [];
  for (const seed of SEEDS) {
    const { outcome, figures } = await measuredOne(`${CASE}/${name}, seed ${seed}`, train(seed));
    outcomes.push(outcome);
    if (figures) all.push(figures);
  }
  return { outcomes, mean: all.length === SEEDS.length ? meanOf(all) : null };
}

type MeanFigures = Pick<TrainingFigures, "ap50" | "ap" | "imagesPerSecond">;

function meanOf(all: readonly TrainingFigures[]): MeanFigures {
  const mean = (name: keyof MeanFigures) =>
    all.reduce((sum, figures) => sum + figures[name], 0) / all.length;
  return { ap50: mean("ap50"), ap: mean("ap"), imagesPerSecond: mean("imagesPerSecond") };
}

/** A training's line, and what it measured, if it has ended. */
async function measuredOne(named: string, training: Promise<TrainingFigures | null>) {
  const outcome = (kind: Outcome["outcome"], detail: string): Outcome => {
    return { case: named, outcome: kind, detail };
  };
  try {
    const figures = await training;
    if (!figures) return { figures, outcome: outcome("skipped", UNFINISHED) };
    const { ap50, ap, imagesPerSecond, torch } = figures;
    const told = `AP50 ${ap50.toFixed(4)}, AP ${ap.toFixed(4)} after ${EPOCHS} epochs`;
    const speed = `${imagesPerSecond.toFixed(1)} images a second of processor time`;
    return { figures, outcome: outcome("passed", `${told}; ${speed}; torch ${torch}`) };
  } catch (thrown) {
    return { figures: null, outcome: outcome("failed", (thrown as Error).message) };
  }
}

function goalsOf(ours: MeanFigures, theirs: MeanFigures, bf16: boolean): Outcome[] {
  const ratio = ours.imagesPerSecond / theirs.imagesPerSecond;
  const speed: Outcome = {
    case: `${CASE}/speed`,
    outcome: ratio >= GOALS.speed ? "passed" : "failed",
    detail: `${ratio.toFixed(2)}×, goal ${GOALS.speed}`,
  };
  const figures = (["ap50", "ap"] as const).map((name): Outcome => {
    const above = ours[name] - theirs[name];
    return {
      case: `${CASE}/${name}`,
      outcome: above >= GOALS.figures ? "passed" : "failed",
      detail: `${above.toFixed(3)} above, goal ${GOALS.figures}`,
    };
  });
  return [bf16 ? speed : { ...speed, outcome: "skipped" }, ...figures];
}

async function trainOurs(
  { python, folder, msLeft }: GroupContext,
  precision: "bf16" | "fp32",
  seed: number,
): Promise<TrainingFigures | null> {
  const cell = await chosenTraining({
    set: "blood",
    isWhole: false,
    base: { image_size: SIZE, epochs: EPOCHS, batch_size: BATCH, patience: 0, seed, precision },
  });
  const { torch } = await engineHere();
  const key = keyOf(cell, codeVersion(torch));
  const own = join(folder, "comparison");
  mkdirSync(own, { recursive: true });
  const stop = AbortSignal.timeout(Math.max(1, Math.floor(msLeft())));
  const order = { cell, key, name: `${precision}, seed ${seed}`, folder: join(own, key), python };
  const made = await runCell({ ...order, result: join(own, `${key}.json`) }, stop);
  if (!made?.cpuSeconds) return null;
  const images = innerSplit(await imageSet("blood"), cell).train.length;
  return { ...made.val, torch, imagesPerSecond: images / made.cpuSeconds.training };
}

const Times = z.object({ epoch: z.number(), seconds: z.number() });

async function trainTheirs(
  { python, folder, msLeft }: GroupContext,
  { set, torch, seed }: { set: ImageCollection; torch: string; seed: number },
): Promise<TrainingFigures | null> {
  const own = join(folder, "comparison", `ultralytics-${EPOCHS}-${BATCH}-${SIZE}-${seed}`);
  const split = innerSplit(set, { isWhole: false });
  if (!existsSync(join(own, "truth.json"))) writeYolo(own, set, split);
  const script = join(import.meta.dirname, "training/train_ultralytics.py");
  const options = { folder: own, torch, epochs: EPOCHS, batch: BATCH, size: SIZE, seed };
  const found = join(own, "found.json");
  if (!existsSync(found)) {
    const env = { OMP_NUM_THREADS: "1", PYTHONDONTWRITEBYTECODE: "1" };
    const command = [python, script, JSON.stringify(options)] as const;
    const { code, timedOut, output } = await execute(command, { msMax: msLeft(), env });
    if (timedOut) return null;
    if (code !== 0) throw new Error(output.slice(-2_000));
    writeFileSync(join(own, "torch.json"), output.trim().split("\n").at(-1) ?? "");
  }
  const lines = readFileSync(join(own, "times.jsonl"), "utf8").trim().split("\n");
  const times = lines.map((line) => Times.parse(JSON.parse(line)));
  const seconds = times.reduce((sum, one) => sum + one.seconds, 0) / times.length;
  const said = z.object({ torch: z.string() });
  return {
    ...(await cocoFigures(python, join(own, "truth.json"), found)),
    ...said.parse(JSON.parse(readFileSync(join(own, "torch.json"), "utf8"))),
    imagesPerSecond: split.train.length / seconds,
  };
}

/** The images as YOLO reads them; the list of those that are measured comes last. */
function writeYolo(
  folder: string,
  set: ImageCollection,
  split: { train: LabeledImage[]; val: LabeledImage[] },
) {
  for (const [name, images] of Object.entries({ ...split, test: set.val })) {
    for (const kind of ["images", "labels"])
      mkdirSync(join(folder, kind, name), { recursive: true });
    for (const { name: file, bytes, width, height, truths } of images) {
      const rows = truths.map(({ classIndex, bbox: [x1, y1, x2, y2] }) => {
        const center = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height];
        return [classIndex, ...center, (x2 - x1) / width, (y2 - y1) / height].join(" ");
      });
      writeFileSync(join(folder, "images", name, file), bytes);
      writeFileSync(join(folder, "labels", name, file.replace(/\.jpg$/, ".txt")), rows.join("\n"));
    }
  }
  const names = set.classes.map((name, index) => `  ${index}: ${name}`);
  const yaml = [`path: ${folder}`, "train: images/train", "val: images/val", "names:", ...names];
  writeFileSync(join(folder, "data.yaml"), `${yaml.join("\n")}\n`);
  writeFileSync(join(folder, "truth.json"), JSON.stringify(cocoOf(set, set.val)));
}
