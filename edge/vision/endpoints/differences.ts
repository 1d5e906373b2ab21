// What two models say of one image, held against each other: boxes that overlap are of one object.

import type { Bbox, Prediction } from "../../../shared/tasks.ts";

/** Boxes of one object overlap at least so much. */
const IOU_MIN = 0.5;

/** What differs, in detections. */
export interface Differences {
  matched: number;
  otherClass: number;
  onlyLive: number;
  onlyShadow: number;
  /** Sum of the IoU of what matched. */
  iou: number;
}

/** The area that both boxes cover as a share of what they cover together. */
export function iouOf(one: Readonly<Bbox>, other: Readonly<Bbox>): number {
  const width = Math.min(one[2], other[2]) - Math.max(one[0], other[0]);
  const height = Math.min(one[3], other[3]) - Math.max(one[1], other[1]);
  if (!(width > 0 && height > 0)) return 0;
  const both = width * height;
  return both / (areaOf(one) + areaOf(other) - both);
}

const areaOf = ([x1, y1, x2, y2]: Readonly<Bbox>) => (x2 - x1) * (y2 - y1);

interface Pair {
  live: number;
  shadow: number;
  iou: number;
}

/**
 * Holds the detections of an answer against a shadow's. Each is of one pair at most: those of one
 * class first, the larger overlap before the smaller; what is left may pair with another class.
 */
export function differencesOf(
  live: readonly Prediction[],
  shadow: readonly Prediction[],
): Differences {
  const pairs: Pair[] = [];
  for (const [one, { bbox }] of live.entries()) {
    for (const [other, { bbox: seen }] of shadow.entries()) {
      const iou = iouOf(bbox, seen);
      if (iou >= IOU_MIN) pairs.push({ live: one, shadow: other, iou });
    }
  }
  pairs.sort((one, other) => other.iou - one.iou);
  const isSame = (pair: Pair) => live[pair.live]?.class === shadow[pair.shadow]?.class;
  const [pairedLive, pairedShadow] = [new Set<number>(), new Set<number>()];
  const paired = (candidates: readonly Pair[]) =>
    candidates.filter((pair) => {
      if (pairedLive.has(pair.live) || pairedShadow.has(pair.shadow)) return false;
      pairedLive.add(pair.live);
      pairedShadow.add(pair.shadow);
      return true;
    });
  const matched = paired(pairs.filter(isSame));
  const otherClass = paired(pairs.filter((pair) => !isSame(pair)));
  return {
    matched: matched.length,
    otherClass: otherClass.length,
    onlyLive: live.length - pairedLive.size,
    onlyShadow: shadow.length - pairedShadow.size,
    iou: matched.reduce((sum, { iou }) => sum + iou, 0),
  };
}
