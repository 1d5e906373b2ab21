// A file of a model held against the model's predictor: what both give for the same images, row by
// row. Rows are never compared by their position alone, since near-ties change it.

import { PROTOTYPES } from "../../shared/detector.ts";
import { DETECTIONS_MAX } from "../../shared/detector-onnx.ts";
import type { DetectionRows } from "../../shared/letterbox.ts";

/** What a raw file gives for one image, anchor by anchor. */
export interface RawHeads {
  boxes: Float32Array;
  scores: Float32Array;
  /** Weights of the prototypes; of a segmentation model. */
  masks?: Float32Array;
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
  /** Of them, those of a score that people see by default. */
  objects: number;
  box: number;
  score: number;
  /** Rows that the other list has nothing like. */
  unmatched: number;
}

const OBJECT_SCORE = 0.25;
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

interface Row {
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

const greatestDifference = (one: Float32Array, other: Float32Array): number => {
  let max = 0;
  for (let at = 0; at < one.length; at++) {
    max = Math.max(max, Math.abs((one[at] as number) - (other[at] as number)));
  }
  return max;
};

/**
 * How a file's rows of an image differ from the predictor's: each has a partner of its own with the
 * same class and the nearest score and box. Of rows at the cut, whose equals may lie beyond it on
 * the other side, those without a partner do not count. Coefficients of masks count as boxes do:
 * both are sums of the same maps.
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
  const lowest = Math.max(rows.at(-1)?.score ?? 0, partners.at(-1)?.score ?? 0);
  const taken = new Set<Row>();
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
    if (!isWithin && row.score <= lowest + tolerance.score) continue;
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
  return found;
}
