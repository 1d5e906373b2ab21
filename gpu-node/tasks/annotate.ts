// Draws what a model found over the frames that it looked at, as a video of its own: the same
// frames at the same times, in a second reading, so that what is found does not depend on it.

import { rm } from "node:fs/promises";
import type { ObjectTarget, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, NO_FFMPEG } from "../media/footage.ts";
import { drawnOver } from "../media/overlay.ts";
import { type TimedImage, writeVideo } from "../media/video-writer.ts";
import { uploadFile } from "../objects/transfer.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Bytes of one annotated video: as many as a clip has at most. */
const BYTES_MAX = 1024 ** 3;

type Result = TaskResult<"predict">;

interface AnnotatedClip {
  footage: Footage;
  frames: Result["frames"];
  /** Names by index: a class has the same colour on every frame. */
  classes: readonly string[];
  target: ObjectTarget;
}

/** Writes the annotated video and stores it; gives where it is. */
export async function annotate(
  { footage, frames, classes, target }: AnnotatedClip,
  context: Pick<RunnerContext, "address" | "cache" | "cancel" | "progress" | "tools">,
): Promise<NonNullable<Result["annotated"]>> {
  const { tools, cancel } = context;
  if (!tools) throw new TaskFailure("video_not_written", NO_FFMPEG, { retryable: true });
  const path = context.cache.temporary();
  const drawn = drawnFrames({ footage, frames, classes }, context);
  try {
    const { width, height, timeBase } = footage;
    const form = { width, height, timeBase, frameSeconds: meanSeconds(frames) };
    const options = { ...form, path, signal: cancel, bytesMax: BYTES_MAX };
    const { bytes } = await writeVideo(tools, drawn, options);
    return { key: await uploadFile(context, target, path, cancel), bytes };
  } finally {
    await drawn.return(undefined);
    await rm(path, { force: true });
  }
}

/** Mean seconds from one frame to the next; of a single frame a usual one. */
function meanSeconds(frames: Result["frames"]): number {
  const span = (frames.at(-1)?.time ?? 0) - (frames[0]?.time ?? 0);
  return span > 0 ? span / (frames.length - 1) : 1 / 25;
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
    const ticks = (footage.pts[index] ?? 0) - (footage.pts[0] ?? 0);
    yield { image: await drawnOver(image, detections, classes), ticks };
    drawn += 1;
    progress({ done: frames.length, total: frames.length, detail: { drawn } });
  }
}
