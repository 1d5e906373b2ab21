// Masks that are PNGs of one channel, as LabelMe writes them. A Worker's decoders of images are
// those of whole images in color.

import { inflateSync } from "node:zlib";
import { BrokenMask, RUNS_MAX, type RunLengths } from "../../../../shared/detector/rings.ts";

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
/** Bytes of a mask's rows, which are in memory at once. */
const ROW_BYTES_MAX = 32 * 1024 * 1024;
const FORM = "a mask must be a PNG of one channel, not interlaced";

interface PngHeader {
  width: number;
  height: number;
  /** Bits of a pixel. */
  depth: number;
}

/** Height and width of a mask, and its run lengths row by row, pixels of value 0 first. */
export function pngRuns(png: Buffer): RunLengths {
  const { header, data } = chunksOf(png);
  const { width, height, depth } = header;
  const rowBytes = Math.ceil((width * depth) / 8);
  if ((rowBytes + 1) * height > ROW_BYTES_MAX) {
    throw new BrokenMask(`a mask unpacks to over ${ROW_BYTES_MAX} bytes`);
  }
  const rows = inflated(data, (rowBytes + 1) * height);
  const counts: number[] = [];
  let [isOn, run] = [false, 0];
  let above: Uint8Array = new Uint8Array(rowBytes);
  for (let y = 0; y < height; y++) {
    const start = y * (rowBytes + 1);
    const row = rows.subarray(start + 1, start + 1 + rowBytes);
    unfilter(rows[start] ?? 0, row, above);
    for (let x = 0; x < width; x++) {
      const bit = x * depth;
      const shift = 8 - depth - (bit & 7);
      const value = ((row[bit >> 3] ?? 0) >> shift) & ((1 << depth) - 1);
      if (value > 0 === isOn) run += 1;
      else {
        counts.push(run);
        isOn = !isOn;
        run = 1;
      }
    }
    if (counts.length > RUNS_MAX) throw new BrokenMask("a mask is too detailed");
    above = row;
  }
  counts.push(run);
  return { size: [height, width], counts };
}

function chunksOf(png: Buffer): { header: PngHeader; data: Buffer } {
  if (!png.subarray(0, SIGNATURE.length).equals(SIGNATURE)) throw new BrokenMask(FORM);
  let header: PngHeader | null = null;
  const data: Buffer[] = [];
  for (let at = SIGNATURE.length; at + 12 <= png.length; ) {
    const length = png.readUInt32BE(at);
    const kind = png.toString("latin1", at + 4, at + 8);
    const content = png.subarray(at + 8, at + 8 + length);
    if (content.length < length) throw new BrokenMask("a mask's PNG ends too early");
    if (kind === "IHDR") header = headerOf(content);
    if (kind === "IDAT") data.push(content);
    at += 12 + length;
  }
  if (!header) throw new BrokenMask(FORM);
  return { header, data: Buffer.concat(data) };
}

function headerOf(content: Buffer): PngHeader {
  if (content.length < 13) throw new BrokenMask(FORM);
  const [width, height] = [content.readUInt32BE(0), content.readUInt32BE(4)];
  const [depth = 0, color, , , interlace] = content.subarray(8);
  const isTaken = [1, 2, 4, 8].includes(depth) && color === 0 && interlace === 0;
  if (!isTaken || width === 0 || height === 0) throw new BrokenMask(FORM);
  return { width, height, depth };
}

function inflated(data: Buffer, bytes: number): Buffer {
  let rows: Buffer;
  try {
    rows = inflateSync(data, { maxOutputLength: bytes });
  } catch {
    throw new BrokenMask("a mask's PNG cannot be unpacked");
  }
  if (rows.length < bytes) throw new BrokenMask("a mask's PNG ends too early");
  return rows;
}

/** Makes a row of bytes what it was before PNG's filter, in its place. */
function unfilter(filter: number, row: Uint8Array, above: Uint8Array) {
  if (filter > 4) throw new BrokenMask("a mask's PNG has an unknown filter");
  for (let at = 0; filter > 0 && at < row.length; at++) {
    const [left, up, corner] = [row[at - 1] ?? 0, above[at] ?? 0, above[at - 1] ?? 0];
    const added = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter] ?? 0;
    row[at] = ((row[at] ?? 0) + added) & 255;
  }
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const [a, b, c] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  if (a <= b && a <= c) return left;
  return b <= c ? up : corner;
}
