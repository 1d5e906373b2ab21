// The EndpointMeter object in workerd, called by its methods. Goal: each request counts once,
// however often it is reported; what was written down outlives the object's memory; windows hold
// what lies in them.

import { beforeAll, describe, expect, it } from "vitest";
import { REFERENCE_DETECTIONS } from "../../../edge/vision/endpoints/drift.ts";
import {
  endpointMeter,
  type MeterReading,
  type MeterRequest,
  type MeterRpc,
} from "../../../edge/vision/endpoints/meter.ts";
import { driftBins, emptyShadow, sumOf } from "../../../edge/vision/endpoints/rollups.ts";
import { confidenceBins } from "../../../shared/confidence-bins.ts";
import { DAY, HOUR, MINUTE, systemClock } from "../../../shared/time.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
});

/** A meter of its own. */
function freshMeter() {
  const endpointId = crypto.randomUUID();
  const log = { info: () => {}, warning: () => {}, error: () => {} };
  const meter: MeterRpc = endpointMeter({ meters: world.objects("METERS"), log }, endpointId);
  return { meter, evict: () => world.evict("EndpointMeter", `endpoint:${endpointId}`) };
}

const request = (more: Partial<MeterRequest> = {}): MeterRequest => ({
  id: crypto.randomUUID(),
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
  it("counts each request once, also one that is reported again", async () => {
    const { meter } = freshMeter();
    const all = Array.from({ length: 40 }, (_, index) =>
      index % 4 === 0 ? request({ code: "no_node", ms: null, modelId: null }) : request(),
    );
    await Promise.all([...all, ...all].map((one) => meter.record(one)));
    const hour = totalOf(await meter.read(systemClock()), "1h");
    expect(hour).toMatchObject({ requests: 40, answered: 30, errors: { no_node: 10 } });
  });

  it("knows what is under way, whichever of its two reports comes first", async () => {
    const { meter } = freshMeter();
    const [one, two] = [request(), request()];
    await meter.begin(one.id, null);
    await meter.begin(two.id, null);
    expect((await meter.read(systemClock())).inFlight).toBe(2);
    await meter.record(one);
    const late = request();
    await meter.record(late);
    await meter.begin(late.id, null);
    expect((await meter.read(systemClock())).inFlight).toBe(1);
  });

  it("keeps what it wrote down when it is evicted, and writes within moments", async () => {
    const { meter, evict } = freshMeter();
    const count = 300;
    for (let index = 0; index < count; index++) await meter.record(request());
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
    await meter.record(request());
    expect(totalOf(await meter.read(systemClock()), "1h").requests).toBe(count + 1);
  });

  it("says when a model last answered, however late it hears of an older answer", async () => {
    const { meter, evict } = freshMeter();
    const now = systemClock();
    await meter.record(request({ at: now - 3 * MINUTE }));
    await meter.record(request({ at: now - 4 * MINUTE }));
    await meter.record(request({ at: now, code: "no_node" }));
    await meter.record(request({ at: now, modelId: "other" }));
    expect(await meter.lastAnswer("m")).toBe(now - 3 * MINUTE);
    await meter.trials([]); // Written down.
    await evict();
    expect(await meter.lastAnswer("m")).toBe(now - 3 * MINUTE);
    expect(await meter.lastAnswer("nobody")).toBeNull();
  });

  it("adds up what is written and what is not", async () => {
    const { meter } = freshMeter();
    // At once: what waits is written down by the clock, too.
    const all = Array.from({ length: 260 }, (_, index) => request({ modelId: `m${index % 2}` }));
    await Promise.all(all.map((one) => meter.record(one)));
    const { unwritten, windows } = await meter.read(systemClock());
    expect(unwritten).toBe(4);
    const requests = Object.values(windows["24h"].models).map((one) => one.requests);
    expect(requests).toEqual([130, 130]);
  });

  it("tells of an hour, a day and a week what lies in them", async () => {
    const { meter } = freshMeter();
    const now = systemClock();
    const ages = [0, 59 * MINUTE, 2 * HOUR, 23 * HOUR, 26 * HOUR, 6 * DAY, 7 * DAY + 2 * HOUR];
    for (const age of ages) await meter.record(request({ at: now - age }));
    const reading = await meter.read(now);
    const counts = (["1h", "24h", "7d"] as const).map(
      (window) => totalOf(reading, window).requests,
    );
    expect(counts).toEqual([2, 4, 6]);
    expect(reading.windows["1h"].since).toBe(now - HOUR - ((now - HOUR) % MINUTE));
    expect(reading.windows["7d"].since).toBe(now - 7 * DAY - ((now - 7 * DAY) % HOUR));
  });

  it("makes a model's first detections its reference, and counts what comes after", async () => {
    const { meter, evict } = freshMeter();
    const confidences = Array.from({ length: REFERENCE_DETECTIONS / 4 }, () => 0.6);
    const sure = request({ scores: driftBins(confidences) });
    for (let index = 0; index < 6; index++) {
      await meter.record({ ...sure, id: crypto.randomUUID() });
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
    const { meter } = freshMeter();
    const scores = driftBins([0.6, 0.6, 0.9]);
    await meter.record(request({ scores, isValidated: true }));
    await meter.record(request({ scores, modelId: "other" }));
    const { references, windows } = await meter.read(systemClock());
    expect(references).toEqual({ other: scores });
    const { m, other } = windows["1h"].models;
    expect(m?.scores).toEqual(scores);
    expect(other?.scores).toEqual(scores.map(() => 0));
  });

  it("keeps what its keys used up when it is evicted", async () => {
    const { meter, evict } = freshMeter();
    const gate = { keyId: "k", limit: { requestsPerMinute: 1, burst: 2 } };
    const ask = () => meter.begin(crypto.randomUUID(), gate);
    expect([await ask(), await ask()]).toEqual([0, 0]);
    const wait = await ask();
    expect(wait).toBeGreaterThan(50_000);
    expect(wait).toBeLessThanOrEqual(60_000);
    // Who was refused is not under way.
    expect((await meter.read(systemClock())).inFlight).toBe(2);
    // A flush, by as many requests as it takes.
    for (let index = 0; index < 256; index++) await meter.record(request());
    await evict();
    expect(await ask()).toBeGreaterThan(0);
    expect(await meter.begin(crypto.randomUUID(), { ...gate, keyId: "other" })).toBe(0);
  });

  it("counts shadows beside the requests", async () => {
    const { meter } = freshMeter();
    const counts = { ...emptyShadow(), mirrored: 1, compared: 1, matched: 2, iou: 1.8 };
    const at = systemClock();
    const one = { id: crypto.randomUUID(), at, modelId: "s", counts };
    const other = { ...one, id: crypto.randomUUID(), counts: { ...counts, shed: { busy: 1 } } };
    // One is reported again.
    for (const shadow of [one, other, one]) await meter.recordShadow(shadow);
    const { requests, shadows } = totalOf(await meter.read(at), "1h");
    expect(requests).toBe(0);
    expect(shadows.s).toMatchObject({ mirrored: 2, matched: 4, shed: { busy: 1 }, iou: 3.6 });
  });
});
