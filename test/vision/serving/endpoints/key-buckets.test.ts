// What a meter writes down of its keys. Goal: what changed and nothing else, and nothing at all of
// keys that are not used any more, as revoked ones are; a limit is never let go of by that.

import { expect, it } from "vitest";
import { KeyBuckets } from "../../../../edge/vision/serving/endpoints/key-buckets.ts";

/** A request a second, ten at once. */
const LIMIT = { requestsPerMinute: 60, burst: 10 };
const takeOne = (buckets: KeyBuckets, keyId: string, now: number) =>
  buckets.take({ keyId, limit: LIMIT }, now, 1).waitMs;

function flushed(buckets: KeyBuckets, now: number) {
  const changes = buckets.changes(now);
  buckets.keep(changes);
  return { written: changes.written.map(([key]) => key), forgotten: changes.forgotten };
}

it("writes a bucket down when it was taken from, and forgets it when it is full", () => {
  const buckets = new KeyBuckets([]);
  for (const key of ["used", "revoked"]) takeOne(buckets, key, 0);
  expect(flushed(buckets, 100)).toEqual({ written: ["used", "revoked"], forgotten: [] });
  takeOne(buckets, "used", 500);
  expect(flushed(buckets, 600)).toEqual({ written: ["used"], forgotten: [] });
  expect(flushed(buckets, 999)).toEqual({ written: [], forgotten: [] });
  expect(flushed(buckets, 1_000)).toEqual({ written: [], forgotten: ["revoked"] });
  expect(flushed(buckets, 2_000)).toEqual({ written: [], forgotten: ["used"] });
  expect(flushed(buckets, 3_000)).toEqual({ written: [], forgotten: [] });
});

it("never writes down a bucket that was full again before the flush", () => {
  const buckets = new KeyBuckets([]);
  takeOne(buckets, "k", 0);
  expect(flushed(buckets, 1_000)).toEqual({ written: [], forgotten: ["k"] });
});

it("limits a key that is flushed as one that is not", () => {
  const [kept, flushing] = [new KeyBuckets([]), new KeyBuckets([])];
  let refused = 0;
  for (let at = 0; at < 60_000; at += 370) {
    const wait = takeOne(kept, "k", at);
    expect(takeOne(flushing, "k", at)).toBe(wait);
    if (wait > 0) refused += 1;
    flushed(flushing, at + 1);
  }
  expect(refused).toBeGreaterThan(50);
});

it("goes on with what was written down", () => {
  const buckets = new KeyBuckets([["k", { tokens: 0, at: 0, fullAt: 10_000 }]]);
  expect(buckets.changes(1).written).toEqual([]);
  expect(takeOne(buckets, "k", 400)).toBeCloseTo(600);
  expect(flushed(buckets, 9_999)).toEqual({ written: ["k"], forgotten: [] });
  expect(flushed(buckets, 10_000)).toEqual({ written: [], forgotten: ["k"] });
});
