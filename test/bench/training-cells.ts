// The trainings that `npm run bench -- training-choices` measures, each told whole: data set,
// settings, and what the engine trains by, in the order in which they say most. A cell's result is
// kept under a key of all that, of the code that trains, and of its torch.

import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { z } from "zod";
import {
  automaticBatch,
  iterationsOf,
  stepBytes,
  trainingOptions,
} from "../../gpu-node/training/settings.ts";
import type { TrainingOptions } from "../../native/index.d.ts";
import { detectorGraph, HEADS, parameterCount } from "../../shared/detector/detector.ts";
import { TrainSettings } from "../../shared/wire/training.ts";
import { imageSet, innerSplit, SET_NAMES, type SetName } from "./image-sets.ts";

export const TABLES = ["precision", "choices", "goal"] as const;
export type TableName = (typeof TABLES)[number];

/** A training by all that decides it. */
export interface Training {
  set: SetName;
  /** All of train.txt is learned, the part that the epoch is chosen on included. */
  isWhole: boolean;
  settings: TrainSettings;
  training: TrainingOptions;
  /** Digest of the weights at `FIRST_WEIGHTS`, which it begins with; null from scratch. */
  first: string | null;
}

export interface Cell extends Training {
  table: TableName;
  /** Row and column of the table; a row's seeds are told together. */
  row: string;
  column: string;
}

/** What differs from the automatic choice: settings, and what the engine is told beyond them. */
interface Alternative {
  settings?: Partial<TrainSettings>;
  /** By the automatic options and the count of classes. */
  training?(automatic: TrainingOptions, classes: number): Partial<TrainingOptions>;
}

/** The images' count and classes, which the automatic choices depend on. */
interface Shape {
  classes: number;
  trainImages: number;
}

const shapes = new Map<string, Shape>();

async function shapeOf(set: SetName, isWhole: boolean): Promise<Shape> {
  const key = `${set} ${isWhole}`;
  const known = shapes.get(key);
  if (known) return known;
  const images = await imageSet(set);
  const trainImages = innerSplit(images, { isWhole }).train.length;
  const made = { classes: images.classes.length, trainImages };
  shapes.set(key, made);
  return made;
}

type CellPlan = Omit<Cell, "settings" | "training" | "first"> &
  Alternative & { base: Partial<TrainSettings> };

/** A training with what is automatic chosen, or otherwise where that is asked for. */
export async function chosenTraining<
  Asked extends Pick<CellPlan, "set" | "isWhole" | "base" | "settings" | "training">,
>({ base, settings = {}, training, ...rest }: Asked) {
  const { classes, trainImages } = await shapeOf(rest.set, rest.isWhole);
  const asked = TrainSettings.parse({ ...base, ...settings });
  const parameters = parameterCount(detectorGraph(asked.variant, classes));
  // As a machine with memory enough chooses it.
  const memory = { device: "cpu", freeBytes: 64e9 } as const;
  const batch =
    asked.batch_size ??
    (await automaticBatch(trainImages, memory, async (count) =>
      stepBytes(parameters, asked.image_size, count),
    ));
  const automatic = trainingOptions(asked, { classes, trainImages, batch });
  const first: string | null = null;
  return {
    ...rest,
    first,
    settings: { ...asked, batch_size: batch },
    training: { ...automatic, ...training?.(automatic, classes) },
  };
}

const SEEDS = [0, 1, 2];

function precisionCells(): CellPlan[] {
  return SEEDS.flatMap((seed) =>
    (["bf16", "fp32"] as const).map((precision) => ({
      table: "precision" as const,
      row: precision,
      column: `seed ${seed}`,
      set: "blood" as const,
      isWhole: false,
      base: { epochs: 30, image_size: 320, patience: 0, seed, precision },
    })),
  );
}

/** Long runs of small images to short ones of large ones, of some minutes a core each. */
const REGIMES = [
  { image_size: 160, epochs: 60 },
  { image_size: 224, epochs: 40 },
  { image_size: 320, epochs: 30 },
] as const;

/** AdamW's rate of the detector family's description. */
const described = (classes: number) => 0.01 / (4 + classes);
/** What was automatic from scratch while the figure that it was chosen by matched boxes wrongly. */
const before = (classes: number) => Math.min(0.004, 3 * described(classes));

/** The automatic choices first, then AdamW, and AdamW with one thing made otherwise. */
const ALTERNATIVES: Readonly<Record<string, Alternative>> = {
  automatic: { settings: { optimizer: "auto" } },
  AdamW: {},
  "rate of the description": { training: (_, classes) => ({ lr0: described(classes) }) },
  "rate that falls with classes, as before": {
    training: (_, classes) => ({ lr0: Math.round(before(classes) * 1e6) / 1e6 }),
  },
  "rate twice as high": { training: ({ lr0 }) => ({ lr0: 2 * lr0 }) },
  "rate half as high": { training: ({ lr0 }) => ({ lr0: lr0 / 2 }) },
  "batch 16 for a small set": { settings: { batch_size: 16 } },
  "batch 4 for a small set": { settings: { batch_size: 4 } },
  "gradients gathered over 64": { training: () => ({ nominalBatch: 64 }) },
  "warm-up of a tenth": { training: ({ epochs }) => ({ warmupEpochs: Math.min(3, epochs / 10) }) },
  MuSGD: { settings: { optimizer: "musgd" } },
};

function choiceCells(precision: TrainSettings["precision"]): CellPlan[] {
  return REGIMES.flatMap((regime) =>
    Object.entries(ALTERNATIVES).flatMap(([row, alternative]) =>
      SET_NAMES.map((set) => ({
        table: "choices" as const,
        row,
        column: `${set}, ${regime.image_size} px, ${regime.epochs} epochs`,
        set,
        isWhole: false,
        base: { ...regime, optimizer: "adamw" as const, patience: 0, seed: 0, precision },
        ...alternative,
      })),
    ),
  );
}

/** What `npm run bench -- pretraining` made of the images of train.txt, without their labels. */
export const FIRST_WEIGHTS = resolve(
  import.meta.dirname,
  "../../.vantage/bench/pretraining/det26n-192-100.safetensors",
);

/** What might bring the goal nearer, one seed each. */
const GOAL_ALTERNATIVES: Readonly<Record<string, Partial<TrainSettings>>> = {
  "stronger augmentation": { augmentation: "aggressive" },
  "cosine schedule": { learning_rate_schedule: "cosine" },
  AdamW: { optimizer: "adamw" },
  "twice as many epochs": { epochs: 200 },
  det26s: { variant: "det26s" },
};

const ALL_LEARNED = "all of train.txt learned";

function goalCells(precision: TrainSettings["precision"]): CellPlan[] {
  const cell = (row: string, seed: number, isWhole: boolean, settings = {}): CellPlan => ({
    table: "goal",
    row,
    column: `seed ${seed}`,
    set: "blood",
    isWhole,
    base: { image_size: 320, epochs: 100, patience: 0, seed, precision },
    settings,
  });
  return [
    ...SEEDS.flatMap((seed) => [
      cell(ALL_LEARNED, seed, true),
      cell("a fifth of train.txt held out", seed, false),
    ]),
    ...Object.entries(GOAL_ALTERNATIVES).map(([row, settings]) => cell(row, 0, true, settings)),
  ];
}

/** All cells in their order; those of equal settings have equal keys. */
export async function trainingCells(precision: TrainSettings["precision"]): Promise<Cell[]> {
  const goal = goalCells(precision);
  const wanted = [...precisionCells(), ...choiceCells(precision), ...goal];
  const cells: Cell[] = [];
  for (const one of wanted) cells.push(await chosenTraining(one));
  if (!existsSync(FIRST_WEIGHTS)) return cells;
  const first = createHash("sha256").update(readFileSync(FIRST_WEIGHTS)).digest("hex");
  for (const one of goal.filter(({ row }) => row === ALL_LEARNED)) {
    const row = `${ALL_LEARNED}, pre-trained without labels`;
    cells.push({ ...(await chosenTraining(one)), row, first });
  }
  return cells;
}

export const nameOf = ({ table, column, row }: Cell): string => `${table}: ${column}: ${row}`;

/** Epochs without a better one after which a run might have ended: what that would have cost. */
export const PATIENCES = [10, 20, 30, 50] as const;

export const Figures = z.object({ ap50: z.number(), ap: z.number() });
export type Figures = z.infer<typeof Figures>;

/** What a cell came to. */
export const CellResult = z.object({
  name: z.string(),
  torch: z.string(),
  version: z.string(),
  precision: z.string(),
  /** The epoch that was chosen on the held images, from 1, and its figures there. */
  epoch: z.number(),
  inner: Figures,
  /** pycocotools' on val.txt, of the model as it is served. */
  val: Figures,
  /** The IoU above which the model's boxes are suppressed, or null. */
  suppression: z.object({ head: z.enum(HEADS), nmsIou: z.number() }).nullable(),
  /** The same of a run that had ended by each patience; where it would have. */
  patience: z.record(
    z.string(),
    z.object({ stopped: z.number(), epoch: z.number(), val: Figures }),
  ),
  /** mAP50-95 on the held images after each epoch. */
  scores: z.array(z.number()),
  /** Processor time of an epoch, without and with its look at the held images. */
  cpuSeconds: z.object({ training: z.number(), epoch: z.number() }).nullable(),
});
export type CellResult = z.infer<typeof CellResult>;

const ROOT = resolve(import.meta.dirname, "../..");
/** The code that decides what a training comes to, settings aside: these are in the cell. */
const TRAINING_CODE = [
  "native/src/**/*.{cpp,h}",
  "shared/detector/detector.ts",
  "gpu-node/training/{loop,dataset,pixels,suppression-choice}.ts",
  "test/bench/image-sets.ts",
];

/** Digest of that code and of its torch. */
export function codeVersion(torch: string): string {
  const hash = createHash("sha256").update(torch);
  for (const path of globSync(TRAINING_CODE, { cwd: ROOT }).sort())
    hash.update(`${path}\0`).update(readFileSync(join(ROOT, path)));
  return hash.digest("hex").slice(0, 12);
}

/** The name of a cell's result. */
export function keyOf(cell: Training, version: string): string {
  const { set, isWhole, settings, training, first } = cell;
  const { seed, precision, patience, variant, image_size } = settings;
  const started = first !== null && { first };
  const plain = { set, isWhole, seed, precision, patience, variant, image_size, training };
  const decisive = { ...plain, ...started };
  const digest = createHash("sha256").update(JSON.stringify(decisive)).update(version);
  return digest.digest("hex").slice(0, 24);
}

/** Images that a cell trains on in all of its epochs, for a guess at how long it takes. */
export async function imagesOf({ set, isWhole, training }: Training): Promise<number> {
  const { trainImages } = await shapeOf(set, isWhole);
  return iterationsOf(trainImages, 1, training.epochs);
}

/** A file that appears whole or not at all. */
export function writeWhole(path: string, content: string | Uint8Array) {
  writeFileSync(`${path}.part`, content, { flush: true });
  renameSync(`${path}.part`, path);
}
