// Augmented batches as lists of images, and how their pixels and boxes agree.

import { expect } from "vitest";
import type { Augmentation, Engine } from "../../native/index.d.ts";
import { COLOURS, type Corners, isColour, type View, views } from "./rectangle-images.ts";

export const SIZE = 160;
/** Half an output pixel, and what bilinear sampling blurs at the largest scale. */
const BLUR = 1.5;

export async function rendered(
  engine: Engine,
  epochs: number[],
  batches: number[],
): Promise<View[]> {
  const all: View[] = [];
  for (const epoch of epochs) {
    for (const batch of batches) all.push(...views(await engine.render({ epoch, batch })));
  }
  return all;
}

const centre = (x: number) => x + 0.5;
const isWithin = ([x1, y1, x2, y2]: Corners, x: number, y: number, margin: number) =>
  centre(x) > x1 + margin &&
  centre(x) < x2 - margin &&
  centre(y) > y1 + margin &&
  centre(y) < y2 - margin;

/** How the pixels speak against the boxes of a view. */
function contradictions(view: View) {
  const [hollow, uncovered]: [string[], [number, number][]] = [[], []];
  for (let y = 0; y < view.height; y++) {
    for (let x = 0; x < view.width; x++) {
      const colour = view.at(x, y);
      for (const { classIndex, box } of view.boxes) {
        if (isWithin(box, x, y, BLUR) && !isColour(colour, classIndex, 0.02)) {
          hollow.push(`${classIndex} at ${x}, ${y}: ${colour}`);
        }
      }
      const own = COLOURS.findIndex((_, classIndex) => isColour(colour, classIndex));
      const covers = ({ classIndex, box }: View["boxes"][0]) =>
        classIndex === own && isWithin(box, x, y, -BLUR);
      if (own >= 0 && !view.boxes.some(covers)) uncovered.push([x, y]);
    }
  }
  return { hollow, uncovered };
}

/** What is left of a box that was dropped lies at the border, and there is little of it. */
export function expectBound(all: View[], boxesMin: number) {
  let [boxes, stray] = [0, 0];
  for (const view of all) {
    const { hollow, uncovered } = contradictions(view);
    expect(hollow.slice(0, 5)).toEqual([]);
    for (const [x, y] of uncovered) {
      const border = Math.min(x, y, view.width - 1 - x, view.height - 1 - y);
      expect(border).toBeLessThan(24);
    }
    boxes += view.boxes.length;
    stray += uncovered.length;
    for (const { box } of view.boxes) {
      expect(Math.min(...box)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...box)).toBeLessThanOrEqual(view.width);
      expect(Math.min(box[2] - box[0], box[3] - box[1])).toBeGreaterThan(2);
    }
  }
  expect(boxes).toBeGreaterThan(boxesMin);
  expect(stray / (all.length * SIZE * SIZE)).toBeLessThan(0.01);
}

export const PRESETS: Record<string, Partial<Augmentation>> = {
  minimal: { scale: 0.25, translate: 0.05, hsv: [0.01, 0.3, 0.2], flipLeftRight: 0.5 },
  standard: {
    mosaic: 1,
    scale: 0.5,
    translate: 0.1,
    hsv: [0.015, 0.7, 0.4],
    flipLeftRight: 0.5,
    closeMosaic: 10,
  },
  aggressive: {
    mosaic: 1,
    mixup: 0.15,
    scale: 0.9,
    translate: 0.2,
    rotate: 10,
    shear: 2,
    hsv: [0.02, 0.8, 0.5],
    flipLeftRight: 0.5,
    closeMosaic: 15,
  },
};
