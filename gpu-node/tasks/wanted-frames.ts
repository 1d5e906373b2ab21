// Which frames of a clip a task looks at.

import { sampleFrames } from "../../shared/detector/sampling.ts";
import { TaskFailure } from "../base/failure.ts";
import type { Footage } from "../media/footage.ts";

/** The frames that a task asks for, as its payload names them. */
interface FrameWish {
  fps: number | null;
  frames_max: number;
  uncut?: boolean | undefined;
}

/**
 * Indexes of the frames to look at, and how many are left out beyond `frames_max`. Fails with
 * `too_many_frames` where the task wants the clip uncut and it has more.
 */
export function wantedFrames(
  { pts, timeBase }: Pick<Footage, "pts" | "timeBase">,
  { fps, frames_max: framesMax, uncut = false }: FrameWish,
): { wanted: number[]; leftOut: number } {
  const sampled = sampleFrames(pts, timeBase, fps);
  const leftOut = Math.max(0, sampled.length - framesMax);
  if (uncut && leftOut > 0) {
    const less = "send `fps` to look at fewer, or `frames_max` to look at the first ones only";
    const detail = `the clip has ${sampled.length} frames to look at, and at most ${framesMax} are`;
    throw new TaskFailure("too_many_frames", `${detail}; ${less}`);
  }
  return { wanted: sampled.slice(0, framesMax), leftOut };
}
