// What a comparison comes to, frame by frame: which objects are one, the figures of both models,
// and the frames that differ most. Depends on nothing but what it is given, in its order.

import {
  type ClassImage,
  classFigures,
  DETECTIONS_MAX,
} from "../../shared/detector/average-precision.ts";
import { figuresOf, overallFigures } from "../../shared/detector/detection-figures.ts";
import { matchObjects } from "../../shared/detector/object-matching.ts";
import {
  type ComparedFrame,
  type ComparedObject,
  type ComparisonOutcome,
  MATCHES,
  type Match,
  type TruthObject,
} from "../../shared/tasks/comparison-task.ts";
import type { Prediction } from "../../shared/tasks/tasks.ts";

/** What each model found on a frame, surest first. */
export type SideDetections = Record<"a" | "b", readonly Prediction[]>;

/** How frames are compared. */
export interface TallyRules {
  iou: number;
  /** From which objects are compared. */
  confidences: Record<"a" | "b", number>;
  hasTruth: boolean;
}

type FrameHead = Pick<
  ComparedFrame,
  "video_id" | "filename" | "frame_index" | "time" | "width" | "height" | "truth"
>;

const SIDES = ["a", "b"] as const;
const millionths = (value: number) => Math.round(value * 1e6) / 1e6;

/** The objects of both lists that are sure enough, each once: of both first, then of one. */
function objectsOf(found: SideDetections, { iou, confidences }: TallyRules): ComparedObject[] {
  const sure = (side: "a" | "b") =>
    found[side].filter(({ confidence }) => confidence >= confidences[side]);
  const [a, b] = [sure("a"), sure("b")];
  const { pairs, onlyA, onlyB } = matchObjects(a, b, iou);
  const ofBoth = pairs.map((pair) => ({
    match: pair.isSameClass ? ("both" as const) : ("other_class" as const),
    iou: millionths(pair.iou),
    a: a[pair.a] ?? null,
    b: b[pair.b] ?? null,
  }));
  const ofA = onlyA.map((index) => ({
    match: "only_a" as const,
    iou: null,
    a: a[index] ?? null,
    b: null,
  }));
  const ofB = onlyB.map((index) => ({
    match: "only_b" as const,
    iou: null,
    a: null,
    b: b[index] ?? null,
  }));
  return [...ofBoth, ...ofA, ...ofB];
}

/** Counts frames of a comparison as they come. */
export class ComparisonTally {
  readonly #rules: TallyRules;
  readonly #counts: Record<Match, number> = { both: 0, other_class: 0, only_a: 0, only_b: 0 };
  #overlap = 0;
  #objects = 0;
  /** By class, then by frame; a frame without the class is missing. */
  readonly #images: Record<"a" | "b", Map<string, ClassImage[]>> = { a: new Map(), b: new Map() };

  constructor(rules: TallyRules) {
    this.#rules = rules;
  }

  /** Objects of all frames, of both models. */
  get objects(): number {
    return this.#objects;
  }

  /** Holds what both found on the next frame against each other. */
  add(head: FrameHead, found: SideDetections): ComparedFrame {
    const objects = objectsOf(found, this.#rules);
    const counts: Record<Match, number> = { both: 0, other_class: 0, only_a: 0, only_b: 0 };
    let overlap = 0;
    for (const { match, iou } of objects) {
      counts[match] += 1;
      if (match === "both") overlap += iou ?? 0;
    }
    for (const match of MATCHES) this.#counts[match] += counts[match];
    this.#overlap += overlap;
    this.#objects += objects.length;
    if (this.#rules.hasTruth) {
      for (const side of SIDES) this.#note(side, head.truth ?? [], found[side]);
    }
    const { both, other_class, only_a, only_b } = counts;
    const difference = millionths(only_a + only_b + other_class + both - overlap);
    const { truth, ...rest } = head;
    return { ...rest, difference, both, other_class, only_a, only_b, objects, truth };
  }

  /** Keeps what average precision needs of a frame: as many of each class as COCO looks at. */
  #note(side: "a" | "b", truth: readonly TruthObject[], found: readonly Prediction[]) {
    const sure = this.#rules.confidences[side];
    const truths = Map.groupBy(truth, (one) => one.class);
    const own = Map.groupBy(found, (one) => one.class);
    for (const name of new Set([...truths.keys(), ...own.keys()])) {
      const image: ClassImage = {
        truths: (truths.get(name) ?? []).map(({ bbox }) => bbox),
        detections: (own.get(name) ?? [])
          .filter(({ confidence }, at) => at < DETECTIONS_MAX || confidence >= sure)
          .map(({ bbox, confidence }) => ({ bbox, confidence })),
      };
      const images = this.#images[side].get(name);
      if (images) images.push(image);
      else this.#images[side].set(name, [image]);
    }
  }

  agreement(): ComparisonOutcome["agreement"] {
    const { both, other_class, only_a, only_b } = this.#counts;
    const iou = both > 0 ? millionths(this.#overlap / both) : null;
    return { both, other_class, only_a, only_b, iou };
  }

  /** The figures of both models by the truth; null without one. */
  figures(): ComparisonOutcome["figures"] {
    const { hasTruth, iou, confidences } = this.#rules;
    if (!hasTruth) return null;
    const names = new Set(SIDES.flatMap((side) => [...this.#images[side].keys()]));
    const perClass = [...names].map((name) => {
      const of = (side: "a" | "b") =>
        classFigures(this.#images[side].get(name) ?? [], confidences[side], iou);
      return { name, a: of("a"), b: of("b") };
    });
    perClass.sort((one, other) => {
      if (one.a.truths !== other.a.truths) return other.a.truths - one.a.truths;
      return one.name < other.name ? -1 : 1;
    });
    const told = perClass.filter(({ a, b }) => a.truths + a.detections + b.detections > 0);
    return {
      overall: {
        a: overallFigures(perClass.map(({ a }) => a)),
        b: overallFigures(perClass.map(({ b }) => b)),
      },
      per_class: told.map(({ name, a, b }) => ({ class: name, a: figuresOf(a), b: figuresOf(b) })),
    };
  }
}

/** The duration in milliseconds that a share of all durations stays within. */
export function quantileMs(durations: readonly number[], part: number): number {
  const sorted = durations.toSorted((one, other) => one - other);
  const index = Math.max(0, Math.ceil(part * sorted.length) - 1);
  return Math.round((sorted[index] ?? 0) * 1_000) / 1_000;
}
