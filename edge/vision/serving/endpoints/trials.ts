// What an endpoint's requests came to since it was made, model by model, and shadow by shadow: sums
// that experiments read at any two instants and subtract. They take no row a request, and what is
// between two readings is counted once.

import type { SqlStorage } from "@cloudflare/workers-types";
import type { Prediction } from "../../../../shared/tasks/tasks.ts";
import type { Counts } from "./rollups.ts";
import { addCounts, latencyBucket } from "./rollups.ts";

/** A number of a model, and what the live one had for the same image; 0 of a model by itself. */
export interface TrialNumber {
  own: number;
  live: number;
}

/** What one image came to. */
export interface TrialSample {
  /** The model gave no answer, by a fault that is not the sender's. */
  failed: boolean;
  /** Milliseconds until its answer; null where there was none, or it had to be opened first. */
  ms: number | null;
  /** Logarithms of milliseconds; null as `ms`, of a pair where either is. */
  latency: TrialNumber | null;
  /** The mean confidence of what was told, 0 where nothing was. */
  confidence: TrialNumber | null;
}

/** Numbers of a model as sums, each less the live one's. */
export interface TrialMoments {
  count: number;
  sum: number;
  squares: number;
  /** Sum of what the live model had. */
  live: number;
}

/** What the images of a model, or of a shadow beside a live model, came to. */
export interface Trial {
  /** Answered and failed ones. */
  requests: number;
  failures: number;
  latency: TrialMoments;
  confidence: TrialMoments;
  /** Images by bucket of their milliseconds, as `Rollup.latency`. */
  histogram: Counts;
}

/** How a meter names what a model came to by itself, or as the shadow of another. */
export const trialName = (modelId: string, liveModelId: string | null = null): string =>
  liveModelId === null ? modelId : `${liveModelId}>${modelId}`;

const noMoments = (): TrialMoments => ({ count: 0, sum: 0, squares: 0, live: 0 });

export const emptyTrial = (): Trial => ({
  requests: 0,
  failures: 0,
  latency: noMoments(),
  confidence: noMoments(),
  histogram: {},
});

function addNumber(into: TrialMoments, number: TrialNumber | null) {
  if (!number) return;
  const difference = number.own - number.live;
  into.count += 1;
  into.sum += difference;
  into.squares += difference * difference;
  into.live += number.live;
}

/** Counts an image in. */
export function addSample(into: Trial, sample: TrialSample): void {
  into.requests += 1;
  if (sample.failed) into.failures += 1;
  if (sample.ms !== null) addCounts(into.histogram, { [latencyBucket(sample.ms)]: 1 });
  addNumber(into.latency, sample.latency);
  addNumber(into.confidence, sample.confidence);
}

function addMoments(into: TrialMoments, from: Readonly<TrialMoments>, sign: 1 | -1) {
  for (const name of ["count", "sum", "squares", "live"] as const) into[name] += sign * from[name];
}

function added(one: Readonly<Trial>, other: Readonly<Trial>, sign: 1 | -1): Trial {
  const sum = emptyTrial();
  for (const [from, by] of [[one, 1] as const, [other, sign] as const]) {
    sum.requests += by * from.requests;
    sum.failures += by * from.failures;
    addMoments(sum.latency, from.latency, by);
    addMoments(sum.confidence, from.confidence, by);
    for (const [bucket, count] of Object.entries(from.histogram)) {
      sum.histogram[bucket] = (sum.histogram[bucket] ?? 0) + by * count;
    }
  }
  for (const [bucket, count] of Object.entries(sum.histogram)) {
    if (count === 0) delete sum.histogram[bucket];
  }
  return sum;
}

/** Both together. */
export const sumTrials = (one: Readonly<Trial>, other: Readonly<Trial>): Trial =>
  added(one, other, 1);

/** What came between two readings of one meter. */
export const trialSince = (now: Readonly<Trial>, before: Readonly<Trial>): Trial =>
  added(now, before, -1);

const LATENCY_MS_MIN = 1;
const logOf = (ms: number) => Math.log(Math.max(LATENCY_MS_MIN, ms));

/** The mean confidence of what was told of an image, 0 where nothing was. */
const meanConfidence = (told: readonly Prediction[]): number =>
  told.reduce((sum, { confidence }) => sum + confidence, 0) / Math.max(1, told.length);

/** An answer to an image, as a trial looks at it. */
export interface TrialAnswer {
  told: readonly Prediction[];
  ms: number;
  /** Whether the model had to be opened first. */
  cold: boolean;
  /** Whether masks were drawn within the milliseconds, which a shadow draws none of. */
  masked?: boolean;
}

/** An answered image; with what the live model answered, of the shadow beside it. */
export function answeredSample(own: TrialAnswer, live: TrialAnswer | null = null): TrialSample {
  const isTimed = !own.cold && !live?.cold && !live?.masked;
  return {
    failed: false,
    ms: own.cold ? null : own.ms,
    latency: isTimed ? { own: logOf(own.ms), live: live ? logOf(live.ms) : 0 } : null,
    confidence: { own: meanConfidence(own.told), live: live ? meanConfidence(live.told) : 0 },
  };
}

/** An image that was not answered. */
export const FAILED_SAMPLE: TrialSample = {
  failed: true,
  ms: null,
  latency: null,
  confidence: null,
};

/** Who was kept waiting for longer, and left, got no answer. */
const LEFT_FAILED_MS = 3_000;

/**
 * An image whose sender left before the answer: the model took longer than that, which bounds its
 * time from below.
 */
export function leftSample(ms: number): TrialSample {
  const latency = { own: logOf(ms), live: 0 };
  return { failed: ms >= LEFT_FAILED_MS, ms, latency, confidence: null };
}

/** Longer than any experiment lasts: what no image came to for so long is forgotten. */
const KEPT_MS = 100 * 86_400_000;

/** Trials of one endpoint, in its meter's own SQLite; what is fresh is in memory until a flush. */
export class TrialStore {
  readonly #sql: SqlStorage;
  #fresh = new Map<string, Trial>();

  constructor(sql: SqlStorage) {
    this.#sql = sql;
    sql.exec(`CREATE TABLE IF NOT EXISTS trial (
      name TEXT PRIMARY KEY, at INTEGER NOT NULL, counts TEXT NOT NULL);`);
  }

  add(name: string, sample: TrialSample): void {
    const fresh = this.#fresh.get(name) ?? emptyTrial();
    this.#fresh.set(name, fresh);
    addSample(fresh, sample);
  }

  /** Writes down what is in memory; inside the transaction of whoever calls it. */
  flush(now: number): void {
    for (const [name, fresh] of this.#fresh) {
      const text = JSON.stringify(sumTrials(this.read(name), fresh));
      this.#sql.exec("INSERT OR REPLACE INTO trial VALUES (?, ?, ?)", name, now, text);
    }
    this.#sql.exec("DELETE FROM trial WHERE at < ?", now - KEPT_MS);
  }

  /** What was written down is not fresh any more; after the transaction. */
  flushed(): void {
    this.#fresh = new Map();
  }

  /** What is written down of a trial. */
  read(name: string): Trial {
    const [row] = this.#sql.exec("SELECT counts FROM trial WHERE name = ?", name).toArray();
    return row ? (JSON.parse(String(row.counts)) as Trial) : emptyTrial();
  }
}
