// Writes a clip of images as a video and stores it, as it comes from one image after another.

import { rm } from "node:fs/promises";
import type { ObjectTarget, TaskResult } from "../../shared/tasks/tasks.ts";
import { TaskFailure } from "../base/failure.ts";
import { type Footage, NO_FFMPEG } from "../media/footage.ts";
import { type TimedImage, writeVideo } from "../media/video-writer.ts";
import { uploadFile } from "../objects/transfer.ts";
import type { RunnerContext } from "./runner-context.ts";

/** Bytes of one annotated video: as many as a clip has at most. */
const BYTES_MAX = 1024 ** 3;

/** What storing a clip takes of a task. */
export type ClipContext = Pick<RunnerContext, "address" | "cache" | "cancel" | "tools">;

interface ClipForm extends Pick<Footage, "timeBase"> {
  /** Sides of every image in pixels. */
  width: number;
  height: number;
  /** Seconds of the clip's frames, as far as they are known before. */
  times: readonly number[];
  target: ObjectTarget;
}

/** Ticks of a frame from the first one. */
export const ticksOf = ({ pts }: Pick<Footage, "pts">, index: number): number =>
  (pts[index] ?? 0) - (pts[0] ?? 0);

/** Writes images as a video and stores it; gives where it is. The images are closed in any case. */
export async function storeClip(
  images: AsyncGenerator<TimedImage>,
  { width, height, timeBase, times, target }: ClipForm,
  context: ClipContext,
): Promise<NonNullable<TaskResult<"predict">["annotated"]>> {
  const { tools, cancel } = context;
  const path = context.cache.temporary();
  try {
    if (!tools) throw new TaskFailure("video_not_written", NO_FFMPEG, { retryable: true });
    const form = { width, height, timeBase, frameSeconds: meanSeconds(times) };
    const options = { ...form, path, signal: cancel, bytesMax: BYTES_MAX };
    const { bytes } = await writeVideo(tools, images, options);
    return { key: await uploadFile(context, target, path, cancel), bytes };
  } finally {
    await images.return(undefined);
    await rm(path, { force: true });
  }
}

/** Mean seconds from one frame to the next; of a single frame a usual one. */
function meanSeconds(times: readonly number[]): number {
  const span = (times.at(-1) ?? 0) - (times[0] ?? 0);
  return span > 0 ? span / (times.length - 1) : 1 / 25;
}
