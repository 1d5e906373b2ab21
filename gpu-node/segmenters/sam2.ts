// SAM 2.1 and models with its interface (EdgeTAM, SAM 3's tracker) from an installed bundle: clicks
// and boxes → masks. It understands no words and no examples.

import { join } from "node:path";
import type { Bbox, Point } from "../../shared/tasks/tasks.ts";
import type { RgbImage } from "../media/image.ts";
import {
  float,
  floats,
  numbers,
  openSession,
  run,
  type Session,
  type Tensor,
  type TensorShape,
  usableDevice,
} from "../onnx/runtime.ts";
import {
  type Bundle,
  bundleInfo,
  checkFile,
  type Sam2Manifest,
  type SegmenterManifest,
} from "./bundle.ts";
import { BundleBroken, PromptUnknown, UnsupportedRequest } from "./failures.ts";
import { coarsestMaps, frameVector } from "./frame-vector.ts";
import { dropSpecks, maskFromLogits, spread } from "./masks.ts";
import {
  checkOutputs,
  type ImageTensor,
  imageInput,
  imageTensor,
  inputsOf,
  type SquareInput,
} from "./model-input.ts";
import type {
  Detection,
  EncodedImage,
  Exemplar,
  OpenOptions,
  ScoredMask,
  Segmenter,
  SegmenterInfo,
  TextPrompt,
} from "./segmenter.ts";

const MASK_SIDE = 256;

/** Opens a bundle of the SAM 2 kind; BundleBroken for another, or where a listed file differs. */
export async function openSam2(
  bundle: Bundle<SegmenterManifest>,
  options: Omit<OpenOptions, "modelsDir">,
): Promise<Segmenter> {
  const { folder, manifest } = bundle;
  if (manifest.kind !== "sam2") throw new BundleBroken(folder, "is no bundle of the SAM 2 kind");
  for (const path of Object.values(manifest.models)) await checkListed(bundle, path);
  const device = await usableDevice(options.device, options.log);
  const settings = { cpuThreads: options.cpuThreads, device };
  const encoder = await openModel(folder, manifest.models.encoder, settings);
  const decoder = await openModel(folder, manifest.models.decoder, settings);
  return new Sam2(bundleInfo(bundle, device), { folder, manifest }, { encoder, decoder });
}

/** Opens a bundle's model; what the runtime says of a bad file is the bundle's fault. */
export async function openModel(
  folder: string,
  path: string,
  settings: Parameters<typeof openSession>[1],
): Promise<Session> {
  try {
    return await openSession(join(folder, path), settings);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new BundleBroken(folder, `${path} cannot be opened: ${reason}`, { cause });
  }
}

/** A model is run only if it is still the one that was installed. */
export async function checkListed({ folder, manifest }: Bundle, path: string): Promise<void> {
  const file = manifest.files.find((one) => one.path === path);
  if (!file) throw new BundleBroken(folder, `${path} is not among its files`);
  await checkFile(folder, file);
}

class Sam2Image implements EncodedImage {
  readonly width: number;
  readonly height: number;
  fitted: ImageTensor;
  embeddings: Record<string, Tensor> | null;

  constructor(image: RgbImage, fitted: ImageTensor, embeddings: Record<string, Tensor>) {
    this.width = image.width;
    this.height = image.height;
    this.fitted = fitted;
    this.embeddings = embeddings;
  }

  dispose(): void {
    this.embeddings = null;
  }
}

/** An image that this segmenter encoded and that was not disposed of. */
function opened(encoded: EncodedImage) {
  if (!(encoded instanceof Sam2Image)) throw new Error("prepared by another segmenter");
  const { embeddings, fitted, width, height } = encoded;
  if (!embeddings) throw new Error("the encoded image was disposed of");
  return { embeddings, fitted, width, height };
}

class Sam2 implements Segmenter {
  readonly info: SegmenterInfo;
  readonly #manifest: Sam2Manifest;
  readonly #encoder: Session;
  readonly #decoder: Session;
  readonly #inputs: Map<string, TensorShape>;
  readonly #image: SquareInput;

  constructor(
    info: SegmenterInfo,
    { folder, manifest }: { folder: string; manifest: Sam2Manifest },
    sessions: { encoder: Session; decoder: Session },
  ) {
    this.info = info;
    this.#manifest = manifest;
    this.#encoder = sessions.encoder;
    this.#decoder = sessions.decoder;
    const { tensors, models } = manifest;
    const encoder = { folder, model: models.encoder };
    const decoder = { folder, model: models.decoder };
    const image = inputsOf(this.#encoder, { required: [tensors.image] }, encoder);
    this.#image = imageInput(image.get(tensors.image) as TensorShape, manifest, folder);
    checkOutputs(this.#encoder, Object.keys(tensors.embeddings), encoder);
    const prompts = [tensors.point_coords, tensors.point_labels];
    this.#inputs = inputsOf(
      this.#decoder,
      {
        required: [...Object.values(tensors.embeddings), ...prompts],
        optional: [tensors.mask_input, tensors.has_mask_input],
      },
      decoder,
    );
    checkOutputs(this.#decoder, [tensors.masks, tensors.scores], decoder);
  }

  resolve(text: string): TextPrompt {
    throw new PromptUnknown(text, { title: this.info.title, nearest: [] });
  }

  async encode(image: RgbImage): Promise<Sam2Image> {
    const { tensors, input } = this.#manifest;
    const fitted = await imageTensor(image, this.#image, input);
    const output = await run(this.#encoder, { [tensors.image]: fitted.tensor });
    const embeddings = Object.entries(tensors.embeddings).map(([from, to]) => [to, output[from]]);
    return new Sam2Image(image, fitted, Object.fromEntries(embeddings));
  }

  async describe(encoded: EncodedImage): Promise<Float32Array> {
    const { embeddings, fitted, width, height } = opened(encoded);
    const { size } = this.#image;
    return frameVector(coarsestMaps(embeddings), {
      width: (width * fitted.scaleX) / size,
      height: (height * fitted.scaleY) / size,
    });
  }

  async prepareExemplar(): Promise<Exemplar> {
    throw new UnsupportedRequest(`${this.info.title} cannot search for examples`);
  }

  async detect(_encoded: EncodedImage, prompts: readonly unknown[]): Promise<Detection[][]> {
    if (prompts.length === 0) return [];
    throw new UnsupportedRequest(
      `${this.info.title} finds nothing by itself: it needs clicks or a box`,
    );
  }

  async segment(
    encoded: EncodedImage,
    { points, box }: { points: readonly Point[]; box: Bbox | null },
  ): Promise<ScoredMask[]> {
    const { embeddings, fitted } = opened(encoded);
    if (points.length === 0 && !box)
      throw new UnsupportedRequest("give at least one click or a box");
    const { tensors } = this.#manifest;
    const { scaleX, scaleY } = fitted;
    const corners = box
      ? [
          { x: box[0], y: box[1] },
          { x: box[2], y: box[3] },
        ]
      : [];
    // The model was trained with one empty point where there is no box.
    const marks = box ? [...points, ...corners] : [...points, { x: 0, y: 0 }];
    const coordinates = marks.flatMap(({ x, y }) => [x * scaleX, y * scaleY]);
    const labels = [...points.map(({ label }) => label), ...(box ? [2, 3] : [-1])];
    const feeds = {
      ...embeddings,
      [tensors.point_coords]: this.#prompt(tensors.point_coords, coordinates, [marks.length, 2]),
      [tensors.point_labels]: this.#prompt(tensors.point_labels, labels, [marks.length]),
      ...this.#noMask(),
    };
    const output = await run(this.#decoder, feeds);
    const scores = floats(output, tensors.scores);
    const dims = output[tensors.masks]?.dims ?? [];
    const [side, across] = [dims.at(-2) ?? 0, dims.at(-1) ?? 0];
    const logits = floats(output, tensors.masks);
    if (side !== across || logits.length !== scores.length * side * side)
      throw new Error(`the model gave masks [${dims}] for ${scores.length} scores`);
    const cellsPerInputPixel = side / this.#image.size;
    return [...scores.keys()]
      .sort((a, b) => (scores[b] as number) - (scores[a] as number))
      .flatMap((index) => {
        const grid = {
          logits: logits.subarray(index * side * side, (index + 1) * side * side),
          size: side,
          cellsPerPixelX: scaleX * cellsPerInputPixel,
          cellsPerPixelY: scaleY * cellsPerInputPixel,
        };
        const window = maskFromLogits(grid, encoded);
        const score = Math.min(1, Math.max(0, scores[index] as number));
        return window ? [{ mask: spread(dropSpecks(window), encoded), score }] : [];
      });
  }

  /** Exports differ in leading dimensions of 1 and in the labels' type. */
  #prompt(name: string, values: readonly number[], dims: readonly number[]): Tensor {
    const { shape, type } = this.#inputs.get(name) as TensorShape;
    const leading = Math.max(1, shape.length - dims.length);
    return numbers(values, [...Array<number>(leading).fill(1), ...dims], type);
  }

  #noMask(): Record<string, Tensor> {
    const { mask_input, has_mask_input } = this.#manifest.tensors;
    const feeds: Record<string, Tensor> = {};
    const mask = this.#inputs.get(mask_input);
    if (mask) {
      const side = mask.shape.at(-1);
      const cells = typeof side === "number" ? side : MASK_SIDE;
      feeds[mask_input] = float(new Float32Array(cells * cells), [1, 1, cells, cells], mask.type);
    }
    const has = this.#inputs.get(has_mask_input);
    if (has) feeds[has_mask_input] = numbers([0], [1], has.type);
    return feeds;
  }

  async dispose(): Promise<void> {
    await this.#encoder.release();
    await this.#decoder.release();
  }
}
