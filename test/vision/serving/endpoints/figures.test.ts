// The arithmetic of endpoints, against what it has to come to: percentiles against exact ones,
// sums in any order, splits against chance, drift against its formula.

import { describe, expect, it } from "vitest";
import { differencesOf } from "../../../../edge/vision/serving/endpoints/differences.ts";
import {
  driftOf,
  REFERENCE_DETECTIONS,
  stabilityIndex,
  validationReference,
} from "../../../../edge/vision/serving/endpoints/drift.ts";
import {
  addRequest,
  classCounts,
  DRIFT_BINS,
  driftBins,
  emptyRollup,
  merge,
  percentile,
  RELATIVE_ERROR,
  type RequestEnd,
  sumOf,
} from "../../../../edge/vision/serving/endpoints/rollups.ts";
import { choose } from "../../../../edge/vision/serving/endpoints/split.ts";
import { fullBucket, take } from "../../../../edge/vision/serving/endpoints/token-bucket.ts";
import { confidenceBins } from "../../../../shared/detector/confidence-bins.ts";
import { iou } from "../../../../shared/detector/tracks.ts";
import { dice } from "../../../support/dice.ts";

const request = (ms: number, more: Partial<RequestEnd> = {}): RequestEnd => ({
  code: null,
  ms,
  batch: 2,
  cold: false,
  classes: { disc: 2 },
  confidence: confidenceBins([0.3, 0.9]),
  scores: driftBins([0.3, 0.9]),
  ...more,
});

describe("percentiles", () => {
  const roll = dice(7);
  /** Latencies as they come: most are quick, some are slow by decades. */
  const SAMPLES: Record<string, number[]> = {
    "a spread over five decades": Array.from({ length: 5_000 }, () => 10 ** (5 * roll())),
    "two humps": Array.from({ length: 3_000 }, (_, index) =>
      index % 10 === 0 ? 2_000 + 500 * roll() : 15 + 5 * roll(),
    ),
    "whole milliseconds": Array.from({ length: 2_000 }, () => 1 + Math.floor(40 * roll())),
    "one value": [137],
  };

  it.each(Object.entries(SAMPLES))("of %s are within 1 % of the exact ones", (_, sample) => {
    const halves = [emptyRollup(), emptyRollup()] as const;
    for (const [index, ms] of sample.entries()) addRequest(halves[index % 2 ? 1 : 0], request(ms));
    const { latency } = sumOf(halves);
    const sorted = sample.toSorted((one, other) => one - other);
    expect(RELATIVE_ERROR).toBe(0.01);
    for (const share of [0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1]) {
      const exact = sorted[Math.floor(share * (sorted.length - 1))] as number;
      const told = percentile(latency, share) as number;
      expect([share, Math.abs(told - exact) / exact <= RELATIVE_ERROR + 1e-9]).toEqual([
        share,
        true,
      ]);
    }
  });

  it("of nothing are none, and faster than the clock tells is a millisecond", () => {
    expect(percentile({}, 0.5)).toBeNull();
    const rollup = emptyRollup();
    addRequest(rollup, request(0));
    expect(percentile(rollup.latency, 0.5)).toBeCloseTo(1, 1);
  });
});

describe("rollups", () => {
  it("come to the same in any order and grouping, and lose no request", () => {
    const roll = dice(11);
    const ends = Array.from({ length: 400 }, (_, index) =>
      roll() < 0.2
        ? request(0, { code: index % 2 ? "overloaded" : "no_node", ms: null, batch: null })
        : request(1 + 500 * roll(), { cold: roll() < 0.1, batch: 1 + (index % 4) }),
    );
    const whole = emptyRollup();
    for (const end of ends) addRequest(whole, end);
    const parts = Array.from({ length: 7 }, emptyRollup);
    for (const end of ends) addRequest(parts[Math.floor(7 * roll())] ?? whole, end);
    const backwards = parts.toReversed().reduce((sum, one) => {
      // As it comes back from where it was written down.
      merge(sum, JSON.parse(JSON.stringify(one)));
      return sum;
    }, emptyRollup());
    expect(sumOf(parts)).toEqual(whole);
    expect(backwards).toEqual(whole);
    expect(whole.requests).toBe(400);
    const failed = Object.values(whole.errors).reduce((sum, count) => sum + count, 0);
    expect(whole.answered + failed).toBe(400);
    expect(Object.values(whole.latency).reduce((sum, count) => sum + count, 0)).toBe(
      whole.answered,
    );
  });

  it("put a confidence into its bin, both ends too", () => {
    const bins = confidenceBins([0, 0.049, 0.05, 0.15, 0.3, 0.35, 0.999, 1]);
    const at = (bin: number) => bins[bin];
    expect([0, 1, 3, 6, 7, 19].map(at)).toEqual([2, 1, 1, 1, 1, 2]);
    expect(driftBins([0.2, 0.25, 0.3])).toHaveLength(DRIFT_BINS);
    expect(driftBins([0.2, 0.25, 0.3]).slice(0, 3)).toEqual([1, 1, 0]);
  });

  it("count classes that are called as what every object has", () => {
    const names = ["constructor", "__proto__", "toString", "disc"];
    const rollup = emptyRollup();
    for (let index = 0; index < 3; index++) {
      addRequest(rollup, request(1, { classes: classCounts([...names, "disc"]) }));
    }
    expect(Object.entries(sumOf([rollup, rollup]).classes)).toEqual([
      ["constructor", 6],
      ["__proto__", 6],
      ["toString", 6],
      ["disc", 12],
    ]);
  });

  it("do not grow without bounds by names", () => {
    const rollup = emptyRollup();
    for (let index = 0; index < 3_000; index++) {
      addRequest(rollup, request(1, { classes: { [`class ${index}`]: 1 } }));
    }
    expect(Object.keys(rollup.classes).length).toBeLessThanOrEqual(1_001);
    expect(Object.values(rollup.classes).reduce((sum, count) => sum + count, 0)).toBe(3_000);
  });
});

describe("a split", () => {
  const KEYS = Array.from({ length: 10_000 }, (_, index) => `camera-${index}`);
  const shares = (weights: Record<string, number>, salt = "endpoint") => {
    const candidates = Object.entries(weights).map(([name, weight]) => ({ name, weight }));
    return new Map(KEYS.map((key) => [key, choose(candidates, { key, salt })?.name]));
  };
  const countsOf = (chosen: Map<string, string | undefined>) =>
    Object.fromEntries(
      [...Map.groupBy(chosen.values(), (name) => name)].map(([name, of]) => [name, of.length]),
    );

  it.each([
    ["even", { a: 1, b: 1 }],
    ["nine to one", { a: 90, b: 10 }],
    ["of three", { a: 0.5, b: 0.3, c: 0.2 }],
    ["one in a hundred", { a: 99, b: 1 }],
  ] as [string, Record<string, number>][])(
    "%s is what its weights say, within chance",
    (_, weights) => {
      const counts = countsOf(shares(weights));
      const total = Object.values(weights).reduce((sum, weight) => sum + weight, 0);
      for (const [name, weight] of Object.entries(weights)) {
        const share = weight / total;
        // Four standard deviations of a binomial: chance passes them once in 16,000.
        const bound = 4 * Math.sqrt(KEYS.length * share * (1 - share));
        expect(Math.abs((counts[name] ?? 0) - KEYS.length * share)).toBeLessThanOrEqual(bound);
      }
    },
  );

  it("gives a key the same one each time, whatever the order", () => {
    const [one, again] = [shares({ a: 3, b: 2, c: 1 }), shares({ c: 1, b: 2, a: 3 })];
    expect(again).toEqual(one);
  });

  it("moves only the keys that have to when weights change or one joins", () => {
    const before = shares({ a: 50, b: 50 });
    const after = shares({ a: 75, b: 25 });
    const moved = KEYS.filter((key) => before.get(key) !== after.get(key));
    expect(moved.every((key) => after.get(key) === "a")).toBe(true);
    expect(moved.length / KEYS.length).toBeCloseTo(0.25, 1);
    const joined = shares({ a: 50, b: 50, c: 10 });
    const gone = KEYS.filter((key) => before.get(key) !== joined.get(key));
    expect(gone.every((key) => joined.get(key) === "c")).toBe(true);
  });

  it("of another endpoint falls otherwise", () => {
    const [one, other] = [shares({ a: 1, b: 1 }), shares({ a: 1, b: 1 }, "another")];
    const same = KEYS.filter((key) => one.get(key) === other.get(key)).length;
    expect(same / KEYS.length).toBeCloseTo(0.5, 1);
  });

  it("without a key is by chance, and gives nobody where no weight is above 0", () => {
    const candidates = [
      { name: "a", weight: 1 },
      { name: "b", weight: 3 },
      { name: "c", weight: 0 },
    ];
    const drawn = Array.from({ length: 2_000 }, () => choose(candidates, { key: null, salt: "s" }));
    const ofB = drawn.filter((one) => one?.name === "b").length;
    // Five standard deviations: chance passes them once in two million.
    expect(Math.abs(ofB - 1_500)).toBeLessThan(5 * Math.sqrt(2_000 * 0.75 * 0.25));
    expect(drawn.some((one) => one?.name === "c")).toBe(false);
    expect(choose([{ name: "c", weight: 0 }], { key: "k", salt: "s" })).toBeNull();
  });
});

describe("a token bucket", () => {
  const limit = { requestsPerMinute: 60, burst: 3 };

  it("opens a burst at once, then one a second, and says when", () => {
    let bucket = fullBucket(limit, 0);
    const ask = (at: number) => {
      const taken = take(bucket, limit, { at, wanted: 1 });
      bucket = taken.bucket;
      return taken.waitMs;
    };
    expect([ask(0), ask(0), ask(0)]).toEqual([0, 0, 0]);
    expect(ask(0)).toBe(1_000);
    expect(ask(400)).toBeCloseTo(600);
    expect(ask(1_000)).toBe(0);
    expect(ask(1_000)).toBe(1_000);
    // A pause fills it no higher than a burst.
    expect([ask(90_000), ask(90_000), ask(90_000)]).toEqual([0, 0, 0]);
    expect(ask(90_000)).toBe(1_000);
  });

  it("gives nothing for a clock that goes back", () => {
    const empty = { tokens: 0, at: 10_000 };
    expect(take(empty, limit, { at: 5_000, wanted: 1 }).waitMs).toBe(1_000);
  });

  it("lets in what it says over an hour, no more than a burst more", () => {
    const roll = dice(3);
    let bucket = fullBucket(limit, 0);
    let admitted = 0;
    for (let at = 0; at < 3_600_000; at += Math.floor(600 * roll())) {
      const taken = take(bucket, limit, { at, wanted: 1 });
      bucket = taken.bucket;
      if (taken.waitMs === 0) admitted += 1;
    }
    expect(admitted).toBeLessThanOrEqual(3_600 + limit.burst);
    expect(admitted).toBeGreaterThan(3_500);
  });
});

describe("differences", () => {
  const found = (name: string, bbox: [number, number, number, number]) => ({
    class: name,
    confidence: 0.9,
    bbox,
  });

  it("are counted by boxes that overlap by half or more", () => {
    expect(iou([0, 0, 10, 10], [5, 0, 15, 10])).toBeCloseTo(1 / 3);
    expect(iou([0, 0, 10, 10], [10, 0, 20, 10])).toBe(0);
    const live = [
      found("disc", [0, 0, 10, 10]),
      found("disc", [100, 0, 110, 10]),
      found("star", [200, 0, 210, 10]),
    ];
    const shadow = [
      found("disc", [0, 0, 10, 9]),
      found("star", [100, 0, 110, 10]),
      found("disc", [300, 0, 310, 10]),
    ];
    expect(differencesOf(live, shadow)).toEqual({
      matched: 1,
      otherClass: 1,
      onlyLive: 1,
      onlyShadow: 1,
      iou: 0.9,
    });
    expect(differencesOf(live, live)).toMatchObject({ matched: 3, onlyLive: 0, iou: 3 });
    expect(differencesOf([], shadow)).toMatchObject({ matched: 0, onlyShadow: 3 });
  });

  it("pair those of one class first, and each detection once", () => {
    const live = [found("disc", [0, 0, 10, 10])];
    // The other class overlaps more.
    const shadow = [found("star", [0, 0, 10, 10]), found("disc", [0, 0, 10, 8])];
    expect(differencesOf(live, shadow)).toEqual({
      matched: 1,
      otherClass: 0,
      onlyLive: 0,
      onlyShadow: 1,
      iou: 0.8,
    });
  });
});

describe("drift", () => {
  const bins = (share: (bin: number) => number, total: number) =>
    Array.from({ length: DRIFT_BINS }, (_, bin) => Math.round(total * share(bin)));
  const even = () => 1 / DRIFT_BINS;
  /** Shares that fall from the first bin to the last. */
  const falling = (bin: number) => (2 * (DRIFT_BINS - bin)) / (DRIFT_BINS * (DRIFT_BINS + 1));

  it("is the population stability index", () => {
    // By hand: (.6 - .5) ln(.6 / .5) + (.4 - .5) ln(.4 / .5) = .0182 + .0223.
    expect(stabilityIndex([0.6, 0.4], [0.5, 0.5])).toBeCloseTo(0.0405, 4);
    expect(stabilityIndex([0.3, 0.7], [0.3, 0.7])).toBe(0);
  });

  it("is told as stable, moderate or large", () => {
    const reference = bins(even, 15_000);
    const of = (now: number[]) => driftOf("m", [{ reference, now }], null).verdict;
    expect(of(bins(even, 3_000))).toBe("stable");
    expect(of(bins((bin) => 0.6 * even() + 0.4 * falling(bin), 3_000))).toBe("stable");
    expect(of(bins((bin) => 0.3 * even() + 0.7 * falling(bin), 3_000))).toBe("moderate");
    expect(of(bins(falling, 3_000))).toBe("large");
    expect(of(bins(even, 60))).toBe("unknown");
  });

  it("is unknown before the reference is whole", () => {
    const now = bins(falling, 3_000);
    const reference = bins(even, REFERENCE_DETECTIONS / 2);
    expect(driftOf("m", [{ reference, now }], null)).toMatchObject({
      psi: null,
      count: 0,
      verdict: "unknown",
    });
    expect(driftOf("m", [], null)).toMatchObject({ psi: null, reference_count: 0 });
  });

  it("is held against the validation where that is known, and against all that came", () => {
    const reference = bins(even, REFERENCE_DETECTIONS / 2);
    const confidenceBins = [...Array(5).fill(90_000), ...bins(falling, 2_000)];
    const validation = validationReference({ confidenceBins });
    const of = (now: number[]) => driftOf("m", [{ reference, now }], validation);
    const total = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0);
    expect(of(bins(falling, 3_000))).toMatchObject({
      reference: "validation",
      reference_count: total(bins(falling, 2_000)),
      count: total(bins(falling, 3_000)),
      verdict: "stable",
    });
    expect(of(bins(even, 3_000)).verdict).toBe("large");
  });

  it("is held against no validation of a model without one, or with hardly any detection", () => {
    expect(validationReference({ confidenceBins: null })).toBeNull();
    const few = [...Array(5).fill(90_000), ...Array(14).fill(0), 199];
    expect(validationReference({ confidenceBins: few })).toBeNull();
    expect(validationReference({ confidenceBins: few.with(19, 200) })).toHaveLength(DRIFT_BINS);
  });

  it("does not come from traffic that moved between places", () => {
    const [one, other] = [bins(even, 15_000), bins(falling, 15_000)];
    const samples = [
      { reference: one, now: bins(even, 300) },
      { reference: other, now: bins(falling, 9_000) },
    ];
    const { psi, verdict } = driftOf("m", samples, null);
    expect(verdict).toBe("stable");
    expect(psi).toBeLessThan(0.01);
  });

  it("is held by chance to what chance gives", () => {
    const roll = dice(5);
    const draw = (count: number) => {
      const drawn = new Array<number>(DRIFT_BINS).fill(0);
      for (let index = 0; index < count; index++) {
        const bin = Math.floor(DRIFT_BINS * roll());
        drawn[bin] = (drawn[bin] ?? 0) + 1;
      }
      return drawn;
    };
    const beyond = Array.from({ length: 400 }, () =>
      driftOf("m", [{ reference: draw(1_000), now: draw(1_000) }], null),
    ).filter(({ psi, psi_by_chance }) => (psi ?? 0) > (psi_by_chance ?? 0)).length;
    // One in twenty of 400; five standard deviations.
    expect(Math.abs(beyond - 20)).toBeLessThan(5 * Math.sqrt(400 * 0.05 * 0.95));
  });
});
