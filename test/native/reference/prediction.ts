// What a detector finds: boxes and scores of the anchors, and the two top-k steps.

import { anchorsOf, boxAt, byAnchor } from "./boxes.ts";
import type { BranchMaps } from "./forward.ts";
import { logistic } from "./tensor.ts";

export interface Found {
  box: readonly [number, number, number, number];
  score: number;
  classIndex: number;
  anchor: number;
}

/** Best first, by image. */
export function endToEnd(maps: BranchMaps, limit = 300): Found[][] {
  const anchors = anchorsOf(maps.box);
  const [distances, logits] = [byAnchor(maps.box), byAnchor(maps.cls)];
  const classes = logits.side(2);
  return Array.from({ length: distances.side(0) }, (_, image) => {
    const scored = anchors.map((anchor, at) => {
      const row = image * anchors.length + at;
      const scores = Array.from({ length: classes }, (_, classIndex) =>
        logistic(logits.values[row * classes + classIndex] as number),
      );
      return {
        at,
        scores,
        most: Math.max(...scores),
        box: boxAt(anchor, distances.values, row * 4),
      };
    });
    const likely = scored.sort((a, b) => b.most - a.most).slice(0, limit);
    return likely
      .flatMap(({ at, scores, box }) =>
        scores.map((score, classIndex) => ({ box, score, classIndex, anchor: at })),
      )
      .sort((a, b) => b.score - a.score)
      .slice(0, Math.min(limit, anchors.length));
  });
}
