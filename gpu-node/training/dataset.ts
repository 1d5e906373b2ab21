// A run's dataset as the engine maps it: a file of RGB bytes for each split, every image at the
// run's image size, and the boxes scaled with it. Pixels are kept under the hash of what they were
// made of, so that a resume, a second run or other boxes on the same frames decode nothing again,
// and a run on some frames more decodes those alone.

import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import type { Dataset, DatasetImage } from "../../native/index.d.ts";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { lives } from "../base/processes.ts";
import type { MediaContext } from "../media/footage.ts";
import { bytesOf, type ListedImage } from "./kept-pixels.ts";
import { type PixelContext, pixelBytes, pixelsAt, pixelsName, type SourceFrame } from "./pixels.ts";

type Frame = SourceFrame["frame"];

/** What a run learns from, and what it chooses on. */
export type Split = "train" | "val";
const SPLITS: readonly Split[] = ["train", "val"];

/** An image of a split: its name for people, its boxes, and the offset of its pixels. */
export interface Entry extends DatasetImage {
  /** Such as `clip.mp4 #12`. */
  name: string;
}

export interface SplitData extends Dataset {
  images: Entry[];
}

export interface TrainingData {
  classes: string[];
  /** Digest of the manifest. */
  sha256: string;
  splits: Record<Split, SplitData>;
  /** What the finished model alone is measured on; null where no frame of it has an annotation. */
  test: SplitData | null;
  /** Boxes of the manifest that lie outside their images or are too thin to be seen. */
  left: number;
}

const MANIFEST_BYTES_MAX = 512 * 1024 * 1024;
/** Datasets that no run used for so long make room for others first. */
const KEPT_BYTES = 40 * 1024 ** 3;
/** A side of a box that is shorter, in pixels of the training, is nothing to learn from. */
const SIDE_MIN = 1;
/** A ring of fewer numbers, x and y of a corner in turn, has no area. */
const RING_NUMBERS_MIN = 6;

/** Reads a manifest and its hash. */
export async function readManifest(
  source: ObjectSource,
  context: Pick<MediaContext, "cache" | "cancel">,
): Promise<{ manifest: ExportManifest; sha256: string }> {
  if (source.bytes > MANIFEST_BYTES_MAX) {
    throw new TaskFailure("file_too_large", "the dataset has too many annotations for one run");
  }
  const held = await context.cache.open(source, context.cancel);
  try {
    const bytes = await fs.readFile(held.path);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const parsed = ExportManifest.safeParse(parseJson(bytes));
    if (!parsed.success) throw new TaskFailure("bad_dataset", "the dataset's list is not readable");
    return { manifest: parsed.data, sha256 };
  } finally {
    await held.release();
  }
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return null;
  }
}

/** Why no run can learn from a dataset, as a sentence for the user; null when one can. */
export function whyUnfit({ classes, videos }: ExportManifest): string | null {
  const frames = videos.flatMap((video) => video.frames);
  const of = (split: Split) => frames.filter((frame) => frame.split === split);
  const boxes = (some: readonly Frame[]) => some.some((frame) => frame.annotations.length > 0);
  if (classes.length === 0) return "the dataset has no class: label and accept something first";
  if (!boxes(frames)) {
    return "the dataset has no annotation: accept some of the job's annotations first";
  }
  if (of("train").length === 0) return "the dataset has no picture to train on: label more frames";
  if (of("val").length === 0) {
    return "the dataset has no picture to validate on: label more frames, or raise the share";
  }
  const known = (index: number) => index >= 0 && index < classes.length;
  const boxed = frames.flatMap(({ annotations }) => annotations);
  if (!boxed.every(({ class_index }) => known(class_index))) {
    return "the dataset has annotations of a class that it does not list";
  }
  if (!boxes(of("train"))) return "no picture to train on has an annotation: accept more of them";
  return null;
}

/** Why no run can learn masks from a dataset that boxes can be learned from; null when one can. */
export function whyUnmasked({ videos }: ExportManifest): string | null {
  const frames = videos.flatMap((video) => video.frames);
  const isMasked = frames.some(
    ({ split, annotations }) => split === "train" && annotations.some(({ polygon }) => polygon),
  );
  return isMasked ? null : "no picture to train on has a mask: label with masks first";
}

/** The images of a split in the order of their files. */
const wantedOf = ({ videos }: ExportManifest, split: Split | "test"): SourceFrame[] =>
  videos.flatMap((video) =>
    video.frames
      .filter((frame) => frame.split === split)
      .sort((one, other) => one.index - other.index)
      .map((frame) => ({ video, frame })),
  );

export interface ScaledBoxes
  extends Required<Pick<DatasetImage, "boxes" | "rings" | "ringStarts">> {
  /** Annotations of which nothing is to be seen. */
  left: number;
}

/**
 * A frame's boxes in pixels of the image that is trained on, cut to it, and the rings of their
 * masks, whole; the rest is counted.
 */
export function scaledBoxes(
  { annotations }: Pick<Frame, "annotations">,
  source: { width: number; height: number },
  size: { width: number; height: number },
): ScaledBoxes {
  const [across, down] = [size.width / source.width, size.height / source.height];
  const [boxes, rings, starts]: [number[], number[], number[]] = [[], [], []];
  for (const {
    class_index,
    bbox: [x1, y1, x2, y2],
    polygon,
  } of annotations) {
    const x = (value: number) => Math.min(size.width, Math.max(0, value * across));
    const y = (value: number) => Math.min(size.height, Math.max(0, value * down));
    const corners = [x(x1), y(y1), x(x2), y(y2)] as const;
    const wide = corners[2] - corners[0];
    const high = corners[3] - corners[1];
    if (wide < SIDE_MIN || high < SIDE_MIN) continue;
    boxes.push(class_index, ...corners);
    starts.push(rings.length / 2);
    if (!polygon || polygon.length < RING_NUMBERS_MIN) continue;
    for (const [index, value] of polygon.entries()) {
      rings.push(value * (index % 2 ? down : across));
    }
  }
  return {
    boxes: Float32Array.from(boxes),
    rings: Float32Array.from(rings),
    ringStarts: Int32Array.from(starts),
    left: annotations.length - starts.length,
  };
}

export interface PrepareOptions {
  manifest: ExportManifest;
  sha256: string;
  /** Masks are learned too: a box with a mask is taken for the mask's own. */
  masks?: boolean;
  /**
   * Outlines are taken along where annotations have them: those that are trained on, for pasting.
   * What is validated on has them for masks alone, since its boxes are then those of its outlines.
   */
  outlines?: boolean;
  videos: readonly ObjectSource[];
  imageSize: number;
  /** Images that are ready, of how many. */
  onProgress(done: number, total: number): void;
}

/** Makes a dataset ready, from what is here or by decoding its frames once. */
export async function prepareDataset(
  options: PrepareOptions,
  context: PixelContext,
): Promise<TrainingData> {
  const { manifest, sha256, imageSize, masks = false, outlines = false } = options;
  const unfit = whyUnfit(manifest) ?? (masks ? whyUnmasked(manifest) : null);
  if (unfit) throw new TaskFailure("bad_dataset", unfit);
  const test = wantedOf(manifest, "test");
  const isTested = test.some(({ frame }) => frame.annotations.length > 0);
  const wanted = {
    train: wantedOf(manifest, "train"),
    val: wantedOf(manifest, "val"),
    test: isTested ? test : [],
  };
  const all = Object.values(wanted).flat();
  const folder = join(context.machine.trainingDir, "datasets");
  await fs.mkdir(folder, { recursive: true, mode: 0o700 });
  const nameOf = (split: Split | "test") => pixelsName(wanted[split], imageSize);
  const names = [...SPLITS, ...(isTested ? ["test" as const] : [])].map(nameOf);
  const { bavail, bsize } = await fs.statfs(folder);
  await sweepDatasets(folder, names, {
    bytes: pixelBytes(all, imageSize),
    free: bavail * bsize,
  });
  const progress = new Counter(all.length, options.onProgress);
  const sources = new Map(options.videos.map((source) => [source.key, source]));
  let left = 0;
  const dataOf = async (split: Split | "test"): Promise<SplitData> => {
    const path = join(folder, `${nameOf(split)}.rgb`);
    const work = { imageSize, sources, onReady: (count: number) => progress.add(count) };
    const made = await pixelsAt(path, wanted[split], work, context);
    const data = entriesOf(wanted[split], made, masks || (outlines && split === "train"));
    left += data.left;
    return { path, images: data.images };
  };
  const splits = { train: await dataOf("train"), val: await dataOf("val") };
  const tested = isTested ? await dataOf("test") : null;
  return { classes: manifest.classes, sha256, splits, test: tested, left };
}

function entriesOf(
  wanted: readonly SourceFrame[],
  made: readonly ListedImage[],
  outlines: boolean,
) {
  let offset = 0;
  let left = 0;
  const images = wanted.map(({ video, frame }, index): Entry => {
    const size = made[index] as ListedImage;
    const scaled = scaledBoxes(frame, size.source, size);
    const { width, height } = size;
    const name = `${video.filename} #${frame.index}`;
    const { boxes, rings, ringStarts } = scaled;
    const entry = { offset, width, height, boxes, name };
    offset += bytesOf(size);
    left += scaled.left;
    return outlines ? { ...entry, rings, ringStarts } : entry;
  });
  return { images, left };
}

class Counter {
  #done = 0;
  readonly #total: number;
  readonly #tell: (done: number, total: number) => void;

  constructor(total: number, tell: (done: number, total: number) => void) {
    this.#total = total;
    this.#tell = tell;
  }

  add(count: number) {
    this.#done += count;
    this.#tell(this.#done, this.#total);
  }
}

/**
 * Removes what dead processes left, and datasets beyond what is kept, or beyond what leaves room
 * for so many bytes more; those used longest ago first. Whoever has one mapped keeps its pixels.
 */
export async function sweepDatasets(
  folder: string,
  needed: readonly string[],
  room: { bytes: number; free: number },
) {
  const files = await Promise.all(
    (await fs.readdir(folder)).map(async (name) => {
      const path = join(folder, name);
      const stat = await fs.stat(path).catch(() => null);
      return { name, path, bytes: stat?.size ?? 0, used: stat?.mtimeMs ?? 0 };
    }),
  );
  for (const { name, path } of files) {
    const [, owner] = /\.(\d+-\d+)\.(?:json\.)?part$/.exec(name) ?? [];
    if (owner && !lives(owner)) await fs.rm(path, { force: true });
  }
  const pixels = files.filter(({ name }) => name.endsWith(".rgb"));
  const isNeeded = (name: string) => needed.some((one) => name.startsWith(one));
  const sum = (some: typeof pixels) => some.reduce((total, { bytes }) => total + bytes, 0);
  let kept = sum(pixels);
  let free = room.free;
  // What is here already is not written again. What would not fit anyway costs nobody anything.
  const mine = sum(pixels.filter(({ name }) => isNeeded(name)));
  const more = room.bytes - mine > free + kept - mine ? 0 : room.bytes - mine;
  for (const { name, path, bytes } of pixels.sort((one, other) => one.used - other.used)) {
    if (kept <= KEPT_BYTES && free >= more) return;
    if (isNeeded(name)) continue;
    await fs.rm(path, { force: true });
    await fs.rm(`${path}.json`, { force: true });
    kept -= bytes;
    free += bytes;
  }
}
