// Which frames of a clip are looked at, as a query asks for them and as a task's payload names
// them. Every frame is, up to a maximum; only the query itself cuts a longer clip.

import { decimal, whole } from "../../../../shared/scalars.ts";

/** The query that says which frames of a clip are looked at, so many of them at most. */
export const framesQuery = (framesMax: number) => ({
  fps: decimal((number) => number.positive().max(1_000))
    .optional()
    .meta({
      description:
        "frames a second to look at, by the frames' true times; every frame when omitted",
    }),
  frames_max: whole(1, framesMax)
    .optional()
    .meta({
      description:
        "look at the first so many frames only, and count the others in `left_out`; when omitted " +
        `every frame is looked at, and a clip of more than ${framesMax} is 413 \`too_many_frames\``,
    }),
});

/** Which frames of a clip a task looks at. */
export interface FramesWish {
  /** Frames a second to look at; null: every frame. */
  fps: number | null;
  framesMax: number;
  /** Whether a clip of more frames is refused; else its first frames are looked at. */
  uncut: boolean;
}

/** Which frames a query asks for: all, up to so many, unless it cuts the clip itself. */
export const framesWished = (
  { fps, frames_max }: { fps?: number | undefined; frames_max?: number | undefined },
  framesMax: number,
): FramesWish => ({
  fps: fps ?? null,
  framesMax: frames_max ?? framesMax,
  uncut: frames_max === undefined,
});

/** The frames of a task as its payload names them. */
export const framesOf = ({ fps, framesMax, uncut }: FramesWish) => ({
  fps,
  frames_max: framesMax,
  ...(uncut ? { uncut } : {}),
});

/** What is wrong with a clip's answer that was cut although every frame was asked for, or null. */
export const cutProblem = (
  { uncut = false }: { uncut?: boolean | undefined },
  leftOut: number,
): string | null => (uncut && leftOut > 0 ? `${leftOut} frames are left out` : null);
