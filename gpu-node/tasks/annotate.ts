// Draws what a model found over the frames that it looked at, as a video of its own: the same
// frames at the same times, in a second reading, so that what is found does not depend on it.

import type { ObjectTarget, TaskResult } from "../../shared/tasks/tasks.ts";
import type { Footage } from "../media/footage.ts";
import { drawnOver } from "../media/overlay.ts";
import type { TimedImage } from "../media/video-writer.ts";
import type { RunnerContext } from "./runner-context.ts";
import { type ClipContext, storeClip, ticksOf } from "./stored-clip.ts";

type Result = TaskResult<"predict">;

interface AnnotatedClip {
  footage: Footage;
  frames: Result["frames"];
  /** Names by index: a class has the same colour on every frame. */
  classes: readonly string[];
  target: ObjectTarget;
}

/** Writes the annotated video and stores it; gives where it is. */
export function annotate(
  { footage, frames, classes, target }: AnnotatedClip,
  context: ClipContext & Pick<RunnerContext, "progress">,
): Promise<NonNullable<Result["annotated"]>> {
  const { width, height, timeBase } = footage;
  const form = { width, height, timeBase, times: frames.map(({ time }) => time), target };
  return storeClip(drawnFrames({ footage, frames, classes }, context), form, context);
}

async function* drawnFrames(
  { footage, frames, classes }: Omit<AnnotatedClip, "target">,
  { progress }: Pick<RunnerContext, "progress">,
): AsyncGenerator<TimedImage> {
  const byIndex = new Map(frames.map((frame) => [frame.frame_index, frame.predictions]));
  let drawn = 0;
  for await (const { index, image } of footage.read([...byIndex.keys()])) {
    const detections = (byIndex.get(index) ?? []).map(({ class: class_name, mask, ...found }) => ({
      ...found,
      class_name,
      polygon: mask && "polygon" in mask ? mask.polygon : null,
    }));
    yield { image: await drawnOver(image, detections, classes), ticks: ticksOf(footage, index) };
    drawn += 1;
    progress({ done: frames.length, total: frames.length, detail: { drawn } });
  }
}
