// Which boxes of one image tell the same object, and what one box they make: greedy suppression,
// and weighted boxes fusion after Solovyev, Wang and Gabruseva, 2021 (arXiv:1910.13302). Pure.

import { iou } from "../detector/tracks.ts";
import type { Bbox } from "../shapes.ts";

/** A box as it is weighed against others. */
export interface ScoredBox {
  class: string;
  confidence: number;
  bbox: Readonly<Bbox>;
}

/** How much two boxes overlap: of their union, or of the smaller one. */
type Overlap = "union" | "smaller";

/** The share of the smaller box that lies within the other one. */
function shareOfSmaller(a: Readonly<Bbox>, b: Readonly<Bbox>): number {
  const width = Math.min(a[2], b[2]) - Math.max(a[0], b[0]);
  const height = Math.min(a[3], b[3]) - Math.max(a[1], b[1]);
  if (!(width > 0 && height > 0)) return 0;
  const area = ([x1, y1, x2, y2]: Readonly<Bbox>) => (x2 - x1) * (y2 - y1);
  return (width * height) / Math.min(area(a), area(b));
}

/** Indexes by falling confidence; those of equal confidence in their order. */
const surestFirst = (boxes: readonly ScoredBox[]): number[] =>
  Array.from(boxes.keys()).sort(
    (one, other) => (boxes[other]?.confidence ?? 0) - (boxes[one]?.confidence ?? 0),
  );

export interface Suppression {
  /** A box that overlaps a surer one by more is left out. */
  overlapMax: number;
  overlap: Overlap;
  /** Whether only boxes of one class suppress each other. */
  isClassAware: boolean;
  /** The group of a box by its index: boxes of one group never suppress each other. */
  groupOf?: (index: number) => number;
}

/** Indexes of the boxes that no surer box suppresses, surest first (hard, greedy NMS). */
export function keptBoxes(boxes: readonly ScoredBox[], suppression: Suppression): number[] {
  const { overlapMax, isClassAware, groupOf } = suppression;
  const overlapOf = suppression.overlap === "union" ? iou : shareOfSmaller;
  const kept: number[] = [];
  // Only what a box could be suppressed by is looked at.
  const rivals = new Map<string, number[]>();
  for (const index of surestFirst(boxes)) {
    const box = boxes[index] as ScoredBox;
    const key = isClassAware ? box.class : "";
    const surer = rivals.get(key) ?? [];
    rivals.set(key, surer);
    const isSuppressed = surer.some(
      (other) =>
        (groupOf === undefined || groupOf(other) !== groupOf(index)) &&
        overlapOf((boxes[other] as ScoredBox).bbox, box.bbox) > overlapMax,
    );
    if (isSuppressed) continue;
    kept.push(index);
    surer.push(index);
  }
  return kept;
}

/** A box of one of several models, by the model's index. */
interface ModelBox extends ScoredBox {
  model: number;
}

/** Boxes that were fused: the box that they make, its class, and who voted for it. */
export interface FusedBox {
  class: string;
  bbox: Bbox;
  /** Mean and highest confidence of the boxes. */
  mean: number;
  max: number;
  boxes: number;
  /** Indexes of the models, rising. */
  models: number[];
}

interface Cluster {
  members: ModelBox[];
  bbox: Bbox;
  /** Corners times confidences, and confidences, summed up. */
  sum: Bbox;
  weight: number;
  weights: Map<string, number>;
}

/**
 * Fuses the boxes of several models: each, surest first, joins the cluster whose fused box it
 * overlaps the most, if by more than `iouMin`, or begins one. A fused box is the mean of its boxes
 * weighted by their confidences. Where classes do not matter, a cluster is of the class for which
 * the confidences sum up to the most.
 */
export function fuseBoxes(
  boxes: readonly ModelBox[],
  { iouMin, isClassAware }: { iouMin: number; isClassAware: boolean },
): FusedBox[] {
  const clusters = new Map<string, Cluster[]>();
  for (const index of surestFirst(boxes)) {
    const box = boxes[index] as ModelBox;
    const key = isClassAware ? box.class : "";
    const rivals = clusters.get(key) ?? [];
    clusters.set(key, rivals);
    let [best, bestIou]: [Cluster | null, number] = [null, iouMin];
    for (const cluster of rivals) {
      const overlap = iou(cluster.bbox, box.bbox);
      if (overlap > bestIou) [best, bestIou] = [cluster, overlap];
    }
    if (!best) {
      best = { members: [], bbox: [...box.bbox], sum: [0, 0, 0, 0], weight: 0, weights: new Map() };
      rivals.push(best);
    }
    join(best, box);
  }
  return [...clusters.values()].flat().map(fusedOf);
}

function join(cluster: Cluster, box: ModelBox) {
  const { class: name, confidence, bbox } = box;
  const { sum, weights, members } = cluster;
  members.push(box);
  weights.set(name, (weights.get(name) ?? 0) + confidence);
  cluster.weight += confidence;
  for (const [corner, value] of bbox.entries()) {
    sum[corner] = (sum[corner] ?? 0) + confidence * value;
  }
  // One box is itself, without rounding; boxes without any confidence weigh nothing.
  if (members.length > 1 && cluster.weight > 0) {
    cluster.bbox = sum.map((value) => value / cluster.weight) as Bbox;
  }
}

function fusedOf({ members, bbox, weights }: Cluster): FusedBox {
  const [first = ["", 0] as const, ...others] = weights;
  const [name] = others.reduce((best, other) => (other[1] > best[1] ? other : best), first);
  const confidences = members.map(({ confidence }) => confidence);
  return {
    class: name,
    bbox,
    mean: confidences.reduce((sum, value) => sum + value, 0) / members.length,
    max: confidences.reduce((best, value) => Math.max(best, value), 0),
    boxes: members.length,
    models: [...new Set(members.map(({ model }) => model))].sort((one, other) => one - other),
  };
}
