// The EndpointMeter object in workerd, called by its methods. Goal: each report counts once,
// however often it comes; what was written down outlives the object's memory; windows hold
// what lies in them.

import { beforeAll, describe, expect, it } from "vitest";
import { REFERENCE_DETECTIONS } from "../../../../edge/vision/serving/endpoints/drift.ts";
import type {
  MeterReading,
  MeterReport,
  MeterRequest,
} from "../../../../edge/vision/serving/endpoints/meter.ts";
import {
  driftBins,
  emptyShadow,
  sumOf,
} from "../../../../edge/vision/serving/endpoints/rollups.ts";
import { confidenceBins } from "../../../../shared/detector/confidence-bins.ts";
import { DAY, HOUR, MINUTE, systemClock } from "../../../../shared/time.ts";
import { freshMeter, NOTHING_TOLD } from "../../../support/meters.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

const request = (more: Partial<MeterRequest> = {}): MeterRequest => ({
  at: systemClock(),
  modelId: "m",
  code: null,
  ms: 20,
  batch: 1,
  cold: false,
  classes: { disc: 1 },
  confidence: confidenceBins([0.5]),
  scores: null,
  ...more,
});
const totalOf = ({ windows }: MeterReading, window: "1h" | "24h" | "7d") =>
  sumOf(Object.values(windows[window].models));

describe("a meter", () => {
  it("counts each report once, also one that comes again, and of each isolate", async () => {
    const { meter } = freshMeter(world);
    const ends = [request({ code: "no_node", ms: null, modelId: null }), request(), request()];
    const all = Array.from(
      { length: 40 },
      (_, index): MeterReport => ({
        ...NOTHING_TOLD,
        isolate: `isolate ${index % 2}`,
        number: index,
        ended: ends,
      }),
    );
    await Promise.all([...all, ...all].map((one) => meter.report(one)));
    const hour = totalOf(await meter.read(systemClock()), "1h");
    expect(hour).toMatchObject({ requests: 120, answered: 80, errors: { no_node: 40 } });
  });

  it("knows what is under way in each isolate, as its latest report says", async () => {
    const { meter, report } = freshMeter(world);
    await report({ running: 2 });
    await meter.report({ ...NOTHING_TOLD, isolate: "other", number: 7, running: 3 });
    expect((await meter.read(systemClock())).inFlight).toBe(5);
    // It was overtaken: what it counts is new, what it has under way is not.
    await meter.report({
      ...NOTHING_TOLD,
      isolate: "other",
      number: 6,
      running: 9,
      ended: [request()],
    });
    await report({ running: 1 });
    const reading = await meter.read(systemClock());
    expect([reading.inFlight, totalOf(reading, "1h").requests]).toEqual([4, 1]);
  });

  it("keeps what it wrote down when it is evicted, and writes within moments", async () => {
    const { meter, record, evict } = freshMeter(world);
    const count = 300;
    for (let index = 0; index < count; index++) await record(request());
    // Some hundreds are written at once, the rest by the clock.
    expect((await meter.read(systemClock())).unwritten).toBeLessThan(count);
    await expect
      .poll(async () => (await meter.read(systemClock())).unwritten, {
        interval: 500,
      })
      .toBe(0);
    const before = await meter.read(systemClock());
    await evict();
    const after = await meter.read(systemClock());
    for (const window of ["1h", "24h", "7d"] as const) {
      expect(totalOf(after, window)).toEqual(totalOf(before, window));
      expect(totalOf(after, window).requests).toBe(count);
    }
    // It goes on from there.
    await record(request());
    expect(totalOf(await meter.read(systemClock()), "1h").requests).toBe(count + 1);
  });

  it("says when a model last answered, however late it hears of an older answer", async () => {
    const { meter, record, evict } = freshMeter(world);
    const now = systemClock();
    await record(request({ at: now - 3 * MINUTE }));
    await record(request({ at: now - 4 * MINUTE }));
    await record(request({ at: now, code: "no_node" }));
    await record(request({ at: now, modelId: "other" }));
    expect(await meter.lastAnswer("m")).toBe(now - 3 * MINUTE);
    await meter.trials([]); // Written down.
    await evict();
    expect(await meter.lastAnswer("m")).toBe(now - 3 * MINUTE);
    expect(await meter.lastAnswer("nobody")).toBeNull();
  });

  it("adds up what is written and what is not", async () => {
    const { meter, record } = freshMeter(world);
    // At once: what waits is written down by the clock, too.
    const all = Array.from({ length: 260 }, (_, index) => request({ modelId: `m${index % 2}` }));
    await Promise.all(all.map((one) => record(one)));
    const { unwritten, windows } = await meter.read(systemClock());
    expect(unwritten).toBe(4);
    const requests = Object.values(windows["24h"].models).map((one) => one.requests);
    expect(requests).toEqual([130, 130]);
  });

  it("tells of an hour, a day and a week what lies in them", async () => {
    const { meter, record } = freshMeter(world);
    const now = systemClock();
    const ages = [0, 59 * MINUTE, 2 * HOUR, 23 * HOUR, 26 * HOUR, 6 * DAY, 7 * DAY + 2 * HOUR];
    for (const age of ages) await record(request({ at: now - age }));
    const reading = await meter.read(now);
    const counts = (["1h", "24h", "7d"] as const).map(
      (window) => totalOf(reading, window).requests,
    );
    expect(counts).toEqual([2, 4, 6]);
    expect(reading.windows["1h"].since).toBe(now - HOUR - ((now - HOUR) % MINUTE));
    expect(reading.windows["7d"].since).toBe(now - 7 * DAY - ((now - 7 * DAY) % HOUR));
  });

  it("makes a model's first detections its reference, and counts what comes after", async () => {
    const { meter, record, evict } = freshMeter(world);
    const confidences = Array.from({ length: REFERENCE_DETECTIONS / 4 }, () => 0.6);
    const sure = request({ scores: driftBins(confidences) });
    for (let index = 0; index < 6; index++) {
      await record(sure);
    }
    const { references, windows } = await meter.read(systemClock());
    const sum = (bins: readonly number[] = []) => bins.reduce((total, count) => total + count, 0);
    expect(sum(references.m)).toBe(REFERENCE_DETECTIONS);
    expect(sum(windows["1h"].models.m?.scores)).toBe(REFERENCE_DETECTIONS / 2);
    await expect
      .poll(async () => (await meter.read(systemClock())).unwritten, {
        interval: 500,
      })
      .toBe(0);
    await evict();
    expect((await meter.read(systemClock())).references).toEqual(references);
  });

  it("makes no reference of a model that is held against its validation", async () => {
    const { meter, record } = freshMeter(world);
    const scores = driftBins([0.6, 0.6, 0.9]);
    await record(request({ scores, isValidated: true }));
    await record(request({ scores, modelId: "other" }));
    const { references, windows } = await meter.read(systemClock());
    expect(references).toEqual({ other: scores });
    const { m, other } = windows["1h"].models;
    expect(m?.scores).toEqual(scores);
    expect(other?.scores).toEqual(scores.map(() => 0));
  });

  it("keeps what its keys used up when it is evicted", async () => {
    const { meter, record, evict } = freshMeter(world);
    const gate = { keyId: "k", limit: { requestsPerMinute: 1, burst: 2 } };
    const ask = async () => (await meter.take(gate, 1)).waitMs;
    expect([await ask(), await ask()]).toEqual([0, 0]);
    const wait = await ask();
    expect(wait).toBeGreaterThan(50_000);
    expect(wait).toBeLessThanOrEqual(60_000);
    // A flush, by as many requests as it takes.
    for (let index = 0; index < 256; index++) await record(request());
    await evict();
    expect(await ask()).toBeGreaterThan(0);
    expect(await meter.take({ ...gate, keyId: "other" }, 9)).toEqual({ count: 2, waitMs: 0 });
  });

  it("takes back what an isolate took of a key and did not use, up to a burst", async () => {
    const { meter, report } = freshMeter(world);
    const gate = { keyId: "k", limit: { requestsPerMinute: 1, burst: 3 } };
    expect((await meter.take(gate, 3)).count).toBe(3);
    expect((await meter.take(gate, 1)).count).toBe(0);
    await report({ givenBack: [{ gate, count: 2 }] });
    expect((await meter.take(gate, 9)).count).toBe(2);
    await report({ givenBack: [{ gate, count: 9 }] });
    expect((await meter.take(gate, 9)).count).toBe(3);
  });

  it("counts shadows beside the requests", async () => {
    const { meter, report } = freshMeter(world);
    const counts = { ...emptyShadow(), mirrored: 1, compared: 1, matched: 2, iou: 1.8 };
    const at = systemClock();
    const one = { at, modelId: "s", counts };
    await report({ shadows: [one, { ...one, counts: { ...counts, shed: { busy: 1 } } }] });
    const { requests, shadows } = totalOf(await meter.read(at), "1h");
    expect(requests).toBe(0);
    expect(shadows.s).toMatchObject({ mirrored: 2, matched: 4, shed: { busy: 1 }, iou: 3.6 });
  });
});
