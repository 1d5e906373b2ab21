// Which frames of a video are looked at, by their true times.

import { assert } from "../errors.ts";

/** The frame of so many that stands for a whole video: the first one is often black. */
export const frameForThumbnail = (frames: number): number =>
  Math.min(frames - 1, Math.floor(frames * 0.1));

/** A step is reached when the frame is no further before it: rounding of time bases. */
const STEP_SLACK_SECONDS = 1e-6;

/**
 * Indexes of the frames that show a video `fps` times a second: the first frame at or after each
 * step of 1/fps seconds from the first frame, each once. Null is every frame. `pts` are ticks in
 * display order, `timeBase` is seconds a tick, a fraction.
 */
export function sampleFrames(
  pts: Int32Array | Float64Array,
  timeBase: readonly [number, number],
  fps: number | null,
): number[] {
  if (fps === null) return Array.from(pts.keys());
  assert(fps > 0 && timeBase[0] > 0 && timeBase[1] > 0, "a rate and a time base are positive");
  const frames: number[] = [];
  const first = pts[0] ?? 0;
  let nextStep = 0;
  for (const [index, ticks] of pts.entries()) {
    const seconds = ((ticks - first) * timeBase[0]) / timeBase[1] + STEP_SLACK_SECONDS;
    if (seconds < nextStep / fps) continue;
    frames.push(index);
    // After a gap, the steps within it have no frame of their own.
    nextStep = Math.floor(seconds * fps) + 1;
  }
  return frames;
}
