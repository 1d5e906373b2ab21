// Masks and their forms: from a model's coarse logits to pixels, run lengths, PNG, the outer ring
// as a polygon, the tight box. A window is the part of an image that holds the object, so that
// small objects in big frames stay cheap.

import sharp from "sharp";
import type { Bbox, Mask } from "../../shared/tasks/tasks.ts";

/** Pieces are dropped below this many pixels, or below this share of the largest piece. */
const PIECE_PIXELS_MIN = 16;
const PIECE_SHARE_MIN = 0.05;

/** A polygon's ring passes within this many pixels of the mask's true outline. */
export const POLYGON_TOLERANCE = 1;

export interface MaskWindow {
  left: number;
  top: number;
  width: number;
  height: number;
  /** 1 on the object, row by row. */
  data: Uint8Array;
}

/** A square grid of logits over an image; positive is on the object. */
export interface LogitGrid {
  logits: Float32Array;
  size: number;
  /** Grid cells a pixel. */
  cellsPerPixelX: number;
  cellsPerPixelY: number;
}

/** The mask at the image's resolution, cut at logit 0; null when nothing is on the object. */
export function maskFromLogits(
  grid: LogitGrid,
  image: { width: number; height: number },
): MaskWindow | null {
  const { logits, size, cellsPerPixelX, cellsPerPixelY } = grid;
  const cells = positiveCells(logits, size);
  if (!cells) return null;
  // One cell around, since interpolation carries a positive cell half a cell further.
  const left = Math.max(0, Math.floor((cells[0] - 1) / cellsPerPixelX));
  const top = Math.max(0, Math.floor((cells[1] - 1) / cellsPerPixelY));
  const right = Math.min(image.width, Math.ceil((cells[2] + 1) / cellsPerPixelX));
  const bottom = Math.min(image.height, Math.ceil((cells[3] + 1) / cellsPerPixelY));
  const width = right - left;
  const height = bottom - top;
  if (width <= 0 || height <= 0) return null;
  const data = new Uint8Array(width * height);
  const last = size - 1.001;
  let found = false;
  for (let y = 0; y < height; y++) {
    const cellY = Math.min(last, Math.max(0, (top + y + 0.5) * cellsPerPixelY - 0.5));
    const rowAt = Math.floor(cellY) * size;
    const dy = cellY - Math.floor(cellY);
    for (let x = 0; x < width; x++) {
      const cellX = Math.min(last, Math.max(0, (left + x + 0.5) * cellsPerPixelX - 0.5));
      const column = Math.floor(cellX);
      const dx = cellX - column;
      const at = rowAt + column;
      const above = (logits[at] as number) * (1 - dx) + (logits[at + 1] as number) * dx;
      const below =
        (logits[at + size] as number) * (1 - dx) + (logits[at + size + 1] as number) * dx;
      if (above * (1 - dy) + below * dy > 0) {
        data[y * width + x] = 1;
        found = true;
      }
    }
  }
  return found ? { left, top, width, height, data } : null;
}

function positiveCells(
  logits: Float32Array,
  size: number,
): [number, number, number, number] | null {
  let [x1, y1, x2, y2] = [size, size, 0, 0];
  for (let y = 0; y < size; y++)
    for (let x = 0; x < size; x++)
      if ((logits[y * size + x] as number) > 0) {
        if (x < x1) x1 = x;
        if (x >= x2) x2 = x + 1;
        if (y < y1) y1 = y;
        if (y >= y2) y2 = y + 1;
      }
  return x2 > x1 ? [x1, y1, x2, y2] : null;
}

export const wholeWindow = (data: Uint8Array, width: number, height: number): MaskWindow => ({
  left: 0,
  top: 0,
  width,
  height,
  data,
});

/** The mask over the whole image. */
export function spread(window: MaskWindow, image: { width: number; height: number }): Uint8Array {
  const out = new Uint8Array(image.width * image.height);
  for (let y = 0; y < window.height; y++) {
    const row = window.data.subarray(y * window.width, (y + 1) * window.width);
    out.set(row, (window.top + y) * image.width + window.left);
  }
  return out;
}

/** The mask without its specks. Pieces touch by sides, not by corners. */
export function dropSpecks(window: MaskWindow): MaskWindow {
  const { labels, areas } = pieces(window);
  if (areas.length <= 1) return window;
  const areaMin = Math.min(
    Math.max(...areas),
    Math.max(PIECE_PIXELS_MIN, PIECE_SHARE_MIN * Math.max(...areas)),
  );
  const data = Uint8Array.from(labels, (label) =>
    label > 0 && (areas[label - 1] as number) >= areaMin ? 1 : 0,
  );
  return { ...window, data };
}

/** Numbers the pieces of a mask from 1; 0 is off the object. */
function pieces({ data, width, height }: MaskWindow): { labels: Int32Array; areas: number[] } {
  const labels = new Int32Array(data.length);
  const areas: number[] = [];
  const stack: number[] = [];
  for (let start = 0; start < data.length; start++) {
    if (!data[start] || labels[start]) continue;
    const label = areas.length + 1;
    let area = 0;
    labels[start] = label;
    stack.push(start);
    for (let at = stack.pop(); at !== undefined; at = stack.pop()) {
      area++;
      const x = at % width;
      const take = (next: number) => {
        if (!data[next] || labels[next]) return;
        labels[next] = label;
        stack.push(next);
      };
      if (x > 0) take(at - 1);
      if (x < width - 1) take(at + 1);
      if (at >= width) take(at - width);
      if (at < width * (height - 1)) take(at + width);
    }
    areas.push(area);
  }
  return { labels, areas };
}

/** The smallest box around the mask, in pixels of the image; null for an empty one. */
export function tightBox({ left, top, width, height, data }: MaskWindow): Bbox | null {
  let [x1, y1, x2, y2] = [width, height, 0, 0];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      if (data[y * width + x]) {
        if (x < x1) x1 = x;
        if (x >= x2) x2 = x + 1;
        if (y < y1) y1 = y;
        if (y >= y2) y2 = y + 1;
      }
  return x2 > x1 ? [left + x1, top + y1, left + x2, top + y2] : null;
}

export const maskArea = ({ data }: MaskWindow): number => data.reduce((sum, on) => sum + on, 0);

/**
 * The outer ring of the largest piece, x and y in turn, along pixel borders, clockwise, not
 * closed. Holes and other pieces are not in it. Empty for an empty mask.
 */
export function polygon(window: MaskWindow, tolerance = POLYGON_TOLERANCE): number[] {
  const { labels, areas } = pieces(window);
  if (areas.length === 0) return [];
  const label = areas.indexOf(Math.max(...areas)) + 1;
  const ring = simplifyRing(trace(labels, window, label), tolerance);
  return ring.flatMap(([x, y]) => [x + window.left, y + window.top]);
}

type Vertex = readonly [x: number, y: number];
/** Right, down, left, up. */
const STEPS = [
  [1, 0],
  [0, 1],
  [-1, 0],
  [0, -1],
] as const;
/** Pixels ahead of a vertex on the left and right hand, by direction. */
const AHEAD = [
  { left: [0, -1], right: [0, 0] },
  { left: [0, 0], right: [-1, 0] },
  { left: [-1, 0], right: [-1, -1] },
  { left: [-1, -1], right: [0, -1] },
] as const;

/** Walks the piece's border with the piece on the right hand; vertices are where it turns. */
function trace(labels: Int32Array, { width, height }: MaskWindow, label: number): Vertex[] {
  const start = labels.indexOf(label);
  const startX = start % width;
  const startY = (start - startX) / width;
  const inside = (x: number, y: number) =>
    x >= 0 && y >= 0 && x < width && y < height && labels[y * width + x] === label;
  const ring: Vertex[] = [[startX, startY]];
  let [x, y, direction] = [startX, startY, 0];
  for (;;) {
    const [stepX, stepY] = STEPS[direction] as (typeof STEPS)[number];
    x += stepX;
    y += stepY;
    if (x === startX && y === startY) return ring;
    const { left, right } = AHEAD[direction] as (typeof AHEAD)[number];
    const turn = !inside(x + right[0], y + right[1]) ? 1 : inside(x + left[0], y + left[1]) ? 3 : 0;
    if (turn === 0) continue;
    direction = (direction + turn) % 4;
    ring.push([x, y]);
  }
}

/** Douglas-Peucker on a ring, from its first vertex and the one farthest from it. */
function simplifyRing(ring: Vertex[], tolerance: number): Vertex[] {
  const [first] = ring;
  if (!first || ring.length <= 4) return ring;
  const distance = ([x, y]: Vertex) => (x - first[0]) ** 2 + (y - first[1]) ** 2;
  const distances = ring.map(distance);
  const far = distances.indexOf(Math.max(...distances));
  const there = simplifyLine(ring.slice(0, far + 1), tolerance);
  const back = simplifyLine([...ring.slice(far), first], tolerance);
  const simple = [...there.slice(0, -1), ...back.slice(0, -1)];
  // A sliver thinner than the tolerance would collapse to a line.
  return simple.length >= 3 && ringArea(simple) > 0 ? simple : ring;
}

function simplifyLine(line: Vertex[], tolerance: number): Vertex[] {
  const keep = new Uint8Array(line.length);
  keep[0] = keep[line.length - 1] = 1;
  const spans: [number, number][] = [[0, line.length - 1]];
  for (let span = spans.pop(); span; span = spans.pop()) {
    const [from, to] = span;
    let [worst, at] = [tolerance, -1];
    for (let index = from + 1; index < to; index++) {
      const off = toSegment(line[index] as Vertex, line[from] as Vertex, line[to] as Vertex);
      if (off > worst) [worst, at] = [off, index];
    }
    if (at < 0) continue;
    keep[at] = 1;
    spans.push([from, at], [at, to]);
  }
  return line.filter((_, index) => keep[index]);
}

function toSegment([x, y]: Vertex, [ax, ay]: Vertex, [bx, by]: Vertex): number {
  const length = (bx - ax) ** 2 + (by - ay) ** 2;
  const along = length === 0 ? 0 : ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length;
  const t = Math.min(1, Math.max(0, along));
  return Math.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay));
}

function ringArea(ring: readonly Vertex[]): number {
  let twice = 0;
  ring.forEach(([x, y], index) => {
    const [nextX, nextY] = ring[(index + 1) % ring.length] as Vertex;
    twice += x * nextY - nextX * y;
  });
  return Math.abs(twice) / 2;
}

export interface Rle {
  size: [height: number, width: number];
  counts: number[];
}

/** COCO's uncompressed run lengths: column by column, zeros first. */
export function encodeRle(mask: Uint8Array, width: number, height: number): Rle {
  const counts: number[] = [];
  let [value, run] = [0, 0];
  for (let x = 0; x < width; x++)
    for (let y = 0; y < height; y++) {
      if (mask[y * width + x] !== value) {
        counts.push(run);
        run = 0;
        value = 1 - value;
      }
      run++;
    }
  counts.push(run);
  return { size: [height, width], counts };
}

/** The run lengths of a mask of which only a window is known. */
export function rleOfWindow(
  { left, top, width, height, data }: MaskWindow,
  image: { width: number; height: number },
): Rle {
  const counts: number[] = [];
  let [value, end] = [0, 0];
  const turn = (at: number) => {
    counts.push(at - end);
    end = at;
    value = 1 - value;
  };
  for (let x = 0; x < width; x++) {
    const columnAt = (left + x) * image.height;
    for (let y = 0; y < height; y++) {
      if (data[y * width + x] !== value) turn(columnAt + top + y);
    }
    // A window of the image's full height goes on in the next column.
    if (value === 1 && height < image.height) turn(columnAt + top + height);
  }
  const pixels = image.width * image.height;
  const after = (left + width) * image.height;
  if (value === 1 && after < pixels) turn(after);
  if (end < pixels) counts.push(pixels - end);
  return { size: [image.height, image.width], counts };
}

/** Fails on runs that do not fill the size exactly. */
export function decodeRle({ size: [height, width], counts }: Rle): Uint8Array {
  const mask = new Uint8Array(width * height);
  let [at, value] = [0, 0];
  for (const run of counts) {
    if (!Number.isInteger(run) || run < 0 || at + run > mask.length)
      throw new Error(`run lengths do not fit ${width} x ${height}`);
    if (value === 1)
      for (let index = at; index < at + run; index++)
        mask[(index % height) * width + Math.floor(index / height)] = 1;
    at += run;
    value = 1 - value;
  }
  if (at !== mask.length) throw new Error(`run lengths fill ${at} of ${mask.length} pixels`);
  return mask;
}

/** One channel, 255 on the object. */
export function encodePng(mask: Uint8Array, width: number, height: number): Promise<Buffer> {
  const pixels = mask.map((on) => (on ? 255 : 0));
  return sharp(pixels, { raw: { width, height, channels: 1 } })
    .toColourspace("b-w")
    .png({ compressionLevel: 6 })
    .toBuffer();
}

/** All forms of a mask over the whole image; null for an empty one. */
export async function maskForms(
  mask: Uint8Array,
  width: number,
  height: number,
  score: number,
): Promise<Mask | null> {
  const window = wholeWindow(mask, width, height);
  const bbox = tightBox(window);
  if (!bbox) return null;
  return {
    png: (await encodePng(mask, width, height)).toString("base64"),
    rle: encodeRle(mask, width, height),
    polygon: polygon(window),
    bbox,
    score,
  };
}
