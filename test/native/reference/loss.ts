// The losses of both branches against the objects of a batch, and their share over the epochs.

import { assign, type Choice, MANY, ONE, type Truth } from "./assigner.ts";
import {
  anchorsOf,
  boxAt,
  byAnchor,
  type CornerTensors,
  completeIous,
  meanDifference,
} from "./boxes.ts";
import type { BranchMaps, DetectorMaps } from "./forward.ts";
import { maskLoss, semanticLoss } from "./mask-loss.ts";
import { add, affine, crossEntropy, detach, gather, multiply, sum, Tensor } from "./tensor.ts";

export interface Gains {
  box: number;
  cls: number;
  dfl: number;
  mask: number;
  semantic: number;
}
export const GAINS: Gains = { box: 7.5, cls: 0.5, dfl: 1.5, mask: 7.5, semantic: 7.5 };

export interface BranchLoss {
  /** Weighted by the gains, times the batch. */
  total: Tensor;
  box: Tensor;
  cls: Tensor;
  dfl: Tensor;
  /** Of a graph with masks. */
  mask?: Tensor;
}

export interface Scene {
  /** By image. */
  truths: readonly (readonly Truth[])[];
  /** Pixels of the input. */
  height: number;
  width: number;
  gains: Gains;
}

/** The minimised sum and its items. */
export interface DetectorLoss {
  total: Tensor;
  o2m?: BranchLoss;
  o2o: BranchLoss;
  semantic?: Tensor;
}

/** The one-to-one branch trains itself alone: prototypes and the semantic map are the other's. */
export function detectorLoss(maps: DetectorMaps, scene: Scene, o2mShare: number): DetectorLoss {
  const { prototypes } = maps;
  const o2o = branchLoss(maps.o2o, scene, ONE, prototypes && detach(prototypes));
  if (!maps.o2m) return { total: o2o.total, o2o };
  const o2m = branchLoss(maps.o2m, scene, MANY, prototypes);
  const semantic = maps.semantic && semanticLoss(maps.semantic, scene.truths);
  const many = semantic
    ? add(o2m.total, affine(semantic, scene.gains.semantic * scene.truths.length))
    : o2m.total;
  const total = add(affine(many, o2mShare), affine(o2o.total, 1 - o2mShare));
  return { total, o2m, o2o, ...(semantic && { semantic }) };
}

/** The one-to-many branch's share: from 0.8 to 0.1 over the epochs. */
export const o2mShareAt = (epoch: number, epochs: number): number =>
  0.8 - (0.7 * Math.min(epoch, epochs - 1)) / Math.max(epochs - 1, 1);

export function branchLoss(
  maps: BranchMaps,
  scene: Scene,
  choice: Choice,
  prototypes?: Tensor,
): BranchLoss {
  const anchors = anchorsOf(maps.box);
  const [distances, logits] = [byAnchor(maps.box), byAnchor(maps.cls)];
  const classes = logits.side(2);
  const positives = scene.truths.flatMap((truths, image) => {
    const row = (anchor: number) => image * anchors.length + anchor;
    const outlook = {
      anchors,
      box: (anchor: number) =>
        boxAt(anchors[anchor] as (typeof anchors)[0], distances.values, row(anchor) * 4),
      logit: (anchor: number, classIndex: number) =>
        logits.values[row(anchor) * classes + classIndex] as number,
    };
    return assign(outlook, truths, choice).map(({ anchor, truth, target }) => ({
      image,
      row: row(anchor),
      anchor: anchors[anchor] as (typeof anchors)[0],
      truth: truths[truth] as Truth,
      target,
    }));
  });
  const targets = new Float64Array(logits.values.length);
  for (const { row, truth, target } of positives) {
    targets[row * classes + truth.classIndex] = target;
  }
  const weight = Math.max(
    positives.reduce((total, { target }) => total + target, 0),
    1,
  );
  const column = (of: (positive: (typeof positives)[0]) => number) =>
    new Tensor([positives.length], Float64Array.from(positives, of));
  /** The four sides as tensors over the positives. */
  const sides = (of: (side: 0 | 1 | 2 | 3) => Tensor): CornerTensors => [
    of(0),
    of(1),
    of(2),
    of(3),
  ];
  const far = sides((side) => {
    const offsets = Int32Array.from(positives, ({ row }) => row * 4 + side);
    const cells = gather(distances, offsets, [positives.length]);
    return multiply(
      cells,
      column(({ anchor }) => anchor.stride),
    );
  });
  const centre = (side: number) => column(({ anchor }) => (side % 2 ? anchor.y : anchor.x));
  const away = (side: number) => (side < 2 ? -1 : 1);
  const found = sides((side) => add(centre(side), affine(far[side], away(side))));
  const wanted = sides((side) => column(({ truth }) => truth.box[side]));
  const shares = column(({ target }) => target);
  const missed = affine(completeIous(found, wanted), -1, 1);
  const extent = (side: number) => (side % 2 ? scene.height : scene.width);
  const normal = sides((side) => affine(far[side], 1 / extent(side)));
  const ideal = sides((side) =>
    column(({ anchor, truth }) => {
      const from = side % 2 ? anchor.y : anchor.x;
      return (away(side) * (truth.box[side] - from)) / extent(side);
    }),
  );
  const entropy = crossEntropy(logits, new Tensor(logits.shape, targets));
  const box = affine(sum(multiply(missed, shares)), 1 / weight);
  const cls = affine(sum(entropy), 1 / weight);
  const dfl = affine(sum(multiply(meanDifference(normal, ideal), shares)), 1 / weight);
  const { gains, truths } = scene;
  const weighted = add(add(affine(box, gains.box), affine(cls, gains.cls)), affine(dfl, gains.dfl));
  if (!maps.mask || !prototypes) return { total: affine(weighted, truths.length), box, cls, dfl };
  const mask = maskLoss(byAnchor(maps.mask), prototypes, positives);
  const all = add(weighted, affine(mask, gains.mask));
  return { total: affine(all, truths.length), box, cls, dfl, mask };
}
