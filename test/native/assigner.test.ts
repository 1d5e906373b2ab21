// What anchors learn: properties of every assignment, and cases that are easy to get wrong.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { native } from "./engine.ts";
import { assign, MANY, ONE } from "./reference/assigner.ts";
import type { Corners } from "./reference/boxes.ts";
import { type Box, dice } from "./training-world.ts";

interface Scene {
  classes: number;
  height: number;
  width: number;
  images: number;
  oneToOne: boolean;
  boxes: Float32Array;
  logits: Float32Array;
  truths: Float32Array;
}

const PADDING = [-1, 0, 0, 0, 0];

/** Centres of an input's anchors, level by level. */
function anchorsOf({ height, width }: Pick<Scene, "height" | "width">): [number, number][] {
  return [8, 16, 32].flatMap((stride) =>
    Array.from({ length: (height / stride) * (width / stride) }, (_, index): [number, number] => {
      const columns = width / stride;
      return [((index % columns) + 0.5) * stride, (Math.floor(index / columns) + 0.5) * stride];
    }),
  );
}

type Predict = (anchor: readonly [number, number], image: number) => number[];

/** A scene of one class where every anchor predicts the box of `predict`, with one score. */
function sceneOf(truths: Box[][], predict: Predict, more: Partial<Scene> = {}): Scene {
  const shape = { height: 64, width: 64, classes: 1, oneToOne: false, ...more };
  const anchors = anchorsOf(shape);
  const images = truths.length;
  const boxes = new Float32Array(images * 4 * anchors.length);
  for (let image = 0; image < images; image++) {
    for (const [index, anchor] of anchors.entries()) {
      for (const [corner, value] of predict(anchor, image).entries()) {
        boxes[(image * 4 + corner) * anchors.length + index] = value;
      }
    }
  }
  const objects = Math.max(...truths.map((list) => list.length), 1);
  const rows = truths.flatMap((list) =>
    Array.from({ length: objects }, (_, index) => list[index] ?? PADDING),
  );
  return {
    ...shape,
    images,
    boxes,
    truths: Float32Array.from(rows.flat()),
    logits: new Float32Array(images * shape.classes * anchors.length),
    ...more,
  };
}

/** Anchors with an object, of an image. */
function positives(scene: Scene, image = 0): { anchor: number; object: number; score: number }[] {
  const { scores, objects } = native.assignTargets(scene);
  const count = scores.length / scene.images;
  return Array.from({ length: count }, (_, anchor) => ({
    anchor,
    object: objects[image * count + anchor] as number,
    score: scores[image * count + anchor] as number,
  })).filter(({ score }) => score > 0);
}

/** Inside by the rule for small objects. */
function isInside([x, y]: readonly [number, number], box: Box): boolean {
  const side = (low: number, high: number, index: number) => {
    const half = (high - low < 8 ? 16 : high - low) / 2;
    return Math.abs(index - (low + high) / 2) < half;
  };
  return side(box[1], box[3], x) && side(box[2], box[4], y);
}

/** Scenes of random objects. Of whole pixels many sides, centres and values are equal. */
const scenes = (whole: boolean) =>
  fc
    .record({
      height: fc.constantFrom(32, 64, 96),
      width: fc.constantFrom(32, 64, 128),
      classes: fc.integer({ min: 1, max: 4 }),
      oneToOne: fc.boolean(),
      counts: fc.array(fc.integer({ min: 0, max: 30 }), { minLength: 1, maxLength: 3 }),
      seed: fc.integer(),
    })
    .map(({ counts, seed, ...shape }) => {
      const random = dice(seed);
      const below = (count: number) => (whole ? random(count) : random(count * 4_096) / 4_096);
      const truths = counts.map((count) =>
        Array.from({ length: count }, (): Box => {
          const [x, y] = [below(shape.width), below(shape.height)];
          return [random(shape.classes), x, y, x + 1 + below(40), y + 1 + below(40)];
        }),
      );
      const near: Predict = ([x, y], image) => {
        const boxes = truths[image] ?? [];
        const box = boxes[random(boxes.length)];
        if (!box || random(5) === 0) return [x - 8, y - 8, x + 8, y + 8];
        return box.slice(1).map((corner) => corner + below(9) - 4);
      };
      const scene = sceneOf(truths, near, shape);
      scene.logits = scene.logits.map(() => below(6) - 4);
      return { scene, truths };
    });

describe.skipIf(!native)("the assigner", () => {
  it("gives an object's anchors scores up to their best IoU, and no others any", () => {
    fc.assert(
      fc.property(scenes(true), ({ scene, truths }) => {
        const anchors = anchorsOf(scene);
        for (const [image, boxes] of truths.entries()) {
          const found = positives(scene, image);
          for (const { anchor, object, score } of found) {
            const box = boxes[object] as Box;
            expect(box).toBeDefined();
            expect(isInside(anchors[anchor] as [number, number], box)).toBe(true);
            expect(score).toBeLessThanOrEqual(1 + 1e-6);
          }
          for (let object = 0; object < boxes.length; object++) {
            const own = found.filter((positive) => positive.object === object);
            expect(own.length).toBeLessThanOrEqual(scene.oneToOne ? 1 : 10);
          }
        }
      }),
      { numRuns: 100 },
    );
  });

  it("decides an image alike whatever is padded, beside it or behind it", () => {
    fc.assert(
      fc.property(scenes(true), ({ scene, truths }) => {
        const anchors = anchorsOf(scene).length;
        const all = native.assignTargets(scene);
        for (const [image, boxes] of truths.entries()) {
          const part = (values: Float32Array, each: number) =>
            values.slice(image * each * anchors, (image + 1) * each * anchors);
          const alone = native.assignTargets({
            ...scene,
            images: 1,
            boxes: part(scene.boxes, 4),
            logits: part(scene.logits, scene.classes),
            truths: Float32Array.from([...boxes, PADDING, PADDING].flat()),
          });
          expect(alone.scores).toEqual(part(all.scores, 1));
          expect(alone.objects).toEqual(part(all.objects, 1));
        }
      }),
      { numRuns: 50 },
    );
  });

  it("agrees with the reference, written from the same facts", () => {
    let compared = 0;
    fc.assert(
      fc.property(scenes(false), ({ scene, truths }) => {
        const anchors = anchorsOf(scene);
        for (const [image, boxes] of truths.entries()) {
          const valueAt = (values: Float32Array, each: number, plane: number, anchor: number) =>
            values[(image * each + plane) * anchors.length + anchor] as number;
          const expected = assign(
            {
              anchors: anchors.map(([x, y]) => ({ x, y, stride: 0 })),
              box: (anchor) =>
                [0, 1, 2, 3].map(
                  (side) => valueAt(scene.boxes, 4, side, anchor),
                  // Four numbers were mapped to four.
                ) as unknown as Corners,
              logit: (anchor, cls) => valueAt(scene.logits, scene.classes, cls, anchor),
            },
            boxes.map(([classIndex, ...box]) => ({
              classIndex,
              // Four corners, rounded to single.
              box: Array.from(Float32Array.from(box)) as unknown as Corners,
            })),
            scene.oneToOne ? ONE : MANY,
          );
          // Below it, what is an object's best anchor differs by the rounding of fp32.
          const clear = ({ score }: { score: number }) => score > 1e-3;
          const wanted = expected.map(({ anchor, truth, target }) => ({
            anchor,
            object: truth,
            score: target,
          }));
          compared += wanted.filter(clear).length;
          expect(positives(scene, image).filter(clear)).toEqual(
            wanted.filter(clear).map((one) => ({ ...one, score: expect.closeTo(one.score, 4) })),
          );
        }
      }),
      // Seeded: of metrics equal to seven digits fp32 may choose the other.
      { numRuns: 100, seed: 6 },
    );
    expect(compared).toBeGreaterThan(1_000);
  });

  it("takes nothing for padding, even where every anchor predicts it", () => {
    const scene = sceneOf([[[0, 10, 10, 50, 50]], []], () => [0, 0, 40, 40]);
    for (let index = 5; index < 10; index += 5) scene.truths.set([-1, 0, 0, 40, 40], index);
    expect(positives(scene, 0).length).toBe(10);
    expect(positives(scene, 1)).toEqual([]);
  });

  it("finds anchors for an object of three pixels that holds no centre", () => {
    const tiny: Box = [0, 31, 31, 34, 34];
    const exact: Predict = () => tiny.slice(1);
    // Centres 28 and 36 of the finest level are 4.5 and 3.5 away, within 8: four anchors; of the
    // next one 24 is 8.5 and 40 is 7.5 away: one; of the coarsest 16 and 48 are too far.
    const found = positives(sceneOf([[tiny]], exact));
    expect(found.map(({ anchor }) => anchor)).toEqual([27, 28, 35, 36, 74]);
    for (const { score } of found) expect(score).toBeCloseTo(1, 5);
    expect(positives(sceneOf([[tiny]], exact, { oneToOne: true })).length).toBe(1);
  });

  it("grows the short side alone", () => {
    const thin: Box = [0, 4, 31, 60, 34];
    const found = positives(sceneOf([[thin]], () => thin.slice(1)));
    const anchors = anchorsOf({ height: 64, width: 64 });
    expect(found.length).toBe(10);
    for (const { anchor } of found) {
      expect(Math.abs((anchors[anchor]?.[1] as number) - 32.5)).toBeLessThan(8);
    }
  });

  it("gives an anchor that several objects claim to the one it overlaps most", () => {
    // Both hold the same centres; every anchor predicts the second to the pixel.
    const boxes: Box[] = [
      [0, 8, 8, 40, 40],
      [0, 6, 6, 42, 42],
    ];
    const found = positives(sceneOf([boxes], () => [6, 6, 42, 42]));
    expect(new Set(found.map(({ object }) => object))).toEqual(new Set([1]));
    const equal = positives(sceneOf([[boxes[0] as Box, boxes[0] as Box]], () => [8, 8, 40, 40]));
    expect(new Set(equal.map(({ object }) => object))).toEqual(new Set([0]));
  });

  it("keeps of one-to-one the best anchor that conflicts left, with its own IoU", () => {
    const box: Box = [0, 8, 8, 40, 40];
    // Anchors' boxes are off by as much as their centres are from (20, 20).
    const shifted: Predict = ([x]) => [8 + (x - 20) / 8, 8, 40 + (x - 20) / 8, 40];
    const found = positives(sceneOf([[box]], shifted, { oneToOne: true }));
    // Of the anchors at x = 20, whose boxes are exact, the first.
    expect(found).toEqual([{ anchor: 10, object: 0, score: expect.closeTo(1, 5) }]);
  });

  it("of equal anchors claims the first ones", () => {
    const box: Box = [0, 0, 0, 64, 64];
    const found = positives(sceneOf([[box]], () => [0, 0, 64, 64]));
    expect(found.map(({ anchor }) => anchor)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it("leaves an object that nothing overlaps without an anchor", () => {
    const far: Predict = () => [50, 50, 60, 60];
    expect(positives(sceneOf([[[0, 0, 0, 20, 20]]], far))).toEqual([]);
    expect(positives(sceneOf([[[0, 20, 20, 20, 20]]], far))).toEqual([]);
  });

  it("refuses what does not fit together", () => {
    const scene = sceneOf([[[0, 8, 8, 40, 40]]], () => [8, 8, 40, 40]);
    const refused = (more: Partial<Scene>) =>
      expect(() => native.assignTargets({ ...scene, ...more })).toThrow(
        expect.objectContaining({ code: "bad_argument" }),
      );
    refused({ height: 96 });
    refused({ boxes: new Float32Array(7) });
    refused({ logits: new Float32Array(7) });
    refused({ truths: Float32Array.from([1, 8, 8, 40, 40]) });
    refused({ truths: new Float32Array() });
  });
});
