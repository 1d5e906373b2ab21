// Sheets of images with their boxes: what the trainer sees, and what the model finds.

import * as fs from "node:fs/promises";
import sharp from "sharp";
import type { Batch, Detections } from "../../native/index.d.ts";
import { type ChartText, chartText } from "./chart-text.ts";
import { colourOf } from "./charts.ts";
import type { SplitData } from "./dataset.ts";

/** Images of a sheet. */
export const SHEET_MAX = 16;
const SHEET_SIDE = 1_920;
const FILL = 114;
const JPEG_QUALITY = 88;
/** Share of its class's colour in what a mask covers. */
const MASK_SHARE = 0.45;
/** Pixels to a cell of a training batch's masks. */
const MASK_STRIDE = 4;

export interface SheetBox {
  classIndex: number;
  /** Null of a truth. */
  confidence: number | null;
  box: readonly [number, number, number, number];
  /** Corners of a truth's mask, x and y in turn. */
  ring?: readonly number[];
}

/** Ones and zeros of a whole image, row by row, at cells of `stride` pixels. */
interface SheetMask {
  classIndex: number;
  cells: Uint8Array;
  stride: number;
}

/** A square image and its boxes, in its pixels. */
export interface Sheet {
  side: number;
  rgb: Uint8Array;
  boxes: SheetBox[];
}

/** The images of a training batch, as the engine rendered it. */
export function sheetsOfBatch({ images, count, height, boxes, masks }: Batch): Sheet[] {
  const plane = height * height;
  return Array.from({ length: Math.min(count, SHEET_MAX) }, (_, index) => {
    const rgb = new Uint8Array(plane * 3);
    for (let channel = 0; channel < 3; channel++) {
      const from = (index * 3 + channel) * plane;
      for (let at = 0; at < plane; at++) {
        rgb[at * 3 + channel] = Math.round((images[from + at] ?? 0) * 255);
      }
    }
    if (masks) tint(rgb, height, masksOf(boxes, masks, { index, side: height }));
    return { side: height, rgb, boxes: boxesOf(boxes, index) };
  });
}

function masksOf(
  boxes: Float32Array,
  masks: Uint8Array,
  { index, side }: { index: number; side: number },
): SheetMask[] {
  const cells = (side / MASK_STRIDE) ** 2;
  return Array.from({ length: boxes.length / 6 }, (_, box) => ({
    image: boxes[6 * box],
    classIndex: boxes[6 * box + 1] ?? 0,
    cells: masks.subarray(box * cells, (box + 1) * cells),
    stride: MASK_STRIDE,
  })).filter(({ image }) => image === index);
}

/** Lays masks over pixels, in the colours of their classes. */
function tint(rgb: Uint8Array, side: number, masks: readonly SheetMask[]): void {
  for (const { classIndex, cells, stride } of masks) {
    const colour = Number.parseInt(colourOf(classIndex).slice(1), 16);
    const columns = side / stride;
    for (let pixel = 0; pixel < side * side; pixel++) {
      const [x, y] = [pixel % side, Math.floor(pixel / side)];
      if (!cells[Math.floor(y / stride) * columns + Math.floor(x / stride)]) continue;
      for (let channel = 0; channel < 3; channel++) {
        const own = (colour >> (16 - 8 * channel)) & 255;
        const before = rgb[pixel * 3 + channel] ?? 0;
        rgb[pixel * 3 + channel] = Math.round(before + MASK_SHARE * (own - before));
      }
    }
  }
}

/** An image with what was found on it, masks included; masks are of the image's own pixels. */
export function withMasks(sheet: Sheet, found: Detections, masks: Uint8Array): Sheet {
  const rgb = sheet.rgb.slice();
  const cells = sheet.side ** 2;
  const own = Array.from({ length: found.length / 6 }, (_, index) => ({
    classIndex: found[6 * index + 5] ?? 0,
    cells: masks.subarray(index * cells, (index + 1) * cells),
    stride: 1,
  }));
  tint(rgb, sheet.side, own);
  return { ...(withDetections([sheet], [found])[0] as Sheet), rgb };
}

function boxesOf(boxes: Float32Array, index: number): SheetBox[] {
  const own: SheetBox[] = [];
  for (let at = 0; at + 5 < boxes.length; at += 6) {
    if (boxes[at] !== index) continue;
    const [, classIndex = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0] = boxes.subarray(at, at + 6);
    own.push({ classIndex, confidence: null, box: [x1, y1, x2, y2] });
  }
  return own;
}

/** Images of a split, letterboxed to the square that the model sees, with their truths. */
export async function sheetsOfSplit(split: SplitData, side: number): Promise<Sheet[]> {
  const file = await fs.open(split.path);
  try {
    const sheets: Sheet[] = [];
    for (const image of split.images.slice(0, SHEET_MAX)) {
      const { offset, width, height, boxes, rings, ringStarts } = image;
      const pixels = Buffer.alloc(width * height * 3);
      await file.read(pixels, 0, pixels.length, offset);
      const rgb = new Uint8Array(side * side * 3).fill(FILL);
      const [left, top] = [width, height].map((length) =>
        Math.round((side - length) / 2 - 0.1),
      ) as [number, number];
      for (let row = 0; row < height; row++) {
        const line = pixels.subarray(row * width * 3, (row + 1) * width * 3);
        rgb.set(line, ((top + row) * side + left) * 3);
      }
      const truths: SheetBox[] = [];
      for (let at = 0; at + 4 < boxes.length; at += 5) {
        const [classIndex = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0] = boxes.subarray(at, at + 5);
        const box = [x1 + left, y1 + top, x2 + left, y2 + top] as const;
        const [from, to] = [ringStarts?.[at / 5], ringStarts?.[at / 5 + 1]];
        const ring = [...(rings ?? [])]
          .slice(2 * (from ?? 0), to === undefined ? undefined : 2 * to)
          .map((value, index) => value + (index % 2 ? top : left));
        truths.push({ classIndex, confidence: null, box, ...(ring.length > 0 && { ring }) });
      }
      sheets.push({ side, rgb, boxes: truths });
    }
    return sheets;
  } finally {
    await file.close();
  }
}

/** The images as the engine takes them. */
export function batchOf(sheets: readonly Sheet[]): Omit<Batch, "boxes"> {
  const side = sheets[0]?.side ?? 0;
  const plane = side * side;
  const images = new Float32Array(sheets.length * 3 * plane);
  for (const [index, { rgb }] of sheets.entries()) {
    for (let channel = 0; channel < 3; channel++) {
      const to = (index * 3 + channel) * plane;
      for (let at = 0; at < plane; at++) images[to + at] = (rgb[at * 3 + channel] ?? 0) / 255;
    }
  }
  return { images, count: sheets.length, height: side, width: side };
}

/** The same images with what was found on them. */
export const withDetections = (sheets: readonly Sheet[], found: readonly Detections[]): Sheet[] =>
  sheets.map((sheet, index) => {
    const boxes: SheetBox[] = [];
    const rows = found[index] ?? new Float32Array();
    for (let at = 0; at + 5 < rows.length; at += 6) {
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, confidence = 0, classIndex = 0] = rows.subarray(
        at,
        at + 6,
      );
      boxes.push({ classIndex, confidence, box: [x1, y1, x2, y2] });
    }
    return { ...sheet, boxes };
  });

/** All images on one sheet, as JPEG. */
export async function drawSheet(
  sheets: readonly Sheet[],
  classes: readonly string[],
): Promise<Buffer> {
  const text = await chartText();
  const columns = Math.max(1, Math.ceil(Math.sqrt(sheets.length)));
  const rows = Math.max(1, Math.ceil(sheets.length / columns));
  const side = sheets[0]?.side ?? 1;
  const tile = Math.max(96, Math.min(Math.floor(SHEET_SIDE / columns), Math.max(side, 320)));
  const [width, height] = [columns * tile, rows * tile];
  const tiles = sheets.map((sheet, index) => ({
    sheet,
    left: (index % columns) * tile,
    top: Math.floor(index / columns) * tile,
  }));
  const images = await Promise.all(
    tiles.map(async ({ sheet, left, top }) => {
      const raw = { width: sheet.side, height: sheet.side, channels: 3 as const };
      const input = await sharp(sheet.rgb, { raw }).resize(tile, tile).png().toBuffer();
      return { input, left, top };
    }),
  );
  const drawn = tiles.map(({ sheet, left, top }, index) => {
    const clip = `<clipPath id="t${index}"><rect width="${tile}" height="${tile}"/></clipPath>`;
    const boxes = sheet.boxes.map((box) => boxSvg(text, box, { tile, side: sheet.side, classes }));
    const frame = `<rect width="${tile}" height="${tile}" fill="none" stroke="#ffffff"/>`;
    const inner = `<g clip-path="url(#t${index})">${boxes.join("")}</g>`;
    return `${clip}<g transform="translate(${left} ${top})">${inner}${frame}</g>`;
  });
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">`;
  const over = { input: Buffer.from(`${open}${drawn.join("")}</svg>`), left: 0, top: 0 };
  return sharp({ create: { width, height, channels: 3, background: "#ffffff" } })
    .composite([...images, over])
    .jpeg({ quality: JPEG_QUALITY })
    .toBuffer();
}

function boxSvg(
  text: ChartText,
  { classIndex, confidence, box, ring = [] }: SheetBox,
  { tile, side, classes }: { tile: number; side: number; classes: readonly string[] },
): string {
  const [x1, y1, x2, y2] = box.map((corner) => Number(((corner * tile) / side).toFixed(1))) as [
    number,
    number,
    number,
    number,
  ];
  const colour = colourOf(classIndex);
  const stroke = Math.max(1.5, tile / 220);
  const points = ring.map((corner) => ((corner * tile) / side).toFixed(1)).join(" ");
  const mask = points && `<polygon points="${points}" fill="${colour}" opacity="${MASK_SHARE}"/>`;
  const frame =
    `<rect x="${x1}" y="${y1}" width="${(x2 - x1).toFixed(1)}" height="${(y2 - y1).toFixed(1)}" ` +
    `fill="none" stroke="${colour}" stroke-width="${stroke.toFixed(1)}"/>`;
  const size = Math.max(9, Math.min(14, tile / 26));
  const name = (classes[classIndex] ?? String(classIndex)).slice(0, 24);
  const label = confidence === null ? name : `${name} ${confidence.toFixed(2)}`;
  const wide = text.widthOf(label, size) + size * 0.6;
  const left = Math.max(0, Math.min(x1, tile - wide));
  const top = Math.max(0, y1 - size * 1.3);
  const tag =
    `<rect x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${wide.toFixed(1)}" ` +
    `height="${(size * 1.3).toFixed(1)}" fill="${colour}"/>`;
  const style = { x: left + size * 0.3, y: top + size, size, colour: "#ffffff" };
  return mask + frame + tag + text.write(label, style);
}
