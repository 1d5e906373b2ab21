// Boxes of anchors, and the complete IoU: once in plain numbers, where targets are chosen, and once
// differentiable, where it is a loss. Pixels of the input throughout.

import { LEVEL_STRIDES } from "../../../shared/detector/detector.ts";
import {
  absolute,
  add,
  affine,
  arctangent,
  clampZero,
  detach,
  divide,
  maximum,
  minimum,
  multiply,
  square,
  subtract,
  Tensor,
} from "./tensor.ts";

/** x1, y1, x2, y2. */
export type Corners = readonly [number, number, number, number];

export interface Anchor {
  x: number;
  y: number;
  stride: number;
}

/** Centres of the cells, level by level, row by row. */
export function anchorsOf(levels: readonly Tensor[]): Anchor[] {
  return levels.flatMap((map, level) => {
    const stride = LEVEL_STRIDES[level] as number;
    const [rows, columns] = [map.side(2), map.side(3)];
    return Array.from({ length: rows * columns }, (_, cell) => ({
      x: ((cell % columns) + 0.5) * stride,
      y: (Math.floor(cell / columns) + 0.5) * stride,
      stride,
    }));
  });
}

/** Maps of [batch, channels, height, width] of every level as [batch, anchors, channels]. */
export function byAnchor(levels: readonly Tensor[]): Tensor {
  const [batch, channels] = (levels[0] as Tensor).shape as [number, number];
  const anchors = levels.reduce((total, map) => total + map.side(2) * map.side(3), 0);
  const values = new Float64Array(batch * anchors * channels);
  const each = (visit: (map: Tensor, from: number, to: number) => void) => {
    let start = 0;
    for (const map of levels) {
      const plane = map.side(2) * map.side(3);
      for (let from = 0; from < map.values.length; from++) {
        const channel = Math.floor(from / plane) % channels;
        const image = Math.floor(from / (plane * channels));
        visit(map, from, (image * anchors + start + (from % plane)) * channels + channel);
      }
      start += plane;
    }
  };
  each((map, from, to) => {
    values[to] = map.values[from] as number;
  });
  const back = (gradient: Float64Array) =>
    each((map, from, to) => {
      map.gradient[from] = (map.gradient[from] as number) + (gradient[to] as number);
    });
  return new Tensor([batch, anchors, channels], values, { inputs: levels, back });
}

/** The box of an anchor whose distances begin at `at`. */
export function boxAt({ x, y, stride }: Anchor, distances: Float64Array, index: number): Corners {
  const far = (side: number) => (distances[index + side] as number) * stride;
  return [x - far(0), y - far(1), x + far(2), y + far(3)];
}

const EPSILON = 1e-7;

/** Of two boxes; a side that is turned over counts as none. */
export function completeIou(one: Corners, other: Corners): number {
  const [ax1, ay1, ax2, ay2] = one;
  const [bx1, by1, bx2, by2] = other;
  const size = (from: number, to: number) => Math.max(to - from, 0);
  const shared =
    size(Math.max(ax1, bx1), Math.min(ax2, bx2)) * size(Math.max(ay1, by1), Math.min(ay2, by2));
  const [aw, ah, bw, bh] = [size(ax1, ax2), size(ay1, ay2), size(bx1, bx2), size(by1, by2)];
  const iou = shared / (aw * ah + bw * bh - shared + EPSILON);
  const across = Math.max(ax2, bx2) - Math.min(ax1, bx1);
  const down = Math.max(ay2, by2) - Math.min(ay1, by1);
  const distance = ((bx1 + bx2 - ax1 - ax2) ** 2 + (by1 + by2 - ay1 - ay2) ** 2) / 4;
  const turn = Math.atan(bw / (bh + EPSILON)) - Math.atan(aw / (ah + EPSILON));
  const v = (4 / Math.PI ** 2) * turn ** 2;
  const alpha = v / (v - iou + 1 + EPSILON);
  return iou - (distance / (across ** 2 + down ** 2 + EPSILON) + v * alpha);
}

/** Four tensors of one shape. */
export type CornerTensors = readonly [Tensor, Tensor, Tensor, Tensor];

/** The same, pair by pair; the weight of the shapes' difference is held constant. */
export function completeIous(one: CornerTensors, other: CornerTensors): Tensor {
  const [ax1, ay1, ax2, ay2] = one;
  const [bx1, by1, bx2, by2] = other;
  const size = (from: Tensor, to: Tensor) => clampZero(subtract(to, from));
  const shared = multiply(
    size(maximum(ax1, bx1), minimum(ax2, bx2)),
    size(maximum(ay1, by1), minimum(ay2, by2)),
  );
  const [aw, ah] = [size(ax1, ax2), size(ay1, ay2)];
  const [bw, bh] = [size(bx1, bx2), size(by1, by2)];
  const both = add(multiply(aw, ah), multiply(bw, bh));
  const iou = divide(shared, affine(subtract(both, shared), 1, EPSILON));
  const across = subtract(maximum(ax2, bx2), minimum(ax1, bx1));
  const down = subtract(maximum(ay2, by2), minimum(ay1, by1));
  const diagonal = affine(add(square(across), square(down)), 1, EPSILON);
  const apart = (a1: Tensor, a2: Tensor, b1: Tensor, b2: Tensor) =>
    square(subtract(add(b1, b2), add(a1, a2)));
  const distance = affine(add(apart(ax1, ax2, bx1, bx2), apart(ay1, ay2, by1, by2)), 1 / 4);
  const shape = (w: Tensor, h: Tensor) => arctangent(divide(w, affine(h, 1, EPSILON)));
  const v = affine(square(subtract(shape(bw, bh), shape(aw, ah))), 4 / Math.PI ** 2);
  const alpha = detach(divide(v, affine(subtract(v, iou), 1, 1 + EPSILON)));
  return subtract(iou, add(divide(distance, diagonal), multiply(v, alpha)));
}

/** Mean of the four absolute differences, pair by pair. */
export function meanDifference(one: CornerTensors, other: CornerTensors): Tensor {
  const [l, t, r, b] = one.map((side, index) =>
    absolute(subtract(side, other[index] as Tensor)),
  ) as [Tensor, Tensor, Tensor, Tensor];
  return affine(add(add(l, t), add(r, b)), 1 / 4);
}
