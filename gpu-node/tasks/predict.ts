// Predicts with a model of the registry on an image or on frames of a video, in pixels of the
// source. Frames are read while others are looked at, so that a batch fills while one runs.

import {
  MASKED_OBJECTS_MAX,
  type MaskBounds,
  type MaskedPrediction,
} from "../../shared/tasks/predict-task.ts";
import { CLIP_BOUNDS } from "../../shared/tasks/sam.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, openFootage, secondsOf } from "../media/footage.ts";
import type { RgbImage } from "../media/image.ts";
import type { ToldForm } from "../segmenters/mask-allowance.ts";
import type { OutlinedImage, PredictOptions, Predictor } from "../serving/predictor.ts";
import { IMAGE_MASKS } from "../serving/prototype-masks.ts";
import { annotate } from "./annotate.ts";
import type { RunnerContext } from "./runner-context.ts";
import { wantedFrames } from "./wanted-frames.ts";

/** Objects of one result: more are no answer that anybody reads. */
const OBJECTS_MAX = 100_000;

type Result = TaskResult<"predict">;

/** Does a `predict` task; a canceled one gives the frames that were done. */
export async function run(
  { model, video, confidence, mask = "none", annotated: target, ...wish }: TaskPayload<"predict">,
  context: RunnerContext,
): Promise<Result> {
  const started = performance.now();
  const footage = await openFootage(context, video);
  try {
    const { wanted, leftOut } = wantedFrames(footage, wish);
    const masks = mask === "none" ? null : new ClipMasks(mask);
    const frames = await context.predictors.use(model, context.cancel, (predictor) =>
      predictFrames(footage, wanted, context, {
        ...lookingOf(predictor, { of: footage, confidence }, masks),
        // Some more than one run takes, so that the next batch is there when it ends.
        inFlightMax: 2 * predictor.batchMax,
        // Stills are decoded already; of a video no larger images than are looked at are read.
        longestSide: footage.frameCount === 1 ? null : model.image_size,
      }),
    );
    const { classes } = model;
    const annotated =
      target && !context.cancel.aborted
        ? await annotate({ footage, frames, classes, target }, context)
        : null;
    const seconds = (performance.now() - started) / 1_000;
    context.log.info("predicted", {
      model_id: model.model_id,
      frames: frames.length,
      seconds,
      objects: frames.reduce((sum, { predictions }) => sum + predictions.length, 0),
    });
    return {
      width: footage.width,
      height: footage.height,
      frames,
      seconds,
      left_out: leftOut,
      ...(masks ? { masks_left_out: masks.leftOut } : {}),
      ...(annotated ? { annotated } : {}),
    };
  } finally {
    await footage.close();
  }
}

/** Looks at an image, and then tells of it; the telling is asked for in the frames' order. */
type Look = (image: RgbImage) => Promise<() => Promise<MaskedPrediction[]> | MaskedPrediction[]>;

interface Looking {
  look: Look;
  objectsMax: number;
  inFlightMax: number;
  longestSide: number | null;
}

function lookingOf(
  predictor: Predictor,
  options: PredictOptions,
  masks: ClipMasks | null,
): Pick<Looking, "look" | "objectsMax"> {
  const boxes: Look = async (image) => {
    const predictions = await predictor.predict(image, options);
    return () => predictions;
  };
  if (!masks) return { look: boxes, objectsMax: OBJECTS_MAX };
  const look: Look = async (image) => {
    const outlined = await predictor.outline(image, options);
    return () => masks.told(predictor, outlined);
  };
  return { look, objectsMax: MASKED_OBJECTS_MAX };
}

/** What of all frames' masks is told: each frame's within its bounds, and all within theirs. */
class ClipMasks {
  leftOut = 0;
  readonly #form: ToldForm;
  readonly #left: MaskBounds = { ...CLIP_BOUNDS };

  constructor(form: ToldForm) {
    this.#form = form;
  }

  /** A frame's objects with their masks; frames are told one after another. */
  async told(predictor: Predictor, outlined: OutlinedImage): Promise<MaskedPrediction[]> {
    const left = this.#left;
    const bounds = {
      maskNumbers: left.maskNumbers,
      ringSteps: Math.min(left.ringSteps, IMAGE_MASKS.ringSteps),
    };
    const told = await predictor.masked(outlined, this.#form, bounds);
    left.maskNumbers -= bounds.maskNumbers - told.left.maskNumbers;
    left.ringSteps -= bounds.ringSteps - told.left.ringSteps;
    this.leftOut += told.leftOut;
    return told.predictions;
  }
}

/** What is found on the wanted frames, in their order; as far as it came when it is canceled. */
async function predictFrames(
  footage: Footage,
  wanted: readonly number[],
  { cancel, progress }: Pick<RunnerContext, "cancel" | "progress">,
  { look, objectsMax, inFlightMax, longestSide }: Looking,
): Promise<Result["frames"]> {
  const frames: Result["frames"] = [];
  const inFlight: Promise<{ index: number; tell: Awaited<ReturnType<Look>> }>[] = [];
  let objects = 0;
  const takeFirst = async () => {
    const looked = await inFlight.shift();
    if (!looked) return;
    const { index } = looked;
    const predictions = await looked.tell();
    objects += predictions.length;
    if (objects > objectsMax) {
      const less = "ask for a higher confidence, a lower fps or fewer frames";
      throw new TaskFailure("too_many_objects", `over ${objectsMax} objects were found; ${less}`);
    }
    frames.push({ frame_index: index, time: secondsOf(footage, index), predictions });
    progress({ done: frames.length, total: wanted.length, detail: { objects } });
  };
  for await (const { index, image } of footage.read(wanted, { longestSide })) {
    if (cancel.aborted) return frames;
    const looking = look(image).then((tell) => ({ index, tell }));
    // Whoever waits for it hears of its failure, also where that is later.
    looking.catch(() => {});
    inFlight.push(looking);
    if (inFlight.length >= inFlightMax) await takeFirst();
  }
  while (inFlight.length > 0) await takeFirst();
  return frames;
}

/** Does a `warm` task: the model is open in this process afterwards. */
export async function warm(
  { model }: TaskPayload<"warm">,
  context: RunnerContext,
): Promise<TaskResult<"warm">> {
  const started = performance.now();
  await context.predictors.use(model, context.cancel, (predictor) => predictor.warm());
  return { seconds: (performance.now() - started) / 1_000 };
}
