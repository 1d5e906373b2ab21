// Looks at frames to rank them or to find ones like them: a vector of the segmenter's encoder for
// each, and how unsure a model is of what is on it.

import type { EmbedResult, EmbedTask, FrameLook } from "../../shared/tasks/embed-task.ts";
import type { TaskPayload, TaskResult } from "../../shared/tasks/tasks.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import { TaskFailure } from "../base/failure.ts";
import { scrub } from "../base/log.ts";
import { openFootage } from "../media/footage.ts";
import type { RgbImage } from "../media/image.ts";
import type { Segmenter } from "../segmenters/segmenter.ts";
import type { Predictor } from "../serving/predictor.ts";
import { asTaskFailure } from "./prompts.ts";
import type { RunnerContext } from "./runner-context.ts";

/** What frames are looked at with; null where nobody asks for it. */
interface Lookers {
  segmenter: Segmenter | null;
  predictor: Predictor | null;
}

/** Does an `embed` task. Fails with a TaskFailure, which says whether to try again. */
export async function run(
  payload: TaskPayload<"embed">,
  context: RunnerContext,
): Promise<TaskResult<"embed">> {
  const { model, segmenter: name, videos } = payload;
  const embed = (predictor: Predictor | null) => {
    if (videos.every((one) => one.embed.length === 0)) {
      return lookAtAll(payload, context, { segmenter: null, predictor });
    }
    return context
      .useSegmenter(name, (segmenter) => lookAtAll(payload, context, { segmenter, predictor }))
      .catch((thrown: unknown) => {
        throw asTaskFailure(thrown);
      });
  };
  return model ? context.predictors.use(model, context.cancel, embed) : embed(null);
}

async function lookAtAll(
  { videos }: EmbedTask,
  context: RunnerContext,
  lookers: Lookers,
): Promise<EmbedResult> {
  const result: EmbedResult = { frames: [], unreadable: [] };
  const total = videos.reduce((sum, one) => sum + framesOf(one).length, 0);
  for (const video of videos) {
    try {
      for await (const look of looksAt(video, context, lookers)) {
        result.frames.push(look);
        context.progress({ done: result.frames.length, total, detail: {} });
      }
    } catch (thrown) {
      // Whether it is the video's fault: the others are not lost by one.
      if (!(thrown instanceof TaskFailure) || thrown.retryable) throw thrown;
      context.log.info("video_unreadable", { video: video.video_id, detail: thrown.message });
      result.unreadable.push({ video_id: video.video_id, detail: scrub(thrown.message) });
    }
    if (context.cancel.aborted) break;
  }
  return result;
}

const framesOf = ({ embed, score }: EmbedTask["videos"][number]): number[] => [
  ...new Set([...embed, ...score]),
];

async function* looksAt(
  wanted: EmbedTask["videos"][number],
  context: RunnerContext,
  { segmenter, predictor }: Lookers,
): AsyncGenerator<FrameLook> {
  const footage = await openFootage(context, wanted.video);
  try {
    for await (const { index, image } of footage.read(framesOf(wanted))) {
      yield {
        video_id: wanted.video_id,
        frame_index: index,
        vector: segmenter && wanted.embed.includes(index) ? await vectorOf(segmenter, image) : null,
        entropies:
          predictor && wanted.score.includes(index) ? await bitsOf(predictor, image) : null,
      };
      if (context.cancel.aborted) return;
    }
  } finally {
    await footage.close();
  }
}

/** An image's vector as signed bytes, the largest of which is ±127, in base64. */
async function vectorOf(segmenter: Segmenter, image: RgbImage): Promise<string> {
  const encoded = await segmenter.encode(image);
  try {
    return quantized(await segmenter.describe(encoded)).toString("base64");
  } finally {
    encoded.dispose();
  }
}

function quantized(vector: Float32Array): Buffer {
  const largest = vector.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  const scale = largest > 0 ? 127 / largest : 0;
  return Buffer.from(Int8Array.from(vector, (value) => Math.round(value * scale)).buffer);
}

async function bitsOf(predictor: Predictor, image: RgbImage): Promise<Record<string, number>> {
  return entropiesOf(await predictor.predict(image, { confidence: STORED_CONFIDENCE_MIN }));
}

/**
 * How unsure a model is of what it found on a frame, in bits by class: the sum over its objects of
 * the entropy of a coin with their confidence, as in Brust et al. 2018, "Active Learning for Deep
 * Object Detection". A confidence of ½ is a bit; many objects count for more than one, as each has
 * something to teach.
 */
export function entropiesOf(
  found: readonly { class: string; confidence: number }[],
): Record<string, number> {
  const bits: Record<string, number> = {};
  for (const { class: name, confidence } of found) {
    bits[name] = (bits[name] ?? 0) + entropy(confidence);
  }
  return bits;
}

const entropy = (share: number): number =>
  share <= 0 || share >= 1 ? 0 : -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
