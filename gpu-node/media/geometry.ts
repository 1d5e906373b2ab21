// Boxes as corners in pixels: overlap, suppression, clipping.

import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";

/** Square pixels; none of a box that is turned inside out. */
export const area = ([x1, y1, x2, y2]: Bbox): number => Math.max(0, x2 - x1) * Math.max(0, y2 - y1);

/** Square pixels that two boxes share. */
export function intersection(a: Bbox, b: Bbox): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  return width > 0 && height > 0 ? width * height : 0;
}

/** The greater of the two shares of a box that lie in the other. */
export function containment(a: Bbox, b: Bbox): number {
  const smaller = Math.min(area(a), area(b));
  return smaller === 0 ? 0 : intersection(a, b) / smaller;
}

/** The box within an image, or null when nothing of it is left. */
export function clip(
  bbox: Bbox,
  { width, height }: { width: number; height: number },
): Bbox | null {
  const x1 = Math.max(0, bbox[0]);
  const y1 = Math.max(0, bbox[1]);
  const x2 = Math.min(width, bbox[2]);
  const y2 = Math.min(height, bbox[3]);
  return x2 > x1 && y2 > y1 ? [x1, y1, x2, y2] : null;
}

/** The box with its x and y multiplied. */
export const scaleBox = (bbox: Bbox, x: number, y = x): Bbox => [
  bbox[0] * x,
  bbox[1] * y,
  bbox[2] * x,
  bbox[3] * y,
];

/** The box halfway between two. */
export const meanBox = (a: Bbox, b: Bbox): Bbox => [
  (a[0] + b[0]) / 2,
  (a[1] + b[1]) / 2,
  (a[2] + b[2]) / 2,
  (a[3] + b[3]) / 2,
];

/** Keeps, best first, what overlaps nothing better by the limits or more. */
export function suppress<Item extends { bbox: Bbox; confidence: number }>(
  items: readonly Item[],
  limits: { iou: number; contained?: number },
): Item[] {
  const kept: Item[] = [];
  const contained = limits.contained ?? 2;
  for (const item of [...items].sort((a, b) => b.confidence - a.confidence)) {
    const beaten = kept.some(
      (better) =>
        iou(better.bbox, item.bbox) >= limits.iou ||
        containment(better.bbox, item.bbox) >= contained,
    );
    if (!beaten) kept.push(item);
  }
  return kept;
}
