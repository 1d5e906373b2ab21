// The images of a folder as pre-training reads them, each with the features that the built-in
// segmenter's encoder has of it. What was made of an image is kept by the image's own content and
// the encoder's: a command that goes on after a kill makes nothing twice, and reads nothing that
// another release's encoder saw.

import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { writeWhole } from "../base/whole-file.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill } from "../media/stills.ts";
import { float, floats, openSession, run } from "../onnx/runtime.ts";
import { embeddedFiles, SOURCES } from "../segmenters/embedded-files.ts";
import { encoderInput, GRID, SIDE } from "../segmenters/sam.ts";

/** Names of files that are looked at; what is in them decides. */
const IMAGE_NAME = /\.(?:jpe?g|png|webp|tiff?|gif|avif|bmp)$/i;
/** Features of a cell. */
export const FEATURES = 256;

/** A cell's features follow one another, cell after cell, row by row; as the encoder gives them. */
export interface FeatureGrid {
  values: Float16Array;
  columns: number;
  rows: number;
}

/** An image, at most as large as pre-training wants it, and its features. */
export interface PreparedImage {
  image: RgbImage;
  features: FeatureGrid;
}

/** Paths of a folder's images, and of those below it, in order. */
export async function listImages(folder: string): Promise<string[]> {
  const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && IMAGE_NAME.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort();
}

/** What tells of each image's features: made anew, or found. */
export type OnImage = (done: number, of: number) => void;

export interface PreparedImages {
  /** Files of `readPrepared`, in the order of the images' contents. */
  files: string[];
  /** One digest of all contents: the order and the names of the images are of no account. */
  sha256: string;
  /** Why an image was left out, by its path. */
  unreadable: { path: string; reason: string }[];
}

/** The encoder in names of files. */
const ENCODER = SOURCES.encoder.sha256.slice(0, 16);

/** Makes the features of all images that were not made yet. Contents that repeat count once. */
export async function prepareImages(
  paths: readonly string[],
  options: { workDir: string; modelsDir: string; longestSide: number; cpuThreads: number },
  onImage: OnImage,
): Promise<PreparedImages> {
  const { workDir, longestSide } = options;
  await fs.mkdir(workDir, { recursive: true });
  const files = new Map<string, string>();
  const unreadable: PreparedImages["unreadable"] = [];
  const encoder = lazyEncoder(options);
  for (const [at, path] of paths.entries()) {
    const bytes = await fs.readFile(path);
    const content = createHash("sha256").update(bytes).digest("hex");
    const file = join(workDir, `${content}-${longestSide}-${ENCODER}.picture`);
    try {
      if (!(await exists(file))) await writePrepared(file, await look(bytes, longestSide, encoder));
      files.set(content, file);
    } catch (thrown) {
      if (isSystemError(thrown)) throw thrown;
      unreadable.push({ path, reason: (thrown as Error).message });
    }
    onImage(at + 1, paths.length);
  }
  await encoder.close();
  const contents = [...files.keys()].sort();
  const sha256 = createHash("sha256").update(contents.join("\n")).digest("hex");
  return { files: contents.map((one) => files.get(one) as string), sha256, unreadable };
}

type Encoder = ReturnType<typeof lazyEncoder>;

/** The segmenter's encoder, opened when the first image needs it. */
function lazyEncoder({ modelsDir, cpuThreads }: { modelsDir: string; cpuThreads: number }) {
  const open = async () =>
    openSession((await embeddedFiles(modelsDir)).encoder, { cpuThreads, device: "cpu" });
  let session: ReturnType<typeof open> | null = null;
  return {
    async encode(image: RgbImage): Promise<FeatureGrid> {
      session ??= open();
      const encoder = await session;
      const { input, width, height } = await encoderInput(image);
      const [name, output] = [encoder.inputNames[0] ?? "", encoder.outputNames[0] ?? ""];
      const planes = floats(await run(encoder, { [name]: float(...input) }), output);
      const { columns, rows } = cellsOf({ width, height });
      return { values: byCell(planes, { columns, rows }), columns, rows };
    },
    async close(): Promise<void> {
      await (await session)?.release();
    },
  };
}

/** Cells of the encoder's grid that an image covers, which lies in its top left corner. */
const cellsOf = ({ width, height }: { width: number; height: number }) => {
  const cells = (side: number) => Math.min(GRID, Math.max(1, Math.round((side * GRID) / SIDE)));
  return { columns: cells(width), rows: cells(height) };
};

function byCell(planes: Float32Array, { columns, rows }: { columns: number; rows: number }) {
  const values = new Float16Array(rows * columns * FEATURES);
  for (let y = 0; y < rows; y++)
    for (let x = 0; x < columns; x++)
      for (let feature = 0; feature < FEATURES; feature++)
        values[(y * columns + x) * FEATURES + feature] = planes[
          (feature * GRID + y) * GRID + x
        ] as number;
  return values;
}

async function look(bytes: Buffer, longestSide: number, encoder: Encoder): Promise<PreparedImage> {
  const image = await readStill(bytes, { longestSide });
  return { image, features: await encoder.encode(await readStill(bytes)) };
}

const isSystemError = (thrown: unknown): boolean => thrown instanceof Error && "syscall" in thrown;

const exists = (path: string) =>
  fs.access(path).then(
    () => true,
    () => false,
  );

/** Four numbers of 32 bits, pixels, and from a multiple of four on the features. */
const HEAD_BYTES = 16;

async function writePrepared(path: string, { image, features }: PreparedImage): Promise<void> {
  const head = Uint32Array.of(image.width, image.height, features.columns, features.rows);
  const pixels = Buffer.alloc(Math.ceil(image.data.length / 4) * 4);
  pixels.set(image.data);
  const { buffer, byteOffset, byteLength } = features.values;
  const parts = [Buffer.from(head.buffer), pixels, Buffer.from(buffer, byteOffset, byteLength)];
  await writeWhole(path, Buffer.concat(parts));
}

/** What was made of an image. */
export async function readPrepared(path: string): Promise<PreparedImage> {
  // A copy begins where numbers of any width may begin.
  const bytes = Uint8Array.from(await fs.readFile(path));
  const [width = 0, height = 0, columns = 0, rows = 0] = new Uint32Array(bytes.buffer, 0, 4);
  const pixelBytes = width * height * 3;
  const from = HEAD_BYTES + Math.ceil(pixelBytes / 4) * 4;
  return {
    image: { data: bytes.subarray(HEAD_BYTES, HEAD_BYTES + pixelBytes), width, height },
    features: {
      values: new Float16Array(bytes.buffer, from, rows * columns * FEATURES),
      columns,
      rows,
    },
  };
}

/** The mean of each feature over all cells of the images, and one over its deviation. */
export interface FeatureScale {
  mean: Float32Array;
  factor: Float32Array;
}

/** What makes all features count alike: some are a hundred times as large as others. */
export async function featureScale(files: readonly string[]): Promise<FeatureScale> {
  const sums = new Float64Array(FEATURES);
  const squares = new Float64Array(FEATURES);
  let cells = 0;
  for (const file of files) {
    const { values } = (await readPrepared(file)).features;
    const numbers = Float32Array.from(values);
    for (let at = 0; at < numbers.length; at++) {
      const value = numbers[at] as number;
      const feature = at % FEATURES;
      sums[feature] = (sums[feature] as number) + value;
      squares[feature] = (squares[feature] as number) + value * value;
    }
    cells += numbers.length / FEATURES;
  }
  const mean = Float32Array.from(sums, (sum) => sum / cells);
  const factor = Float32Array.from(squares, (sum, feature) => {
    const variance = sum / cells - (mean[feature] ?? 0) ** 2;
    return variance > 1e-8 ? 1 / Math.sqrt(variance) : 0;
  });
  return { mean, factor };
}
