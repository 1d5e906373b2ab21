// What two models say of one image, held against each other: boxes that overlap are of one object.

import { matchObjects } from "../../../../shared/detector/object-matching.ts";
import type { Prediction } from "../../../../shared/tasks/tasks.ts";

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

/** Holds the detections of an answer against a shadow's. */
export function differencesOf(
  live: readonly Prediction[],
  shadow: readonly Prediction[],
): Differences {
  const { pairs, onlyA, onlyB } = matchObjects(live, shadow, IOU_MIN);
  const matched = pairs.filter(({ isSameClass }) => isSameClass);
  return {
    matched: matched.length,
    otherClass: pairs.length - matched.length,
    onlyLive: onlyA.length,
    onlyShadow: onlyB.length,
    iou: matched.reduce((sum, { iou }) => sum + iou, 0),
  };
}
