// Data of sequential tests, made from a seed, and what our tests say of them. What scipy says by
// the papers' formulas is in `test/golden/sequential.json` too.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { normalQuantile } from "../../edge/vision/experiments/campaigns/sequential-plan.ts";
import {
  boundedDifference,
  compareMeans,
  compareShares,
  type Moments,
  meanDifference,
  shareLow,
} from "../../edge/vision/experiments/campaigns/sequential-test.ts";
import { seeded } from "../support/weights.ts";

const plan = { alpha: 0.05, tunedTo: 1_000, deviation: 0.4 };

const momentsOf = (values: readonly number[]): Moments => ({
  count: values.length,
  sum: values.reduce((sum, value) => sum + value, 0),
  squares: values.reduce((sum, value) => sum + value * value, 0),
});

function drawn(seed: number, count: number, shift: number): number[] {
  const random = seeded(seed);
  return Array.from({ length: count }, () => random() + random() - 1 + shift);
}

const shares = (
  name: string,
  [a, b, c, d]: readonly [number, number, number, number],
  alpha: number,
) => {
  const [baseline, candidate] = [
    { yes: a, no: b },
    { yes: c, no: d },
  ];
  const ours = compareShares(baseline, candidate, alpha);
  return { name, family: "shares", baseline, candidate, alpha, ours };
};

const low = (name: string, yes: number, no: number) => {
  const counts = { yes, no };
  return { name, family: "shareLow", counts, alpha: 0.05, ours: { low: shareLow(counts, 0.05) } };
};

const bounded = (name: string, differences: number[], alpha: number) => ({
  name,
  family: "bounded",
  differences,
  alpha,
  ours: boundedDifference(differences, alpha),
});

const quantile = (probability: number) => ({
  name: `quantile ${probability}`,
  family: "quantile",
  probability,
  ours: { value: normalQuantile(probability) },
});

function split(name: string, [one, other]: readonly [number, number], shift: number) {
  const baseline = momentsOf(drawn(1, one, 0));
  const candidate = momentsOf(drawn(2, other, shift));
  const ours = compareMeans(baseline, candidate, plan);
  return { name, family: "means", baseline, candidate, plan, ours };
}

function paired(name: string, count: number, shift: number) {
  const differences = momentsOf(drawn(3, count, shift));
  return { name, family: "means", differences, plan, ours: meanDifference(differences, plan) };
}

/** Every family, where it knows little, much, and all too well. */
export const SEQUENTIAL_CASES = [
  shares("rare failures", [3, 997, 12, 488], 0.05),
  shares("no failure of one", [0, 200, 9, 191], 0.05),
  shares("few requests", [1, 4, 2, 3], 0.1),
  shares("many requests", [5_000, 95_000, 5_400, 94_600], 0.01),
  low("a share of few", 2, 18),
  low("a share of many", 900, 99_100),
  low("a share of all", 40, 0),
  split("latencies alike", [400, 600], 0),
  split("latencies apart", [3_000, 1_000], -0.1),
  paired("pairs alike", 80, 0),
  paired("pairs apart", 2_500, 0.04),
  bounded(
    "frames alike",
    drawn(4, 120, 0).map((one) => one / 2),
    0.05,
  ),
  bounded(
    "frames apart",
    drawn(5, 800, 0.1).map((one) => one / 2),
    0.05,
  ),
  bounded("few frames", [1, 0, -1, 0.5], 0.2),
  bounded(
    "frames all better",
    Array.from({ length: 60 }, () => 1),
    0.05,
  ),
  ...[0.001, 0.2, 0.5, 0.8, 0.975, 0.99].map(quantile),
];

/** Writes the cases with our figures beside them. */
export function writeSequential(folder: string): string {
  const path = join(folder, "sequential.json");
  writeFileSync(path, JSON.stringify(SEQUENTIAL_CASES));
  return path;
}
