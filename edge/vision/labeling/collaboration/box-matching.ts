// Boxes of two people on one frame, matched one to one. The matching is symmetric: exchanging the
// sides exchanges the pairs and changes nothing else.

import { iou } from "../../../../shared/detector/tracks.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";

/** A box of a class. */
export interface LabeledBox {
  class: string;
  bbox: Readonly<Bbox>;
}

/** A box of either side, by their indexes, that stand for one object. */
export interface BoxPair {
  own: number;
  other: number;
  iou: number;
}

/** Pairs of a frame. */
export interface FrameMatching {
  /** Boxes of one class. */
  matched: BoxPair[];
  /** Boxes of two classes, neither of which has a partner of its own class. */
  confused: BoxPair[];
}

/**
 * Matches boxes from an IoU on: again and again the two free boxes that overlap most, at first of
 * one class, then of what is left of two classes.
 */
export function matchBoxes(
  own: readonly LabeledBox[],
  others: readonly LabeledBox[],
  iouMin: number,
): FrameMatching {
  const taken = { own: new Uint8Array(own.length), others: new Uint8Array(others.length) };
  const ranks = ranksOf([...own, ...others]);
  const pairsWhere = (isMeant: (one: LabeledBox, other: LabeledBox) => boolean): BoxPair[] => {
    const candidates: (BoxPair & { ranks: [low: number, high: number] })[] = [];
    for (const [index, one] of own.entries()) {
      if (taken.own[index]) continue;
      for (const [at, other] of others.entries()) {
        if (taken.others[at] || !isMeant(one, other)) continue;
        const overlap = iou(one.bbox, other.bbox);
        if (overlap < iouMin) continue;
        const [a, b] = [ranks[index] as number, ranks[own.length + at] as number];
        const pair = { own: index, other: at, iou: overlap };
        candidates.push({ ...pair, ranks: [Math.min(a, b), Math.max(a, b)] });
      }
    }
    // The order of pairs that overlap alike must not depend on whose box is whose.
    candidates.sort(
      (one, two) => two.iou - one.iou || one.ranks[0] - two.ranks[0] || one.ranks[1] - two.ranks[1],
    );
    const pairs: BoxPair[] = [];
    for (const { own: index, other: at, iou: overlap } of candidates) {
      if (taken.own[index] || taken.others[at]) continue;
      taken.own[index] = 1;
      taken.others[at] = 1;
      pairs.push({ own: index, other: at, iou: overlap });
    }
    return pairs;
  };
  const matched = pairsWhere((one, other) => one.class === other.class);
  const confused = pairsWhere((one, other) => one.class !== other.class);
  return { matched, confused };
}

/** The rank of each box among all by corners and class; equal boxes of a class have one rank. */
function ranksOf(boxes: readonly LabeledBox[]): number[] {
  const ranks: number[] = [];
  const sorted = boxes.map((_, index) => index).sort((one, two) => order(boxes, one, two));
  let rank = 0;
  for (const [at, index] of sorted.entries()) {
    if (at > 0 && order(boxes, sorted[at - 1] as number, index) !== 0) rank = at;
    ranks[index] = rank;
  }
  return ranks;
}

function order(boxes: readonly LabeledBox[], one: number, two: number): number {
  const [first, second] = [boxes[one] as LabeledBox, boxes[two] as LabeledBox];
  for (const [corner, value] of first.bbox.entries()) {
    const difference = value - (second.bbox[corner] as number);
    if (difference !== 0) return difference;
  }
  if (first.class === second.class) return 0;
  return first.class < second.class ? -1 : 1;
}
