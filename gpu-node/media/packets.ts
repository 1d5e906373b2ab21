// What a video's container really holds: its packets, counted and timed without decoding them. What
// a header says of length, rate or count is believed nowhere.

import { BrokenMedia } from "../base/failure.ts";
import { containerLimits, type Demuxer, linesOf, start, type Tools } from "./ffmpeg.ts";

/** What a video may ask of a node at most; what crosses one of these is refused there and then. */
export interface VideoLimits {
  /** From the first frame to the end of the last. */
  hours: number;
  frames: number;
  /** Pixels of all frames together. */
  pixels: number;
  /** Decoding all of it, and how long it is decoded before that is foretold. */
  decodeSeconds: number;
  sampleSeconds: number;
}

export const VIDEO_LIMITS: VideoLimits = {
  hours: 12,
  frames: 3_000_000,
  // As many as 12 hours of 3840×2160 at 30 frames a second have.
  pixels: 12 * 3600 * 30 * 3840 * 2160,
  decodeSeconds: 6 * 3600,
  sampleSeconds: 120,
};

/** A frame may come in two packets, a field each. */
const PACKETS_PER_FRAME_MAX = 2;
const LIST_SECONDS_MAX = 3600;

/** The packets of one stream, in the file's order. */
export interface Packets {
  count: number;
  /** Times of those at which decoding can start, ascending, ticks; empty where there are none. */
  keyTimes: Float64Array;
  /** Which packets those are. */
  keyPositions: Uint32Array;
}

/** The most frames of a size that are taken. */
export const framesMax = (
  { frames, pixels }: VideoLimits,
  { width, height }: { width: number; height: number },
): number => Math.min(frames, Math.floor(pixels / (width * height)));

/** The refusal of a video with more frames than its size in pixels allows. */
export function tooMany(limits: VideoLimits, size: { width: number; height: number }) {
  const countMax = framesMax(limits, size);
  const of = countMax < limits.frames ? ` of ${size.width}×${size.height}` : "";
  return new BrokenMedia(`the video has more than ${countMax} frames${of}`);
}

/** The refusal of a video that lasts longer than is taken. */
export const tooLong = ({ hours }: VideoLimits) =>
  new BrokenMedia(`the video is longer than ${hours} hours by the times of its frames`);

/** Lists a stream's packets; BrokenMedia as soon as they are too many or lie too far apart. */
export async function readPackets(
  tools: Tools,
  path: string,
  video: {
    demuxer: Demuxer;
    stream: number;
    width: number;
    height: number;
    /** Seconds of one tick, as a fraction. */
    timeBase: readonly [number, number];
  },
  options: { limits: VideoLimits; signal?: AbortSignal | undefined },
): Promise<Packets> {
  const { limits, signal } = options;
  const { demuxer, stream, timeBase } = video;
  const args = ["-v", "quiet", ...containerLimits(demuxer), "-select_streams", String(stream)];
  const show = ["-show_entries", "packet=pts,dts,flags", "-of", "csv=p=0", `file:${path}`];
  const run = start(tools, "ffprobe", [...args, ...show], {
    signal,
    wallSeconds: LIST_SECONDS_MAX,
  });
  const packetsMax = framesMax(limits, video) * PACKETS_PER_FRAME_MAX;
  const ticksMax = (limits.hours * 3600 * timeBase[1]) / timeBase[0];
  const keyTimes: number[] = [];
  const keyPositions: number[] = [];
  let count = 0;
  let [first, last] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  try {
    for await (const line of linesOf(run)) {
      const [pts = "", dts = "", flags = ""] = line.split(",");
      const time = ticksOf(pts) ?? ticksOf(dts);
      if (flags.includes("K")) {
        keyPositions.push(count);
        if (ticksOf(pts) !== null) keyTimes.push(Number(pts));
      }
      count += 1;
      if (count > packetsMax) throw tooMany(limits, video);
      if (time === null) continue;
      first = Math.min(first, time);
      last = Math.max(last, time);
      if (last - first > ticksMax) throw tooLong(limits);
    }
  } catch (thrown) {
    await run.stop();
    throw thrown;
  }
  const problem = await run.ended;
  signal?.throwIfAborted();
  if (problem?.startsWith("it took") || problem?.startsWith("it made"))
    throw new BrokenMedia(`the file could not be read to its end: ${problem}`);
  return {
    count,
    keyTimes: Float64Array.from(keyTimes).sort(),
    keyPositions: Uint32Array.from(keyPositions),
  };
}

/** Frames, by their ascending times, that are decoded without any before them. */
export function keysOf({ count, keyTimes, keyPositions }: Packets, pts: Float64Array): Uint32Array {
  // AVI has no times, but a packet a frame. Were that wrong, reading would notice and not seek.
  if (keyTimes.length === 0 && count === pts.length) return keyPositions;
  const keys: number[] = [];
  let next = 0;
  pts.forEach((time, index) => {
    while ((keyTimes[next] ?? Number.POSITIVE_INFINITY) < time) next += 1;
    if (keyTimes[next] === time) keys.push(index);
  });
  return Uint32Array.from(keys);
}

const ticksOf = (text: string): number | null => (/^-?\d+$/.test(text) ? Number(text) : null);
