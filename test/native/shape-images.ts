// Images of shapes that are no rectangles, each told twice: by a formula, from which its pixels are
// drawn and its true mask is known, and by a ring, which is all that the engine gets.

import { COLOURS, type Rgb, type RgbImage } from "./rectangle-images.ts";

export interface Shape {
  classIndex: number;
  /** Whether a point of the image is of the shape. */
  contains: (x: number, y: number) => boolean;
  /** x and y of the corners in turn. */
  ring: number[];
}

export function disc(classIndex: number, [x, y]: [number, number], radius: number): Shape {
  const corners = 48;
  return {
    classIndex,
    contains: (px, py) => Math.hypot(px - x, py - y) < radius,
    ring: Array.from({ length: corners }, (_, index) => {
      const angle = (2 * Math.PI * index) / corners;
      return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
    }).flat(),
  };
}

type Square = [x: number, y: number, side: number];

export const square = (classIndex: number, [x, y, side]: Square): Shape => ({
  classIndex,
  contains: (px, py) => px > x && px < x + side && py > y && py < y + side,
  ring: [x, y, x + side, y, x + side, y + side, x, y + side],
});

/** The half of a square below its diagonal. */
export const triangle = (classIndex: number, [x, y, side]: Square): Shape => ({
  classIndex,
  contains: (px, py) => px > x && py < y + side && px - x < py - y,
  ring: [x, y, x + side, y + side, x, y + side],
});

/** A square without the upper middle of its three columns. */
export const horseshoe = (classIndex: number, [x, y, side]: Square): Shape => {
  const [left, right, low] = [x + side / 3, x + (2 * side) / 3, y + (2 * side) / 3];
  return {
    classIndex,
    contains: (px, py) =>
      px > x && px < x + side && py > y && py < y + side && (px < left || px > right || py > low),
    ring: [
      ...[x, y, left, y, left, low, right, low, right, y],
      ...[x + side, y, x + side, y + side, x, y + side],
    ],
  };
};

/** A square with a hole, to which a bridge of no width leads. */
export const frame = (classIndex: number, [x, y, side]: Square): Shape => {
  const [left, top, right, bottom] = [x, y, x, y].map(
    (from, index) => from + (side * (index < 2 ? 1 : 2)) / 3,
  ) as [number, number, number, number];
  const isHole = (px: number, py: number) => px > left && px < right && py > top && py < bottom;
  return {
    classIndex,
    contains: (px, py) => px > x && px < x + side && py > y && py < y + side && !isHole(px, py),
    ring: [
      ...[x, y, x + side, y, x + side, y + side, x, y + side, x, y],
      ...[left, top, left, bottom, right, bottom, right, top, left, top],
    ],
  };
};

export interface ShapeImage extends RgbImage {
  rings: Float32Array;
  ringStarts: Int32Array;
}

/** Shapes on a ground, later ones over earlier ones, each of its class's colour. */
export function shapeImage(
  width: number,
  height: number,
  shapes: readonly Shape[],
  ground: (index: number) => number = () => 0,
): ShapeImage {
  const rgb = Uint8Array.from({ length: width * height * 3 }, (_, index) => ground(index));
  for (const { classIndex, contains } of shapes) {
    for (let pixel = 0; pixel < width * height; pixel++) {
      const isOf = contains((pixel % width) + 0.5, Math.floor(pixel / width) + 0.5);
      if (isOf) rgb.set(COLOURS[classIndex] as Rgb, pixel * 3);
    }
  }
  const boxes = shapes.map(({ classIndex, ring }) => {
    const side = (axis: number) => ring.filter((_, index) => index % 2 === axis);
    const [x, y] = [side(0), side(1)];
    return [classIndex, Math.min(...x), Math.min(...y), Math.max(...x), Math.max(...y)];
  });
  let corners = 0;
  const starts = shapes.map(({ ring }) => {
    corners += ring.length / 2;
    return corners - ring.length / 2;
  });
  return {
    width,
    height,
    rgb,
    boxes,
    rings: Float32Array.from(shapes.flatMap(({ ring }) => ring)),
    ringStarts: Int32Array.from(starts),
  };
}
