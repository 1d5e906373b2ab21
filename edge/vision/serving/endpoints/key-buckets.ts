// The token buckets of an endpoint's keys, as its meter holds them: which were taken from since
// they were last written down, and which are as good as none. A key without a bucket has a full
// one, so what is full again is forgotten; with it go those of revoked keys, by themselves.

import { MINUTE } from "../../../../shared/time.ts";
import type { KeyGate } from "./meter.ts";
import { fullBucket, type RateLimit, type TokenBucket, take } from "./token-bucket.ts";

/** A bucket, and from when on it is full unless somebody takes from it. */
export interface KeyBucket extends TokenBucket {
  /** Epoch milliseconds. */
  fullAt: number;
}

/** What differs from what was written down last. */
export interface BucketChanges {
  written: readonly (readonly [keyId: string, bucket: KeyBucket])[];
  /** Ids of keys. */
  forgotten: readonly string[];
}

export class KeyBuckets {
  readonly #buckets: Map<string, KeyBucket>;
  readonly #takenFrom = new Set<string>();

  /** Begins with what was written down. */
  constructor(written: Iterable<readonly [keyId: string, bucket: KeyBucket]>) {
    this.#buckets = new Map(written);
  }

  /**
   * Takes as many requests of a key as it has, at most so many; where it has none, tells the
   * milliseconds until it has one again.
   */
  take({ keyId, limit }: KeyGate, now: number, wanted: number): { count: number; waitMs: number } {
    const held = this.#buckets.get(keyId) ?? fullBucket(limit, now);
    const { bucket, count, waitMs } = take(held, limit, { at: now, wanted });
    this.#set(keyId, limit, bucket);
    return { count, waitMs };
  }

  /** Puts requests back that were taken and not made. */
  giveBack({ keyId, limit }: KeyGate, count: number): void {
    const held = this.#buckets.get(keyId);
    // What is full again has been forgotten.
    if (!held) return;
    this.#set(keyId, limit, { ...held, tokens: Math.min(limit.burst, held.tokens + count) });
  }

  #set(keyId: string, limit: RateLimit, { tokens, at }: TokenBucket) {
    const fillMs = ((limit.burst - tokens) * MINUTE) / limit.requestsPerMinute;
    this.#buckets.set(keyId, { tokens, at, fullAt: Math.ceil(at + fillMs) });
    this.#takenFrom.add(keyId);
  }

  /** What is to be written down at an instant. */
  changes(now: number): BucketChanges {
    const all = [...this.#buckets];
    return {
      written: all.filter(([keyId, { fullAt }]) => this.#takenFrom.has(keyId) && fullAt > now),
      forgotten: all.filter(([, { fullAt }]) => fullAt <= now).map(([keyId]) => keyId),
    };
  }

  /** They were written down. */
  keep({ forgotten }: BucketChanges): void {
    for (const keyId of forgotten) this.#buckets.delete(keyId);
    this.#takenFrom.clear();
  }
}
