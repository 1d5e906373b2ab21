// What a segmentation model can be asked, whichever it is: the interface, its failures, and the
// registry of what is installed. A frame is encoded once and answers any number of prompts.
// Decoding files into pixels is the caller's.

import { readdir } from "node:fs/promises";
import { join } from "node:path";
import type { Bbox, Point } from "../../shared/tasks.ts";
import type { Device, Log } from "../onnx/runtime.ts";
import { BUNDLE_FILE, type Bundle, readBundle } from "./bundle.ts";
import { BundleBroken, BundleMissing } from "./failures.ts";

/** RGB, three bytes a pixel, row by row. */
export interface Picture {
  data: Uint8Array;
  width: number;
  height: number;
}

export interface SegmenterInfo {
  name: string;
  title: string;
  licence: string;
  device: Device;
  text: "none" | "closed" | "open";
  /** Every word a closed one knows: its classes' own names first, then synonyms and groups. */
  vocabulary: readonly string[];
  exemplar: "none" | "same_image" | "any_image";
  points: boolean;
  /** What it does badly or not at all, one sentence each, to be shown to users. */
  limits: readonly string[];
}

/** A text prompt that the segmenter understood. */
export interface Resolved {
  kind: "text";
  text: string;
  /** The segmenter's own classes that answer the text; the text itself for an open vocabulary. */
  ids: readonly string[];
  /** What was not understood and left out. */
  warning: string | null;
}

/** An object to look for: a box on a picture, or a whole picture that is a crop of it. */
export interface Example {
  picture: Picture;
  bbox: Bbox | null;
  /** 0 says "not this one"; only segmenters with negative examples heed it. */
  label?: 0 | 1;
}

/** Prepared examples; what is inside is its segmenter's own. */
export interface Exemplar {
  readonly kind: "exemplar";
  readonly examples: readonly Example[];
}

/** A frame that a segmenter has looked at; what is inside is its segmenter's own. */
export interface Encoded {
  readonly width: number;
  readonly height: number;
  dispose(): void;
}

export interface Found {
  /** Pixels of the encoded picture. */
  bbox: Bbox;
  confidence: number;
  /** The mask's outer ring, x and y in turn; null when masks were not asked for. */
  polygon: number[] | null;
}

export interface DetectOptions {
  confidenceMin: number;
  masks: boolean;
}

/** A mask over the whole picture: 1 on the object, row by row. */
export interface ScoredMask {
  mask: Uint8Array;
  score: number;
}

export interface Segmenter {
  readonly info: SegmenterInfo;
  /** Fails with PromptUnknown, which names the nearest words and how to know more. */
  resolve(text: string): Resolved;
  encode(picture: Picture): Promise<Encoded>;
  prepareExemplar(examples: readonly Example[]): Promise<Exemplar>;
  /** What answers each prompt, most confident first. */
  detect(
    encoded: Encoded,
    prompts: readonly (Resolved | Exemplar)[],
    options: DetectOptions,
  ): Promise<Found[][]>;
  /** Masks of the one object under the clicks and in the box, best first. */
  segment(
    encoded: Encoded,
    prompt: { points: readonly Point[]; box: Bbox | null },
  ): Promise<ScoredMask[]>;
  dispose(): Promise<void>;
}

export interface OpenOptions {
  modelsDir: string;
  /** Threads of one inference; one inference runs at a time. */
  cpuThreads: number;
  /** "cuda" is used where this runtime has it, else the CPU with a warning. */
  device?: Device;
  log: Log;
}

export const BUILTIN = "builtin";

/** Opens an installed segmenter; null is the embedded default. Fails with BundleMissing. */
export async function openSegmenter(name: string | null, options: OpenOptions): Promise<Segmenter> {
  if (name === null || name === BUILTIN) {
    const { openBuiltin } = await import("./builtin.ts");
    return openBuiltin(options);
  }
  const bundle = await findBundle(options.modelsDir, name);
  if (bundle.manifest.kind === "sam3") {
    const { openSam3 } = await import("./sam3.ts");
    return openSam3(bundle, options);
  }
  const { openSam2 } = await import("./sam2.ts");
  return openSam2(bundle, options);
}

/** Installed segmenters, the embedded default first. Reads manifests only, loads no model. */
export async function listSegmenters(modelsDir: string): Promise<SegmenterInfo[]> {
  const { builtinInfo } = await import("./builtin-info.ts");
  const { bundles } = await listBundles(modelsDir);
  return [builtinInfo("cpu"), ...bundles.map((bundle) => bundleInfo(bundle, "cpu"))];
}

/** Bundles of a folder by name, and those that cannot be read, with the reason. */
export async function listBundles(
  modelsDir: string,
): Promise<{ bundles: Bundle[]; broken: { folder: string; reason: string }[] }> {
  const bundles: Bundle[] = [];
  const broken: { folder: string; reason: string }[] = [];
  for (const folder of await bundleFolders(modelsDir)) {
    try {
      bundles.push(await readBundle(folder));
    } catch (error) {
      if (!(error instanceof BundleBroken)) throw error;
      broken.push({ folder, reason: error.message });
    }
  }
  return { bundles, broken };
}

async function bundleFolders(modelsDir: string): Promise<string[]> {
  const entries = await readdir(modelsDir, { withFileTypes: true }).catch((error) => {
    if (error.code === "ENOENT") return [];
    throw error;
  });
  const folders: string[] = [];
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (!entry.isDirectory() || entry.name.startsWith(".")) continue;
    const names = await readdir(join(modelsDir, entry.name));
    if (names.includes(BUNDLE_FILE)) folders.push(join(modelsDir, entry.name));
  }
  return folders;
}

/** The bundle of this name. Fails with BundleMissing, or BundleBroken when it cannot be read. */
export async function findBundle(modelsDir: string, name: string): Promise<Bundle> {
  const { bundles, broken } = await listBundles(modelsDir);
  const bundle = bundles.find(({ manifest }) => manifest.name === name);
  if (bundle) return bundle;
  const unreadable = broken.find(({ folder }) => folder === join(modelsDir, name));
  if (unreadable) throw new BundleBroken(unreadable.folder, unreadable.reason);
  throw new BundleMissing(name, [BUILTIN, ...bundles.map(({ manifest }) => manifest.name)]);
}

/** What a bundle can do, from its manifest alone. */
export function bundleInfo({ manifest }: Bundle, device: Device): SegmenterInfo {
  const { name, title, licence } = manifest;
  const sam3 = manifest.kind === "sam3";
  return {
    name,
    title,
    licence,
    device,
    text: sam3 ? "open" : "none",
    vocabulary: [],
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
