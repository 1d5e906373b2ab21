// Where objects are, against zones and lines of the root image: the points of a box that stand for
// it, a polygon's inside, and the sides of a line. Pure.

import { z } from "zod";
import type { Bbox } from "../shapes.ts";
import { type ImageFrame, type PointValue, rootPoint, type ZoneValue } from "./values.ts";

export const ANCHORS = [
  "center",
  "center_left",
  "center_right",
  "top_center",
  "top_left",
  "top_right",
  "bottom_left",
  "bottom_center",
  "bottom_right",
] as const;
export type Anchor = (typeof ANCHORS)[number];
export const AnchorList = z.array(z.enum(ANCHORS)).min(1).max(ANCHORS.length);

/** A box in pixels of the root image. */
export function rootBox(frame: ImageFrame, [x1, y1, x2, y2]: Readonly<Bbox>): Bbox {
  return [...rootPoint(frame, [x1, y1]), ...rootPoint(frame, [x2, y2])];
}

/** A point of a box that stands for it. */
export function anchorOf([x1, y1, x2, y2]: Readonly<Bbox>, anchor: Anchor): PointValue {
  const x = anchor.endsWith("left") ? x1 : anchor.endsWith("right") ? x2 : (x1 + x2) / 2;
  const y = anchor.startsWith("top") ? y1 : anchor.startsWith("bottom") ? y2 : (y1 + y2) / 2;
  return [x, y];
}

const smaller = (a: number, b: number) => Math.min(a, b);
const larger = (a: number, b: number) => Math.max(a, b);

/** A test of points for being in a polygon, its border included; parts it winds twice are out. */
export function insideOf(zone: ZoneValue): (point: PointValue) => boolean {
  const edges = zone.map((corner, index): [PointValue, PointValue] => [
    corner,
    zone[(index + 1) % zone.length] as PointValue,
  ]);
  const bounds = ([0, 1] as const).map((axis) => {
    const along = zone.map((corner) => corner[axis]);
    return { axis, min: along.reduce(smaller), max: along.reduce(larger) };
  });
  return (point) => {
    const isNear = bounds.every(({ axis, min, max }) => point[axis] >= min && point[axis] <= max);
    if (!isNear) return false;
    let isInside = false;
    for (const [start, end] of edges) {
      if (isOn(point, start, end)) return true;
      const isAcross = start[1] > point[1] !== end[1] > point[1];
      if (isAcross && isRightOf(point, start, end)) isInside = !isInside;
    }
    return isInside;
  };
}

/** Twice the area of a triangle; its sign says on which side of start → end the point is. */
export function turn([x, y]: PointValue, start: PointValue, end: PointValue): number {
  return (end[0] - start[0]) * (y - start[1]) - (end[1] - start[1]) * (x - start[0]);
}

const isOn = (point: PointValue, start: PointValue, end: PointValue): boolean =>
  turn(point, start, end) === 0 &&
  (point[0] - start[0]) * (point[0] - end[0]) <= 0 &&
  (point[1] - start[1]) * (point[1] - end[1]) <= 0;

/** Whether an edge crosses a point's row at a column right of it. */
function isRightOf([x, y]: PointValue, start: PointValue, end: PointValue): boolean {
  return x < start[0] + ((y - start[1]) * (end[0] - start[0])) / (end[1] - start[1]);
}
