// Boxes and the frames that they lie in, in pixels.

import type { Bbox } from "../../../shared/tasks.ts";

/** Width and height of a frame, pixels. */
export interface FrameSize {
  width: number;
  height: number;
}

/** A box cut to its frame, as precise as it is stored; null when nothing of it is inside. */
export function insideFrame(
  [x1, y1, x2, y2]: Readonly<Bbox>,
  { width, height }: FrameSize,
): Bbox | null {
  const within = (value: number, max: number) => Math.fround(Math.min(Math.max(value, 0), max));
  const [left, top] = [within(x1, width), within(y1, height)];
  const [right, bottom] = [within(x2, width), within(y2, height)];
  return right > left && bottom > top ? [left, top, right, bottom] : null;
}
