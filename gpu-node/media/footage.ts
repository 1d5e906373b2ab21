// A video or image of the store, opened as numbered frames.

import { placementOf } from "../../shared/detector/letterbox.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import type { TaskContext } from "../objects/task-context.ts";
import type { Tools } from "./ffmpeg.ts";
import { type ReadFrame, type ReadOptions, readFrames } from "./frame-reader.ts";
import { resize } from "./image.ts";
import { type OriginalStill, originalStill, readStill, readStillWithin } from "./stills.ts";
import { probeVideo, typeOf, type VideoIndex } from "./video.ts";
import { decodeIndex, encodeIndex, INDEX_NAME } from "./video-index.ts";

/** What a task that looks at videos gets. */
export interface MediaContext extends TaskContext {
  /** Null where ffmpeg is not installed: then there are stills only. */
  tools: Tools | null;
}

/** A video or image of the store as frames, numbered from 0 in display order. */
export interface Footage {
  width: number;
  height: number;
  frameCount: number;
  /** Ticks of every frame in display order. */
  pts: Float64Array;
  /** Seconds of one tick, as a fraction. */
  timeBase: readonly [number, number];
  /** Reads the wanted frames in ascending order; `wanted` is in any order and may repeat. */
  read(wanted: readonly number[], options?: ReadOptions): AsyncGenerator<ReadFrame>;
  /** The file itself where it is a still that any reader shows as we do; null for all else. */
  original(): Promise<OriginalStill | null>;
  close(): Promise<void>;
}

/** The frames once each, in ascending order. */
export const ascending = (frames: readonly number[]): number[] =>
  [...new Set(frames)].sort((one, other) => one - other);

const noSuchFrame = (count: number, index: number) =>
  new TaskFailure("invalid_request", `the video has ${count} frames; none is ${index}`);

/** Seconds of a frame from the first one, to the microsecond. */
export function secondsOf({ pts, timeBase }: Footage, index: number): number {
  const ticks = (pts[index] ?? 0) - (pts[0] ?? 0);
  return Math.round(((ticks * timeBase[0]) / timeBase[1]) * 1e6) / 1e6;
}

/** What opening a file of the store takes. */
export type FootageContext = Pick<MediaContext, "cache" | "tools" | "cancel" | "log">;

export interface OpenOptions {
  /**
   * Images are as a detector reads them within a square of so many pixels a side, smaller or larger
   * than they are; the footage has the sides of the whole ones.
   */
  within?: number;
}

/** Opens a video or image of the store. Its index is made once and kept beside it. */
export async function openFootage(
  context: FootageContext,
  source: ObjectSource,
  { within }: OpenOptions = {},
): Promise<Footage> {
  const held = await context.cache.open(source, context.cancel);
  try {
    const type = await typeOf(held.path);
    if (type.kind === "still") return await stillFootage(held, within);
    const { tools } = context;
    if (!tools) throw new TaskFailure("unsupported_media", NO_FFMPEG, { retryable: true });
    const index = await indexOf({ ...context, tools }, source, held.path);
    return {
      width: index.width,
      height: index.height,
      frameCount: index.pts.length,
      pts: index.pts,
      timeBase: index.timeBase,
      read: (wanted, options) => {
        const frames = readFrames(tools, { path: held.path, index }, ascending(wanted), {
          signal: context.cancel,
          longestSide: within ?? null,
          ...options,
        });
        return within === undefined ? frames : fitted(frames, within);
      },
      original: async () => null,
      close: held.release,
    };
  } catch (thrown) {
    await held.release();
    if (thrown instanceof BrokenMedia) {
      throw new TaskFailure("unsupported_media", thrown.message, { cause: thrown });
    }
    throw thrown;
  }
}

/** Why a node cannot open a video. */
export const NO_FFMPEG = "this node has no ffmpeg: install it (apt-get install ffmpeg)";

/** Frames that are no larger than a square of so many pixels a side, made to reach its sides. */
async function* fitted(frames: AsyncGenerator<ReadFrame>, within: number) {
  for await (const { index, image } of frames) {
    const { laid } = placementOf(image, { width: within, height: within });
    yield { index, image: await resize(image, laid) };
  }
}

async function stillFootage(
  held: { path: string; release(): Promise<void> },
  within?: number,
): Promise<Footage> {
  const { image: whole, of } =
    within === undefined
      ? await readStill(held.path).then((image) => ({ image, of: image }))
      : await readStillWithin(held.path, within);
  async function* read(wanted: readonly number[], options: ReadOptions = {}) {
    for (const index of ascending(wanted)) {
      if (index !== 0) throw noSuchFrame(1, index);
      const { longestSide = null } = options;
      const image = longestSide === null ? whole : await readStill(held.path, { longestSide });
      yield { index, image };
    }
  }
  return {
    width: of.width,
    height: of.height,
    frameCount: 1,
    pts: Float64Array.of(0),
    timeBase: [1, 1],
    read,
    original: () => originalStill(held.path),
    close: held.release,
  };
}

/** The index that the probe left on this node, else one made now by decoding the video once. */
async function indexOf(
  context: FootageContext & { tools: Tools },
  source: ObjectSource,
  path: string,
): Promise<VideoIndex> {
  const kept = await context.cache.readDerived(source.key, INDEX_NAME);
  const index = kept && decodeIndex(kept);
  if (index) return index;
  context.log.info("video_indexed_again", { object: source.key });
  const probed = await probeVideo(context.tools, path, { signal: context.cancel });
  await context.cache.writeDerived(source.key, INDEX_NAME, encodeIndex(probed.index));
  return probed.index;
}
