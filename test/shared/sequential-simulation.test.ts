// Thousands of experiments by chance, each looked at every day. Goal: where there is no difference,
// one is told in no more of them than alpha says, however often somebody looks; where there is one
// of the planned size, it is told in as many as the power says. Every family of metrics.

import { describe, expect, it } from "vitest";
import {
  normalQuantile,
  samplesForBounded,
  samplesForMean,
  samplesForShares,
  splitDeviation,
} from "../../edge/vision/experiments/campaigns/sequential-plan.ts";
import {
  boundedLogE,
  compareMeans,
  type Evidence,
  type Moments,
  meanDifference,
  shareLow,
  sharesLogE,
} from "../../edge/vision/experiments/campaigns/sequential-test.ts";
import { seeded } from "../support/weights.ts";

const ALPHA = 0.05;
const POWER = 0.8;
const DAYS = 30;
/** Experiments without a difference, and with one. */
const AA = 2_000;
const AB = 400;

/**
 * How far the share of so many experiments is off the true one, more than once in a thousand times
 * by chance (the binomial's normal approximation, one-sided).
 */
const margin = (share: number, count: number) => 3.1 * Math.sqrt((share * (1 - share)) / count);

/** Normal numbers, by pairs (Box and Muller). */
function normals(random: () => number): () => number {
  let spare: number | null = null;
  return () => {
    if (spare !== null) {
      const held = spare;
      spare = null;
      return held;
    }
    const radius = Math.sqrt(-2 * Math.log(1 - random()));
    const angle = 2 * Math.PI * random();
    spare = radius * Math.sin(angle);
    return radius * Math.cos(angle);
  };
}

/**
 * What a share of false alarms has to stay below, so that the true rate is alpha at most: one of
 * alpha itself passes once in a thousand times. The tests are careful, as all that hold at any time
 * are: of 2,000 each, 0 (error rates of 2 %) to 1.75 % (confidences) told a difference, of guard
 * rails 0.1 to 0.3 % were broken.
 */
const FALSE_MAX = ALPHA - margin(ALPHA, AA);

/** One experiment: each call is a day, and tells the logarithm of its e-value then. */
type Campaign = () => number;

/** The share of experiments in which a difference was told on any of its days. */
function told(count: number, begin: (random: () => number) => Campaign): number {
  let refuted = 0;
  for (let seed = 1; seed <= count; seed++) {
    const day = begin(seeded(seed * 7_919));
    for (let days = 0; days < DAYS; days++) {
      if (day() < Math.log(1 / ALPHA)) continue;
      refuted += 1;
      break;
    }
  }
  return refuted / count;
}

const evidenceE = ({ logE }: Evidence) => logE;

/** Failures of two models among requests that chance gave to either. */
function sharesOf(perDay: number, baselineShare: number, candidateShare: number) {
  return (random: () => number): Campaign => {
    const [baseline, candidate] = [
      { yes: 0, no: 0 },
      { yes: 0, no: 0 },
    ];
    return () => {
      for (let request = 0; request < perDay; request++) {
        const [counts, share] =
          random() < 0.5
            ? ([baseline, baselineShare] as const)
            : ([candidate, candidateShare] as const);
        counts[random() < share ? "yes" : "no"] += 1;
      }
      return sharesLogE(baseline, candidate, 0);
    };
  };
}

const noMoments = (): Moments => ({ count: 0, sum: 0, squares: 0 });
const add = (into: Moments, value: number) => {
  into.count += 1;
  into.sum += value;
  into.squares += value * value;
};

/** Numbers of two models among requests that chance gave to either. */
function meansOf(
  perDay: number,
  plan: { tunedTo: number; deviation: number },
  draw: (random: () => number) => (isCandidate: boolean) => number,
) {
  return (random: () => number): Campaign => {
    const [baseline, candidate] = [noMoments(), noMoments()];
    const value = draw(random);
    return () => {
      for (let request = 0; request < perDay; request++) {
        const isCandidate = random() < 0.5;
        add(isCandidate ? candidate : baseline, value(isCandidate));
      }
      return evidenceE(compareMeans(baseline, candidate, { alpha: ALPHA, ...plan }));
    };
  };
}

/** Differences of pairs. */
function pairsOf(
  perDay: number,
  plan: { tunedTo: number; deviation: number },
  draw: (random: () => number) => () => number,
) {
  return (random: () => number): Campaign => {
    const moments = noMoments();
    const value = draw(random);
    return () => {
      for (let image = 0; image < perDay; image++) add(moments, value());
      return evidenceE(meanDifference(moments, { alpha: ALPHA, ...plan }));
    };
  };
}

/** Differences of frames' scores, each kept. */
function framesOf(perDay: number, draw: (random: () => number) => () => number) {
  return (random: () => number): Campaign => {
    const differences: number[] = [];
    const value = draw(random);
    return () => {
      for (let frame = 0; frame < perDay; frame++) differences.push(value());
      return boundedLogE(differences, ALPHA);
    };
  };
}

/**
 * A guard rail of a share, looked at daily: what is counted is over when it is surely broken. A p95
 * is such a share, of requests that take longer than it.
 */
function guardOf(perDay: number, { share, max }: { share: number; max: number }) {
  return (random: () => number): Campaign => {
    const counts = { yes: 0, no: 0 };
    return () => {
      for (let request = 0; request < perDay; request++) counts[random() < share ? "yes" : "no"]++;
      return shareLow(counts, ALPHA) > max ? Number.POSITIVE_INFINITY : 0;
    };
  };
}

const clipped = (value: number) => Math.max(-1, Math.min(1, value));
/** Log-latencies of a node that is sometimes four times as slow. */
const bimodal = (random: () => number) => {
  const normal = normals(random);
  return (faster = 0) => 3 - faster + 0.3 * normal() + (random() < 0.1 ? Math.log(4) : 0);
};

describe("without a difference, looked at daily", () => {
  it.each<[string, (random: () => number) => Campaign]>([
    ["error rates of 2 %", sharesOf(100, 0.02, 0.02)],
    ["error rates of 30 %", sharesOf(60, 0.3, 0.3)],
    [
      "latencies of a split",
      meansOf(100, { tunedTo: 2_000, deviation: 0.5 }, (random) => {
        const value = bimodal(random);
        return () => value();
      }),
    ],
    [
      "latencies of a split that was planned with far too little spread",
      meansOf(100, { tunedTo: 2_000, deviation: 0.02 }, (random) => {
        const normal = normals(random);
        return () => 3 + normal();
      }),
    ],
    [
      "latencies of a shadow",
      pairsOf(40, { tunedTo: 500, deviation: 0.5 }, (random) => {
        const value = bimodal(random);
        return () => value() - value();
      }),
    ],
    [
      "confidences of a split",
      meansOf(60, { tunedTo: 1_000, deviation: 0.25 }, (random) => () => {
        const drawn = random();
        return random() < 0.2 ? 0 : drawn;
      }),
    ],
    [
      "AP of reviewed frames",
      framesOf(10, (random) => {
        const normal = normals(random);
        return () => clipped(0.3 * normal());
      }),
    ],
    [
      "acceptance of reviewed frames, mostly alike",
      framesOf(10, (random) => () => {
        const drawn = random();
        return drawn < 0.9 ? 0 : drawn < 0.95 ? 1 : -1;
      }),
    ],
  ])("tells one of %s in no more than alpha", (_, begin) => {
    expect(told(AA, begin)).toBeLessThanOrEqual(FALSE_MAX);
  });
});

describe("a guard rail, looked at daily", () => {
  it.each([
    ["an error rate of 1 %", 200, 0.01],
    ["an error rate of 20 %", 50, 0.2],
    ["a p95", 100, 0.05],
  ])("of %s is told broken by who is just within it in no more than alpha", (_, perDay, max) => {
    expect(told(AA, guardOf(perDay, { share: max, max }))).toBeLessThanOrEqual(FALSE_MAX);
  });

  it("is told broken by who is twice beyond it", () => {
    expect(told(AB, guardOf(100, { share: 0.1, max: 0.05 }))).toBeGreaterThan(0.95);
  });
});

const z = () => normalQuantile(1 - ALPHA / 2) + normalQuantile(POWER);
/** Samples of a test that is looked at once: a sequential one pays for its looks, within reason. */
const onceLookedAt = (deviation: number, effect: number) => (z() * deviation) ** 2 / effect ** 2;

/** A plan's samples, which have to be within some times those of a test with one look. */
function within(samples: number | null, once: number, times = 3): number {
  expect(samples).not.toBeNull();
  expect(samples).toBeGreaterThan(once);
  expect(samples).toBeLessThan(times * once);
  return samples as number;
}

describe("with a difference of the planned size", () => {
  const wanted = (effect: number) => ({ effect, alpha: ALPHA, power: POWER });
  const daily = (samples: number) => Math.ceil(samples / DAYS);
  const reaches = (begin: (random: () => number) => Campaign) =>
    expect(told(AB, begin)).toBeGreaterThanOrEqual(POWER - margin(POWER, AB));

  it("tells error rates apart", () => {
    const plan = samplesForShares(wanted(0.04), { share: 0.02, candidateShare: 0.5 });
    const deviation = splitDeviation(Math.sqrt((0.02 * 0.98 + 0.06 * 0.94) / 2), 0.5);
    // It is exact for the rarest of failures, and takes some more for that.
    reaches(sharesOf(daily(within(plan, onceLookedAt(deviation, 0.04), 4)), 0.02, 0.06));
  });

  it("tells latencies of a split apart", () => {
    const effect = Math.log1p(0.1);
    const deviation = splitDeviation(0.5, 0.5);
    const tunedTo = within(
      samplesForMean(wanted(effect), deviation),
      onceLookedAt(deviation, effect),
    );
    const draw = (random: () => number) => {
      const normal = normals(random);
      return (isCandidate: boolean) => 3 + 0.5 * normal() - (isCandidate ? effect : 0);
    };
    reaches(meansOf(daily(tunedTo), { tunedTo, deviation: 0.5 }, draw));
  });

  it("tells latencies of a shadow apart", () => {
    const effect = Math.log1p(0.1);
    const tunedTo = within(samplesForMean(wanted(effect), 0.4), onceLookedAt(0.4, effect));
    const draw = (random: () => number) => {
      const normal = normals(random);
      return () => 0.4 * normal() - effect;
    };
    reaches(pairsOf(daily(tunedTo), { tunedTo, deviation: 0.4 }, draw));
  });

  it("tells AP of reviewed frames apart", () => {
    const samples = within(samplesForBounded(wanted(0.06), 0.3), onceLookedAt(0.3, 0.06));
    const draw = (random: () => number) => {
      const normal = normals(random);
      return () => clipped(0.06 + 0.3 * normal());
    };
    reaches(framesOf(daily(samples), draw));
  });

  it("tells acceptance of reviewed frames apart", () => {
    // One in ten frames is better, one in fifty worse: a deviation of 0.337.
    const samples = within(samplesForBounded(wanted(0.08), 0.337), onceLookedAt(0.337, 0.08));
    const draw = (random: () => number) => () => {
      const drawn = random();
      return drawn < 0.1 ? 1 : drawn < 0.12 ? -1 : 0;
    };
    reaches(framesOf(daily(samples), draw));
  });
});
