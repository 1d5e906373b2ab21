// A video's index as bytes: for this node's own cache, and the pts table that the service keeps.

import { z } from "zod";
import type { VideoIndex } from "./video.ts";

/** Name beside the video in the cache; it changes with the form of what is kept. */
export const INDEX_NAME = "index-1";

const StoredIndex = z.object({
  width: z.number(),
  height: z.number(),
  demuxer: z.enum(["mov", "matroska", "avi"]),
  stream: z.number(),
  timeBase: z.tuple([z.number(), z.number()]),
  startSeconds: z.number(),
  pts: z.base64(),
  checksums: z.base64(),
  keys: z.base64(),
});

const text = ({ buffer, byteOffset, byteLength }: Float64Array | Uint32Array) =>
  Buffer.from(buffer, byteOffset, byteLength).toString("base64");

/** The bytes on a boundary of their own, as typed arrays need it. */
const aligned = (base64: string) => new Uint8Array(Buffer.from(base64, "base64")).buffer;

export const encodeIndex = (index: VideoIndex): Buffer =>
  Buffer.from(
    JSON.stringify({
      ...index,
      pts: text(index.pts),
      checksums: text(index.checksums),
      keys: text(index.keys),
    }),
  );

/** The index, or null when the bytes are none of ours. */
export function decodeIndex(bytes: Buffer): VideoIndex | null {
  try {
    const kept = StoredIndex.parse(JSON.parse(bytes.toString()));
    return {
      ...kept,
      pts: new Float64Array(aligned(kept.pts)),
      checksums: new Uint32Array(aligned(kept.checksums)),
      keys: new Uint32Array(aligned(kept.keys)),
    };
  } catch {
    return null;
  }
}

const INT32_MAX = 2 ** 31 - 1;

/**
 * The service's table: ticks from the first frame, little-endian int32. Where the file's own ticks
 * are too fine for a video of its length, ticks are made coarser by a whole factor.
 */
export function ptsTable({ pts, timeBase }: Pick<VideoIndex, "pts" | "timeBase">): {
  bytes: Buffer;
  timeBase: [number, number];
} {
  const first = pts[0] ?? 0;
  const span = (pts[pts.length - 1] ?? first) - first;
  const factor = Math.max(1, Math.ceil(span / INT32_MAX));
  const bytes = Buffer.alloc(pts.length * 4);
  pts.forEach((ticks, index) => {
    bytes.writeInt32LE(Math.round((ticks - first) / factor), index * 4);
  });
  return { bytes, timeBase: [timeBase[0] * factor, timeBase[1]] };
}
