// The embedded default, "Built-in (COCO-80)": a closed-vocabulary detector for text and for
// examples of what it knows, feature matching for other examples, and a promptable model for masks.
// Each model runs on an image once, and only when something asked needs it.

import { iou } from "../../shared/detector/tracks.ts";
import { ground, groundingWarning, nearestWords } from "../../shared/detector/vocabulary.ts";
import type { Bbox, Point } from "../../shared/tasks/tasks.ts";
import { clip, meanBox, suppress } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { borderColour, canvas, paste, resize } from "../media/image.ts";
import { type Device, usableDevice } from "../onnx/runtime.ts";
import { builtinInfo } from "./builtin-info.ts";
import { CenterNet, readBoxes, type ScoredBox, type Scores } from "./centernet.ts";
import { COCO_NAMES, COCO_WORDS } from "./coco-words.ts";
import { embeddedFiles } from "./embedded-files.ts";
import {
  findAlike,
  type ImageFeatures,
  lookFor,
  type PreparedExample,
  prepareExample,
} from "./exemplar.ts";
import { PromptUnknown, UnsupportedRequest } from "./failures.ts";
import { Correlator } from "./feature-maps.ts";
import {
  dropSpecks,
  type MaskWindow,
  maskFromLogits,
  polygon,
  rleOfWindow,
  spread,
  tightBox,
} from "./masks.ts";
import { findSimilar, type Profile, profilesOf } from "./proposals.ts";
import {
  boxPrompt,
  maskGrid,
  pointPrompt,
  Sam,
  type SamEmbedding,
  type SamMasks,
  TOKENS,
} from "./sam.ts";
import type {
  Detection,
  DetectOptions,
  EncodedImage,
  Example,
  Exemplar,
  OpenOptions,
  ScoredMask,
  Segmenter,
  SegmenterInfo,
  TextPrompt,
} from "./segmenter.ts";

/**
 * A prompt's most confident detections get masks, and none that is more likely wrong than right: a
 * mask costs as much as finding all boxes of a frame.
 */
const MASKS_MAX = 40;
const MASKED_CONFIDENCE_MIN = 0.25;
/** A mask that hardly fills the box it was asked for is of something else. */
const MASK_FITS_IOU = 0.5;
const ALIKE_SAME_IOU = 0.5;
const ALIKE_CONTAINED = 0.9;
/** Alternatives that overlap more are the same answer. */
const SAME_MASK_IOU = 0.95;
/** A crop covers at most this share of a frame's side when it is looked at. */
const CROP_SHARE_MAX = 0.8;

/**
 * Opens the segmenter of the packages that are installed anyway: its detector now, each other model
 * when it is first needed.
 */
export async function openBuiltin(options: OpenOptions): Promise<Segmenter> {
  const device = await usableDevice(options.device, options.log);
  const files = await embeddedFiles(options.modelsDir);
  const settings = { cpuThreads: options.cpuThreads, device };
  const net = await CenterNet.open(files, settings);
  return new Builtin(device, net, {
    sam: () => {
      options.log("info", "segmenter_model_opened", { model: "sam" });
      return Sam.open(files, settings);
    },
    correlator: () => Correlator.open(settings),
  });
}

/** Runs once, at the first call; every later call gets the same answer. */
function once<Value>(make: () => Promise<Value>): {
  get: () => Promise<Value>;
  made: () => Promise<Value> | null;
} {
  let value: Promise<Value> | null = null;
  return {
    get: () => {
      value ??= make();
      return value;
    },
    made: () => value,
  };
}

class BuiltinImage implements EncodedImage {
  readonly width: number;
  readonly height: number;
  readonly scores: () => Promise<Scores>;
  readonly embedding: () => Promise<SamEmbedding>;
  readonly vector: () => Promise<Float32Array>;
  readonly looked: () => Promise<ImageFeatures>;
  #disposed = false;

  constructor(
    image: RgbImage,
    look: {
      scores: (image: RgbImage) => Promise<Scores>;
      embedding: (image: RgbImage) => Promise<SamEmbedding>;
      vector: (image: RgbImage) => Promise<Float32Array>;
      looked: (image: RgbImage, embedding: SamEmbedding) => Promise<ImageFeatures>;
    },
  ) {
    this.width = image.width;
    this.height = image.height;
    const embedding = once(() => look.embedding(image));
    this.scores = this.#alive(once(() => look.scores(image)).get);
    this.embedding = this.#alive(embedding.get);
    this.vector = this.#alive(once(() => look.vector(image)).get);
    this.looked = this.#alive(once(async () => look.looked(image, await embedding.get())).get);
  }

  #alive<Value>(get: () => Promise<Value>): () => Promise<Value> {
    return async () => {
      if (this.#disposed) throw new Error("the encoded image was disposed of");
      return get();
    };
  }

  dispose(): void {
    this.#disposed = true;
  }
}

/** What examples are looked for by: as the detector sees them, or by their features. */
type Learnt = { profiles: readonly Profile[] } | { features: PreparedExample[] };

class BuiltinExemplar implements Exemplar {
  readonly kind = "exemplar";
  readonly examples: readonly Example[];
  /** What was learnt, by size of the frame: a crop is looked at in a frame's proportions. */
  readonly prepared = new Map<string, Promise<Learnt>>();

  constructor(examples: readonly Example[]) {
    this.examples = examples;
  }
}

class Builtin implements Segmenter {
  readonly info: SegmenterInfo;
  readonly #net: CenterNet;
  readonly #sam: ReturnType<typeof once<Sam>>;
  readonly #correlator: ReturnType<typeof once<Correlator>>;

  constructor(
    device: Device,
    net: CenterNet,
    open: { sam: () => Promise<Sam>; correlator: () => Promise<Correlator> },
  ) {
    this.info = builtinInfo(device);
    this.#net = net;
    this.#sam = once(open.sam);
    this.#correlator = once(open.correlator);
  }

  resolve(text: string): TextPrompt {
    const grounded = ground(text, COCO_WORDS);
    if ("unknown" in grounded)
      throw new PromptUnknown(grounded.unknown, {
        title: this.info.title,
        nearest: nearestWords(grounded.unknown, COCO_WORDS),
      });
    const warning = groundingWarning(this.info.title, text, grounded);
    return { kind: "text", text, ids: grounded.ids, warning };
  }

  async encode(image: RgbImage): Promise<BuiltinImage> {
    return new BuiltinImage(image, {
      scores: (seen) => this.#net.look(seen),
      embedding: async (seen) => (await this.#sam.get()).encode(seen),
      vector: (seen) => this.#net.describe(seen),
      looked: async (seen, embedding) => lookFor(await this.#models(), seen, embedding),
    });
  }

  describe(encoded: EncodedImage): Promise<Float32Array> {
    return own(encoded, BuiltinImage).vector();
  }

  async prepareExemplar(examples: readonly Example[]): Promise<BuiltinExemplar> {
    const positive = examples.filter(({ label }) => label !== 0);
    if (positive.length === 0)
      throw new UnsupportedRequest("give at least one example to look for");
    const exemplar = new BuiltinExemplar(positive);
    const [first] = positive as [Example];
    if (positive.every(({ bbox }) => bbox !== null)) await this.#learn(exemplar, first.image);
    return exemplar;
  }

  async detect(
    encoded: EncodedImage,
    prompts: readonly (TextPrompt | Exemplar)[],
    options: DetectOptions,
  ): Promise<Detection[][]> {
    const image = own(encoded, BuiltinImage);
    const found: Detection[][] = [];
    for (const prompt of prompts)
      found.push(
        prompt.kind === "text"
          ? await this.#detectText(image, prompt, options)
          : await this.#detectAlike(image, own(prompt, BuiltinExemplar), options),
      );
    return found;
  }

  async #detectText(
    encoded: BuiltinImage,
    prompt: TextPrompt,
    options: DetectOptions,
  ): Promise<Detection[]> {
    const classes = prompt.ids.map((id) => COCO_NAMES.indexOf(id));
    const boxes = readBoxes(await encoded.scores(), classes, options.confidenceMin);
    return this.#masked(encoded, boxes, options);
  }

  /** The detector's boxes as detections; the mask model looks only if one of them needs it. */
  async #masked(
    encoded: BuiltinImage,
    boxes: readonly ScoredBox[],
    { masks, runs = false }: DetectOptions,
  ): Promise<Detection[]> {
    const worth = ({ confidence }: ScoredBox, index: number) =>
      masks && index < MASKS_MAX && confidence >= MASKED_CONFIDENCE_MIN;
    const plain = boxes.map(({ bbox, confidence }) => ({ bbox, confidence, polygon: null }));
    if (!boxes.some(worth)) return plain;
    const sam = await this.#sam.get();
    const embedding = await encoded.embedding();
    const found: Detection[] = [];
    for (const [index, detection] of plain.entries()) {
      const { bbox, confidence } = detection;
      const answers = worth(detection, index) ? await sam.decode(embedding, [boxPrompt(bbox)]) : [];
      const mask = answers[0] && windowOf(answers[0], 0, embedding, encoded);
      const tight = mask && tightBox(mask);
      const fits = tight && iou(tight, bbox) >= MASK_FITS_IOU;
      found.push(
        mask && fits
          ? { bbox: meanBox(bbox, tight), confidence, ...formsOf(mask, encoded, runs) }
          : detection,
      );
    }
    return found;
  }

  async #detectAlike(
    encoded: BuiltinImage,
    exemplar: BuiltinExemplar,
    options: DetectOptions,
  ): Promise<Detection[]> {
    const { confidenceMin, masks, runs = false } = options;
    const learnt = await this.#learn(exemplar, encoded);
    if ("profiles" in learnt) {
      const boxes = findSimilar(await encoded.scores(), learnt.profiles, confidenceMin);
      return this.#masked(encoded, boxes, options);
    }
    const looked = await encoded.looked();
    const candidates = await findAlike(await this.#models(), looked, learnt.features);
    const kept = suppress(
      candidates.filter(({ confidence }) => confidence >= confidenceMin),
      { iou: ALIKE_SAME_IOU, contained: ALIKE_CONTAINED },
    );
    return kept.flatMap((candidate) => {
      const mask = windowOf(candidate.masks, candidate.token, looked.embedding, encoded);
      const bbox = mask && tightBox(mask);
      if (!bbox) return [];
      const { confidence } = candidate;
      const forms = masks ? formsOf(mask, encoded, runs) : { polygon: null };
      return [{ bbox, confidence, ...forms }];
    });
  }

  async segment(
    encoded: EncodedImage,
    { points, box }: { points: readonly Point[]; box: Bbox | null },
  ): Promise<ScoredMask[]> {
    const image = own(encoded, BuiltinImage);
    if (points.length === 0 && !box)
      throw new UnsupportedRequest("give at least one click or a box");
    const sam = await this.#sam.get();
    const embedding = await image.embedding();
    const prompt = [...pointPrompt(points), ...(box ? boxPrompt(box) : [])];
    const [masks] = await sam.decode(embedding, [prompt]);
    if (!masks) return [];
    // Trained so: one token answers plain prompts, the others a single ambiguous click.
    const ambiguous = !box && points.length === 1;
    const tokens = [...Array(TOKENS).keys()].sort((a, b) => {
      if (!ambiguous && (a === 0 || b === 0)) return a - b;
      return (masks.scores[b] ?? 0) - (masks.scores[a] ?? 0);
    });
    const answers: { window: MaskWindow; full: ScoredMask }[] = [];
    for (const token of tokens) {
      const window = windowOf(masks, token, embedding, image);
      if (!window || answers.some((other) => sameMask(other.window, window, image))) continue;
      const full = { mask: spread(window, image), score: masks.scores[token] ?? 0 };
      answers.push({ window, full });
    }
    return answers.map(({ full }) => full);
  }

  async dispose(): Promise<void> {
    await this.#net.dispose();
    await (await this.#sam.made())?.dispose();
    await (await this.#correlator.made())?.dispose();
  }

  async #models() {
    const [sam, correlator] = [await this.#sam.get(), await this.#correlator.get()];
    return { sam, net: this.#net, correlator };
  }

  #learn(exemplar: BuiltinExemplar, frame: { width: number; height: number }): Promise<Learnt> {
    const crops = exemplar.examples.some(({ bbox }) => bbox === null);
    const key = crops ? `${frame.width}x${frame.height}` : "";
    const known = exemplar.prepared.get(key);
    if (known) return known;
    const learning = this.#learnAll(exemplar.examples, frame);
    exemplar.prepared.set(key, learning);
    // A failure is not remembered, so that the next frame tries again.
    learning.catch(() => exemplar.prepared.delete(key));
    return learning;
  }

  async #learnAll(
    examples: readonly Example[],
    frame: { width: number; height: number },
  ): Promise<Learnt> {
    const objects: { image: RgbImage; bbox: Bbox }[] = [];
    for (const example of examples) {
      const { image, bbox } = example.bbox
        ? { image: example.image, bbox: clip(example.bbox, example.image) }
        : await placeCrop(example.image, frame);
      if (!bbox) throw new UnsupportedRequest("an example's box lies outside its picture");
      objects.push({ image, bbox });
    }
    const scores = perImage((image) => this.#net.look(image));
    const seen: { scores: Scores; bbox: Bbox }[] = [];
    for (const { image, bbox } of objects) seen.push({ scores: await scores(image), bbox });
    const profiles = profilesOf(seen);
    if (profiles) return { profiles };
    const models = await this.#models();
    const looks = perImage(async (image) => lookFor(models, image, await models.sam.encode(image)));
    const features: PreparedExample[] = [];
    for (const { image, bbox } of objects)
      features.push(await prepareExample(models, await looks(image), bbox));
    return { features };
  }
}

/** Looks at each image once. */
function perImage<Look>(look: (image: RgbImage) => Promise<Look>) {
  const looks = new Map<RgbImage, Promise<Look>>();
  return (image: RgbImage): Promise<Look> => {
    const known = looks.get(image) ?? look(image);
    looks.set(image, known);
    return known;
  };
}

/**
 * A crop in the middle of an empty frame in the colour of its border: models look at whole frames,
 * and the object keeps the size that it has in pixels.
 */
async function placeCrop(
  crop: RgbImage,
  frame: { width: number; height: number },
): Promise<{ image: RgbImage; bbox: Bbox }> {
  const shrink = Math.min(
    1,
    (frame.width * CROP_SHARE_MAX) / crop.width,
    (frame.height * CROP_SHARE_MAX) / crop.height,
  );
  const size = (side: number) => Math.max(1, Math.round(side * shrink));
  const placed = await resize(crop, { width: size(crop.width), height: size(crop.height) });
  const image = canvas(frame.width, frame.height, borderColour(crop));
  const left = (frame.width - placed.width) >> 1;
  const top = (frame.height - placed.height) >> 1;
  paste(image, placed, left, top);
  return { image, bbox: [left, top, left + placed.width, top + placed.height] };
}

function windowOf(
  masks: SamMasks,
  token: number,
  embedding: SamEmbedding,
  image: { width: number; height: number },
): MaskWindow | null {
  const window = maskFromLogits(maskGrid(masks, token, embedding), image);
  return window && dropSpecks(window);
}

/** What is told of a detection's mask. */
const formsOf = (
  mask: MaskWindow,
  image: { width: number; height: number },
  runs: boolean,
): Pick<Detection, "polygon" | "rle"> => ({
  polygon: polygon(mask),
  ...(runs ? { rle: rleOfWindow(mask, image) } : {}),
});

function sameMask(a: MaskWindow, b: MaskWindow, image: { width: number; height: number }): boolean {
  const [first, second] = [spread(a, image), spread(b, image)];
  let [both, either] = [0, 0];
  for (let at = 0; at < first.length; at++) {
    both += (first[at] as number) & (second[at] as number);
    either += (first[at] as number) | (second[at] as number);
  }
  return both > SAME_MASK_IOU * either;
}

/** What another segmenter prepared is not understood here. */
function own<Kind>(value: unknown, kind: new (...args: never[]) => Kind): Kind {
  if (!(value instanceof kind)) throw new Error("prepared by another segmenter");
  return value;
}
