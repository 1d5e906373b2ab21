// Frames that the product would suggest for labeling, by its own code: how unsure a model is on
// them, what the embedded segmenter sees in them, and the ranking of both.

import { createHash } from "node:crypto";
import { existsSync, globSync, mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { rankFrames } from "../../edge/vision/labeling/search/frame-ranking.ts";
import { openSegmenter } from "../../gpu-node/segmenters/registry.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import { entropiesOf } from "../../gpu-node/tasks/frame-embeddings.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import { BLOOD_CLASSES } from "../support/blood-cells.ts";
import { bloodImage } from "../support/images.ts";
import { generatedModel } from "../support/weights.ts";
import { writeWhole } from "./training-cells.ts";

const ROOT = resolve(import.meta.dirname, "../..");
const EMBEDDING_CODE = ["gpu-node/segmenters/{builtin,centernet,frame-vector,sam}.ts"];
/** What decides what is suggested, beside the model. */
const CHOOSING_CODE = [
  ...EMBEDDING_CODE,
  "edge/vision/labeling/search/frame-ranking.ts",
  "gpu-node/tasks/frame-embeddings.ts",
  "gpu-node/serving/predictor.ts",
];

function digestOf(patterns: readonly string[]): string {
  const hash = createHash("sha256");
  for (const path of globSync(patterns, { cwd: ROOT }).sort())
    hash.update(`${path}\0`).update(readFileSync(join(ROOT, path)));
  return hash.digest("hex").slice(0, 12);
}

/** Digest of the code that chooses. */
export const choosingVersion = () => digestOf(CHOOSING_CODE);

async function imageOf(id: string) {
  const blood = await bloodImage(id);
  if (!blood) throw new Error("the images of blood cells are not on this machine");
  return blood.image;
}

interface SuggestionWish {
  /** Of the model that was trained on what is labeled. */
  weights: Buffer;
  size: number;
  labeled: readonly string[];
  others: readonly string[];
  budget: number;
  /** Where vectors are kept. */
  dir: string;
  threads: number;
}

/** Vectors of frames by the segmenter's encoder, kept; null where it was told to stop. */
async function embeddingsOf(
  ids: readonly string[],
  { dir, threads }: Pick<SuggestionWish, "dir" | "threads">,
  stop: AbortSignal,
) {
  const folder = join(dir, `embeddings-${digestOf(EMBEDDING_CODE)}`);
  mkdirSync(folder, { recursive: true });
  const pathOf = (id: string) => join(folder, `${id}.f32`);
  const missing = ids.filter((id) => !existsSync(pathOf(id)));
  if (missing.length > 0) {
    const segmenter = await openSegmenter(null, {
      modelsDir: join(dir, "models"),
      cpuThreads: threads,
      log: () => {},
    });
    for (const id of missing) {
      if (stop.aborted) break;
      const encoded = await segmenter.encode(await imageOf(id));
      const vector = await segmenter.describe(encoded);
      encoded.dispose();
      writeWhole(pathOf(id), new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength));
    }
    await segmenter.dispose();
    if (stop.aborted) return null;
  }
  return ids.map((id) => new Float32Array(new Uint8Array(readFileSync(pathOf(id))).buffer));
}

/** How unsure a model is on frames, in bits by class. */
async function entropiesOn(
  ids: readonly string[],
  { weights, size, threads }: Pick<SuggestionWish, "weights" | "size" | "threads">,
) {
  const model = generatedModel((key, bytes) => ({ url: "", key, bytes: bytes.length }), {
    classes: BLOOD_CLASSES,
    image_size: size,
    file: weights,
  });
  const settings = { cpuThreads: threads, device: "cpu" } as const;
  const predictor = await openPredictor(model, weights, settings);
  try {
    const all: Record<string, number>[] = [];
    for (const id of ids) {
      const found = await predictor.predict(await imageOf(id), {
        confidence: STORED_CONFIDENCE_MIN,
      });
      all.push(entropiesOf(found));
    }
    return all;
  } finally {
    await predictor.dispose();
  }
}

/** The best of the other frames, in the ranking's order; null where it was told to stop. */
export async function suggestFrames(
  wanted: SuggestionWish,
  stop: AbortSignal,
): Promise<string[] | null> {
  const { labeled, others, budget } = wanted;
  const embeddings = await embeddingsOf([...labeled, ...others], wanted, stop);
  if (!embeddings) return null;
  const entropies = await entropiesOn(others, wanted);
  const candidates = others.map((_, index) => ({
    vector: embeddings[labeled.length + index] ?? new Float32Array(),
    entropies: entropies[index] ?? null,
  }));
  const chosen = rankFrames(candidates, embeddings.slice(0, labeled.length), budget);
  if (chosen.length < budget) throw new Error(`only ${chosen.length} frames were suggested`);
  return chosen.flatMap(({ index }) => others[index] ?? []);
}
