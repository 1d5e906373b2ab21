// Average precision by COCO's published rules, one sentence after the other, slow and from the
// definitions: each threshold is matched anew, each point of a curve is looked up on its own.
// Crowds and what else is ignored are here for the rules' sake: our datasets have none, since an
// import leaves crowds out, and nothing else is marked so.

import type { Detections } from "../../native/index.d.ts";

export interface Input {
  classes: number;
  detections: Detections[];
  truths: Float32Array[];
  /** Indices of truths by image: regions of many objects, any number of which may be found. */
  crowds?: number[][];
  /** And of those that are neither to be found nor wrong to find. */
  ignored?: number[][];
  masks?: { height: number; width: number; detections: Uint8Array[]; truths: Uint8Array[] };
}

/** Of objects with masks. */
export type MaskedInput = Input & Required<Pick<Input, "masks">>;

interface Detection {
  image: number;
  index: number;
  box: number[];
  confidence: number;
  classIndex: number;
}
interface Truth {
  image: number;
  index: number;
  box: number[];
  classIndex: number;
  isCrowd: boolean;
  /** As every crowd is. */
  isIgnored: boolean;
}
type Point = [x: number, y: number];

const rows = (values: Float32Array, width: number) =>
  Array.from({ length: values.length / width }, (_, index) => [
    ...values.subarray(index * width, (index + 1) * width),
  ]);
const foundOf = ({ detections }: Input): Detection[] =>
  detections.flatMap((values, image) =>
    rows(values, 6).map((row, index) => ({
      image,
      index,
      box: row.slice(0, 4),
      confidence: row[4] as number,
      classIndex: row[5] as number,
    })),
  );
const truthsOf = ({ truths, crowds = [], ignored = [] }: Input): Truth[] =>
  truths.flatMap((values, image) =>
    rows(values, 5).map((row, index) => {
      const isCrowd = crowds[image]?.includes(index) ?? false;
      return {
        image,
        index,
        box: row.slice(1),
        classIndex: row[0] as number,
        isCrowd,
        isIgnored: isCrowd || (ignored[image]?.includes(index) ?? false),
      };
    }),
  );

const side = (low: number, high: number) => Math.max(0, high - low);
const areaOf = ([x1 = 0, y1 = 0, x2 = 0, y2 = 0]: number[]) => side(x1, x2) * side(y1, y2);
function sharedArea(a: number[], b: number[]): number {
  const [ax1 = 0, ay1 = 0, ax2 = 0, ay2 = 0] = a;
  const [bx1 = 0, by1 = 0, bx2 = 0, by2 = 0] = b;
  return areaOf([Math.max(ax1, bx1), Math.max(ay1, by1), Math.min(ax2, bx2), Math.min(ay2, by2)]);
}

export function iou(a: number[], b: number[]): number {
  const shared = sharedArea(a, b);
  const all = areaOf(a) + areaOf(b) - shared;
  return all > 0 ? shared / all : 0;
}

/** With a crowd it is the part of the detection that lies in it. */
function overlap(one: Detection, { box, isCrowd }: Truth): number {
  if (!isCrowd) return iou(one.box, box);
  const all = areaOf(one.box);
  return all > 0 ? sharedArea(one.box, box) / all : 0;
}

/**
 * Pairs for the confusion matrix, from the highest IoU down, each side used once; then by
 * confidence, then by index.
 */
function pairs(found: Detection[], truths: Truth[], iouMin: number): Map<Detection, Truth> {
  const all = found.flatMap((one) =>
    truths
      .filter(({ image }) => image === one.image)
      .map((truth) => ({ one, truth, iou: iou(one.box, truth.box) }))
      .filter((pair) => pair.iou >= iouMin),
  );
  all.sort(
    (a, b) =>
      b.iou - a.iou ||
      b.one.confidence - a.one.confidence ||
      a.one.index - b.one.index ||
      a.truth.index - b.truth.index,
  );
  const chosen = new Map<Detection, Truth>();
  const taken = new Set<Truth>();
  for (const { one, truth } of all) {
    if (chosen.has(one) || taken.has(truth)) continue;
    chosen.set(one, truth);
    taken.add(truth);
  }
  return chosen;
}

/** The detections that count: of an image the hundred most confident. `ranked` is in that order. */
const countedOf = (ranked: Detection[]) =>
  ranked.filter((one) => ranked.filter((a) => a.image === one.image).indexOf(one) < 100);

type Overlap = (one: Detection, truth: Truth) => number;

/**
 * What each detection found, the sure ones first: the free truth that it overlaps most, and where
 * there is none, of what is ignored the one it overlaps most. A crowd is always free.
 */
function findsOf(ranked: Detection[], truths: Truth[], iouMin: number, overlapOf: Overlap) {
  const finds = new Map<Detection, Truth>();
  const taken = new Set<Truth>();
  for (const one of ranked) {
    const free = truths.filter(
      (truth) => truth.image === one.image && (truth.isCrowd || !taken.has(truth)),
    );
    const bestOf = (some: Truth[]) => {
      let best: { truth: Truth; iou: number } | null = null;
      for (const truth of some) {
        const shared = overlapOf(one, truth);
        if (shared >= (best?.iou ?? iouMin)) best = { truth, iou: shared };
      }
      return best?.truth;
    };
    const truth =
      bestOf(free.filter(({ isIgnored }) => !isIgnored)) ??
      bestOf(free.filter(({ isIgnored }) => isIgnored));
    if (!truth) continue;
    taken.add(truth);
    finds.set(one, truth);
  }
  return finds;
}

/** The highest precision at a recall or beyond it; 0 where no detection goes so far. */
const heightAt = (points: Point[], recall: number) =>
  Math.max(0, ...points.filter(([x]) => x >= recall).map(([, y]) => y));

/** As numpy's `linspace(0, 1, count)`, whose last digits decide between recalls that are equal. */
const steps = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    index === count - 1 ? 1 : index * (1 / (count - 1)),
  );
const mean = (values: number[]) =>
  values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;

/** A value at a confidence, by those of the detections in falling order of theirs. */
function atConfidence(ranked: Detection[], values: number[], confidence: number, above: number) {
  const sure = ranked.filter((one) => one.confidence >= confidence).length;
  if (sure === 0) return above;
  if (sure === ranked.length) return values.at(-1) as number;
  const [high, low] = [ranked[sure - 1]?.confidence as number, ranked[sure]?.confidence as number];
  const [from, to] = [values[sure - 1] as number, values[sure] as number];
  return from + ((high - confidence) / (high - low)) * (to - from);
}

const countOf = (truths: Truth[]) => truths.filter(({ isIgnored }) => !isIgnored).length;

function classResult(found: Detection[], truths: Truth[], overlapOf: Overlap = overlap) {
  const all = countedOf([...found].sort((a, b) => b.confidence - a.confidence));
  const measured = Array.from({ length: 10 }, (_, index) => {
    // As numpy's `linspace(0.5, 0.95, 10)`.
    const iouMin = index === 9 ? 0.95 : 0.5 + index * ((0.95 - 0.5) / 9);
    const finds = findsOf(all, truths, iouMin, overlapOf);
    // What found something ignored is neither right nor wrong.
    const ranked = all.filter((one) => !finds.get(one)?.isIgnored);
    const hits = ranked.map((_, last) =>
      ranked.slice(0, last + 1).reduce((sum, one) => sum + Number(finds.has(one)), 0),
    );
    const recalls = hits.map((count) => count / countOf(truths));
    const precisions = hits.map((count, last) => count / (last + 1));
    const points = recalls.map((recall, at): Point => [recall, precisions[at] as number]);
    const ap = mean(steps(101).map((recall) => heightAt(points, recall)));
    return { ap, recalls, precisions, points, ranked };
  });
  const [first] = measured as [(typeof measured)[0]];
  const { ranked } = first;
  const curves = (count: number) => {
    const curve = (values: number[], above: number) =>
      steps(count).map((at) => (ranked.length ? atConfidence(ranked, values, at, above) : 0));
    const [precision, recall] = [curve(first.precisions, 1), curve(first.recalls, 0)];
    return {
      precision,
      recall,
      f1: precision.map((p, index) => {
        const r = recall[index] as number;
        return p + r > 0 ? (2 * p * r) / (p + r) : 0;
      }),
      precisionByRecall: steps(count).map((recall) => heightAt(first.points, recall)),
    };
  };
  const { precisionByRecall: byRecall, ...byConfidence } = curves(1_000);
  return {
    mAP50: first.ap,
    mAP50_95: mean(measured.map(({ ap }) => ap)),
    ...byConfidence,
    byRecall,
    curves: curves(101),
  };
}

/** Index of the first maximum under a box filter of 101 points whose ends go on. */
function peakOf(curve: number[]): number {
  const smoothed = curve.map((_, index) =>
    mean(
      Array.from({ length: 101 }, (_, i) => {
        const offset = Math.min(Math.max(index + i - 50, 0), curve.length - 1);
        return curve[offset] as number;
      }),
    ),
  );
  let best = 0;
  for (const [index, value] of smoothed.entries()) {
    if (value > (smoothed[best] as number) + 1e-12) best = index;
  }
  return (smoothed[best] as number) > 1e-12 ? best : 0;
}

function confusionOf({ classes }: Input, found: Detection[], truths: Truth[]): number[] {
  const sure = found.filter(({ confidence }) => confidence >= 0.25);
  const matched = pairs(sure, truths, 0.45);
  const matrix = new Array<number>((classes + 1) ** 2).fill(0);
  const count = (row: number, column: number) => {
    matrix[row * (classes + 1) + column] = (matrix[row * (classes + 1) + column] as number) + 1;
  };
  const met = new Set(matched.values());
  for (const [one, truth] of matched) count(one.classIndex, truth.classIndex);
  for (const one of sure) if (!matched.has(one)) count(one.classIndex, classes);
  for (const truth of truths) if (!met.has(truth)) count(classes, truth.classIndex);
  return matrix;
}

function classResults(input: Input, overlapOf: Overlap = overlap) {
  const [found, truths] = [foundOf(input), truthsOf(input)];
  return Array.from({ length: input.classes }, (_, classIndex) => {
    const own = truths.filter((truth) => truth.classIndex === classIndex);
    const theirs = found.filter((one) => one.classIndex === classIndex);
    const count = countOf(own);
    return count ? { ...classResult(theirs, own, overlapOf), truths: count } : null;
  });
}

/** Average precision by masks: cells that both have, of those that either has. */
export function plainMaskEvaluation(input: MaskedInput) {
  const { height, width, detections, truths } = input.masks;
  const cells = height * width;
  const maskOf = (of: Uint8Array[], { image, index }: { image: number; index: number }) => [
    ...(of[image] as Uint8Array).subarray(index * cells, (index + 1) * cells),
  ];
  const perClass = classResults(input, (one, truth) => {
    const [a, b] = [maskOf(detections, one), maskOf(truths, truth)];
    const either = a.filter((value, cell) => value || b[cell]).length;
    return either ? a.filter((value, cell) => value && b[cell]).length / either : 0;
  }).map((result) => result && { mAP50: result.mAP50, mAP50_95: result.mAP50_95 });
  const counted = perClass.filter((result) => result !== null);
  return {
    mAP50: mean(counted.map(({ mAP50 }) => mAP50)),
    mAP50_95: mean(counted.map(({ mAP50_95 }) => mAP50_95)),
    perClass,
  };
}

export function plainEvaluation(input: Input) {
  const [found, truths] = [foundOf(input), truthsOf(input)];
  const byClass = classResults(input);
  const counted = byClass.filter((result) => result !== null);
  const meanCurve = (pick: (result: (typeof counted)[0]) => number[]) =>
    steps(1_000).map((_, index) => mean(counted.map((result) => pick(result)[index] as number)));
  const f1 = meanCurve((result) => result.f1);
  const peak = peakOf(f1);
  const perClass = byClass.map(
    (result) =>
      result && {
        precision: result.precision[peak] as number,
        recall: result.recall[peak] as number,
        mAP50: result.mAP50,
        mAP50_95: result.mAP50_95,
        truths: result.truths,
        curves: result.curves,
      },
  );
  const over = (pick: (result: NonNullable<(typeof perClass)[0]>) => number) =>
    mean(perClass.filter((result) => result !== null).map(pick));
  return {
    precision: over((result) => result.precision),
    recall: over((result) => result.recall),
    mAP50: over((result) => result.mAP50),
    mAP50_95: over((result) => result.mAP50_95),
    perClass,
    confidence: peak / 999,
    curves: {
      precision: meanCurve((result) => result.precision),
      recall: meanCurve((result) => result.recall),
      f1,
    },
    precisionByRecall: meanCurve((result) => result.byRecall),
    confusion: confusionOf(input, found, truths),
    images: input.truths.length,
  };
}
