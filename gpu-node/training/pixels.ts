// The pixels of a split: one file of RGB bytes, every image at the run's image size as serving lays
// it there. Made of what other datasets on this node have of it, and by decoding the rest, several
// videos and stills at once.

import { createHash } from "node:crypto";
import * as fs from "node:fs/promises";
import { dirname } from "node:path";
import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { systemClock } from "../../shared/time.ts";
import { DISK_FULL, isDiskFull, TaskFailure } from "../base/failure.ts";
import { inTurn } from "../base/lookahead.ts";
import { ownName } from "../base/processes.ts";
import { type MediaContext, openFootage } from "../media/footage.ts";
import { bytesOf, KeptPixels, type ListedImage, readList } from "./kept-pixels.ts";

/** One image to decode: from which video of the manifest, and which frame. */
export interface SourceFrame {
  video: ExportManifest["videos"][number];
  frame: ExportManifest["videos"][number]["frames"][number];
}

export interface PixelWork {
  imageSize: number;
  /** By the key in the store. */
  sources: ReadonlyMap<string, ObjectSource>;
  /** So many images more are ready. */
  onReady(count: number): void;
}

export type PixelContext = Pick<MediaContext, "cache" | "tools" | "cancel" | "log" | "machine">;

/** How pixels are made: those of before this number are not used again. */
const VERSION = 2;

/** What the names of all files begin with whose images are made in the same way. */
const prefixOf = (imageSize: number) => `${VERSION}-${imageSize}-`;

/** A frame by its object, whose key never changes meaning, and its index. */
const idOf = ({ key }: SourceFrame["video"], index: number): string =>
  createHash("sha256").update(`${key} ${index}`).digest("base64url").slice(0, 22);

/** Names pixels by everything that they depend on. */
export function pixelsName(wanted: readonly SourceFrame[], imageSize: number): string {
  const hash = createHash("sha256");
  for (const { video, frame } of wanted) hash.update(`${video.key} ${frame.index}\n`);
  return prefixOf(imageSize) + hash.digest("hex");
}

/** The size at which an image is trained on: its longest side is the image size. */
export function fitted({ width, height }: { width: number; height: number }, longest: number) {
  const scale = longest / Math.max(width, height);
  const side = (length: number) => Math.min(longest, Math.max(1, Math.round(length * scale)));
  return { width: side(width), height: side(height) };
}

/** The images in a file of pixels, which is made unless it is here. */
export async function pixelsAt(
  path: string,
  wanted: readonly SourceFrame[],
  work: PixelWork,
  context: PixelContext,
): Promise<ListedImage[]> {
  const known = await readList(path);
  if (known?.length === wanted.length) {
    const used = new Date(systemClock());
    await fs.utimes(path, used, used);
    work.onReady(wanted.length);
    return known;
  }
  await assertRoom(path, wanted, work.imageSize);
  const ids = wanted.map(({ video, frame }) => idOf(video, frame.index));
  const kept = await KeptPixels.find(path, prefixOf(work.imageSize), ids);
  const part = `${path}.${ownName()}.part`;
  const file = await fs.open(part, "w", 0o600);
  try {
    const images = await writePixels(file, wanted, { ...work, kept }, context);
    await file.sync();
    await file.close();
    // The list first: pixels that are there are whole and known.
    await fs.writeFile(`${path}.${ownName()}.json.part`, JSON.stringify(images), { flush: true });
    await fs.rename(`${path}.${ownName()}.json.part`, `${path}.json`);
    await fs.rename(part, path);
    return images;
  } catch (thrown) {
    await file.close().catch(() => {});
    await fs.rm(part, { force: true });
    if (isDiskFull(thrown)) {
      throw new TaskFailure("node_disk_full", DISK_FULL, { retryable: true, cause: thrown });
    }
    throw thrown;
  } finally {
    await kept.close();
  }
}

/** What images take as pixels. */
export const pixelBytes = (wanted: readonly SourceFrame[], imageSize: number): number =>
  wanted.reduce((sum, { video }) => sum + bytesOf(fitted(video, imageSize)), 0);

async function assertRoom(path: string, wanted: readonly SourceFrame[], imageSize: number) {
  const bytes = pixelBytes(wanted, imageSize);
  const { bavail, bsize } = await fs.statfs(dirname(path));
  if (bytes <= bavail * bsize) return;
  const gib = (count: number) => (count / 1024 ** 3).toFixed(1);
  const detail = `${DISK_FULL}: the dataset needs ${gib(bytes)} GiB as pixels, ${gib(bavail * bsize)} are free`;
  throw new TaskFailure("node_disk_full", detail, { retryable: true });
}

/** Videos and stills that are worked on at once, at most. */
const HANDS_MAX = 16;
/** So many for each thread: one that is done keeps its place until it is its turn to be written. */
const HANDS_EACH = 4;
/** Where there are videos: each has a decoder with threads and frames of its own. */
const VIDEO_HANDS_MAX = 4;
/** Bytes of all of them: files that are fetched at once have to fit the disk together. */
const HANDS_BYTES_MAX = 1024 ** 3;
/** Images of one video that are made before they are written. */
const IMAGES_AHEAD = 2;

interface KeptWork extends PixelWork {
  kept: KeptPixels;
}

/** Makes what is wanted, some videos at once, and writes the pixels in order. */
async function writePixels(
  file: fs.FileHandle,
  wanted: readonly SourceFrame[],
  work: KeptWork,
  context: PixelContext,
): Promise<ListedImage[]> {
  const clips = clipsOf(wanted).map((clip) => imagesOf(clip, work, context));
  let largest = 1;
  for (const { bytes } of work.sources.values()) largest = Math.max(largest, bytes);
  const fitting = Math.max(1, Math.floor(HANDS_BYTES_MAX / largest));
  const { cpuThreads } = context.machine;
  const bound = wanted.some(({ frame }) => frame.index > 0)
    ? Math.min(cpuThreads, VIDEO_HANDS_MAX)
    : HANDS_MAX;
  const hands = Math.min(cpuThreads > 1 ? HANDS_EACH * cpuThreads : 1, bound, fitting);
  const images: ListedImage[] = [];
  for await (const { image, data } of inTurn(clips, { hands, steps: IMAGES_AHEAD })) {
    // Whole: a single write may put down less than it was given.
    await file.writeFile(data);
    images.push(image);
    work.onReady(1);
    context.cancel.throwIfAborted();
  }
  return images;
}

/** A video or still with those of its frames that are wanted, in their order. */
interface WantedClip {
  video: SourceFrame["video"];
  frames: number[];
}

function clipsOf(wanted: readonly SourceFrame[]): WantedClip[] {
  const clips: WantedClip[] = [];
  for (const { video, frame } of wanted) {
    const last = clips.at(-1);
    if (last?.video === video) last.frames.push(frame.index);
    else clips.push({ video, frames: [frame.index] });
  }
  return clips;
}

interface MadeImage {
  image: ListedImage;
  data: Uint8Array;
}

/** The frames of a clip: what is here already, and the rest decoded. */
async function* imagesOf(
  { video, frames }: WantedClip,
  work: KeptWork,
  context: PixelContext,
): AsyncGenerator<MadeImage> {
  const missing = frames.filter((index) => !work.kept.has(idOf(video, index)));
  const decoded = decodedOf({ video, frames: missing }, work, context);
  try {
    for (const index of frames) {
      const kept = await work.kept.read(idOf(video, index));
      if (kept) yield kept;
      else {
        const { done, value } = await decoded.next();
        if (done) {
          const detail = `${video.filename} is listed with a frame twice`;
          throw new TaskFailure("bad_dataset", detail);
        }
        yield value;
      }
    }
  } finally {
    await decoded.return(undefined);
  }
}

/** Frames of a clip, each once, at the size of the training. */
async function* decodedOf(
  { video, frames }: WantedClip,
  { sources, imageSize }: PixelWork,
  context: PixelContext,
): AsyncGenerator<MadeImage, void> {
  const object = sources.get(video.key);
  if (!object) throw new TaskFailure("bad_payload", `the task lacks the source of ${video.key}`);
  const footage = await openNamed(context, object, { filename: video.filename, imageSize });
  const source = { width: footage.width, height: footage.height };
  try {
    for await (const { index, image } of footage.read(frames)) {
      const { data, width, height } = image;
      yield { image: { id: idOf(video, index), width, height, source }, data };
    }
  } finally {
    await footage.close();
  }
}

/** What cannot be read is said with its name. */
async function openNamed(
  context: PixelContext,
  source: ObjectSource,
  { filename, imageSize }: { filename: string; imageSize: number },
) {
  try {
    return await openFootage(context, source, { within: imageSize });
  } catch (thrown) {
    if (!(thrown instanceof TaskFailure) || thrown.code !== "unsupported_media") throw thrown;
    const { code, retryable, message } = thrown;
    throw new TaskFailure(code, `${filename}: ${message}`, { retryable, cause: thrown });
  }
}
