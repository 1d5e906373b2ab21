// Which anchor learns which object: the metric, claims, small objects, conflicts, soft targets.

import { type Anchor, type Corners, completeIou } from "./boxes.ts";
import { logistic } from "./tensor.ts";

export interface Truth {
  classIndex: number;
  box: Corners;
  /** Ones and zeros of the whole image, row by row, at a cell of four pixels; absent: unknown. */
  mask?: ArrayLike<number>;
}

export interface Choice {
  /** Anchors that an object claims, and that it keeps once conflicts are resolved. */
  claims: number;
  anchorsMax: number;
}
export const MANY: Choice = { claims: 10, anchorsMax: Number.POSITIVE_INFINITY };
export const ONE: Choice = { claims: 7, anchorsMax: 1 };

export interface Positive {
  anchor: number;
  truth: number;
  /** Target of the class score, and weight of the box. */
  target: number;
}

interface Candidate {
  anchor: number;
  truth: number;
  metric: number;
  overlap: number;
}

const SMALLEST = 8;
const SMALL_BECOMES = 16;
/** Nearer to a border than this is outside. */
const BORDER = 1e-9;
/** Keeps a metric of nothing from being divided by nothing. */
const METRIC_EPSILON = 1e-9;

/** What an image's anchors say: boxes, and logits by class. */
export interface Outlook {
  anchors: readonly Anchor[];
  box: (anchor: number) => Corners;
  logit: (anchor: number, classIndex: number) => number;
}

/** The positives of one image, by anchor. */
export function assign(outlook: Outlook, truths: readonly Truth[], choice: Choice): Positive[] {
  const claims = truths.flatMap((truth, index) =>
    candidates(outlook, truth, index)
      .sort((a, b) => b.metric - a.metric || a.anchor - b.anchor)
      .slice(0, choice.claims),
  );
  const owners = new Map<number, Candidate>();
  for (const claim of claims) {
    const owner = owners.get(claim.anchor);
    if (!owner || claim.overlap > owner.overlap) owners.set(claim.anchor, claim);
  }
  return truths
    .flatMap((_, truth) => {
      const own = [...owners.values()]
        .filter((claim) => claim.truth === truth)
        .sort((a, b) => b.metric - a.metric || a.anchor - b.anchor)
        .slice(0, choice.anchorsMax);
      const maxOf = (of: "metric" | "overlap") => Math.max(...own.map((claim) => claim[of]));
      return own.map(({ anchor, metric }) => ({
        anchor,
        truth,
        target: (metric / (maxOf("metric") + METRIC_EPSILON)) * maxOf("overlap"),
      }));
    })
    .sort((a, b) => a.anchor - b.anchor);
}

/** The anchors inside an object that see something of it. */
function candidates(outlook: Outlook, { classIndex, box }: Truth, truth: number): Candidate[] {
  const [x1, y1, x2, y2] = grown(box);
  return outlook.anchors.flatMap(({ x, y }, anchor) => {
    if (Math.min(x - x1, y - y1, x2 - x, y2 - y) <= BORDER) return [];
    const overlap = Math.max(completeIou(outlook.box(anchor), box), 0);
    const metric = Math.sqrt(logistic(outlook.logit(anchor, classIndex))) * overlap ** 6;
    return metric > 0 ? [{ anchor, truth, metric, overlap }] : [];
  });
}

/** A side too short to hold an anchor becomes longer about its middle. */
function grown([x1, y1, x2, y2]: Corners): Corners {
  const side = (from: number, to: number) => {
    const half = (to - from < SMALLEST ? SMALL_BECOMES : to - from) / 2;
    return [(from + to) / 2 - half, (from + to) / 2 + half] as const;
  };
  const [[left, right], [top, bottom]] = [side(x1, x2), side(y1, y2)];
  return [left, top, right, bottom];
}
