// What a segmentation model can be asked, whichever it is. A frame is encoded once and answers any
// number of prompts. Decoding files into pixels is the caller's; the registry opens segmenters.

import type { WordMeaning } from "../../shared/detector/vocabulary.ts";
import type { Bbox, Point } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "../media/image.ts";
import type { Device, Log } from "../onnx/runtime.ts";
import type { Rle } from "./masks.ts";

export interface SegmenterInfo {
  name: string;
  title: string;
  licence: string;
  device: Device;
  text: "none" | "closed" | "open";
  /** Every word a closed one knows: its classes' own names first, then synonyms and groups. */
  vocabulary: readonly string[];
  /** The words of it that are no class's own name, and what they mean. */
  meanings: Readonly<Record<string, WordMeaning>>;
  exemplar: "none" | "same_image" | "any_image";
  points: boolean;
  /** What it does badly or not at all, one sentence each, to be shown to users. */
  limits: readonly string[];
}

/** A text prompt that the segmenter understood. */
export interface TextPrompt {
  kind: "text";
  text: string;
  /** The segmenter's own classes that answer the text; the text itself for an open vocabulary. */
  ids: readonly string[];
  /** What it finds beside what the text names, or what it left out of the text. */
  warning: string | null;
}

/** An object to look for: a box on an image, or a whole image that is a crop of it. */
export interface Example {
  image: RgbImage;
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
export interface EncodedImage {
  readonly width: number;
  readonly height: number;
  dispose(): void;
}

export interface Detection {
  /** Pixels of the encoded image. */
  bbox: Bbox;
  confidence: number;
  /** The mask's outer ring, x and y in turn; null when masks were not asked for. */
  polygon: number[] | null;
  /** The mask whole, with holes and further pieces; absent unless `runs` was asked for. */
  rle?: Rle;
}

export interface DetectOptions {
  confidenceMin: number;
  masks: boolean;
  /** With `masks`: as run lengths too. */
  runs?: boolean;
}

/** A mask over the whole image: 1 on the object, row by row. */
export interface ScoredMask {
  mask: Uint8Array;
  score: number;
}

export interface Segmenter {
  readonly info: SegmenterInfo;
  /** Fails with PromptUnknown, which names the nearest words and how to know more. */
  resolve(text: string): TextPrompt;
  encode(image: RgbImage): Promise<EncodedImage>;
  /** The whole image as a vector of unit length: alike images have near ones. */
  describe(encoded: EncodedImage): Promise<Float32Array>;
  prepareExemplar(examples: readonly Example[]): Promise<Exemplar>;
  /** What answers each prompt, most confident first. */
  detect(
    encoded: EncodedImage,
    prompts: readonly (TextPrompt | Exemplar)[],
    options: DetectOptions,
  ): Promise<Detection[][]>;
  /** Masks of the one object under the clicks and in the box, best first. */
  segment(
    encoded: EncodedImage,
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
