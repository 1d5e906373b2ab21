// How a camera was held, as EXIF says it in each of the three formats.

import type { ImageSize } from "../../shared/detector/letterbox.ts";
import type { ImageHeader } from "../../shared/image-header.ts";
import { jpegSegments, pngChunks, webpChunks } from "./segments.ts";

/** The tag of TIFF that says how an image is turned. */
const ORIENTATION = 0x0112;
const IFD_ENTRY_BYTES = 12;

const ascii = (bytes: Uint8Array, from: number, to: number) =>
  String.fromCharCode(...bytes.subarray(from, to));
const EXIF = "Exif\0\0";
const startsWithExif = (bytes: Uint8Array) => ascii(bytes, 0, EXIF.length) === EXIF;

/** 1 to 8 as EXIF counts them; 1, upright, where an image says nothing that can be read. */
export function orientationOf(file: Uint8Array, type: ImageHeader["type"]): number {
  const tiff = TIFF_OF[type](file);
  return (tiff && readOrientation(tiff)) ?? 1;
}

const TIFF_OF: Readonly<Record<ImageHeader["type"], (file: Uint8Array) => Uint8Array | null>> = {
  "image/jpeg": (file) => {
    for (const { name, payload } of jpegSegments(file)) {
      if (name === "e1" && startsWithExif(payload)) return payload.subarray(EXIF.length);
    }
    return null;
  },
  "image/png": (file) => {
    for (const { name, payload } of pngChunks(file)) if (name === "eXIf") return payload;
    return null;
  },
  "image/webp": (file) => {
    for (const { name, payload } of webpChunks(file)) {
      if (name !== "EXIF") continue;
      // Some writers put JPEG's name before it.
      return startsWithExif(payload) ? payload.subarray(EXIF.length) : payload;
    }
    return null;
  },
};

function readOrientation(tiff: Uint8Array): number | null {
  if (tiff.length < 8) return null;
  const view = viewOf(tiff);
  const order = ascii(tiff, 0, 2);
  if (order !== "II" && order !== "MM") return null;
  const little = order === "II";
  const directory = view.getUint32(4, little);
  if (directory + 2 > tiff.length) return null;
  const entries = view.getUint16(directory, little);
  for (let index = 0; index < entries; index++) {
    const entry = directory + 2 + index * IFD_ENTRY_BYTES;
    if (entry + IFD_ENTRY_BYTES > tiff.length) return null;
    if (view.getUint16(entry, little) !== ORIENTATION) continue;
    const value = view.getUint16(entry + 8, little);
    return value >= 1 && value <= 8 ? value : null;
  }
  return null;
}

const viewOf = (bytes: Uint8Array) =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** The size of an image as people see it. */
export const turnedSize = ({ width, height }: ImageSize, orientation: number): ImageSize =>
  orientation > 4 ? { width: height, height: width } : { width, height };

/** Where each pixel of the turned image was, by orientation; sizes are those before the turn. */
const SOURCES: readonly ((x: number, y: number, size: ImageSize) => [number, number])[] = [
  (x, y) => [x, y],
  (x, y, { width }) => [width - 1 - x, y],
  (x, y, { width, height }) => [width - 1 - x, height - 1 - y],
  (x, y, { height }) => [x, height - 1 - y],
  (x, y) => [y, x],
  (x, y, { height }) => [y, height - 1 - x],
  (x, y, { width, height }) => [width - 1 - y, height - 1 - x],
  (x, y, { width }) => [width - 1 - y, x],
];

/** RGB pixels as people see them. */
export function turn(rgb: Uint8Array, size: ImageSize, orientation: number): Uint8Array {
  const source = SOURCES[orientation - 1];
  if (!source || orientation === 1) return rgb;
  const { width, height } = turnedSize(size, orientation);
  const turned = new Uint8Array(rgb.length);
  for (let y = 0, to = 0; y < height; y++) {
    for (let x = 0; x < width; x++, to += 3) {
      const [column, row] = source(x, y, size);
      const from = (row * size.width + column) * 3;
      turned[to] = rgb[from] as number;
      turned[to + 1] = rgb[from + 1] as number;
      turned[to + 2] = rgb[from + 2] as number;
    }
  }
  return turned;
}
