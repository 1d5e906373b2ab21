// What prompts mean on an uploaded image or clip: objects with their masks. The direct line's
// requests and the queue's tasks are answered by the same code, within the bounds of
// `shared/tasks/sam.ts`; what does not fit is counted.

import {
  CLIP_BOUNDS,
  IMAGE_BOUNDS,
  type SamBounds,
  type SamFinding,
  type SamPrompt,
  type SamRequest,
  type SamResult,
} from "../../shared/tasks/sam.ts";
import type { Bbox, TaskPayload } from "../../shared/tasks/tasks.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import { TaskFailure } from "../base/failure.ts";
import { openFootage, secondsOf } from "../media/footage.ts";
import { clip } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill } from "../media/stills.ts";
import { MaskAllowance } from "../segmenters/mask-allowance.ts";
import { encodeRle, type Rle, tightBox, wholeWindow } from "../segmenters/masks.ts";
import type { EncodedImage, Example, Segmenter } from "../segmenters/segmenter.ts";
import { asTaskFailure, type ReadyPrompt, readyAll } from "./prompts.ts";
import type { RunnerContext } from "./runner-context.ts";
import { wantedFrames } from "./wanted-frames.ts";

/** What a segmenter searches a whole image for. */
type SearchPrompt = Extract<SamPrompt, { kind: "text" | "exemplar" }>;
/** What means the one object that it points at. */
type PointingPrompt = Extract<SamPrompt, { kind: "points" | "box" }>;

interface Size {
  width: number;
  height: number;
}

/** What looking takes: a segmenter, and what ends it. */
export interface LookContext extends Pick<RunnerContext, "useSegmenter"> {
  signal: AbortSignal;
}

/** The frames of an image or clip. */
interface Frames extends Size {
  /** Those to look at, ascending. */
  wanted: readonly number[];
  /** How many were asked for beyond them. */
  leftOut: number;
  /** Seconds from the first frame. */
  secondsOf(index: number): number;
  read(indexes: readonly number[]): AsyncIterable<{ index: number; image: RgbImage }>;
  bounds: SamBounds;
  /** A frame more was looked at. */
  progress(done: number): void;
}

/** What is found on an image that is in memory. Fails as tasks do. */
export function lookAtImage(
  image: RgbImage,
  request: SamRequest,
  context: LookContext,
): Promise<SamResult> {
  const { width, height } = image;
  const frames: Frames = {
    width,
    height,
    wanted: [0],
    leftOut: 0,
    secondsOf: () => 0,
    read: (indexes) => onlyFrame(image, indexes),
    bounds: IMAGE_BOUNDS,
    progress: () => {},
  };
  return look(frames, request, context);
}

async function* onlyFrame(image: RgbImage, indexes: readonly number[]) {
  for (const index of indexes) {
    if (index !== 0) throw new TaskFailure("invalid_request", "an image has one frame, which is 0");
    yield { index, image };
  }
}

/** Does a `sam` task. */
export const run = (payload: TaskPayload<"sam">, context: RunnerContext): Promise<SamResult> =>
  lookAtFile(payload, context, IMAGE_BOUNDS);

/** Does a `sam_video` task; a canceled one gives the frames that were done. */
export const runVideo = (
  payload: TaskPayload<"sam_video">,
  context: RunnerContext,
): Promise<SamResult> => lookAtFile(payload, context, CLIP_BOUNDS);

async function lookAtFile(
  { video, fps, frames_max, uncut, ...request }: TaskPayload<"sam">,
  context: RunnerContext,
  bounds: SamBounds,
): Promise<SamResult> {
  const footage = await openFootage(context, video);
  try {
    const { wanted, leftOut } = wantedFrames(footage, { fps, frames_max, uncut });
    const total = wanted.length;
    const frames: Frames = {
      width: footage.width,
      height: footage.height,
      wanted,
      leftOut,
      secondsOf: (index) => secondsOf(footage, index),
      read: (indexes) => footage.read(indexes),
      bounds,
      progress: (done) => context.progress({ done, total, detail: {} }),
    };
    const { useSegmenter, cancel: signal } = context;
    return await look(frames, request, { useSegmenter, signal });
  } finally {
    await footage.close();
  }
}

async function look(
  frames: Frames,
  request: SamRequest,
  { useSegmenter, signal }: LookContext,
): Promise<SamResult> {
  const started = performance.now();
  try {
    return await useSegmenter(request.segmenter, async (segmenter) => {
      signal.throwIfAborted();
      const { findings, ...told } = await findingsOf(frames, request, segmenter, signal);
      const { width, height, leftOut } = frames;
      const looked = findings.map(({ index, found }) => ({
        frame_index: index,
        time: frames.secondsOf(index),
        findings: found,
      }));
      const left_out = { frames: leftOut, ...told.leftOut };
      const seconds = (performance.now() - started) / 1_000;
      const name = segmenter.info.name;
      const rest = { warnings: told.warnings, width, height, left_out, seconds };
      return { segmenter: name, frames: looked, ...rest };
    });
  } catch (thrown) {
    throw asTaskFailure(thrown);
  }
}

async function findingsOf(
  frames: Frames,
  request: SamRequest,
  segmenter: Segmenter,
  signal: AbortSignal,
) {
  for (const prompt of request.prompts) if (isPointing(prompt)) checkInside(prompt, frames);
  const searches = request.prompts.filter((prompt) => !isPointing(prompt));
  const { ready, warnings } = await readyAll(segmenter, searches, (prompt) =>
    examplesOf(frames, prompt),
  );
  const allowance = new Allowance(frames.bounds);
  const findings: { index: number; found: SamFinding[] }[] = [];
  try {
    for await (const { index, image } of frames.read(frames.wanted)) {
      const objects = await objectsOn(image, segmenter, { request, searches, ready, signal });
      findings.push({ index, found: allowance.told(objects, request.mask) });
      frames.progress(findings.length);
      if (signal.aborted) break;
    }
  } catch (thrown) {
    // A cancel ends the decoding, and keeps what is done.
    if (!signal.aborted) throw thrown;
  }
  return { findings, warnings, leftOut: allowance.leftOut };
}

const isPointing = (prompt: SamPrompt): prompt is PointingPrompt =>
  prompt.kind === "points" || prompt.kind === "box";

/** Only now is the image's size known, as people see it: who asks may have its file's. */
function checkInside({ bbox, ...prompt }: PointingPrompt, size: Size) {
  const points = "points" in prompt ? prompt.points : [];
  const outside = points.some(({ x, y }) => x < 0 || y < 0 || x > size.width || y > size.height);
  if (outside) throw notInside("points", size);
  if (bbox && !clip(bbox, size)) throw notInside("points" in prompt ? "bbox" : "boxes", size);
}

const notInside = (field: string, { width, height }: Size) =>
  new TaskFailure("invalid_request", `${field}: the image is ${width} × ${height} pixels`);

async function examplesOf(frames: Frames, prompt: SearchPrompt): Promise<Example[]> {
  const examples: Example[] = [];
  for (const exemplar of prompt.kind === "exemplar" ? prompt.exemplars : []) {
    if ("crop" in exemplar) {
      examples.push({ image: await readStill(Buffer.from(exemplar.crop, "base64")), bbox: null });
      continue;
    }
    const { frame_index, bbox } = exemplar;
    for await (const { image } of frames.read([frame_index])) {
      const inside = clip(bbox, image);
      if (!inside) throw notInside("exemplars", image);
      examples.push({ image, bbox: inside });
    }
  }
  return examples;
}

/** One object, with its whole mask where there is one. */
interface SamDetection {
  /** Index of the prompt that it answers. */
  prompt: number;
  bbox: Bbox;
  confidence: number;
  rle: Rle | null;
}

interface Search {
  request: SamRequest;
  /** Those of the request's prompts that are searched for, and the same made ready. */
  searches: readonly SearchPrompt[];
  ready: readonly ReadyPrompt[];
  signal: AbortSignal;
}

/** What all prompts find on an image, surest first. */
async function objectsOn(
  image: RgbImage,
  segmenter: Segmenter,
  { request, searches, ready, signal }: Search,
): Promise<SamDetection[]> {
  const { prompts, threshold, mask } = request;
  const encoded = await segmenter.encode(image);
  try {
    const found: SamDetection[] = [];
    const searched = await segmenter.detect(
      encoded,
      ready.map(({ prompt }) => prompt),
      {
        confidenceMin: Math.max(threshold, STORED_CONFIDENCE_MIN),
        masks: mask !== "none",
        runs: true,
      },
    );
    for (const [index, detections] of searched.entries()) {
      const prompt = prompts.indexOf(searches[index] as SearchPrompt);
      for (const { bbox, confidence, rle = null } of detections) {
        if (confidence >= threshold) found.push({ prompt, bbox, confidence, rle });
      }
    }
    for (const [prompt, pointing] of prompts.entries()) {
      if (!isPointing(pointing)) continue;
      signal.throwIfAborted();
      const object = await pointedAt(encoded, segmenter, pointing);
      if (object) found.push({ prompt, ...object });
    }
    return found.toSorted((one, other) => other.confidence - one.confidence);
  } finally {
    encoded.dispose();
  }
}

/** The object that clicks or a box mean; null where the segmenter sees none. */
async function pointedAt(
  encoded: EncodedImage,
  segmenter: Segmenter,
  { bbox: box, ...prompt }: PointingPrompt,
): Promise<Omit<SamDetection, "prompt"> | null> {
  const points = "points" in prompt ? prompt.points : [];
  const [best] = await segmenter.segment(encoded, { points, box });
  const { width, height } = encoded;
  const bbox = best && tightBox(wholeWindow(best.mask, width, height));
  return bbox ? { bbox, confidence: best.score, rle: encodeRle(best.mask, width, height) } : null;
}

const hundredths = (value: number) => Math.round(value * 100) / 100;

/** What of all objects is told: within the bounds, and the rest is counted. */
class Allowance {
  #objects: number;
  #objectsLeftOut = 0;
  readonly #masks: MaskAllowance;

  constructor({ objects, ...masks }: SamBounds) {
    this.#objects = objects;
    this.#masks = new MaskAllowance(masks);
  }

  get leftOut() {
    return { objects: this.#objectsLeftOut, masks: this.#masks.leftOut };
  }

  /** The objects of one image, the surest of which come first. */
  told(objects: readonly SamDetection[], form: SamRequest["mask"]): SamFinding[] {
    return objects.flatMap(({ prompt, bbox, confidence, rle }) => {
      const rounded = bbox.map(hundredths) as Bbox;
      if (!(rounded[2] > rounded[0] && rounded[3] > rounded[1])) return [];
      if (this.#objects === 0) {
        this.#objectsLeftOut += 1;
        return [];
      }
      this.#objects -= 1;
      const sure = Math.round(Math.min(1, Math.max(0, confidence)) * 10_000) / 10_000;
      const mask = rle && form !== "none" ? this.#masks.told(rle, form) : null;
      return [{ prompt, confidence: sure, bbox: rounded, mask }];
    });
  }
}
