// What a file is, by its first bytes; its name and what the sender calls it count for nothing. A
// node decides later whether it can really be decoded.

import { Failure } from "../../../../shared/errors.ts";
import { imageHeader } from "../../../../shared/image-header.ts";

/** First bytes of a file that tell a video's container. */
export const VIDEO_HEAD_BYTES = 64;
/** First bytes of an image: a JPEG's size may come after its metadata and thumbnail. */
const IMAGE_HEAD_BYTES = 512 * 1024;
/** Bytes of a still image. */
export const IMAGE_BYTES_MAX = 64 * 1024 * 1024;
/** Larger images are refused before anything decodes them. */
const IMAGE_PIXELS_MAX = 100_000_000;

const ascii = (bytes: Uint8Array, from: number, to: number) =>
  String.fromCharCode(...bytes.subarray(from, to));

/** Brands of `ftyp` files that hold no video: still images and sound. */
const NO_VIDEO = /^(heic|heix|heim|heis|hevc|hevx|mif1|msf1|avif|avis|M4A |M4B |M4P |crx |jxl )$/;
/** Atoms that a QuickTime file without `ftyp` begins with. */
const QUICKTIME = new Set(["moov", "mdat", "wide", "free", "skip"]);

/** Content type of a video by its first bytes, or null. */
export function videoType(head: Uint8Array): string | null {
  if (head.length < 12) return null;
  const atom = ascii(head, 4, 8);
  if (atom === "ftyp") {
    const brand = ascii(head, 8, 12);
    if (NO_VIDEO.test(brand)) return null;
    return brand === "qt  " ? "video/quicktime" : "video/mp4";
  }
  if (QUICKTIME.has(atom)) return "video/quicktime";
  if (head[0] === 0x1a && head[1] === 0x45 && head[2] === 0xdf && head[3] === 0xa3) {
    return ascii(head, 4, 64).includes("webm") ? "video/webm" : "video/x-matroska";
  }
  if (ascii(head, 0, 4) === "RIFF" && ascii(head, 8, 12) === "AVI ") return "video/x-msvideo";
  return null;
}

/** First bytes of a file that tell a zip. */
export const ZIP_HEAD_BYTES = 4;

/** Content type of a zip by its first bytes, or null; an empty zip is one, too. */
export function zipType(head: Uint8Array): string | null {
  const [p, k, third, fourth] = head;
  const isKnown = (third === 3 && fourth === 4) || (third === 5 && fourth === 6);
  return p === 0x50 && k === 0x4b && isKnown ? "application/zip" : null;
}

/** What a file must be. */
export interface MediaKind {
  source: "upload" | "image";
  headBytes: number;
  /** Content type by the first bytes; fails with `unsupported_media` or `file_too_large`. */
  typeOf(head: Uint8Array): string;
}

/** A video in a container that nodes read. */
export const VIDEO: MediaKind = {
  source: "upload",
  headBytes: VIDEO_HEAD_BYTES,
  typeOf: (head) => {
    const type = videoType(head);
    if (type) return type;
    const hint = imageHeader(head) ? "; still images go to /upload/images" : "";
    throw new Failure("unsupported_media", `the file is no MP4, MOV, MKV, WebM or AVI${hint}`);
  },
};

/** A still image. */
export const IMAGE: MediaKind = {
  source: "image",
  headBytes: IMAGE_HEAD_BYTES,
  typeOf: (head) => {
    const header = imageHeader(head);
    if (!header) throw new Failure("unsupported_media", "the file is no JPEG, PNG or WebP");
    const { type, width, height } = header;
    if (width === 0 || height === 0) {
      throw new Failure("unsupported_media", "the image has no size");
    }
    if (width * height > IMAGE_PIXELS_MAX) {
      const detail = `the image has ${width} × ${height} pixels; at most ${IMAGE_PIXELS_MAX} are taken`;
      throw new Failure("file_too_large", detail, {
        data: { width, height, pixels_max: IMAGE_PIXELS_MAX },
      });
    }
    return type;
  },
};
