// Writes frames as an H.264 video in MP4 that browsers play, each frame at its own time. ffmpeg is
// fed with raw images in Matroska: its blocks have times, which streams of raw images have not.

import { stat } from "node:fs/promises";
import { TaskFailure } from "../base/failure.ts";
import { type Run, start, type Tools } from "./ffmpeg.ts";
import type { RgbImage } from "./image.ts";

interface VideoForm {
  /** Sides of every frame in pixels. */
  width: number;
  height: number;
  /** Seconds of one tick, as a fraction. */
  timeBase: readonly [number, number];
  /** Seconds for which the last frame is shown, such as a frame's mean. */
  frameSeconds: number;
}

/** An image and when it is shown, in ticks from the video's start. */
export interface TimedImage {
  image: RgbImage;
  ticks: number;
}

interface WriteOptions extends VideoForm {
  path: string;
  signal?: AbortSignal | undefined;
  /** A file of more bytes is a failure. */
  bytesMax: number;
  /** Shorter, for tests. */
  stallMs?: number;
}

const WRITE_SECONDS_MAX = 6 * 3600;
const NANOSECONDS = 1e9;

/** An element of EBML, its length in eight bytes. */
function element(id: string, ...content: readonly Buffer[]): Buffer {
  const length = content.reduce((sum, { length: bytes }) => sum + bytes, 0);
  return Buffer.concat([elementHead(id, length), ...content]);
}

function elementHead(id: string, length: number): Buffer {
  const size = Buffer.alloc(8);
  size.writeBigUInt64BE(BigInt(length));
  // The marker of a length in eight bytes.
  size[0] = 1;
  return Buffer.concat([Buffer.from(id, "hex"), size]);
}

function unsigned(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes;
}

const text = (value: string) => Buffer.from(value, "latin1");
const UNKNOWN_LENGTH = Buffer.from("01ffffffffffffff", "hex");

/** Head of a Matroska stream of one track of raw RGB images, whose times are nanoseconds. */
const streamHead = ({ width, height }: VideoForm) =>
  Buffer.concat([
    element("1a45dfa3", element("4282", text("matroska"))),
    Buffer.from("18538067", "hex"),
    UNKNOWN_LENGTH,
    element("1549a966", element("2ad7b1", unsigned(1))),
    element(
      "1654ae6b",
      element(
        "ae",
        element("d7", unsigned(1)),
        element("73c5", unsigned(1)),
        element("83", unsigned(1)),
        element("86", text("V_UNCOMPRESSED")),
        element(
          "e0",
          element("b0", unsigned(width)),
          element("ba", unsigned(height)),
          element("2eb524", Buffer.from([...text("RGB"), 24])),
        ),
      ),
    ),
  ]);

/** What stands before an image: a cluster with its time, and a block of track 1 that is a key. */
function imageHead(nanoseconds: number, bytes: number): Buffer {
  const block = Buffer.from([0x81, 0, 0, 0x80]);
  const time = element("e7", unsigned(nanoseconds));
  const head = elementHead("a3", block.length + bytes);
  const length = time.length + head.length + block.length + bytes;
  return Buffer.concat([elementHead("1f43b675", length), time, head, block]);
}

/** Options of the encoding. Without B-frames the order of frames is that of their times. */
const encoding = (tools: Tools, { timeBase: [, ticks], frameSeconds }: VideoForm) => [
  // Chroma is of two by two pixels: an odd side has a black row or column more.
  ...["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2,scale=out_color_matrix=bt709:out_range=tv"],
  ...["-c:v", "libx264", "-pix_fmt", "yuv420p", "-preset", "veryfast", "-crf", "20", "-bf", "0"],
  ...["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"],
  ...["-color_range", "tv", "-threads", String(tools.threads)],
  // It counts for the last frame alone: each other one is shown until the next.
  ...["-bsf:v", `setts=duration=${Math.max(1, Math.round(frameSeconds * ticks))}`],
  ...["-fps_mode", "passthrough", "-enc_time_base", `1:${ticks}`],
  ...["-video_track_timescale", String(ticks), "-movflags", "+faststart", "-use_editlist", "0"],
];

/**
 * Writes the frames, in the order of their times; gives how many there are, and the file's bytes.
 * Fails with a TaskFailure where the program fails, hangs, or the file gets too large.
 */
export async function writeVideo(
  tools: Tools,
  frames: AsyncIterable<TimedImage>,
  { path, signal, bytesMax, stallMs, ...form }: WriteOptions,
): Promise<{ frames: number; bytes: number }> {
  const args = [
    ...["-v", "warning", "-stats", "-protocol_whitelist", "pipe", "-f", "matroska"],
    ...["-i", "pipe:0", "-map", "0:v:0", ...encoding(tools, form)],
    ...["-fs", String(bytesMax), "-f", "mp4", "-y", `file:${path}`],
  ];
  const run = start(tools, "ffmpeg", args, {
    signal,
    wallSeconds: WRITE_SECONDS_MAX,
    isFed: true,
    onLine: (line) => line.startsWith("frame="),
    ...(stallMs === undefined ? {} : { stallMs }),
  });
  run.stdout.resume();
  try {
    const count = await feed(run, form, frames);
    const problem = await run.ended;
    signal?.throwIfAborted();
    const bytes = await stat(path).then(
      ({ size }) => size,
      () => 0,
    );
    // The program ends well once its file is as large as it may be, and reads no further.
    if (problem === null && (count === null || bytes >= bytesMax)) throw tooLarge(bytesMax);
    if (count === null || problem !== null || bytes === 0) {
      throw notWritten(run, problem ?? "it left no file");
    }
    return { frames: count, bytes };
  } finally {
    await run.stop();
  }
}

const tooLarge = (bytesMax: number) =>
  new TaskFailure(
    "file_too_large",
    `the annotated video is over ${Math.round(bytesMax / 1024 ** 2)} MiB: ask for fewer frames`,
  );

function notWritten(run: Run, problem: string): TaskFailure {
  const said = run.said();
  const detail = said.some((line) => line.includes("Unknown encoder"))
    ? "this node's ffmpeg has no H.264 encoder (libx264)"
    : `ffmpeg did not write the annotated video: ${[problem, said.at(-1)].filter(Boolean).join("; ")}`;
  return new TaskFailure("video_not_written", detail, { retryable: true });
}

/** Hands over all frames; returns how many, or null where the program ended before. */
async function feed(
  run: Run,
  form: VideoForm,
  frames: AsyncIterable<TimedImage>,
): Promise<number | null> {
  const { stdin } = run;
  if (!stdin) throw new Error("the program is not fed");
  let isOver = false;
  const ended = run.ended.then(() => {
    isOver = true;
  });
  // What breaks is told by the program's end.
  stdin.on("error", () => {});
  const send = async (chunk: Uint8Array) => {
    if (isOver || stdin.write(chunk)) return;
    await Promise.race([new Promise((resolve) => stdin.once("drain", resolve)), ended]);
  };
  const { timeBase } = form;
  await send(streamHead(form));
  let [count, last] = [0, -1];
  for await (const { image, ticks } of frames) {
    if (isOver) return null;
    // Frames of one time would be refused: the later one is shown a tick later.
    last = Math.max(ticks, last + 1);
    const time = Math.round((last * timeBase[0] * NANOSECONDS) / timeBase[1]);
    await send(imageHead(time, image.data.length));
    await send(image.data);
    count += 1;
  }
  if (isOver) return null;
  stdin.end();
  return count;
}
