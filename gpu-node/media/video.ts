// What a file is: its type by its bytes, and for videos the index of its frames, made by decoding
// every one of them once. A frame is its index in display order in that decoding; no time is ever
// turned into a frame. What cannot be read fails with BrokenMedia, whose message is for its owner.

import { open } from "node:fs/promises";
import { z } from "zod";
import { decimal } from "../../shared/scalars.ts";
import { BrokenMedia, TaskFailure } from "../base/failure.ts";
import {
  CODECS,
  containerLimits,
  type Demuxer,
  inputLimits,
  linesOf,
  outputOf,
  PIXELS_MAX,
  type Run,
  start,
  type Tools,
} from "./ffmpeg.ts";
import {
  framesMax,
  keysOf,
  type Packets,
  readPackets,
  tooLong,
  tooMany,
  VIDEO_LIMITS,
  type VideoLimits,
} from "./packets.ts";

export type FileType =
  | { kind: "video"; demuxer: Demuxer; contentType: string }
  | { kind: "still"; contentType: string };

/** Everything that reading the n-th frame needs. */
export interface VideoIndex {
  /** As shown: after rotation. */
  width: number;
  height: number;
  demuxer: Demuxer;
  /** Place of the video among the file's streams. */
  stream: number;
  /** Seconds of one tick, as a fraction. */
  timeBase: readonly [number, number];
  /** What the file calls its start, seconds; seeking counts from it. */
  startSeconds: number;
  /** Ticks of every frame in display order. */
  pts: Float64Array;
  /** Adler-32 of every frame as decoded. */
  checksums: Uint32Array;
  /** Frames at which decoding can start, ascending. */
  keys: Uint32Array;
}

export interface VideoProbe {
  index: VideoIndex;
  fps: number;
  durationSeconds: number;
  contentType: string;
  /** Container, codec, pixel format, rotation, warnings. */
  facts: Record<string, unknown>;
}

const SIDE_MAX = 16_384;
const STREAMS_MAX = 32;
/**
 * Frames inside may outgrow the file's declared size, as those of a call do when its line gets
 * better, but not beyond this.
 */
const GROWN_PIXELS_MAX = 3840 * 2160;
/** A busy node is slow for a while: a sample that foretells less than so much too much may err. */
const SAMPLE_MARGIN = 2;
export const SNIFFED_BYTES = 64;

const ATOMS = new Set(["ftyp", "moov", "mdat", "wide", "free", "skip", "pnot"]);

/** The type that a file's first bytes show; names and declared types count for nothing. */
export function sniff(head: Buffer): FileType | null {
  const text = head.toString("latin1");
  const still = (contentType: string): FileType => ({ kind: "still", contentType });
  const video = (demuxer: Demuxer, contentType: string): FileType => ({
    kind: "video",
    demuxer,
    contentType,
  });
  if (text.startsWith("\xff\xd8\xff")) return still("image/jpeg");
  if (text.startsWith("\x89PNG\r\n\x1a\n")) return still("image/png");
  if (/^GIF8[79]a/.test(text)) return still("image/gif");
  if (/^(II\*\0|MM\0\*)/.test(text)) return still("image/tiff");
  if (text.startsWith("RIFF") && text.slice(8, 12) === "WEBP") return still("image/webp");
  if (text.startsWith("RIFF") && text.slice(8, 11) === "AVI")
    return video("avi", "video/x-msvideo");
  if (text.startsWith("\x1a\x45\xdf\xa3")) {
    const webm = text.includes("webm");
    return video("matroska", webm ? "video/webm" : "video/x-matroska");
  }
  const brand = text.slice(8, 12);
  if (text.slice(4, 8) === "ftyp" && /^(avif|avis|mif1|hei[cx]|hevc)$/.test(brand)) {
    return still(brand.startsWith("av") ? "image/avif" : "image/heic");
  }
  if (!ATOMS.has(text.slice(4, 8))) return null;
  return video("mov", brand === "qt  " ? "video/quicktime" : "video/mp4");
}

/** The type of a file, or BrokenMedia naming what we take. */
export async function typeOf(path: string): Promise<FileType> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(SNIFFED_BYTES), 0, SNIFFED_BYTES, 0);
    if (bytesRead === 0) throw new BrokenMedia("the file is empty");
    const type = sniff(buffer.subarray(0, bytesRead));
    if (type) return type;
  } finally {
    await file.close();
  }
  throw new BrokenMedia(
    "the file is no video or image of a kind we take (MP4, MOV, MKV, WebM, AVI, JPEG, PNG, WebP, " +
      "GIF, TIFF, AVIF)",
  );
}

const Fraction = z
  .string()
  .regex(/^\d+\/\d+$/)
  .transform((text) => text.split("/").map(Number) as [number, number]);

const SHOWN =
  "stream=index,codec_type,codec_name,profile,pix_fmt,width,height,has_b_frames,time_base," +
  "avg_frame_rate:stream_disposition:stream_side_data=rotation:" +
  "format=format_name,start_time,duration";

const ProbeOutput = z.object({
  streams: z.array(
    z.looseObject({
      index: z.number().int(),
      codec_type: z.string().optional(),
      codec_name: z.string().optional(),
      profile: z.string().optional(),
      pix_fmt: z.string().optional(),
      width: z.number().int().optional(),
      height: z.number().int().optional(),
      has_b_frames: z.number().int().optional(),
      time_base: Fraction,
      avg_frame_rate: z.string().optional(),
      disposition: z.record(z.string(), z.number()).default({}),
      side_data_list: z.array(z.looseObject({ rotation: z.number().optional() })).default([]),
    }),
  ),
  format: z.looseObject({
    format_name: z.string(),
    start_time: decimal().default(0),
    duration: decimal().optional(),
  }),
});

export interface ProbeOptions {
  signal?: AbortSignal | undefined;
  onFrames?: (frames: number) => void;
  /** Smaller, for tests. */
  limits?: VideoLimits;
}

/** A video's index and facts, from one decoding of the whole file. */
export async function probeVideo(
  tools: Tools,
  path: string,
  options: ProbeOptions = {},
): Promise<VideoProbe> {
  const { limits = VIDEO_LIMITS, signal } = options;
  const type = await typeOf(path);
  if (type.kind !== "video") throw new BrokenMedia("the file is an image, not a video");
  const { stream, format } = await describe(tools, path, type.demuxer, signal);
  const rotation = stream.side_data_list.find((data) => data.rotation)?.rotation ?? 0;
  const turned = Math.abs(rotation % 180) === 90;
  const [width = 0, height = 0] = turned
    ? [stream.height, stream.width]
    : [stream.width, stream.height];
  const shape = { width, height, demuxer: type.demuxer, stream: stream.index };
  const timed = { ...shape, timeBase: stream.time_base };
  const packets = await readPackets(tools, path, timed, { limits, signal });
  const decoded = await decodeAll(tools, path, { shape, packets }, { ...options, limits });
  const { pts, checksums, timeBase } = decoded;
  const keys = keysOf(packets, pts);
  const seconds = (ticks: number) => (ticks * timeBase[0]) / timeBase[1];
  const count = pts.length;
  const spanSeconds = seconds((pts[count - 1] ?? 0) - (pts[0] ?? 0));
  const fps = count > 1 && spanSeconds > 0 ? (count - 1) / spanSeconds : rateOf(stream);
  const durationSeconds = spanSeconds + (seconds(decoded.lastTicks) || 1 / fps);
  if (durationSeconds > limits.hours * 3600) throw tooLong(limits);
  return {
    index: { ...shape, timeBase, startSeconds: format.start_time, pts, checksums, keys },
    fps,
    durationSeconds,
    contentType: type.contentType,
    facts: {
      container: format.format_name,
      codec: stream.codec_name ?? null,
      profile: stream.profile ?? null,
      pixel_format: stream.pix_fmt ?? null,
      rotation,
      b_frames: stream.has_b_frames ?? 0,
      declared_duration_seconds: format.duration ?? null,
      key_frames: keys.length,
      variable_frame_rate: isVariable(pts),
      warnings: decoded.warnings,
    },
  };
}

/** What the container declares, within limits. */
async function describe(
  tools: Tools,
  path: string,
  demuxer: Demuxer,
  signal: AbortSignal | undefined,
) {
  const args = ["-v", "repeat+error", ...containerLimits(demuxer)];
  // Nothing else is printed: a stranger's tags may be of any length.
  args.push("-show_entries", SHOWN);
  const run = start(tools, "ffprobe", [...args, "-of", "json", `file:${path}`], {
    signal,
    wallSeconds: 120,
  });
  const text = await outputOf(run, 4_000_000);
  const problem = await run.ended;
  signal?.throwIfAborted();
  const parsed = ProbeOutput.safeParse(
    problem ? null : JSON.parse(text.toString("utf8") || "null"),
  );
  if (!parsed.success) throw new BrokenMedia(whyUnreadable(run, problem));
  const { streams, format } = parsed.data;
  if (streams.length > STREAMS_MAX) {
    throw new BrokenMedia(
      `the file has ${streams.length} streams; at most ${STREAMS_MAX} are taken`,
    );
  }
  const stream = streams.find(
    (one) => one.codec_type === "video" && one.disposition.attached_pic !== 1,
  );
  if (!stream) throw new BrokenMedia("the file has no video stream");
  if (!CODECS.includes(stream.codec_name ?? "")) {
    throw new BrokenMedia(`videos of the codec ${stream.codec_name ?? "(unknown)"} are not taken`);
  }
  const { width = 0, height = 0 } = stream;
  if (width < 1 || height < 1) throw new BrokenMedia("the video says no picture size");
  if (width * height > PIXELS_MAX || Math.max(width, height) > SIDE_MAX) {
    throw new BrokenMedia(`pictures of ${width}×${height} are too large; 8192×8192 is the most`);
  }
  return { stream, format };
}

/** The filter that every reading begins with: images of one size, even where it changes. */
export const sizeFilter = ({ width, height }: { width: number; height: number }) =>
  `scale=${width}:${height}:flags=bicubic+bitexact`;

type Shape = Pick<VideoIndex, "width" | "height" | "demuxer" | "stream">;

const pixelsMax = ({ width, height }: Shape) => Math.max(width * height, GROWN_PIXELS_MAX);

/** Options that open one stream with its own timestamps; `seek` goes before `-i`. */
export const inputOf = (
  tools: Tools,
  path: string,
  source: Shape,
  seek: readonly string[] = [],
): string[] => [
  ...["-hide_banner", "-nostdin", "-nostats", "-copyts", "-reinit_filter", "0"],
  ...[...inputLimits(tools, source.demuxer, pixelsMax(source)), ...seek, "-i", `file:${path}`],
  ...["-map", `0:${source.stream}`, "-fps_mode", "passthrough"],
];

interface DecodedFrames {
  pts: Float64Array;
  checksums: Uint32Array;
  timeBase: readonly [number, number];
  lastTicks: number;
  warnings: string[];
}

/** Decodes every frame once: its time and the checksum of its decoded bytes. */
async function decodeAll(
  tools: Tools,
  path: string,
  { shape, packets }: { shape: Shape; packets: Packets },
  options: ProbeOptions & { limits: VideoLimits },
): Promise<DecodedFrames> {
  const { limits } = options;
  const args = [...inputOf(tools, path, shape), "-enc_time_base", "-1", "-vf", sizeFilter(shape)];
  const run = start(tools, "ffmpeg", ["-v", "repeat+error", ...args, "-f", "framecrc", "pipe:1"], {
    signal: options.signal,
    wallSeconds: limits.decodeSeconds,
    onLine: (line) => NOISE.test(line),
  });
  let refused: BrokenMedia | null = null;
  const pts: number[] = [];
  const checksums: number[] = [];
  let timeBase: readonly [number, number] = [1, 1];
  let lastTicks = 0;
  const countMax = framesMax(limits, shape);
  // A part of the counted packets is decoded, which foretells how long all will take.
  const sampled = setTimeout(() => {
    const foretold = (limits.sampleSeconds * packets.count) / pts.length;
    if (foretold <= limits.decodeSeconds * SAMPLE_MARGIN) return;
    refused = new BrokenMedia(
      `decoding it would take longer than the ${limits.decodeSeconds / 3600} hours it may`,
    );
    void run.stop();
  }, limits.sampleSeconds * 1_000);
  try {
    for await (const line of linesOf(run)) {
      if (line.startsWith("#")) {
        const [, num, den] = /^#tb 0: (\d+)\/(\d+)/.exec(line) ?? [];
        if (num && den) timeBase = [Number(num), Number(den)];
        continue;
      }
      const [, , time, ticks, , checksum] = line.split(",");
      pts.push(Number(time));
      checksums.push(Number.parseInt(checksum ?? "", 16) >>> 0);
      lastTicks = Number(ticks);
      if (pts.length % 256 === 0) options.onFrames?.(pts.length);
      if (pts.length > countMax) throw tooMany(limits, shape);
      const seconds = ((Number(time) - (pts[0] ?? 0)) * timeBase[0]) / timeBase[1];
      if (seconds > limits.hours * 3600) throw tooLong(limits);
    }
  } catch (thrown) {
    await run.stop();
    throw refused ?? thrown;
  } finally {
    clearTimeout(sampled);
  }
  if (refused) throw refused;
  const problem = await run.ended;
  options.signal?.throwIfAborted();
  if (pts.length === 0) throw new BrokenMedia(whyUnreadable(run, problem));
  if (run.said().some((line) => /Cannot allocate memory|av_malloc/i.test(line))) {
    throw new TaskFailure("out_of_memory", "decoding needs more memory than this node gives it", {
      retryable: true,
    });
  }
  if (problem?.startsWith("it "))
    throw new BrokenMedia(`the video could not be decoded: ${problem}`);
  const warnings = run.said().length
    ? [`parts of the file are damaged: ${pts.length} frames could be decoded (${reasonOf(run)})`]
    : [];
  return {
    pts: Float64Array.from(pts),
    checksums: Uint32Array.from(checksums),
    timeBase,
    lastTicks,
    warnings,
  };
}

/** Audio is never decoded, and ffmpeg says so as if it were an error. */
const NOISE =
  /not on whitelist|avformat_find_stream_info|Could not find codec parameters|Consider increasing|Guessed Channel Layout|non monotonically increasing dts|^\s*$|is deprecated/;

/** What ffmpeg says of a frame that is larger than it may decode. */
const OUTGROWN = / size (\d+x\d+) exceeds specified max pixel count/;

const reasonOf = (run: Run) => {
  const [, size] =
    run
      .said()
      .map((one) => OUTGROWN.exec(one))
      .findLast((one) => one) ?? [];
  if (size) return `a frame in it is ${size.replace("x", "×")}, far larger than the file says`;
  const line = run.said().findLast((one) => !NOISE.test(one)) ?? "";
  // ffmpeg's own prefix and our paths say nothing to the file's owner.
  return line
    .replace(/^\[[^\]]*\] */, "")
    .replace(/file:\/\S+?: /g, "")
    .replace(/\/\S+/g, "")
    .slice(0, 200);
};

function whyUnreadable(run: Run, problem: string | null): string {
  const said = run.said().join("\n");
  if (/moov atom not found/.test(said)) {
    return "the file is not whole: its index is missing, as after an upload that broke off";
  }
  const reason = reasonOf(run) || problem;
  return `the video cannot be decoded${reason ? `: ${reason}` : ""}`;
}

/** The declared rate, for a video of one frame; 1 where there is none. */
function rateOf(stream: { avg_frame_rate?: string | undefined }): number {
  const [num = 0, den = 0] = (stream.avg_frame_rate ?? "").split("/").map(Number);
  return num > 0 && den > 0 && num / den <= 1_000 ? num / den : 1;
}

/** Whether gaps between frames differ by more than rounding does. */
function isVariable(pts: Float64Array): boolean {
  let min = Number.POSITIVE_INFINITY;
  let max = 0;
  for (let index = 1; index < pts.length; index++) {
    const gap = (pts[index] ?? 0) - (pts[index - 1] ?? 0);
    min = Math.min(min, gap);
    max = Math.max(max, gap);
  }
  return max > min * 1.1 + 1;
}
