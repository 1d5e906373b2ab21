// A file of a model held against the model's predictor: what both give for the same images, row by
// row. Rows are never compared by their position alone, since near-ties change it.

import { PROTOTYPES } from "../../shared/detector/detector.ts";
import { DETECTIONS_MAX } from "../../shared/detector/detector-onnx.ts";
import type { DetectionRows } from "../../shared/detector/letterbox.ts";

/** What a raw file gives for one image, anchor by anchor. */
export interface RawHeads {
  boxes: Float32Array;
  scores: Float32Array;
  /** Weights of the prototypes; of a segmentation model. */
  masks?: Float32Array;
  /** Its prototypes, planes [32, height / 4, width / 4], where the runner tells them. */
  prototypes?: Float32Array;
}

/** What is allowed between two lists of rows. */
export interface Tolerance {
  /** Pixels of the input. */
  box: number;
  score: number;
}

/** How far two lists of rows lie apart. */
export interface RowDifference {
  /** Rows that were compared. */
  rows: number;
  /** Rows among them of a score that people see by default. */
  objects: number;
  box: number;
  score: number;
  /** Rows that the other list has nothing like. */
  unmatched: number;
}

/** From it on a row is an object that people see by default. */
export const OBJECT_SCORE = 0.25;
/** Rows are paired within so many tolerances of a score, so that a difference has a figure. */
const REACH = 1_000;

/**
 * The two top-k steps that are the host's for a raw file: the best 300 anchors by their best class,
 * then the best 300 of those anchors' scores, so that an anchor may come with several classes.
 */
export function rowsOfHeads({ boxes, scores, masks }: RawHeads, classes: number): DetectionRows {
  const anchors = scores.length / classes;
  const best = new Float32Array(anchors).fill(Number.NEGATIVE_INFINITY);
  for (let at = 0; at < scores.length; at++) {
    const anchor = Math.floor(at / classes);
    best[anchor] = Math.max(best[anchor] as number, scores[at] as number);
  }
  const candidates = topIndices(best).flatMap((anchor) =>
    Array.from({ length: classes }, (_, index) => anchor * classes + index),
  );
  const width = masks ? 6 + PROTOTYPES : 6;
  const count = Math.min(DETECTIONS_MAX, anchors);
  const values = new Float32Array(count * width);
  const surest = topIndices(Float32Array.from(candidates, (at) => scores[at] as number));
  const taken = surest.slice(0, count);
  for (const [row, index] of taken.entries()) {
    const at = candidates[index] as number;
    const anchor = Math.floor(at / classes);
    values.set(boxes.subarray(4 * anchor, 4 * anchor + 4), row * width);
    values.set([scores[at] as number, at % classes], row * width + 4);
    if (masks) {
      const from = anchor * PROTOTYPES;
      values.set(masks.subarray(from, from + PROTOTYPES), row * width + 6);
    }
  }
  return { values, width };
}

/** Indices of the greatest 300 numbers, the greatest first; of equals the first comes first. */
const topIndices = (values: Float32Array): number[] =>
  Array.from(values.keys())
    .sort((one, other) => (values[other] as number) - (values[one] as number) || one - other)
    .slice(0, DETECTIONS_MAX);

/** A row by its parts; `rest` are the weights of a mask's prototypes. */
export interface Row {
  box: Float32Array;
  score: number;
  className: number;
  rest: Float32Array;
}

function rowsOf({ values, width }: DetectionRows): Row[] {
  return Array.from({ length: values.length / width }, (_, index) => {
    const row = values.subarray(index * width, (index + 1) * width);
    const [score = 0, className = 0] = row.subarray(4, 6);
    return { box: row.subarray(0, 4), score, className, rest: row.subarray(6) };
  });
}

/** The greatest difference between two lists of one length, number by number. */
export const greatestDifference = (one: Float32Array, other: Float32Array): number => {
  let max = 0;
  for (let at = 0; at < one.length; at++) {
    max = Math.max(max, Math.abs((one[at] as number) - (other[at] as number)));
  }
  return max;
};

/**
 * How a file's rows of an image differ from the predictor's: each has a partner of its own with the
 * same class and the nearest score and box, and each of the predictor's is one's partner. Of rows
 * at the other list's cut, whose equals may lie beyond it, those without a partner do not count.
 * Coefficients of masks count as boxes do: both are sums of the same maps.
 */
export function compareRows(
  file: DetectionRows,
  predictor: DetectionRows,
  tolerance: Tolerance,
): RowDifference {
  const [rows, partners] = [rowsOf(file), rowsOf(predictor)];
  const found: RowDifference = { rows: 0, objects: 0, box: 0, score: 0, unmatched: 0 };
  if (file.width !== predictor.width || rows.length !== partners.length) {
    return { ...found, unmatched: Math.max(rows.length, partners.length) };
  }
  const taken = new Set<Row>();
  // Written so that what is no number is at no cut.
  const atCutOf = (list: readonly Row[], { score }: Row) =>
    score <= (list.at(-1)?.score ?? 0) + tolerance.score;
  for (const row of rows) {
    let nearest: { partner: Row; box: number; score: number; cost: number } | null = null;
    for (const partner of partners) {
      const score = Math.abs(row.score - partner.score);
      if (taken.has(partner) || partner.className !== row.className) continue;
      if (!(score <= REACH * tolerance.score)) continue;
      const box = Math.max(
        greatestDifference(row.box, partner.box),
        greatestDifference(row.rest, partner.rest),
      );
      const cost = box / tolerance.box + score / tolerance.score;
      if (!nearest || cost < nearest.cost) nearest = { partner, box, score, cost };
    }
    const isWithin =
      nearest !== null && nearest.box <= tolerance.box && nearest.score <= tolerance.score;
    if (!isWithin && atCutOf(partners, row)) continue;
    found.rows += 1;
    if (row.score >= OBJECT_SCORE) found.objects += 1;
    if (!nearest) {
      found.unmatched += 1;
      continue;
    }
    taken.add(nearest.partner);
    found.box = Math.max(found.box, nearest.box);
    found.score = Math.max(found.score, nearest.score);
  }
  const missing = partners.filter((one) => !taken.has(one) && !atCutOf(rows, one));
  const objects = partners.filter(({ score }) => score >= OBJECT_SCORE);
  // Objects of which none was compared are not verified either, wherever the cut is.
  const unseen = found.rows === 0 ? objects.length : 0;
  // A row that is off is one without a partner in both lists, and counts once.
  const more = Math.max(0, missing.length - found.unmatched, unseen - found.unmatched);
  found.rows += more;
  found.unmatched += more;
  return found;
}

/**
 * The greatest difference once one in a hundred, or one of fewer, is left out, so that a lone
 * unsure object does not decide; null of none. A single one decides.
 */
export function p99Difference(differences: readonly number[]): number | null {
  const left = Math.ceil(differences.length / 100);
  const falling = differences.toSorted((one, other) => other - one);
  return falling[Math.min(left, falling.length - 1)] ?? null;
}

/** How a file's objects differ from the predictor's. */
export interface ObjectDifference extends RowDifference {
  /** Sums of the scores of objects: the file's, and the predictor's of the same ones. */
  scores: { file: number; predictor: number };
  /** The surer rows of the predictor that have one of the file, with it. */
  pairs: readonly RowPair[];
}

/** Boxes that are so far apart are as unlike as scores that differ by the other. */
const LIKENESS = { box: 3, score: 0.1 } as const;

/**
 * How a file of lower precision differs in what people would see: each of the predictor's surer
 * rows has the row of its class that is nearest to it. Where no row is an object, the surer half of
 * the best score counts in their stead. Objects that the file alone has need a row of the predictor
 * in the same manner. Of a list that is full of objects, those that are within
 * `cut` of its last score may have fallen to the other side, and do not count.
 */
export function compareObjects(
  file: DetectionRows,
  predictor: DetectionRows,
  cut: number = LIKENESS.score,
): ObjectDifference {
  const scores = { file: 0, predictor: 0 };
  const found: ObjectDifference = {
    rows: 0,
    objects: 0,
    box: 0,
    score: 0,
    unmatched: 0,
    scores,
    pairs: [],
  };
  const [rows, partners] = [rowsOf(file), rowsOf(predictor)];
  if (file.width !== predictor.width) return { ...found, unmatched: partners.length };
  const best = partners[0]?.score ?? 0;
  const scoreMin = best >= OBJECT_SCORE ? OBJECT_SCORE : best / 2;
  const lowest = Math.max(rows.at(-1)?.score ?? 0, partners.at(-1)?.score ?? 0);
  const isFull = lowest >= scoreMin;
  const atCut = (score: number) => isFull && score <= lowest + cut;
  const sure = partners.filter(({ score }) => score >= scoreMin && !atCut(score));
  const pairs = pairsOf(sure, rows);
  found.rows = sure.length;
  found.unmatched = sure.length - pairs.length;
  found.pairs = pairs;
  for (const { partner, row, box, score } of pairs) {
    found.box = Math.max(found.box, box);
    found.score = Math.max(found.score, score);
    if (partner.score < OBJECT_SCORE) continue;
    found.objects += 1;
    scores.file += row.score;
    scores.predictor += partner.score;
  }
  const taken = new Set(pairs.flatMap(({ partner, row }) => [partner, row]));
  // Their rows may lie beyond the predictor's cut; how full the file's own list is excuses nothing.
  const othersMin = Math.max(OBJECT_SCORE, (partners.at(-1)?.score ?? 0) + cut);
  const others = rows.filter((row) => !taken.has(row) && row.score >= othersMin);
  const left = partners.filter((partner) => !taken.has(partner));
  const back = pairsOf(left, others);
  found.rows += others.length;
  found.unmatched += others.length - back.length;
  for (const { box, score } of back) {
    found.box = Math.max(found.box, box);
    found.score = Math.max(found.score, score);
  }
  return found;
}

/** A predictor's row, and the file's that it is held against. */
export interface RowPair {
  partner: Row;
  row: Row;
  box: number;
  score: number;
}

/**
 * Pairs rows of one class, the nearest two of all first, so that no row is taken from another one
 * that it is nearer to; what is no number is near nothing.
 */
function pairsOf(partners: readonly Row[], rows: readonly Row[]): RowPair[] {
  const possible = partners.flatMap((partner) =>
    rows.flatMap((row) => {
      if (row.className !== partner.className) return [];
      const score = Math.abs(row.score - partner.score);
      const box = Math.max(
        greatestDifference(row.box, partner.box),
        greatestDifference(row.rest, partner.rest),
      );
      const cost = box / LIKENESS.box + score / LIKENESS.score;
      return Number.isNaN(cost) ? [] : [{ partner, row, box, score, cost }];
    }),
  );
  const taken = new Set<Row>();
  return possible
    .sort((one, other) => one.cost - other.cost)
    .filter(({ partner, row }) => {
      if (taken.has(partner) || taken.has(row)) return false;
      taken.add(partner).add(row);
      return true;
    });
}
