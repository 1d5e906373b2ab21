// Drawn shapes in several colours and sizes on noise: images that a detector learns in a minute.

import { seeded } from "../../support/weights.ts";
import {
  disc,
  frame,
  horseshoe,
  type Shape,
  type ShapeImage,
  shapeImage,
  square,
  triangle,
} from "../shape-images.ts";

const MAKERS = [
  (index: number, [x, y, side]: [number, number, number]) =>
    disc(index, [x + side / 2, y + side / 2], side / 2),
  square,
  triangle,
  horseshoe,
  frame,
] as const;
export const SHAPE_CLASSES = MAKERS.length;

/** Column and row of an image's quarters. */
const CELLS = [
  [0, 0],
  [1, 0],
  [0, 1],
  [1, 1],
] as const;

/** So many images of `side` pixels, of at most one shape in each quarter. */
export function shapeImages(count: number, side: number, seed: number): ShapeImage[] {
  const random = seeded(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  return Array.from({ length: count }, () => {
    const cell = side / 2;
    const shapes: Shape[] = [];
    for (const [column, row] of CELLS) {
      if (random() < 0.3) continue;
      const size = cell * (0.3 + 0.6 * random());
      const start = (cellIndex: number) => cellIndex * cell + random() * (cell - size);
      const index = below(MAKERS.length);
      const make = MAKERS[index] as (typeof MAKERS)[number];
      shapes.push(make(index, [start(column), start(row), size]));
    }
    return shapeImage(side, side, shapes, () => 60 + below(100));
  });
}
