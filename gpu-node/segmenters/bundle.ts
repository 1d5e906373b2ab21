// A bundle: a folder with a manifest that says which files it holds, to the byte, and how its
// models are spoken to. Names and sizes of exported models differ from hub to hub: they are the
// manifest's, and are compared with what the models themselves declare when they are opened.

import { open, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { VARIANT_NAMES } from "../../shared/detector/detector.ts";
import { WeightSetName } from "../../shared/wire/training.ts";
import { readsOutside } from "../onnx/external-data.ts";
import type { Device } from "../onnx/runtime.ts";
import { BUILTIN } from "./builtin-info.ts";
import { digestOf } from "./embedded-files.ts";
import { BundleBroken } from "./failures.ts";
import type { SegmenterInfo } from "./segmenter.ts";

export const BUNDLE_FILE = "bundle.json";
export const MANIFEST_BYTES_MAX = 1_000_000;

/** A path below the bundle's folder, in one spelling: no "..", no ".", nothing absolute. */
const FilePath = z
  .string()
  .max(200)
  .regex(
    /^[A-Za-z0-9_-][\w.-]*(?:\/[A-Za-z0-9_-][\w.-]*)*$/,
    "must be a plain path below the bundle",
  );

const BundleFile = z.object({
  path: FilePath,
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "must be a sha256 in lower-case hexadecimal"),
  bytes: z.number().int().positive(),
});
export type BundleFile = z.infer<typeof BundleFile>;

const Triple = z.tuple([z.number(), z.number(), z.number()]);
const Deviations = z.tuple([z.number().positive(), z.number().positive(), z.number().positive()]);

const common = {
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, "must be lower-case letters, digits, '.', '_' or '-'")
    .refine((name) => name !== BUILTIN, "is the embedded default's name"),
  title: z.string().min(1).max(100),
  licence: z.string().min(1).max(200),
  files: z.array(BundleFile).min(1).max(50),
};

/** How images are made into the first model's input. */
const inputOf = (defaults: {
  size: number;
  mean: z.infer<typeof Triple>;
  std: z.infer<typeof Triple>;
}) =>
  z
    .object({
      /** Side of the square input, where the model itself leaves it open. */
      size: z.number().int().min(16).max(4096).default(defaults.size),
      /** Mean and deviation of values from 0 to 1. */
      mean: Triple.default(defaults.mean),
      std: Deviations.default(defaults.std),
      /** `stretch` fills the square; `fit` keeps proportions and pads on the right and below. */
      resize: z.enum(["stretch", "fit"]).default("stretch"),
    })
    .prefault({});

const Sam2Manifest = z.object({
  ...common,
  kind: z.literal("sam2"),
  input: inputOf({ size: 1024, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] }),
  models: z.object({ encoder: FilePath, decoder: FilePath }),
  tensors: z
    .object({
      image: z.string().default("image"),
      /** Encoder output → decoder input. */
      embeddings: z.record(z.string(), z.string()).default({
        image_embed: "image_embed",
        high_res_feats_0: "high_res_feats_0",
        high_res_feats_1: "high_res_feats_1",
      }),
      point_coords: z.string().default("point_coords"),
      point_labels: z.string().default("point_labels"),
      /** Given zeros where the decoder has them. */
      mask_input: z.string().default("mask_input"),
      has_mask_input: z.string().default("has_mask_input"),
      masks: z.string().default("masks"),
      scores: z.string().default("iou_predictions"),
    })
    .prefault({}),
});

const Sam3Manifest = z.object({
  ...common,
  kind: z.literal("sam3"),
  input: inputOf({ size: 1008, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] }),
  models: z.object({ vision: FilePath, text: FilePath, decoder: FilePath }),
  tokenizer: z.object({
    /** CLIP's merges, one a line. */
    merges: FilePath,
    /** Tokens → numbers as JSON; without it CLIP's own order. */
    vocabulary: FilePath.nullable().default(null),
    length: z.number().int().min(4).max(256).default(32),
    /** What fills the rest of a short text. */
    pad: z.enum(["end", "zero"]).default("end"),
  }),
  tensors: z
    .object({
      image: z.string().default("images"),
      /** Vision output → decoder input. */
      features: z.record(z.string(), z.string()).default({
        fpn_feat_0: "fpn_feat_0",
        fpn_feat_1: "fpn_feat_1",
        fpn_feat_2: "fpn_feat_2",
        fpn_pos_2: "fpn_pos_2",
      }),
      input_ids: z.string().default("input_ids"),
      attention_mask: z.string().default("attention_mask"),
      text_features: z.string().default("text_features"),
      text_mask: z.string().default("text_mask"),
      input_boxes: z.string().default("input_boxes"),
      input_boxes_labels: z.string().default("input_boxes_labels"),
      masks: z.string().default("pred_masks"),
      boxes: z.string().default("pred_boxes"),
      logits: z.string().default("pred_logits"),
      presence: z.string().default("presence_logits"),
    })
    .prefault({}),
  /** Boxes are shares of the input's sides, as corners or as centre and size. */
  boxes_in: z.enum(["cxcywh", "xyxy"]).default("cxcywh"),
  boxes_out: z.enum(["cxcywh", "xyxy"]).default("xyxy"),
  /** The text that stands for "what these examples are". */
  exemplar_text: z.string().min(1).default("visual"),
  thresholds: z.object({ same_object_iou: z.number().min(0).max(1).default(0.7) }).prefault({}),
});

/** First weights of trainings: one detector's, or its backbone's, as somebody trained it. */
const WeightsManifest = z.object({
  ...common,
  kind: z.literal("weights"),
  /** How runs ask for them; a set has weights of several variants, a bundle each. */
  dataset: WeightSetName,
  variant: z.enum(VARIANT_NAMES),
  /** Where they come from: an address, or how they were made. */
  source: z.string().min(1).max(500),
  weights: FilePath,
});

const AnyManifest = z.discriminatedUnion("kind", [Sam2Manifest, Sam3Manifest, WeightsManifest]);

const modelsOf = (manifest: z.infer<typeof AnyManifest>): string[] =>
  manifest.kind === "weights" ? [manifest.weights] : Object.values(manifest.models);

export const Manifest = AnyManifest.superRefine((manifest, context) => {
  const listed = new Set(manifest.files.map(({ path }) => path));
  if (listed.size < manifest.files.length)
    context.addIssue({ code: "custom", path: ["files"], message: "name a file twice" });
  const named = modelsOf(manifest);
  if (manifest.kind === "sam3") {
    named.push(manifest.tokenizer.merges);
    if (manifest.tokenizer.vocabulary) named.push(manifest.tokenizer.vocabulary);
  }
  for (const path of named.filter((one) => !listed.has(one)))
    context.addIssue({ code: "custom", path: ["files"], message: `lack ${path}` });
  if (listed.has(BUNDLE_FILE))
    context.addIssue({ code: "custom", path: ["files"], message: "must not name the manifest" });
});
export type Manifest = z.infer<typeof Manifest>;
export type WeightsManifest = z.infer<typeof WeightsManifest>;
export type SegmenterManifest = Exclude<Manifest, WeightsManifest>;
export type Sam2Manifest = z.infer<typeof Sam2Manifest>;
export type Sam3Manifest = z.infer<typeof Sam3Manifest>;

export interface Bundle<Kind extends Manifest = Manifest> {
  folder: string;
  manifest: Kind;
}

/** A manifest's text, or BundleBroken with every fault that it has. */
export function parseManifest(text: string, where: string): Manifest {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new BundleBroken(where, `${BUNDLE_FILE} is not JSON`, { cause });
  }
  const parsed = Manifest.safeParse(json);
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join(".")} ${message}`);
  throw new BundleBroken(where, `${BUNDLE_FILE}: ${faults.join("; ")}`);
}

/** Reads a bundle's manifest; its files are not looked at. */
export async function readBundle(folder: string): Promise<Bundle> {
  const path = join(folder, BUNDLE_FILE);
  const { size } = await stat(path);
  if (size > MANIFEST_BYTES_MAX) throw new BundleBroken(folder, `${BUNDLE_FILE} is too large`);
  return { folder, manifest: parseManifest(await readFile(path, "utf8"), folder) };
}

/**
 * Fails with BundleBroken unless the file is there, as large and of the digest as promised, and
 * reads nothing outside itself.
 */
export async function checkFile(folder: string, file: BundleFile): Promise<void> {
  const path = join(folder, file.path);
  const found = await stat(path).catch(() => null);
  if (!found?.isFile()) throw new BundleBroken(folder, `${file.path} is missing`);
  if (found.size !== file.bytes)
    throw new BundleBroken(folder, `${file.path} has ${found.size} bytes, not ${file.bytes}`);
  const digest = await digestOf(path);
  if (digest !== file.sha256)
    throw new BundleBroken(folder, `${file.path} has the sha256 ${digest}, not ${file.sha256}`);
  if (file.path.endsWith(".onnx")) await checkModel(folder, file.path);
}

async function checkModel(folder: string, path: string): Promise<void> {
  const file = await open(join(folder, path));
  try {
    if (await readsOutside(file))
      throw new BundleBroken(
        folder,
        `${path} keeps weights in other files (external data), which is refused: export it as one`,
      );
  } catch (error) {
    if (error instanceof BundleBroken) throw error;
    throw new BundleBroken(folder, `${path} is no ONNX file`, { cause: error });
  } finally {
    await file.close();
  }
}

export const sizeOf = ({ files }: Manifest): number =>
  files.reduce((sum, { bytes }) => sum + bytes, 0);

/** What a bundle can do, from its manifest alone. */
export function bundleInfo({ manifest }: Bundle<SegmenterManifest>, device: Device): SegmenterInfo {
  const { name, title, licence } = manifest;
  const sam3 = manifest.kind === "sam3";
  return {
    name,
    title,
    licence,
    device,
    text: sam3 ? "open" : "none",
    vocabulary: [],
    meanings: {},
    exemplar: sam3 ? "any_image" : "none",
    points: !sam3,
    limits: sam3
      ? [
          "Clicks need a tracker bundle.",
          "An example from another picture is pasted beside each frame, which costs one more " +
            "encoding a frame and a part of the resolution.",
        ]
      : ["It segments what clicks and boxes point at; it understands no words and no examples."],
  };
}
