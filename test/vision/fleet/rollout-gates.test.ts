// What becomes of a rollout, by what its devices reported: every gate on both of its sides.

import { expect, it } from "vitest";
import {
  type DeviceSample,
  figuresOf as figuresOfAll,
  judge,
} from "../../../edge/vision/fleet/rollouts/gates.ts";
import { GATES_DEFAULT, isRecent, type RolloutGates } from "../../../shared/wire/rollouts.ts";

interface DeviceFigures extends DeviceSample {
  heard: boolean;
  state: string;
  crashLooped: boolean;
  inferences: number;
  inferenceFailures: number;
}
const device = (more: Partial<DeviceFigures> = {}): DeviceFigures => ({
  heard: true,
  state: "confirmed",
  crashLooped: false,
  inferences: 1_000,
  inferenceFailures: 0,
  latencyMs: null,
  formerLatencyMs: null,
  scores: null,
  formerScores: null,
  ...more,
});
const many = (count: number, more: Partial<DeviceFigures> = {}) =>
  Array.from({ length: count }, () => device(more));
const countsOf = (devices: readonly DeviceFigures[]) => {
  const heard = devices.filter((one) => one.heard);
  const ended = heard.filter(({ state }) => state === "rolled_back" || state === "failed");
  const sum = (of: "inferences" | "inferenceFailures") =>
    heard.reduce((total, one) => total + one[of], 0);
  return {
    taken: devices.length,
    heard: heard.length,
    confirmed: heard.filter(({ state }) => state === "confirmed").length,
    failed: ended.length,
    crashLoops: ended.filter(({ crashLooped }) => crashLooped).length,
    inferences: sum("inferences"),
    inferenceFailures: sum("inferenceFailures"),
  };
};
const figuresOf = (devices: readonly DeviceFigures[]) => figuresOfAll(countsOf(devices), devices);

const verdictOf = (
  devices: readonly DeviceFigures[],
  more: {
    minutes?: number;
    isLast?: boolean;
    gates?: Partial<RolloutGates>;
    /** Those of the devices that the stage brought; all, unless said. */
    brought?: readonly DeviceFigures[];
  } = {},
) => {
  const { minutes = 60, isLast = false, brought = devices } = more;
  const gates = { ...GATES_DEFAULT, ...more.gates };
  return judge(figuresOf(devices), { minutes, isLast, gates, brought: countsOf(brought) });
};
const pending = { state: "downloading", inferences: 0 };
const failed = { state: "failed", inferences: 0 };

it.each<[string, DeviceFigures[], Parameters<typeof verdictOf>[1], string, RegExp]>([
  ["nobody is there", [], {}, "wait", /no device/],
  ["nobody was heard of", many(3, { heard: false }), {}, "wait", /none of 3 devices is there/],
  ["too few confirmed", [...many(7), ...many(3, pending)], {}, "wait", /7 of 10 .* 80 %/],
  ["enough confirmed", [...many(8), ...many(2, pending)], {}, "advance", /8 of 10/],
  [
    "those away do not count",
    [...many(10), ...many(90, { heard: false })],
    {},
    "advance",
    /10 of 10/,
  ],
  [
    "nearly all are away",
    [...many(9), ...many(91, { heard: false })],
    {},
    "wait",
    /9 of 100 .*10 %/,
  ],
  [
    "those of former stages confirmed, and the stage's own did not",
    [...many(90), ...many(10, pending)],
    { brought: many(10, pending) },
    "wait",
    /0 of 10/,
  ],
  [
    "those of former stages confirmed, and the stage's own are away",
    [...many(90), ...many(10, { heard: false })],
    { brought: many(10, { heard: false }), isLast: true },
    "wait",
    /none of 10/,
  ],
  [
    "the stage's own fail",
    [...many(98), ...many(2, failed)],
    { brought: [...many(8), ...many(2, failed)] },
    "roll_back",
    /2 of 10/,
  ],
  ["a stage that brought none", many(3), { brought: [] }, "advance", /3 of 3/],
  ["the stage is young", many(3), { minutes: 2.5 }, "wait", /8 more minutes/],
  ["the last stage passed", many(3), { isLast: true }, "complete", /3 of 3/],
  ["one canary failed", many(1, failed), {}, "roll_back", /1 of 1/],
  ["one of ten failed", [...many(9), ...many(1, failed)], {}, "advance", /9 of 10/],
  ["two of ten failed", [...many(8), ...many(2, failed)], {}, "roll_back", /2 of 10/],
  ["a failure in a young stage", many(1, failed), { minutes: 0 }, "roll_back", /1 of 1/],
  [
    "one crash loop among many",
    [...many(99), ...many(1, { state: "rolled_back", crashLooped: true })],
    {},
    "roll_back",
    /crashes/,
  ],
  [
    "crash loops that are allowed",
    [...many(99), ...many(1, { state: "rolled_back", crashLooped: true })],
    { gates: { crash_loops_max: 1 } },
    "advance",
    /99 of 100/,
  ],
  ["inferences that fail", many(1, { inferenceFailures: 60 }), {}, "roll_back", /60 of 1060/],
  [
    "few inferences tell nothing",
    many(1, { inferences: 10, inferenceFailures: 9 }),
    {},
    "advance",
    /./,
  ],
  ["half as slow again", many(3, { latencyMs: 15, formerLatencyMs: 10 }), {}, "advance", /3 of 3/],
  [
    "slower than that",
    many(3, { latencyMs: 16, formerLatencyMs: 10 }),
    {},
    "roll_back",
    /1\.60 times/,
  ],
  [
    "slower, on one device of three",
    [
      ...many(2, { latencyMs: 10, formerLatencyMs: 10 }),
      device({ latencyMs: 90, formerLatencyMs: 10 }),
    ],
    {},
    "advance",
    /./,
  ],
  [
    "slower, and nobody minds",
    many(3, { latencyMs: 90, formerLatencyMs: 10 }),
    { gates: { latency_ratio_max: null } },
    "advance",
    /./,
  ],
])("%s: %s", (_, devices, more, verdict, reason) => {
  expect(verdictOf(devices, more)).toEqual({ verdict, reason: expect.stringMatching(reason) });
});

const BINS = [0, 0, 100, 100, 100, 100, 100, 100, 100, 100];
const SHIFTED = [0, 0, 400, 250, 100, 25, 10, 5, 5, 5];

it("scores that moved roll back; those that did not, or too few to tell, do not", () => {
  const moved = device({ scores: SHIFTED, formerScores: BINS });
  expect(verdictOf([moved])).toEqual({
    verdict: "roll_back",
    reason: expect.stringMatching(/stability index/),
  });
  expect(verdictOf([moved], { gates: { score_shift_max: null } }).verdict).toBe("advance");
  expect(verdictOf([device({ scores: BINS, formerScores: BINS })]).verdict).toBe("advance");
  const few = device({ scores: [0, 0, 9, 9, 9, 0, 0, 0, 0, 0], formerScores: BINS });
  expect(verdictOf([few]).verdict).toBe("advance");
  expect(figuresOf([few]).score_shift).toBeNull();
  // A device that sees ten times as many of its own kind is no shift of the others.
  const busy = device({ scores: BINS.map((count) => 10 * count), formerScores: BINS });
  const quiet = device({ scores: SHIFTED.map((count) => count / 100), formerScores: SHIFTED });
  expect(figuresOf([busy, quiet]).score_shift).toBeLessThan(0.01);
});

it("one device with more scores than all others together does not decide for them", () => {
  const honest = many(4, { scores: BINS, formerScores: BINS });
  const flood = device({ scores: SHIFTED.map((count) => count * 1e10), formerScores: BINS });
  expect(verdictOf([...honest, flood]).verdict).toBe("advance");
});

it("the stability index is that of its definition", () => {
  // By hand of Σ (p - q) ln (p / q), each bin with half a detection more.
  const share = (bins: readonly number[]) => {
    const total = bins.reduce((sum, count) => sum + count + 0.5, 0);
    return bins.map((count) => (count + 0.5) / total);
  };
  const [p, q] = [share(SHIFTED), share(BINS.map((count) => (800 * count) / 800))];
  let wanted = 0;
  for (const [bin, now] of p.entries())
    wanted += (now - (q[bin] ?? 0)) * Math.log(now / (q[bin] ?? 1));
  const { score_shift: shift } = figuresOf([device({ scores: SHIFTED, formerScores: BINS })]);
  expect(shift).toBeCloseTo(wanted, 10);
});

it("compares releases by their numbers", () => {
  expect(isRecent("0.10.0", "0.9.9")).toBe(true);
  expect(isRecent("1.0.0", "1.0.0")).toBe(true);
  expect(isRecent("0.1.0", "0.1.1")).toBe(false);
  expect(isRecent("nightly", "0.0.0")).toBe(false);
});
