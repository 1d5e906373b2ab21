// What a detector finds: boxes and scores of the anchors, and the two top-k steps.

import { anchorsOf, boxAt, byAnchor } from "./boxes.ts";
import type { BranchMaps } from "./forward.ts";
import { logistic } from "./tensor.ts";

export interface Detection {
  box: readonly [number, number, number, number];
  score: number;
  classIndex: number;
  anchor: number;
}

/** Best first, by image. */
export function endToEnd(maps: BranchMaps, limit = 300): Detection[][] {
  const anchors = anchorsOf(maps.box);
  const [distances, logits] = [byAnchor(maps.box), byAnchor(maps.cls)];
  const classes = logits.side(2);
  return Array.from({ length: distances.side(0) }, (_, image) => {
    const scored = anchors.map((anchor, index) => {
      const row = image * anchors.length + index;
      const scores = Array.from({ length: classes }, (_, classIndex) =>
        logistic(logits.values[row * classes + classIndex] as number),
      );
      return {
        index,
        scores,
        scoreMax: Math.max(...scores),
        box: boxAt(anchor, distances.values, row * 4),
      };
    });
    const likely = scored.sort((a, b) => b.scoreMax - a.scoreMax).slice(0, limit);
    return likely
      .flatMap(({ index, scores, box }) =>
        scores.map((score, classIndex) => ({ box, score, classIndex, anchor: index })),
      )
      .sort((a, b) => b.score - a.score)
      .slice(0, Math.min(limit, anchors.length));
  });
}
