// Masks of a segmentation model: an object's 32 coefficients with the image's prototypes are its
// logits at a quarter of what was looked at; between cells they are interpolated and cut at 0, a
// probability of one half, pixel by pixel of the image and inside the object's box. So training
// measures them, too (`native/src/mask.cpp`). Runs in the model's thread.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import type { Placement } from "../../shared/detector/letterbox.ts";
import type { MaskBounds } from "../../shared/tasks/predict-task.ts";
import { IMAGE_BOUNDS, type SamMask } from "../../shared/tasks/sam.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { MaskAllowance, type ToldForm } from "../segmenters/mask-allowance.ts";
import type { Rle } from "../segmenters/masks.ts";

/** Pixels of what a model looks at, a side of one cell of its prototypes. */
const CELL = 4;

/**
 * Pixels drawn, and products of prototypes, for the masks of one image: 300 objects that fill
 * 640 × 480 pixels take as many, in about a second. The model's other images wait meanwhile.
 */
const STEPS_MAX = 400_000_000;

/** What the masks of one image may take of its thread and its answer. */
export const IMAGE_MASKS: MaskBounds = {
  maskNumbers: IMAGE_BOUNDS.maskNumbers,
  // A second.
  ringSteps: 1_000_000,
};

/** What a model says of an image's masks, and how it looked at that image. */
export interface ImagePrototypes {
  /** [32, rows, columns]. */
  values: Float32Array;
  rows: number;
  columns: number;
  placement: Placement;
}

/** Objects of one image whose masks are wanted. */
export interface MaskJob extends ImagePrototypes {
  /** Each with 32 coefficients and its box in pixels of the image, surest first. */
  objects: readonly { coefficients: Float32Array; bbox: Bbox }[];
  form: ToldForm;
  bounds: MaskBounds;
  /** Default as images have. */
  stepsMax?: number;
}

/** The masks that are told: one an object, null where there is none or it was left out. */
export interface ToldMasks {
  masks: (SamMask | null)[];
  leftOut: number;
  /** What is left of the bounds. */
  left: MaskBounds;
}

/** Draws and tells masks, as far as the bounds allow. */
export function tellMasks({
  objects,
  form,
  bounds,
  stepsMax = STEPS_MAX,
  ...of
}: MaskJob): ToldMasks {
  const allowance = new MaskAllowance(bounds);
  let steps = stepsMax;
  let undrawn = 0;
  const masks = objects.map(({ coefficients, bbox }) => {
    const area = areaOf(bbox, of);
    if (!area) return null;
    const cost = costOf(area);
    // One that takes more than is left does not keep smaller ones out.
    if (cost > steps) {
      undrawn += 1;
      return null;
    }
    steps -= cost;
    const runs = runsOf(coefficients, area, of);
    return runs && allowance.told(runs, form);
  });
  return { masks, leftOut: undrawn + allowance.leftOut, left: allowance.left };
}

/** Between which two cells a pixel's middle lies, and the share of the second. */
interface Between {
  first: Int32Array;
  second: Int32Array;
  share: Float64Array;
}

/** Pixels of an image whose middles are inside a box, and the cells that they lie between. */
interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
  x: Between;
  y: Between;
}

/** Null where no pixel's middle is inside. */
function areaOf([x1, y1, x2, y2]: Bbox, { rows, columns, placement }: ImagePrototypes) {
  const within = (value: number, size: number) =>
    Math.min(size, Math.max(0, Math.ceil(value - 0.5)));
  const { width, height, scaleX, scaleY } = placement;
  const [left, right] = [within(x1, width), within(x2, width)];
  const [top, bottom] = [within(y1, height), within(y2, height)];
  if (left >= right || top >= bottom) return null;
  const x = between([left, right], { scale: scaleX, offset: placement.left, cells: columns });
  const y = between([top, bottom], { scale: scaleY, offset: placement.top, cells: rows });
  return { left, top, right, bottom, x, y } satisfies Area;
}

function between(
  [from, to]: readonly [number, number],
  { scale, offset, cells }: { scale: number; offset: number; cells: number },
): Between {
  const count = to - from;
  const first = new Int32Array(count);
  const second = new Int32Array(count);
  const share = new Float64Array(count);
  for (let at = 0; at < count; at++) {
    const position = ((from + at + 0.5) * scale + offset) / CELL - 0.5;
    const inside = Math.min(cells - 1, Math.max(0, position));
    const cell = Math.floor(inside);
    first[at] = cell;
    second[at] = Math.min(cell + 1, cells - 1);
    share[at] = inside - cell;
  }
  return { first, second, share };
}

/** The cells of an area, as a rectangle of the prototypes. */
function cellsOf({ x, y }: Area) {
  const [left, top] = [x.first[0] as number, y.first[0] as number];
  const width = (x.second.at(-1) as number) + 1 - left;
  const height = (y.second.at(-1) as number) + 1 - top;
  return { left, top, width, height };
}

function costOf(area: Area): number {
  const { width, height } = cellsOf(area);
  return (area.right - area.left) * (area.bottom - area.top) + PROTOTYPES * width * height;
}

/** The logits of an object at the cells of its area. */
function logitsOf(coefficients: Float32Array, area: Area, of: ImagePrototypes): Float64Array {
  const { left, top, width, height } = cellsOf(area);
  const logits = new Float64Array(width * height);
  for (let prototype = 0; prototype < PROTOTYPES; prototype++) {
    const weight = coefficients[prototype] as number;
    for (let row = 0; row < height; row++) {
      const from = (prototype * of.rows + top + row) * of.columns + left;
      const to = row * width;
      for (let column = 0; column < width; column++) {
        logits[to + column] =
          (logits[to + column] as number) + weight * (of.values[from + column] as number);
      }
    }
  }
  return logits;
}

/** The run lengths of an object's mask over the whole image; null where no pixel is on it. */
function runsOf(coefficients: Float32Array, area: Area, of: ImagePrototypes): Rle | null {
  const { width, height } = of.placement;
  const logits = logitsOf(coefficients, area, of);
  const cells = cellsOf(area);
  const line = new Float64Array(cells.height);
  const counts: number[] = [];
  let [value, end] = [0, 0];
  const turn = (at: number) => {
    counts.push(at - end);
    end = at;
    value = 1 - value;
  };
  const { x, y } = area;
  for (let column = 0; column < area.right - area.left; column++) {
    const first = (x.first[column] as number) - cells.left;
    const second = (x.second[column] as number) - cells.left;
    const share = x.share[column] as number;
    for (let row = 0; row < cells.height; row++) {
      const one = logits[row * cells.width + first] as number;
      line[row] = one + share * ((logits[row * cells.width + second] as number) - one);
    }
    const columnAt = (area.left + column) * height;
    for (let row = 0; row < area.bottom - area.top; row++) {
      const above = line[(y.first[row] as number) - cells.top] as number;
      const below = line[(y.second[row] as number) - cells.top] as number;
      const logit = above + (y.share[row] as number) * (below - above);
      if ((logit > 0 ? 1 : 0) !== value) turn(columnAt + area.top + row);
    }
    // An area of the image's full height goes on in the next column.
    if (value === 1 && area.bottom - area.top < height) turn(columnAt + area.bottom);
  }
  if (counts.length === 0) return null;
  const after = area.right * height;
  if (value === 1 && after < width * height) turn(after);
  if (end < width * height) counts.push(width * height - end);
  return { size: [height, width], counts };
}
