// SAM 3 from an installed bundle of three models: vision, text, decoder. Noun phrases of any kind,
// and examples as boxes. Its example boxes lie in the image that is searched, so an example from
// elsewhere is pasted beside it, and what is found there is discarded.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { clip, suppress } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { sameImage } from "../media/image.ts";
import {
  floats,
  numbers,
  type openSession,
  run,
  type Session,
  type Tensor,
  type TensorShape,
  usableDevice,
} from "../onnx/runtime.ts";
import type { Bundle, Sam3Manifest, SegmenterManifest } from "./bundle.ts";
import { bundleInfo } from "./bundle.ts";
import { ClipTokenizer } from "./clip-tokenizer.ts";
import { besideImage } from "./example-column.ts";
import { BundleBroken, PromptUnknown, UnsupportedRequest } from "./failures.ts";
import { coarsestMaps, frameVector } from "./frame-vector.ts";
import { dropSpecks, maskFromLogits, polygon, rleOfWindow, tightBox } from "./masks.ts";
import {
  checkOutputs,
  fromCentre,
  type ImageTensor,
  imageInput,
  imageTensor,
  inputsOf,
  type SquareInput,
  toCentre,
} from "./model-input.ts";
import { checkListed, openModel } from "./sam2.ts";
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

/** Texts whose features are kept. */
const TEXTS_MAX = 256;
const IGNORED_BOX = -10;

/** Opens a bundle of the SAM 3 kind; BundleBroken for another, or where a listed file differs. */
export async function openSam3(
  bundle: Bundle<SegmenterManifest>,
  options: Omit<OpenOptions, "modelsDir">,
): Promise<Segmenter> {
  const { folder, manifest } = bundle;
  if (manifest.kind !== "sam3") throw new BundleBroken(folder, "is no bundle of the SAM 3 kind");
  for (const { path } of manifest.files) await checkListed(bundle, path);
  const device = await usableDevice(options.device, options.log);
  const settings: Parameters<typeof openSession>[1] = { cpuThreads: options.cpuThreads, device };
  const sessions = {
    vision: await openModel(folder, manifest.models.vision, settings),
    text: await openModel(folder, manifest.models.text, settings),
    decoder: await openModel(folder, manifest.models.decoder, settings),
  };
  const tokenizer = await openTokenizer(folder, manifest);
  return new Sam3(bundleInfo(bundle, device), { folder, manifest }, sessions, tokenizer);
}

async function openTokenizer(folder: string, { tokenizer }: Sam3Manifest): Promise<ClipTokenizer> {
  const { merges, vocabulary, length, pad } = tokenizer;
  try {
    return new ClipTokenizer({
      merges: await readFile(join(folder, merges), "utf8"),
      vocabulary: vocabulary
        ? z
            .record(z.string(), z.number().int())
            .parse(JSON.parse(await readFile(join(folder, vocabulary), "utf8")))
        : null,
      length,
      pad,
    });
  } catch (cause) {
    throw new BundleBroken(folder, "its tokenizer's files cannot be read", { cause });
  }
}

/** One look at one image: the frame itself, or the frame with examples beside it. */
interface Look {
  image: RgbImage;
  fitted: ImageTensor;
  features: Record<string, Tensor>;
}

class Sam3Image implements EncodedImage {
  readonly image: RgbImage;
  readonly width: number;
  readonly height: number;
  look: Promise<Look> | null = null;
  disposed = false;

  constructor(image: RgbImage) {
    this.image = image;
    this.width = image.width;
    this.height = image.height;
  }

  dispose(): void {
    this.look = null;
    this.disposed = true;
  }
}

/** An image that this segmenter encoded and that was not disposed of. */
function opened(encoded: EncodedImage): Sam3Image {
  if (!(encoded instanceof Sam3Image)) throw new Error("prepared by another segmenter");
  if (encoded.disposed) throw new Error("the encoded image was disposed of");
  return encoded;
}

class Sam3 implements Segmenter {
  readonly info: SegmenterInfo;
  readonly #manifest: Sam3Manifest;
  readonly #sessions: { vision: Session; text: Session; decoder: Session };
  readonly #tokenizer: ClipTokenizer;
  readonly #types: { ids: string; attention: string; boxes: string; labels: string };
  readonly #image: SquareInput;
  readonly #texts = new Map<string, Promise<Record<string, Tensor>>>();

  constructor(
    info: SegmenterInfo,
    { folder, manifest }: { folder: string; manifest: Sam3Manifest },
    sessions: { vision: Session; text: Session; decoder: Session },
    tokenizer: ClipTokenizer,
  ) {
    this.info = info;
    this.#manifest = manifest;
    this.#sessions = sessions;
    this.#tokenizer = tokenizer;
    const { tensors, models } = manifest;
    const at = (model: string) => ({ folder, model });
    const image = inputsOf(sessions.vision, { required: [tensors.image] }, at(models.vision));
    this.#image = imageInput(image.get(tensors.image) as TensorShape, manifest, folder);
    checkOutputs(sessions.vision, Object.keys(tensors.features), at(models.vision));
    const asked = { required: [tensors.input_ids, tensors.attention_mask] };
    const text = inputsOf(sessions.text, asked, at(models.text));
    checkOutputs(sessions.text, [tensors.text_features, tensors.text_mask], at(models.text));
    const required = [
      ...Object.values(tensors.features),
      tensors.text_features,
      tensors.text_mask,
      tensors.input_boxes,
      tensors.input_boxes_labels,
    ];
    const decoder = inputsOf(sessions.decoder, { required }, at(models.decoder));
    const given = [tensors.masks, tensors.boxes, tensors.logits, tensors.presence];
    checkOutputs(sessions.decoder, given, at(models.decoder));
    this.#types = {
      ids: text.get(tensors.input_ids)?.type ?? "int64",
      attention: text.get(tensors.attention_mask)?.type ?? "int64",
      boxes: decoder.get(tensors.input_boxes)?.type ?? "float32",
      labels: decoder.get(tensors.input_boxes_labels)?.type ?? "int64",
    };
  }

  resolve(text: string): TextPrompt {
    const asked = text.trim();
    if (asked === "") throw new PromptUnknown(text, { title: this.info.title, nearest: [] });
    const { cut } = this.#tokenizer.encode(asked);
    const { length } = this.#manifest.tokenizer;
    const warning =
      cut > 0
        ? `${this.info.title} reads ${length - 2} tokens; the last ${cut} were left out.`
        : null;
    return { kind: "text", text: asked, ids: [asked], warning };
  }

  async encode(image: RgbImage): Promise<Sam3Image> {
    return new Sam3Image(image);
  }

  async describe(encoded: EncodedImage): Promise<Float32Array> {
    const image = opened(encoded);
    const { features, fitted } = await this.#lookAt(image);
    const { size } = this.#image;
    return frameVector(coarsestMaps(features), {
      width: (image.width * fitted.scaleX) / size,
      height: (image.height * fitted.scaleY) / size,
    });
  }

  async prepareExemplar(examples: readonly Example[]): Promise<Exemplar> {
    if (!examples.some(({ label }) => label !== 0))
      throw new UnsupportedRequest("give at least one example to look for");
    return { kind: "exemplar", examples };
  }

  async detect(
    encoded: EncodedImage,
    prompts: readonly (TextPrompt | Exemplar)[],
    options: DetectOptions,
  ): Promise<Detection[][]> {
    const image = opened(encoded);
    const found: Detection[][] = [];
    for (const prompt of prompts)
      found.push(
        prompt.kind === "text"
          ? await this.#decode(await this.#lookAt(image), prompt.text, [], {
              ...options,
              frame: image,
            })
          : await this.#detectAlike(image, prompt.examples, options),
      );
    return found;
  }

  async #detectAlike(
    encoded: Sam3Image,
    examples: readonly Example[],
    options: DetectOptions,
  ): Promise<Detection[]> {
    const text = this.#manifest.exemplar_text;
    const elsewhere = examples.filter(
      ({ image, bbox }) => bbox === null || !sameImage(image, encoded.image),
    );
    const here = examples.flatMap((example) =>
      example.bbox && !elsewhere.includes(example)
        ? [{ bbox: example.bbox, label: example.label ?? 1 }]
        : [],
    );
    if (elsewhere.length === 0)
      return this.#decode(await this.#lookAt(encoded), text, here, { ...options, frame: encoded });
    const beside = await besideImage(encoded.image, elsewhere);
    const look = await this.#look(beside.image);
    return this.#decode(look, text, [...here, ...beside.boxes], { ...options, frame: encoded });
  }

  /** Hits whose centre lies off the frame are of the examples pasted beside it. */
  async #decode(
    look: Look,
    text: string,
    boxes: readonly { bbox: Bbox; label: 0 | 1 }[],
    {
      frame,
      confidenceMin,
      masks,
      runs,
    }: DetectOptions & { frame: { width: number; height: number } },
  ): Promise<Detection[]> {
    const { tensors, thresholds } = this.#manifest;
    const output = await run(this.#sessions.decoder, {
      ...look.features,
      ...(await this.#textFeatures(text)),
      ...this.#boxFeeds(look, boxes),
    });
    const presence = sigmoid(floats(output, tensors.presence)[0] ?? 0);
    const logits = floats(output, tensors.logits);
    const coordinates = floats(output, tensors.boxes);
    const grids = floats(output, tensors.masks);
    const side = output[tensors.masks]?.dims.at(-1) ?? 0;
    const found: (Detection & { query: number })[] = [];
    for (let query = 0; query < logits.length; query++) {
      const confidence = sigmoid(logits[query] as number) * presence;
      if (confidence < confidenceMin) continue;
      const shares = [...coordinates.subarray(query * 4, query * 4 + 4)];
      const corners = this.#manifest.boxes_out === "xyxy" ? (shares as Bbox) : fromCentre(shares);
      const whole = this.#toImage(corners, look.fitted);
      const bbox = clip(whole, frame);
      const [x, y] = [(whole[0] + whole[2]) / 2, (whole[1] + whole[3]) / 2];
      if (!bbox || x >= frame.width || y >= frame.height) continue;
      found.push({ bbox, confidence, polygon: null, query });
    }
    const kept = suppress(found, { iou: thresholds.same_object_iou });
    return kept.map(({ query, ...one }) => {
      if (!masks) return one;
      const cellsPerInputPixel = side / this.#image.size;
      const grid = {
        logits: grids.subarray(query * side * side, (query + 1) * side * side),
        size: side,
        cellsPerPixelX: look.fitted.scaleX * cellsPerInputPixel,
        cellsPerPixelY: look.fitted.scaleY * cellsPerInputPixel,
      };
      const window = maskFromLogits(grid, frame);
      const mask = window && dropSpecks(window);
      const tight = mask && tightBox(mask);
      if (!tight) return one;
      const rle = runs ? { rle: rleOfWindow(mask, frame) } : {};
      return { ...one, bbox: tight, polygon: polygon(mask), ...rle };
    });
  }

  #toImage(shares: Bbox, { scaleX, scaleY }: ImageTensor): Bbox {
    const [x, y] = [this.#image.size / scaleX, this.#image.size / scaleY];
    return [shares[0] * x, shares[1] * y, shares[2] * x, shares[3] * y];
  }

  #boxFeeds(
    { fitted }: Look,
    boxes: readonly { bbox: Bbox; label: 0 | 1 }[],
  ): Record<string, Tensor> {
    const { tensors, boxes_in } = this.#manifest;
    const [x, y] = [fitted.scaleX / this.#image.size, fitted.scaleY / this.#image.size];
    const shares = boxes.map(
      ({ bbox }): Bbox => [bbox[0] * x, bbox[1] * y, bbox[2] * x, bbox[3] * y],
    );
    const rows = shares.map((share) => (boxes_in === "xyxy" ? [...share] : toCentre(share)));
    // The decoder wants a box; without one it gets an empty one that it is told to ignore.
    if (rows.length === 0) rows.push([0, 0, 0, 0]);
    const labels = boxes.length === 0 ? [IGNORED_BOX] : boxes.map(({ label }) => label);
    return {
      [tensors.input_boxes]: numbers(rows.flat(), [1, rows.length, 4], this.#types.boxes),
      [tensors.input_boxes_labels]: numbers(labels, [1, labels.length], this.#types.labels),
    };
  }

  #lookAt(encoded: Sam3Image): Promise<Look> {
    encoded.look ??= this.#look(encoded.image);
    return encoded.look;
  }

  async #look(image: RgbImage): Promise<Look> {
    const { tensors, input } = this.#manifest;
    const fitted = await imageTensor(image, this.#image, input);
    const output = await run(this.#sessions.vision, { [tensors.image]: fitted.tensor });
    const features = Object.entries(tensors.features).map(([from, to]) => [to, output[from]]);
    return { image, fitted, features: Object.fromEntries(features) };
  }

  #textFeatures(text: string): Promise<Record<string, Tensor>> {
    const known = this.#texts.get(text);
    if (known) return known;
    const features = this.#readText(text);
    this.#texts.set(text, features);
    features.catch(() => this.#texts.delete(text));
    const oldest = this.#texts.keys().next().value;
    if (this.#texts.size > TEXTS_MAX && oldest !== undefined) this.#texts.delete(oldest);
    return features;
  }

  async #readText(text: string): Promise<Record<string, Tensor>> {
    const { tensors } = this.#manifest;
    const { ids, mask } = this.#tokenizer.encode(text);
    const output = await run(this.#sessions.text, {
      [tensors.input_ids]: numbers(ids, [1, ids.length], this.#types.ids),
      [tensors.attention_mask]: numbers(mask, [1, mask.length], this.#types.attention),
    });
    return {
      [tensors.text_features]: output[tensors.text_features] as Tensor,
      [tensors.text_mask]: output[tensors.text_mask] as Tensor,
    };
  }

  async segment(): Promise<ScoredMask[]> {
    throw new UnsupportedRequest(
      `${this.info.title} answers no clicks: install a tracker bundle for them, or use builtin`,
    );
  }

  async dispose(): Promise<void> {
    for (const session of Object.values(this.#sessions)) await session.release();
  }
}

const sigmoid = (logit: number) => 1 / (1 + Math.exp(-logit));
