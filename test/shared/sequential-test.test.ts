// The sequential tests' figures, held against scipy's by their papers' formulas, and what has to
// hold between them whatever the data: an interval leaves "no difference" out just when the e-value
// refutes it, and knows nothing before there is something to know.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  SAMPLES_MAX,
  samplesForMean,
  samplesForShares,
} from "../../edge/vision/experiments/campaigns/sequential-plan.ts";
import {
  boundedDifference,
  boundedLogE,
  compareMeans,
  compareShares,
  type Evidence,
  logGamma,
  MEAN_SAMPLES_MIN,
  meanDifference,
  shareLow,
  verdictOf,
} from "../../edge/vision/experiments/campaigns/sequential-test.ts";
import { SEQUENTIAL_CASES } from "../peers/formats-sequential.ts";

const GOLDEN = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../golden/sequential.json"), "utf8"),
) as Record<string, Record<string, number>>;

describe("figures", () => {
  it.each(SEQUENTIAL_CASES.map((one) => [one.name, one] as const))(
    "are scipy's: %s",
    (name, one) => {
      const { step = 0, ...theirs } = GOLDEN[name] ?? {};
      expect(Object.keys(theirs).length).toBeGreaterThan(0);
      // Each family has figures of its own.
      const ours = one.ours as unknown as Record<string, number>;
      for (const [figure, reference] of Object.entries(theirs)) {
        const reach =
          (/low|high/.test(figure) ? step : 0) + 1e-6 * Math.max(1, Math.abs(reference));
        const distance = Math.abs((ours[figure] ?? Number.NaN) - reference);
        expect([figure, distance <= reach, ours[figure], reference]).toEqual([
          figure,
          true,
          ours[figure],
          reference,
        ]);
      }
    },
  );

  it("know the gamma function", () => {
    let factorial = 0;
    for (let n = 1; n <= 150; n++) {
      expect(logGamma(n)).toBeCloseTo(factorial, 8);
      factorial += Math.log(n);
    }
    expect(logGamma(0.5)).toBeCloseTo(Math.log(Math.PI) / 2, 10);
  });
});

const count = fc.integer({ min: 0, max: 5_000 });
const counts = fc.record({ yes: count, no: count });
const refutes = ({ low, high }: Evidence) => low > 0 || high < 0;

describe("an interval", () => {
  it("of shares leaves no difference out just when the e-value refutes it", () => {
    fc.assert(
      fc.property(counts, counts, (baseline, candidate) => {
        const evidence = compareShares(baseline, candidate, 0.05);
        expect(evidence.low).toBeGreaterThanOrEqual(-1);
        expect(evidence.high).toBeLessThanOrEqual(1);
        const isClear = Math.abs(evidence.logE - Math.log(20)) > 1e-6;
        if (isClear) expect(refutes(evidence)).toBe(evidence.logE >= Math.log(20));
      }),
      { numRuns: 60 },
    );
  });

  it("of frames leaves no difference out just when the e-value refutes it", () => {
    const score = fc.double({ min: -1, max: 1, noNaN: true });
    fc.assert(
      fc.property(fc.array(score, { minLength: 1, maxLength: 300 }), (differences) => {
        const evidence = boundedDifference(differences, 0.05);
        expect(evidence.logE).toBeCloseTo(boundedLogE(differences, 0.05), 9);
        const isWhole = evidence.low > -1 || evidence.high < 1;
        if (isWhole && Math.abs(evidence.logE - Math.log(20)) > 1e-6) {
          expect(refutes(evidence)).toBe(evidence.logE >= Math.log(20));
        }
      }),
      { numRuns: 100 },
    );
  });

  it("of means leaves no difference out just when the e-value refutes it", () => {
    const mean = fc.double({ min: -2, max: 2, noNaN: true });
    const plan = { alpha: 0.05, tunedTo: 500, deviation: 0.5 };
    fc.assert(
      fc.property(mean, fc.integer({ min: MEAN_SAMPLES_MIN, max: 1e6 }), (value, samples) => {
        const moments = {
          count: samples,
          sum: value * samples,
          squares: (value ** 2 + 1) * samples,
        };
        const evidence = meanDifference(moments, plan);
        if (Math.abs(evidence.logE - Math.log(20)) < 1e-6) return;
        expect(refutes(evidence)).toBe(evidence.logE >= Math.log(20));
      }),
    );
  });

  it("knows nothing of nothing", () => {
    const none = { count: 0, sum: 0, squares: 0 };
    const plan = { alpha: 0.05, tunedTo: 100, deviation: 1 };
    expect(compareMeans(none, none, plan)).toMatchObject({ estimate: null, logE: 0 });
    expect(meanDifference({ ...none, count: MEAN_SAMPLES_MIN - 1 }, plan).high).toBe(Infinity);
    expect(compareShares({ yes: 0, no: 0 }, { yes: 1, no: 1 }, 0.05)).toMatchObject({
      low: -1,
      high: 1,
      logE: 0,
    });
    expect(boundedDifference([], 0.05)).toMatchObject({ estimate: null, low: -1, high: 1 });
    expect(shareLow({ yes: 0, no: 0 }, 0.05)).toBe(0);
  });

  it("is not sure of means that never varied", () => {
    const still = { count: MEAN_SAMPLES_MIN, sum: 0, squares: 0 };
    const { low, high } = meanDifference(still, { alpha: 0.05, tunedTo: 100, deviation: 0.5 });
    expect(low).toBeLessThan(-0.02);
    expect(high).toBeGreaterThan(0.02);
  });

  it("says nothing of frames that no one mean explains", () => {
    const turned = [...Array<number>(400).fill(1), ...Array<number>(800).fill(-1)];
    const { low, high } = boundedDifference(turned, 0.05);
    expect(low).toBeLessThanOrEqual(high);
  });
});

describe("a verdict", () => {
  const bounds = { worse: -0.1, better: 0.1 };
  it.each([
    [-0.05, 0.05, "no_difference"],
    // Sure, and too small to matter.
    [0.01, 0.05, "no_difference"],
    [0.05, 0.2, "candidate_better"],
    [-0.3, -0.02, "baseline_better"],
    [-0.05, 0.2, "undecided"],
    [-Infinity, Infinity, "undecided"],
  ] as const)("of %d to %d is %s", (low, high, verdict) => {
    expect(verdictOf({ low, high }, bounds)).toBe(verdict);
  });
});

describe("a plan", () => {
  it("asks for more samples of smaller effects, and gives up beyond all bounds", () => {
    const of = (effect: number) => samplesForMean({ effect, alpha: 0.05, power: 0.8 }, 0.5);
    expect(of(0.1)).toBeLessThan(of(0.05) ?? 0);
    expect(of(1e-9)).toBeNull();
    expect(SAMPLES_MAX).toBeGreaterThan(1e7);
  });

  it("is made where the baseline never failed, and where it always does", () => {
    const of = (share: number) =>
      samplesForShares({ effect: 0.05, alpha: 0.05, power: 0.8 }, { share, candidateShare: 0.1 });
    expect(of(0)).toBeGreaterThan(100);
    expect(of(1)).toBeGreaterThan(100);
  });
});
