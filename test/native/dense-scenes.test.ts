// Images with many objects beside images with few. Goal: the others cost no more for them, and all
// that is assigned and learned stays as it is without them.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { native } from "./engine.ts";
import { assign, MANY } from "./reference/assigner.ts";
import type { Corners } from "./reference/boxes.ts";
import { dice } from "./training-world.ts";

const SIDE = 320;
const anchors = [8, 16, 32].flatMap((stride) =>
  Array.from({ length: (SIDE / stride) ** 2 }, (_, index) => {
    const columns = SIDE / stride;
    return {
      x: ((index % columns) + 0.5) * stride,
      y: (Math.floor(index / columns) + 0.5) * stride,
    };
  }),
);
const CLASSES = 2;
const PADDING = [-1, 0, 0, 0, 0];

/** Objects of an image, and what every anchor predicts: boxes about its centre. */
function imageOf(seed: number, count: number) {
  const random = dice(seed);
  const exact = (below: number) => random(below * 4_096) / 4_096;
  const truths = Array.from({ length: count }, () => {
    const [x, y] = [exact(SIDE - 60), exact(SIDE - 60)];
    return [random(CLASSES), x, y, x + 9 + exact(50), y + 9 + exact(50)];
  });
  const corners = anchors.map(({ x, y }) =>
    [x, y, x, y].map((middle, corner) => middle + (corner < 2 ? -1 : 1) * (6 + exact(30))),
  );
  const planes = [0, 1, 2, 3].flatMap((corner) => corners.map((box) => box[corner] as number));
  const logits = anchors.flatMap(() => [exact(8) - 4, exact(8) - 4]);
  return { truths, boxes: Float32Array.from(planes), logits: Float32Array.from(logits) };
}
type Image = ReturnType<typeof imageOf>;

function assigned(images: readonly Image[]) {
  const objects = Math.max(...images.map(({ truths }) => truths.length), 1);
  const joined = (of: (image: Image) => Float32Array) =>
    Float32Array.from(images.flatMap((image) => [...of(image)]));
  const { scores, objects: indices } = native.assignTargets({
    classes: CLASSES,
    height: SIDE,
    width: SIDE,
    oneToOne: false,
    images: images.length,
    boxes: joined(({ boxes }) => boxes),
    logits: joined(({ logits }) => logits),
    truths: Float32Array.from(
      images.flatMap(({ truths }) =>
        Array.from({ length: objects }, (_, index) => truths[index] ?? PADDING).flat(),
      ),
    ),
  });
  return images.map((_, image) => {
    const part = (all: Float32Array) =>
      all.slice(image * anchors.length, (image + 1) * anchors.length);
    return { scores: part(scores), objects: part(indices) };
  });
}

describe.skipIf(!native)("a crowded image", () => {
  const counts = [3, 300, 0, 40, 5, 1];
  const images = counts.map((count, index) => imageOf(index + 1, count));

  it("leaves what is assigned in the others as it is, to the bit", () => {
    const all = assigned(images);
    for (const [index, image] of images.entries()) {
      expect(all[index]).toEqual(assigned([image])[0]);
    }
  });

  it("is assigned as the reference assigns it, in blocks of objects", () => {
    // More than fit a block: 2^18 elements at 2,100 anchors.
    const { truths, boxes, logits } = images[1] as Image;
    const at = (values: Float32Array, plane: number, anchor: number) =>
      values[plane * anchors.length + anchor] as number;
    const single = (box: number[]) =>
      // Four corners, rounded to single.
      Array.from(Float32Array.from(box)) as unknown as Corners;
    const expected = assign(
      {
        anchors: anchors.map((anchor) => ({ ...anchor, stride: 0 })),
        box: (anchor) => single([0, 1, 2, 3].map((side) => at(boxes, side, anchor))),
        logit: (anchor, cls) => at(logits, cls, anchor),
      },
      truths.map(([classIndex = 0, ...box]) => ({ classIndex, box: single(box) })),
      MANY,
    ).filter(({ target }) => target > 1e-3);
    const [found] = assigned([images[1] as Image]);
    // Of metrics equal to seven digits fp32 may choose the other.
    const agreeing = expected.filter(
      ({ anchor, truth, target }) =>
        found?.objects[anchor] === truth &&
        Math.abs((found.scores[anchor] as number) - target) < 1e-4,
    );
    expect(expected.length).toBeGreaterThan(500);
    expect(agreeing.length / expected.length).toBeGreaterThan(0.99);
  });

  it("does not make memory follow its count times the images", () => {
    const grownBy = (list: number[]) =>
      Number(
        execFileSync(
          process.execPath,
          [join(import.meta.dirname, "dense-scene-child.ts"), list.join(",")],
          { env: { ...process.env, ...ENGINE_ENVIRONMENT }, encoding: "utf8" },
        ),
      );
    // Measured 16 to 24 MB, of which tensors of a number an object and anchor are 1 MB each; with
    // all objects of an image at once it was 415.
    expect(grownBy([5, 5, 1_000, 5])).toBeLessThan(100);
  });
});
