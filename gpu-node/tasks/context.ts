// What a task works with, and what all kinds share: opening a video or image as numbered frames.

import type { ObjectSource, ObjectTarget, TargetType, TaskProgress } from "../../shared/tasks.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import type { Tools } from "../media/ffmpeg.ts";
import { type ReadFrame, type ReadOptions, readFrames } from "../media/frame-reader.ts";
import { readStill } from "../media/stills.ts";
import { probeVideo, typeOf, type VideoIndex } from "../media/video.ts";
import { decodeIndex, encodeIndex, INDEX_NAME } from "../media/video-index.ts";
import type { Cache } from "../objects/cache.ts";
import type { Encoded, Segmenter } from "../segmenters/segmenter.ts";
import type { Predictors } from "../serving/predictor.ts";

export interface TaskContext {
  cache: Cache;
  /** Null where ffmpeg is not installed: then there are stills only. */
  tools: Tools | null;
  /** Opens a segmenter, or gives the one that is open. */
  segmenter(name: string | null): Promise<Segmenter>;
  /** Frames that were clicked last, encoded; they live as long as the process. */
  encodings: Encodings;
  /** Models that were used last, open; they live as long as the process. */
  predictors: Predictors;
  /** Those that come too often are left out, but never the last frame's, nor one that `must`. */
  progress(progress: TaskProgress, must?: boolean): void;
  /** Says to stop soon and keep what is done. */
  cancel: AbortSignal;
  /** Says to put the work aside for another attempt: fail with `Paused` then. */
  pause: AbortSignal;
  /** Where an object that the payload has no place for is written; another place each time. */
  target(name: string, contentType: TargetType): Promise<ObjectTarget>;
  /** An object of the payload under a new address: the first one runs out after 12 hours. */
  source(key: string): Promise<ObjectSource>;
  machine: Machine;
  log: Log;
}

/** What a task that trains or predicts works on. */
export interface Machine {
  device: "cpu" | "cuda";
  cpuThreads: number;
  trainingDir: string;
}

/** The work was put aside, and what is needed to go on was handed in. */
export class Paused extends Error {
  override readonly name = "Paused";
}

/** Frames of one file by their place in display order. */
export interface Footage {
  width: number;
  height: number;
  frameCount: number;
  /** Ticks of every frame in display order, and seconds of one tick, as a fraction. */
  pts: Float64Array;
  timeBase: readonly [number, number];
  /** The wanted frames, ascending; `wanted` is in any order and may repeat. */
  read(wanted: readonly number[], options?: ReadOptions): AsyncGenerator<ReadFrame>;
  close(): Promise<void>;
}

export const ascending = (frames: readonly number[]): number[] =>
  [...new Set(frames)].sort((one, other) => one - other);

const tooFar = (count: number, index: number) =>
  new TaskFailure("invalid_request", `the video has ${count} frames; none is ${index}`);

/** Opens a video or image of the store. Its index is made once and kept beside it. */
export async function openFootage(
  context: Pick<TaskContext, "cache" | "tools" | "cancel" | "log">,
  source: ObjectSource,
): Promise<Footage> {
  const held = await context.cache.open(source, context.cancel);
  try {
    const type = await typeOf(held.path);
    if (type.kind === "still") return await stillFootage(held);
    const { tools } = context;
    if (!tools) throw new TaskFailure("unsupported_media", NO_FFMPEG, { retryable: true });
    const index = await indexOf({ ...context, tools }, source, held.path);
    return {
      width: index.width,
      height: index.height,
      frameCount: index.pts.length,
      pts: index.pts,
      timeBase: index.timeBase,
      read: (wanted, options) =>
        readFrames(tools, held.path, index, ascending(wanted), {
          signal: context.cancel,
          ...options,
        }),
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

export const NO_FFMPEG = "this node has no ffmpeg: install it (apt-get install ffmpeg)";

async function stillFootage(held: { path: string; release(): Promise<void> }): Promise<Footage> {
  const whole = await readStill(held.path);
  async function* read(wanted: readonly number[], options: ReadOptions = {}) {
    for (const index of ascending(wanted)) {
      if (index !== 0) throw tooFar(1, index);
      const { longestSide = null } = options;
      const picture = longestSide === null ? whole : await readStill(held.path, { longestSide });
      yield { index, picture };
    }
  }
  const { width, height } = whole;
  const times = { frameCount: 1, pts: Float64Array.of(0), timeBase: [1, 1] as const };
  return { width, height, ...times, read, close: held.release };
}

/** The index that the probe left on this node, else one made now by decoding the video once. */
async function indexOf(
  context: Pick<TaskContext, "cache" | "cancel" | "log"> & { tools: Tools },
  source: ObjectSource,
  path: string,
): Promise<VideoIndex> {
  const kept = await context.cache.readDerived(source.key, INDEX_NAME);
  const index = kept && decodeIndex(kept);
  if (index) return index;
  context.log.info("video_indexed_again", { key: source.key });
  const probed = await probeVideo(context.tools, path, { signal: context.cancel });
  await context.cache.writeDerived(source.key, INDEX_NAME, encodeIndex(probed.index));
  return probed.index;
}

/** The frames that were encoded last, so that a second click on one is answered at once. */
export class Encodings {
  static readonly FRAMES_MAX = 8;
  readonly #entries = new Map<string, Encoded>();

  /** The frame's encoding, made unless it is here; disposes of the one used longest ago. */
  async get(name: string, encode: () => Promise<Encoded>): Promise<Encoded> {
    const known = this.#entries.get(name);
    const encoded = known ?? (await encode());
    this.#entries.delete(name);
    this.#entries.set(name, encoded);
    const [oldest] = this.#entries;
    if (oldest && this.#entries.size > Encodings.FRAMES_MAX) {
      this.#entries.delete(oldest[0]);
      oldest[1].dispose();
    }
    return encoded;
  }

  clear() {
    for (const encoded of this.#entries.values()) encoded.dispose();
    this.#entries.clear();
  }
}
