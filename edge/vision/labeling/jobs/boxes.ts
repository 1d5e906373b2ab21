// Boxes and polygons and the frames that they lie in, in pixels.

import type { Bbox } from "../../../../shared/tasks/tasks.ts";

/** Width and height of a frame, pixels. */
export interface FrameSize {
  width: number;
  height: number;
}

/** A box cut to its frame, as precise as it is stored; null when nothing of it is inside. */
export function insideFrame(
  [x1, y1, x2, y2]: Readonly<Bbox>,
  { width, height }: FrameSize,
): Bbox | null {
  const within = (value: number, max: number) => Math.fround(Math.min(Math.max(value, 0), max));
  const [left, top] = [within(x1, width), within(y1, height)];
  const [right, bottom] = [within(x2, width), within(y2, height)];
  return right > left && bottom > top ? [left, top, right, bottom] : null;
}

/** A polygon, x and y in turn, with the box around it. */
export interface BoxedPolygon {
  polygon: number[];
  bbox: Bbox;
}

type Corner = readonly [x: number, y: number];

/**
 * The part of a polygon that lies in its frame (Sutherland and Hodgman: side by side), with the box
 * around it; null when that has no area.
 */
export function polygonInside(polygon: readonly number[], size: FrameSize): BoxedPolygon | null {
  const given = polygon.flatMap((x, index): Corner[] =>
    index % 2 === 0 ? [[x, polygon[index + 1] as number]] : [],
  );
  const cut = ([0, 1] as const).reduce<readonly Corner[]>((ring, axis) => {
    const length = axis === 0 ? size.width : size.height;
    return clipped(clipped(ring, axis, { bound: 0, sign: 1 }), axis, { bound: length, sign: -1 });
  }, given);
  const isCut = cut.some(([x, y], index) => x !== given[index]?.[0] || y !== given[index]?.[1]);
  // A bridge to a piece that lies outside is left as a line that goes to the border and back.
  const inside = isCut ? withoutSpikes(cut) : cut;
  const [first] = inside;
  if (!first || Math.abs(signedArea(inside)) < AREA_MIN) return null;
  const extent = inside.reduce<Bbox>(
    ([x1, y1, x2, y2], [x, y]) => [
      Math.min(x1, x),
      Math.min(y1, y),
      Math.max(x2, x),
      Math.max(y2, y),
    ],
    [first[0], first[1], first[0], first[1]],
  );
  const bbox = insideFrame(extent, size);
  return bbox && { polygon: inside.flat(), bbox };
}

/** A ring without the corners at which it turns back the way it came. */
function withoutSpikes(ring: readonly Corner[]): readonly Corner[] {
  let kept = ring;
  // Once from each half: what spans the ring's end is seen from the other one.
  for (let unchanged = 0; unchanged < 2; ) {
    const half = kept.length >> 1;
    const fewer = passed([...kept.slice(half), ...kept.slice(0, half)]);
    unchanged = fewer.length === kept.length ? unchanged + 1 : 0;
    kept = fewer;
  }
  return kept.length === ring.length ? ring : kept;
}

/** The corners of a line without those at which it turns back. */
function passed(line: readonly Corner[]): Corner[] {
  const kept: Corner[] = [];
  for (const corner of line) {
    kept.push(corner);
    while (kept.length > 2 && turnsBack(kept.slice(-3))) kept.splice(-2, 1);
  }
  return kept;
}

function turnsBack(corners: readonly Corner[]): boolean {
  const [[ax, ay], [bx, by], [cx, cy]] = corners as [Corner, Corner, Corner];
  const cross = (bx - ax) * (cy - by) - (by - ay) * (cx - bx);
  const along = (bx - ax) * (cx - bx) + (by - ay) * (cy - by);
  return Math.abs(cross) < AREA_MIN && along <= 0;
}

/** Square pixels below which a polygon is a line: the rounding of its corners, and no more. */
const AREA_MIN = 1e-6;

/** The part of a ring on one side of a bound: above it (sign 1) or below it (sign -1). */
function clipped(
  ring: readonly Corner[],
  axis: 0 | 1,
  { bound, sign }: { bound: number; sign: 1 | -1 },
): Corner[] {
  const within = (corner: Corner) => sign * (corner[axis] - bound) >= 0;
  const crossing = (from: Corner, to: Corner): Corner => {
    const share = (bound - from[axis]) / (to[axis] - from[axis]);
    const other = (from[1 - axis] as number) * (1 - share) + (to[1 - axis] as number) * share;
    return axis === 0 ? [bound, other] : [other, bound];
  };
  return ring.flatMap((corner, index) => {
    const before = ring.at(index - 1) as Corner;
    if (within(corner)) return within(before) ? [corner] : [crossing(before, corner), corner];
    return within(before) ? [crossing(before, corner)] : [];
  });
}

const signedArea = (ring: readonly Corner[]) =>
  ring.reduce((sum, [x, y], index) => {
    const [fromX, fromY] = ring.at(index - 1) as Corner;
    return sum + (fromX * y - x * fromY) / 2;
  }, 0);
