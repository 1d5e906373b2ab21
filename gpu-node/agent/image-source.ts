// What the device looks at: images of a folder as they come, the frames of a video, or a camera's.
// Videos and cameras are read by ffmpeg, as raw images with their size before each; a video has no
// network, a camera nothing but it.

import * as fs from "node:fs";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { BrokenMedia } from "../base/failure.ts";
import type { Log } from "../base/log.ts";
import {
  countRead,
  inputLimits,
  PIXELS_MAX,
  type Run,
  start,
  type Tools,
} from "../media/ffmpeg.ts";
import type { RgbImage } from "../media/image.ts";
import { readStill } from "../media/stills.ts";
import { typeOf } from "../media/video.ts";
import { pause } from "../objects/transfer.ts";
import { CAMERA } from "./device-config.ts";
import type { SeenFiles } from "./seen-files.ts";

/** An image, and where it is from. */
export interface SourceImage {
  image: RgbImage;
  source: string;
  /** Index in a video or of a camera's images, from 0; null for a file. */
  frame: number | null;
  /** Somebody looked at it: of a folder it does not come again. */
  done(): void;
}

/** What is looked at, and how. */
export interface SourceOptions {
  /** A folder, a video's path, or a camera's address. */
  source: string;
  /** Images a second, at most. */
  fps: number;
  /** Begins again at the end. */
  repeat: boolean;
  /** Null where ffmpeg is not installed: then there are folders only. */
  tools: Tools | null;
  /** Which files of a folder were looked at. */
  seen: SeenFiles;
  log: Log;
  signal: AbortSignal;
}

const IMAGES = /\.(jpe?g|png|webp|gif|tiff?|avif)$/i;
const FOLDER_MS = 1_000;
const RECONNECT_MS = 1_000;
const RECONNECT_MS_MAX = 60_000;
/** A camera is opened again at least so often. */
const CAMERA_SECONDS_MAX = 24 * 3_600;
/** Larger frames are made smaller before they are looked at. */
const FRAME_SIDE_MAX = 1_920;
const SOURCE_CHARACTERS_MAX = 200;

/**
 * Images as they come, until the signal aborts; of a video until its end, unless it repeats. A
 * folder or video that is not there, such as on a disk that is not mounted yet, is waited for.
 */
export async function* imagesOf(options: SourceOptions): AsyncGenerator<SourceImage> {
  const { source, signal } = options;
  if (CAMERA.test(source)) return yield* cameraImages(options);
  await isThere(options);
  if (signal.aborted) return;
  if (fs.statSync(source).isDirectory()) yield* folderImages(options);
  else {
    do yield* videoImages(options);
    while (options.repeat && !signal.aborted);
  }
}

/** Waits until there is something where the source is to be, and tells that it does. */
async function isThere({ source, log, signal }: SourceOptions): Promise<void> {
  for (let turn = 0; !fs.existsSync(source) && !signal.aborted; turn++) {
    if (turn === 0) log.warning("source_away", { source });
    await pause(FOLDER_MS, signal).catch(() => {});
  }
}

/** Files of a folder by when they were written; those that come later come later, however old. */
async function* folderImages(options: SourceOptions): AsyncGenerator<SourceImage> {
  const { source, fps, repeat, seen, log, signal } = options;
  for (;;) {
    await isThere(options);
    if (signal.aborted) return;
    const files = fs
      .readdirSync(source)
      .filter((name) => IMAGES.test(name))
      .map((name) => ({
        name,
        at: fs.statSync(join(source, name), { throwIfNoEntry: false })?.mtimeMs ?? 0,
      }))
      .filter((file) => !seen.has(file))
      .sort((one, other) => one.at - other.at || (one.name < other.name ? -1 : 1));
    for (const file of files) {
      if (signal.aborted) return;
      const path = join(source, file.name);
      // It was taken away since: what is there now is read anew.
      if (!fs.existsSync(path)) break;
      const done = () => seen.add(file);
      try {
        const image = await readStill(path);
        yield { image, source: shownName(file.name), frame: null, done };
        await pause(1_000 / fps, signal).catch(() => {});
      } catch (thrown) {
        if (!(thrown instanceof BrokenMedia)) throw thrown;
        log.warning("image_not_read", { file: file.name, reason: thrown.message });
        done();
      }
    }
    if (repeat && files.length > 0) seen.clear();
    else await pause(FOLDER_MS, signal).catch(() => {});
  }
}

const pipeOf = (fps: number): string[] => {
  const side = `min(${FRAME_SIDE_MAX}\\,iw)`;
  const scale = `scale='${side}':-2:flags=bilinear`;
  return ["-an", "-vf", `fps=${fps},${scale}`, "-f", "image2pipe", "-c:v", "ppm", "pipe:1"];
};

async function* videoImages({ source, fps, tools, signal }: SourceOptions) {
  if (!tools) throw new Error("videos need ffmpeg: apt-get install ffmpeg");
  const type = await typeOf(source);
  if (type.kind === "still") {
    yield { image: await readStill(source), source: nameOf(source), frame: 0, done: () => {} };
    return;
  }
  const input = [...inputLimits(tools, type.demuxer, PIXELS_MAX), "-re", "-i", source];
  const args = ["-v", "error", "-nostdin", ...input, ...pipeOf(fps)];
  const run = start(tools, "ffmpeg", args, { signal, wallSeconds: CAMERA_SECONDS_MAX });
  yield* framesOf(run, nameOf(source));
}

/** A camera is opened again whenever it ends, each time later while it gives nothing. */
async function* cameraImages({ source, fps, tools, log, signal }: SourceOptions) {
  if (!tools) throw new Error("cameras need ffmpeg: apt-get install ffmpeg");
  // Without the wrapper that takes the network away.
  const networked = {
    ...tools,
    wrap: tools.wrap.filter((word) => word !== "--net" && !/\/unshare$/.test(word)),
  };
  const protocols = "rtsp,rtsps,rtp,srtp,udp,tcp,tls,http,https,httpproxy,crypto";
  const isRtsp = /^rtsp/.test(source);
  const input = [
    ...["-protocol_whitelist", protocols, "-threads", String(tools.threads)],
    ...(isRtsp ? ["-rtsp_transport", "tcp"] : []),
    ...["-max_pixels", String(PIXELS_MAX), "-i", source],
  ];
  const name = shownAddress(source);
  for (let failures = 0; !signal.aborted; ) {
    const args = ["-v", "error", "-nostdin", ...input, ...pipeOf(fps)];
    const run = start(networked, "ffmpeg", args, { signal, wallSeconds: CAMERA_SECONDS_MAX });
    try {
      for await (const frame of framesOf(run, name)) {
        failures = 0;
        yield frame;
      }
    } catch (thrown) {
      if (signal.aborted) return;
      log.warning("camera_lost", { camera: name, reason: (thrown as Error).message });
    }
    failures += 1;
    const wait = Math.min(RECONNECT_MS_MAX, RECONNECT_MS * 2 ** Math.min(failures, 10));
    await pause(wait, signal).catch(() => {});
  }
}

/** A name as a line of the log takes it, without half a character at its end. */
const shownName = (name: string) => name.slice(0, SOURCE_CHARACTERS_MAX).toWellFormed();
const nameOf = (path: string) => shownName(path.split("/").at(-1) ?? path);

/** A camera's address as logs may show it: without user, password and query. */
export function shownAddress(address: string): string {
  const url = new URL(address);
  return shownName(`${url.protocol}//${url.host}${url.pathname}`);
}

/** The frames that a run gives; fails with what it said where it ended badly. */
async function* framesOf(run: Run, source: string): AsyncGenerator<SourceImage> {
  try {
    let frame = 0;
    for await (const image of ppmImages(run.stdout)) {
      yield { image, source, frame, done: () => {} };
      frame += 1;
    }
    const problem = await run.ended;
    if (problem !== null) throw new Error(`${problem}: ${run.said().at(-1) ?? ""}`);
  } finally {
    await run.stop();
  }
}

const HEADER = /^P6\s(\d{1,5})\s(\d{1,5})\s255\s/;
const HEADER_MAX = 20;

/** Images of a stream of binary PPM, each with its size in its header. */
export async function* ppmImages(stream: Readable): AsyncGenerator<RgbImage> {
  let rest: Buffer<ArrayBufferLike> = Buffer.alloc(0);
  const parts: Buffer[] = [];
  let held = 0;
  let wanted = HEADER_MAX;
  for await (const chunk of stream) {
    const bytes = chunk as Buffer;
    countRead(stream, bytes.length);
    parts.push(bytes);
    held += bytes.length;
    if (held < wanted) continue;
    rest = Buffer.concat(parts.splice(0));
    for (;;) {
      const header = HEADER.exec(rest.toString("latin1", 0, HEADER_MAX));
      if (!header) {
        if (rest.length >= HEADER_MAX) throw new Error("what came is no image");
        wanted = HEADER_MAX;
        break;
      }
      const [width, height] = [Number(header[1]), Number(header[2])];
      const end = header[0].length + 3 * width * height;
      wanted = end;
      if (rest.length < end) break;
      yield { data: new Uint8Array(rest.subarray(header[0].length, end)), width, height };
      rest = rest.subarray(end);
      wanted = HEADER_MAX;
    }
    parts.push(rest);
    held = rest.length;
  }
}
