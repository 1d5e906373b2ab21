// A clip of what an output of a workflow is on one frame after another. It has the sides of its
// first image; images of other sides are scaled into them. One image at a time is held.

import { type ImageSize, placementOf } from "../../shared/detector/letterbox.ts";
import type { ObjectTarget, TaskResult } from "../../shared/tasks/tasks.ts";
import type { WorkflowRun } from "../../shared/workflow/execution.ts";
import { type Footage, secondsOf } from "../media/footage.ts";
import { canvas, fitSize, paste, type RgbImage, resize } from "../media/image.ts";
import type { TimedImage } from "../media/video-writer.ts";
import { NodeImage } from "../workflows/node-image.ts";
import { type ClipContext, storeClip, ticksOf } from "./stored-clip.ts";

/** Longest side of a clip; larger images are scaled down, as players open no larger ones. */
const SIDE_MAX = 8_192;
const BLACK = [0, 0, 0];

/** A frame of a video, and what its run came to. */
export interface FrameRun {
  index: number;
  image: RgbImage;
  outputs: WorkflowRun["outputs"];
}

interface OutputClipRequest {
  /** Name of an output whose value is one image. */
  output: string;
  footage: Footage;
  /** Indexes of the frames that are run. */
  wanted: readonly number[];
  target: ObjectTarget;
}

interface OutputClip {
  annotated: NonNullable<TaskResult<"workflow_video">["annotated"]>;
  /** Sentences for people. */
  warnings: string[];
}

/**
 * Writes a clip of the frames as they are run, and stores it. Null where there is no frame, and of
 * a canceled run. All frames are taken unless the writing fails.
 */
export async function storeOutputClip(
  frames: AsyncGenerator<FrameRun>,
  { output, footage, wanted, target }: OutputClipRequest,
  context: ClipContext,
): Promise<OutputClip | null> {
  const counts = { without: 0, scaled: 0 };
  const images = imagesOf(frames, { output, footage, counts });
  try {
    const first = await images.next();
    if (first.done) return null;
    const { width, height } = first.value.image;
    const times = wanted.map((index) => secondsOf(footage, index));
    const form = { width, height, timeBase: footage.timeBase, times, target };
    const stored = await storeClip(following(first.value, images), form, context);
    const { without, scaled } = counts;
    const sides = `${width} × ${height}`;
    const told = `Images of \`${output}\` that are scaled into the clip's ${sides} pixels: ${scaled}.`;
    return {
      annotated: { ...stored, frames_without_output: without },
      warnings: scaled > 0 ? [told] : [],
    };
  } catch (thrown) {
    if (context.cancel.aborted) return null;
    throw thrown;
  } finally {
    await images.return(undefined);
  }
}

async function* following(first: TimedImage, others: AsyncGenerator<TimedImage>) {
  yield first;
  yield* others;
}

async function* imagesOf(
  frames: AsyncGenerator<FrameRun>,
  {
    output,
    footage,
    counts,
  }: Pick<OutputClipRequest, "output" | "footage"> & {
    counts: { without: number; scaled: number };
  },
): AsyncGenerator<TimedImage> {
  let sides: ImageSize | null = null;
  for await (const { index, image, outputs } of frames) {
    const value = outputs[output];
    const isThere = value instanceof NodeImage;
    if (!isThere) counts.without += 1;
    const shown = isThere ? value.pixels : image;
    sides ??= Math.max(shown.width, shown.height) > SIDE_MAX ? fitSize(shown, SIDE_MAX) : shown;
    const laid = await laidInto(shown, sides);
    if (laid !== shown) counts.scaled += 1;
    yield { image: laid, ticks: ticksOf(footage, index) };
  }
}

/** An image in the middle of given sides, its own in proportion; itself where it has them. */
async function laidInto(image: RgbImage, sides: ImageSize): Promise<RgbImage> {
  if (image.width === sides.width && image.height === sides.height) return image;
  const { laid, left, top } = placementOf(image, sides);
  const onto = canvas(sides.width, sides.height, BLACK);
  paste(onto, await resize(image, laid), left, top);
  return onto;
}
