// Predicts with a model of the registry on an image or on frames of a video, in pixels of the
// source. Frames are read while others are looked at, so that a batch fills while one runs.

import { sampleFrames } from "../../shared/sampling.ts";
import type { Prediction, TaskPayload, TaskResult } from "../../shared/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, openFootage } from "../media/footage.ts";
import type { RgbImage } from "../media/image.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Objects of one result: more are no answer that anybody reads. */
const OBJECTS_MAX = 100_000;

type Result = TaskResult<"predict">;

/** Does a `predict` task; a canceled one gives the frames that were done. */
export async function run(
  { model, video, fps, frames_max, confidence }: TaskPayload<"predict">,
  context: RunnerContext,
): Promise<Result> {
  const started = performance.now();
  const footage = await openFootage(context, video);
  try {
    const sampled = sampleFrames(footage.pts, footage.timeBase, fps);
    const wanted = sampled.slice(0, frames_max);
    const frames = await context.predictors.use(model, context.cancel, (predictor) =>
      predictFrames(footage, wanted, context, {
        look: (image) => predictor.predict(image, { of: footage, confidence }),
        // Some more than one run takes, so that the next batch is there when it ends.
        inFlightMax: 2 * predictor.batchMax,
        // Stills are decoded already; of a video no larger images than are looked at are read.
        longestSide: footage.frameCount === 1 ? null : model.image_size,
      }),
    );
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
      left_out: sampled.length - wanted.length,
    };
  } finally {
    await footage.close();
  }
}

interface Looking {
  look(image: RgbImage): Promise<Prediction[]>;
  inFlightMax: number;
  longestSide: number | null;
}

/** What is found on the wanted frames, in their order; as far as it came when it is canceled. */
async function predictFrames(
  footage: Footage,
  wanted: readonly number[],
  { cancel, progress }: Pick<RunnerContext, "cancel" | "progress">,
  { look, inFlightMax, longestSide }: Looking,
): Promise<Result["frames"]> {
  const { pts, timeBase } = footage;
  const ticks = (index: number) => pts[index] ?? 0;
  const frames: Result["frames"] = [];
  const inFlight: Promise<{ index: number; predictions: Prediction[] }>[] = [];
  let objects = 0;
  const takeFirst = async () => {
    const looked = await inFlight.shift();
    if (!looked) return;
    const { index, predictions } = looked;
    objects += predictions.length;
    if (objects > OBJECTS_MAX) {
      const less = "ask for a higher confidence, a lower fps or fewer frames";
      throw new TaskFailure("too_many_objects", `over ${OBJECTS_MAX} objects were found; ${less}`);
    }
    const time = ((ticks(index) - ticks(0)) * timeBase[0]) / timeBase[1];
    frames.push({ frame_index: index, time: Math.round(time * 1e6) / 1e6, predictions });
    progress({ done: frames.length, total: wanted.length, detail: { objects } });
  };
  for await (const { index, image } of footage.read(wanted, { longestSide })) {
    if (cancel.aborted) return frames;
    const looking = look(image).then((predictions) => ({ index, predictions }));
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
