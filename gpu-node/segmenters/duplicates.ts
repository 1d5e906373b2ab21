// Two prompts that saw one object.

import { DUPLICATE_IOU, iou, type TrackedBox } from "../../shared/detector/tracks.ts";

/** For each detection the index of the better one of another class that it repeats, or null. */
export function flagDuplicates(
  detections: readonly (TrackedBox & { class_name: string })[],
): (number | null)[] {
  const order = detections
    .map((_, index) => index)
    .sort((a, b) => confidenceAt(detections, b) - confidenceAt(detections, a) || a - b);
  const flags: (number | null)[] = detections.map(() => null);
  order.forEach((index, rank) => {
    const one = detections[index] as TrackedBox & { class_name: string };
    const better = order.slice(0, rank).find((other) => {
      const first = detections[other] as TrackedBox & { class_name: string };
      return (
        flags[other] === null &&
        first.class_name !== one.class_name &&
        iou(first.bbox, one.bbox) > DUPLICATE_IOU
      );
    });
    flags[index] = better ?? null;
  });
  return flags;
}

const confidenceAt = (boxes: readonly TrackedBox[], index: number) => boxes[index]?.confidence ?? 0;
