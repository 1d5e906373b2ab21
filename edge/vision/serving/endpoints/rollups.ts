// What requests came to, as counts that can be added up in any order: by minute, by hour, over a
// window. Latencies are counted in buckets that grow by a fixed ratio, so that every percentile is
// within a known share of the true one, whatever is merged (DDSketch: Masson, Rim and Lee,
// "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with Relative-Error Guarantees", PVLDB
// 12(12), 2019).

import { CONFIDENCE_BINS, confidenceBins } from "../../../../shared/detector/confidence-bins.ts";

/** How often each of some names or numbers was counted. */
export type Counts = Record<string, number>;

/** A percentile is within this share of the true one. */
export const RELATIVE_ERROR = 0.01;
const GAMMA = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR);
const LOG_GAMMA = Math.log(GAMMA);
/** What the clock can tell; anything faster counts as this. Milliseconds. */
const LATENCY_MS_MIN = 1;

/**
 * What drift looks at begins here: requests whose own bound is higher would hide what lies below.
 */
export const DRIFT_CONFIDENCE_MIN = 0.25;
const DRIFT_FIRST_BIN = Math.round(DRIFT_CONFIDENCE_MIN * CONFIDENCE_BINS);
export const DRIFT_BINS = CONFIDENCE_BINS - DRIFT_FIRST_BIN;
/** Codes and classes that one row tells apart; what comes after them is counted as `other`. */
const NAMES_MAX = 1_000;
const OTHER = "other";

/** What a shadow's look at images came to. */
export interface ShadowCounts {
  mirrored: number;
  compared: number;
  shed: Counts;
  failed: number;
  matched: number;
  otherClass: number;
  onlyLive: number;
  onlyShadow: number;
  /** Sum of the IoU of what matched. */
  iou: number;
}

/** What some requests came to. */
export interface Rollup {
  requests: number;
  answered: number;
  coldStarts: number;
  errors: Counts;
  /** Answered requests by bucket of their latency. */
  latency: Counts;
  batches: Counts;
  classes: Counts;
  /** Detections that were told, by confidence. */
  confidence: number[];
  /** The model's detections that drift looks at, by confidence. */
  scores: number[];
  shadows: Record<string, ShadowCounts>;
}

/** One request as it ended. */
export interface RequestEnd {
  /** The error's code; null for an answered one. */
  code: string | null;
  /** Milliseconds from the image's last byte to the answer; null where none was given. */
  ms: number | null;
  /** Images that the node looked at together; null of an answer by no direct line. */
  batch: number | null;
  /** Whether the node had to open the model. */
  cold: boolean;
  classes: Counts;
  confidence: number[];
  /** Null where the request's own bound hides some of what drift looks at. */
  scores: number[] | null;
}

/** What there is to say of a request without an answer, beside its code. */
export const UNANSWERED: Omit<RequestEnd, "code"> = {
  ms: null,
  batch: null,
  cold: false,
  classes: {},
  confidence: [],
  scores: null,
};

/** How a request ended whose end was never told. */
export const LOST: RequestEnd = { ...UNANSWERED, code: "unknown" };

export const emptyRollup = (): Rollup => ({
  requests: 0,
  answered: 0,
  coldStarts: 0,
  errors: {},
  latency: {},
  batches: {},
  classes: {},
  confidence: new Array<number>(CONFIDENCE_BINS).fill(0),
  scores: new Array<number>(DRIFT_BINS).fill(0),
  shadows: {},
});

export const emptyShadow = (): ShadowCounts => ({
  mirrored: 0,
  compared: 0,
  shed: {},
  failed: 0,
  matched: 0,
  otherClass: 0,
  onlyLive: 0,
  onlyShadow: 0,
  iou: 0,
});

function increase(counts: Counts, name: string, by: number) {
  const isKnown = Object.hasOwn(counts, name);
  const counted = isKnown || Object.keys(counts).length < NAMES_MAX ? name : OTHER;
  if (Object.hasOwn(counts, counted)) {
    counts[counted] = (counts[counted] ?? 0) + by;
    return;
  }
  // A class may have the name of something that every object inherits.
  Object.defineProperty(counts, counted, {
    value: by,
    configurable: true,
    enumerable: true,
    writable: true,
  });
}

/** Adds counts up, name by name. */
export function addCounts(into: Counts, from: Readonly<Counts>) {
  for (const [name, by] of Object.entries(from)) increase(into, name, by);
}

function addBins(into: number[], from: readonly number[]) {
  for (const [bin, by] of from.entries()) into[bin] = (into[bin] ?? 0) + by;
}

/** Counts a request in. Whether its `scores` belong here is for the caller to know. */
export function addRequest(into: Rollup, end: RequestEnd): void {
  into.requests += 1;
  if (end.code !== null) increase(into.errors, end.code, 1);
  else into.answered += 1;
  if (end.ms !== null) increase(into.latency, String(latencyBucket(end.ms)), 1);
  if (end.batch !== null) increase(into.batches, String(end.batch), 1);
  if (end.cold) into.coldStarts += 1;
  addCounts(into.classes, end.classes);
  addBins(into.confidence, end.confidence);
  if (end.scores) addBins(into.scores, end.scores);
}

function addShadow(into: ShadowCounts, from: Readonly<ShadowCounts>) {
  into.mirrored += from.mirrored;
  into.compared += from.compared;
  into.failed += from.failed;
  into.matched += from.matched;
  into.otherClass += from.otherClass;
  into.onlyLive += from.onlyLive;
  into.onlyShadow += from.onlyShadow;
  into.iou += from.iou;
  addCounts(into.shed, from.shed);
}

/** Counts in what a shadow came to. */
export function addShadowOf(into: Rollup, modelId: string, from: Readonly<ShadowCounts>): void {
  const own = into.shadows[modelId] ?? emptyShadow();
  into.shadows[modelId] = own;
  addShadow(own, from);
}

/** Adds up; in any order and grouping it comes to the same. */
export function merge(into: Rollup, from: Readonly<Rollup>): void {
  into.requests += from.requests;
  into.answered += from.answered;
  into.coldStarts += from.coldStarts;
  for (const field of ["errors", "latency", "batches", "classes"] as const) {
    addCounts(into[field], from[field]);
  }
  addBins(into.confidence, from.confidence);
  addBins(into.scores, from.scores);
  for (const [modelId, shadow] of Object.entries(from.shadows)) addShadowOf(into, modelId, shadow);
}

/** The sum of rollups. */
export function sumOf(rollups: Iterable<Readonly<Rollup>>): Rollup {
  const sum = emptyRollup();
  for (const one of rollups) merge(sum, one);
  return sum;
}

/** The bucket of a latency: from GAMMA^(bucket - 1), which is not of it, to GAMMA^bucket. */
export const latencyBucket = (ms: number): number =>
  Math.ceil(Math.log(Math.max(ms, LATENCY_MS_MIN)) / LOG_GAMMA);

/** The value that is within `RELATIVE_ERROR` of all that lies in a bucket, milliseconds. */
export const latencyOf = (bucket: number): number => (2 * GAMMA ** bucket) / (GAMMA + 1);

/**
 * The latency that a share of requests did not exceed, milliseconds: of n in order, the one at
 * position ⌊share · (n - 1)⌋, from 0. Within `RELATIVE_ERROR` of the true one; null without any.
 */
export function percentile(latency: Readonly<Counts>, share: number): number | null {
  const buckets = Object.entries(latency)
    .map(([bucket, count]) => ({ bucket: Number(bucket), count }))
    .sort((one, other) => one.bucket - other.bucket);
  const total = buckets.reduce((sum, { count }) => sum + count, 0);
  if (total === 0) return null;
  const rank = Math.floor(share * (total - 1));
  let before = 0;
  for (const { bucket, count } of buckets) {
    before += count;
    if (before > rank) return latencyOf(bucket);
  }
  return null;
}

/** Those of all bins that drift looks at. */
export const driftPart = (bins: readonly number[]): number[] => bins.slice(DRIFT_FIRST_BIN);

/** The bins that drift looks at. */
export const driftBins = (confidences: readonly number[]): number[] =>
  driftPart(confidenceBins(confidences));

/** How often each class is there. */
export function classCounts(classes: readonly string[]): Counts {
  const times = new Map<string, number>();
  for (const one of classes) times.set(one, (times.get(one) ?? 0) + 1);
  const counts: Counts = {};
  for (const [name, by] of times) increase(counts, name, by);
  return counts;
}
