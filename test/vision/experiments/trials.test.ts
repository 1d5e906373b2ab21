// What a meter keeps for experiments, in workerd. Goal: an image is in the sums once; what was read
// is never lost, whatever the platform does to the object; and the sums need no more room for more
// requests.

import { beforeAll, describe, expect, it } from "vitest";
import { emptyShadow } from "../../../edge/vision/serving/endpoints/rollups.ts";
import {
  addSample,
  answeredSample,
  emptyTrial,
  FAILED_SAMPLE,
  type TrialSample,
  trialName,
} from "../../../edge/vision/serving/endpoints/trials.ts";
import { systemClock } from "../../../shared/time.ts";
import { freshMeter } from "../../support/meters.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

const sampleOf = (ms: number): TrialSample =>
  answeredSample({
    told: [{ class: "disc", confidence: 0.5, bbox: [0, 0, 1, 1] }],
    ms,
    cold: false,
  });
const request = (trial: TrialSample | null) => ({
  at: systemClock(),
  modelId: "m",
  code: trial?.failed === false ? null : "internal",
  ms: 20,
  batch: 1,
  cold: false,
  classes: {},
  confidence: [],
  scores: null,
  trial,
});
const shadow = (sample: TrialSample) => ({
  at: systemClock(),
  modelId: "s",
  counts: { ...emptyShadow(), mirrored: 1 },
  trial: { liveModelId: "m", sample },
});
const PAIR = trialName("s", "m");

describe("a meter's trials", () => {
  it("have each image once, and outlive the object", async () => {
    const { meter, record, report, evict } = freshMeter(world);
    const expected = emptyTrial();
    const requests = Array.from({ length: 30 }, (_, index) =>
      request(index % 10 === 0 ? FAILED_SAMPLE : sampleOf(5 + index)),
    );
    for (const { trial } of requests) if (trial) addSample(expected, trial);
    // What no model answers for is in the endpoint's status only.
    const others = [request(null), request(null)];
    await report({ ended: [...requests, ...others] });
    const read = async () => (await meter.trials(["m"])).m;
    const first = await read();
    expect(first).toMatchObject({ requests: 30, failures: 3, histogram: expected.histogram });
    expect(first?.latency.sum).toBeCloseTo(expected.latency.sum, 9);
    expect(first?.latency.squares).toBeCloseTo(expected.latency.squares, 9);
    // What was read was written down: an eviction loses none of it.
    await evict();
    expect(await read()).toEqual(first);
    await record(request(sampleOf(7)));
    expect(await read()).toMatchObject({ requests: 31, failures: 3 });
  });

  it("tell a shadow beside one live model from the model by itself", async () => {
    const { meter, report } = freshMeter(world);
    const shadows = [shadow(sampleOf(12)), shadow(FAILED_SAMPLE)];
    await report({ shadows: [...shadows, { ...shadow(sampleOf(1)), trial: null }] });
    await report({ ended: [request(sampleOf(3))] });
    const trials = await meter.trials(["m", "s", PAIR, "nobodys"]);
    expect(trials[PAIR]).toMatchObject({ requests: 2, failures: 1 });
    expect(trials.m).toMatchObject({ requests: 1 });
    expect(trials.s).toEqual(emptyTrial());
    expect(trials.nobodys).toEqual(emptyTrial());
  });

  it("take no more room for more requests", async () => {
    const { meter, report } = freshMeter(world);
    const bytes = async () => JSON.stringify(await meter.trials(["m"])).length;
    const ask = async (count: number) => {
      const samples = Array.from({ length: count }, (_, index) => 1 + ((index * 37) % 100));
      await report({ ended: samples.map((ms) => request(sampleOf(ms))) });
    };
    await ask(200);
    const before = await bytes();
    await ask(400);
    expect((await meter.trials(["m"])).m?.requests).toBe(600);
    // But for the digits of its numbers.
    expect(await bytes()).toBeLessThan(before * 1.3);
  });
});
