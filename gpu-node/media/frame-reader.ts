// Reads frames of a video by their index in display order. A plan splits the wanted frames where
// seeking is cheaper than decoding on; after a seek, time and checksum of every frame are compared
// with the index, and what differs is read again from the video's start.

import { TaskFailure } from "../base/failure.ts";
import { countRead, type Run, start, type Tools } from "./ffmpeg.ts";
import type { RgbImage } from "./image.ts";
import { inputOf, sizeFilter, type VideoIndex } from "./video.ts";

export interface ReadFrame {
  index: number;
  image: RgbImage;
}

/** A video file and the index that was made of it. */
export interface IndexedVideo {
  path: string;
  index: VideoIndex;
}

export interface ReadOptions {
  /** Images larger than this are made smaller; none is made larger. */
  longestSide?: number | null;
  signal?: AbortSignal | undefined;
  /** Decodes from the first frame on, whatever it costs. */
  neverSeek?: boolean;
}

/** Frames that one run of ffmpeg reads; `from` is where it starts, 0 without a seek. */
export interface Stretch {
  from: number;
  wanted: number[];
}

/** What starting a run costs, in decoded frames. */
const START_FRAMES = 30;
/**
 * Frames of one selection, whose terms ffmpeg evaluates for each frame. Without seeking, each
 * further stretch decodes all from the start again; more would not fit into one argument.
 */
const SELECTED_MAX = 300;
const SELECTED_MAX_UNSOUGHT = 4_000;
const READ_SECONDS_MAX = 6 * 3600;

/** The size of images that are read. */
export function sizeOf(
  { width, height }: { width: number; height: number },
  longestSide: number | null = null,
) {
  const scale = longestSide === null ? 1 : Math.min(1, longestSide / Math.max(width, height));
  const side = (length: number) => Math.max(1, Math.round(length * scale));
  return { width: side(width), height: side(height) };
}

/** Where to start and what to take, for ascending frames without repeats. */
export function planReads(
  wanted: readonly number[],
  keys: Uint32Array,
  options: { neverSeek?: boolean } = {},
): Stretch[] {
  const { neverSeek = false } = options;
  const selectedMax = neverSeek ? SELECTED_MAX_UNSOUGHT : SELECTED_MAX;
  const stretches: Stretch[] = [];
  let key = 0;
  for (const [position, index] of wanted.entries()) {
    while ((keys[key + 1] ?? Number.POSITIVE_INFINITY) <= index) key += 1;
    const start = Math.min(keys[key] ?? 0, index);
    const last = stretches.at(-1);
    const previous = wanted[position - 1] ?? 0;
    const decodeOn = index - previous;
    const seek = index - start + START_FRAMES;
    if (!last) {
      const worth = !neverSeek && index > seek;
      stretches.push({ from: worth ? index : 0, wanted: [index] });
    } else if (last.wanted.length >= selectedMax || (!neverSeek && decodeOn > seek)) {
      stretches.push({ from: neverSeek ? 0 : index, wanted: [index] });
    } else last.wanted.push(index);
  }
  return stretches;
}

/** A term per run of evenly spaced frames, counted from the run's first decoded one. */
export function selection({ from, wanted }: Stretch): string {
  const terms: string[] = [];
  for (let position = 0; position < wanted.length; ) {
    const first = wanted[position] ?? 0;
    const step = (wanted[position + 1] ?? first) - first;
    let last = position;
    while (step > 0 && (wanted[last + 1] ?? -1) - (wanted[last] ?? 0) === step) last += 1;
    const at = first - from;
    if (last - position < 2) {
      terms.push(`eq(n,${at})`);
      position += 1;
      continue;
    }
    const every = step === 1 ? "" : `*not(mod(n-${at},${step}))`;
    terms.push(`between(n,${at},${(wanted[last] ?? 0) - from})${every}`);
    position = last + 1;
  }
  return terms.join("+");
}

/** A frame after a seek is not the one that the index has: the file cannot be sought. */
class Drift extends Error {}

/**
 * The wanted frames, ascending, each as soon as it is decoded; the program waits while the consumer
 * works and ends when it stops. Wanted frames are ascending, without repeats.
 */
export async function* readFrames(
  tools: Tools,
  video: IndexedVideo,
  wanted: readonly number[],
  options: ReadOptions = {},
): AsyncGenerator<ReadFrame> {
  const { index } = video;
  const outside = wanted.find((one) => one < 0 || one >= index.pts.length);
  if (outside !== undefined) {
    const count = index.pts.length;
    throw new TaskFailure("invalid_request", `the video has ${count} frames; none is ${outside}`);
  }
  let read = 0;
  try {
    for (const stretch of planReads(wanted, index.keys, options)) {
      for await (const frame of readStretch(tools, video, stretch, options)) {
        yield frame;
        read += 1;
      }
    }
  } catch (thrown) {
    if (!(thrown instanceof Drift)) throw thrown;
    const whole = planReads(wanted.slice(read), index.keys, { neverSeek: true });
    for (const stretch of whole) yield* readStretch(tools, video, stretch, options);
  }
}

const SHOWN = /^\[Parsed_showinfo_\d+ @ \S+\] n: *\d+ pts: *(-?\d+|NOPTS)/;
const CHECKSUM = / checksum:([0-9A-F]+)/;

async function* readStretch(
  tools: Tools,
  { path, index }: IndexedVideo,
  stretch: Stretch,
  options: ReadOptions,
): AsyncGenerator<ReadFrame> {
  const { width, height } = sizeOf(index, options.longestSide);
  const sought = stretch.from > 0;
  const filters = [
    sizeFilter(index),
    `select='${selection(stretch)}'`,
    `showinfo=checksum=${sought ? 1 : 0}`,
    `scale=${width}:${height}:flags=bicubic+bitexact`,
    "format=rgb24",
  ];
  const shown = new Mailbox();
  const args = [
    ...["-v", "info", ...inputOf(tools, path, index, sought ? seekTo(index, stretch.from) : [])],
    ...["-vf", filters.join(","), "-frames:v", String(stretch.wanted.length)],
    ...["-f", "rawvideo", "pipe:1"],
  ];
  const run = start(tools, "ffmpeg", args, {
    signal: options.signal,
    wallSeconds: READ_SECONDS_MAX,
    onLine: (line) => {
      const [, pts] = SHOWN.exec(line) ?? [];
      if (pts !== undefined) shown.put({ pts, checksum: CHECKSUM.exec(line)?.[1] });
      return true;
    },
  });
  run.ended.then(() => shown.close());
  try {
    let position = 0;
    for await (const data of imagesOf(run, width * height * 3)) {
      const frame = stretch.wanted[position] ?? 0;
      const seen = await shown.take();
      if (sought && !isFrame(index, frame, seen)) throw new Drift();
      yield { index: frame, image: { data, width, height } };
      position += 1;
    }
    const problem = await run.ended;
    options.signal?.throwIfAborted();
    if (position === stretch.wanted.length) return;
    if (sought) throw new Drift();
    throw new TaskFailure(
      "unsupported_media",
      `frame ${stretch.wanted[position]} could not be decoded again${problem ? `: ${problem}` : ""}`,
      { retryable: true },
    );
  } finally {
    await run.stop();
  }
}

/** Half a frame before the wanted one, so that rounding cannot lose it. */
function seekTo(index: VideoIndex, frame: number): string[] {
  const at = index.pts[frame] ?? 0;
  const half = (at - (index.pts[frame - 1] ?? at)) / 2;
  const seconds = ((at - half) * index.timeBase[0]) / index.timeBase[1] - index.startSeconds;
  return seconds > 0 ? ["-ss", seconds.toFixed(6)] : [];
}

function isFrame(index: VideoIndex, frame: number, seen: ShownFrame | undefined): boolean {
  if (!seen || Number(seen.pts) !== index.pts[frame]) return false;
  return (
    seen.checksum !== undefined && Number.parseInt(seen.checksum, 16) === index.checksums[frame]
  );
}

/** Cuts a run's output into images of a size; what is left over at the end is none. */
async function* imagesOf(run: Run, bytes: number): AsyncGenerator<Buffer> {
  let image = Buffer.allocUnsafeSlow(bytes);
  let filled = 0;
  for await (const part of run.stdout) {
    const chunk = part as Buffer;
    countRead(run.stdout, chunk.length);
    for (let taken = 0; taken < chunk.length; ) {
      const copied = chunk.copy(image, filled, taken);
      taken += copied;
      filled += copied;
      if (filled < bytes) continue;
      yield image;
      image = Buffer.allocUnsafeSlow(bytes);
      filled = 0;
    }
  }
}

interface ShownFrame {
  pts: string;
  checksum: string | undefined;
}

/** What the program says of each frame, in order; it may come after the frame's bytes. */
class Mailbox {
  readonly #seen: ShownFrame[] = [];
  #closed = false;
  #wake = () => {};

  put(seen: ShownFrame) {
    this.#seen.push(seen);
    this.#wake();
  }

  close() {
    this.#closed = true;
    this.#wake();
  }

  async take(): Promise<ShownFrame | undefined> {
    while (this.#seen.length === 0 && !this.#closed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    return this.#seen.shift();
  }
}
