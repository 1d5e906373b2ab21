// An isolate's side of a meter, beside a meter that is scripted. Goal: a few calls a second of each
// isolate however much it serves, counts exact to the request, no key let in more often than its
// limit says, and nobody left waiting for who was cut off.

import { describe, expect, it, vi } from "vitest";
import { IsolateReports } from "../../../../edge/vision/serving/endpoints/isolate-reports.ts";
import { KeyBuckets } from "../../../../edge/vision/serving/endpoints/key-buckets.ts";
import type {
  KeyGate,
  MeterReport,
  MeterRpc,
} from "../../../../edge/vision/serving/endpoints/meter.ts";
import { endpointBatch } from "../../../../edge/vision/serving/endpoints/meter-batch.ts";
import { UNANSWERED } from "../../../../edge/vision/serving/endpoints/rollups.ts";
import { MINUTE, systemClock } from "../../../../shared/time.ts";

const SECOND = 1_000;
const ENDPOINT = "6f1c2b9e-3d7a-4c55-8a10-000000000021";
const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** A meter that keeps what it is told, and isolates that tell it. */
function scriptedMeter(overrides: Partial<Pick<MeterRpc, "take" | "report">> = {}) {
  const reports: MeterReport[] = [];
  const buckets = new KeyBuckets([]);
  let takes = 0;
  const meter: Pick<MeterRpc, "take" | "report"> = {
    take: async (gate, wanted) => {
      takes += 1;
      return buckets.take(gate, systemClock(), wanted);
    },
    report: async (report) => {
      reports.push(structuredClone(report));
      for (const { gate, count } of report.givenBack) buckets.giveBack(gate, count);
      return null;
    },
    ...overrides,
  };
  const isolate = () => {
    const warnings: string[] = [];
    const meters = { idFromName: (name: string) => name, get: () => meter };
    const log = { info() {}, warning: (event: string) => warnings.push(event), error() {} };
    // A namespace has more than the two methods that are called.
    const parts = { meters, log, clock: systemClock } as unknown as Parameters<
      typeof endpointBatch
    >[0];
    return { parts, batch: endpointBatch(parts, ENDPOINT), warnings };
  };
  const ended = () => reports.flatMap((report) => report.ended);
  return { isolate, reports, ended, takes: () => takes };
}

const request = (code: string | null = null) => ({
  ...UNANSWERED,
  at: systemClock(),
  modelId: "m",
  code,
});

describe("an isolate", () => {
  it("tells at once what comes after a pause, and together what comes within a second", async () => {
    const { isolate, reports, ended } = scriptedMeter();
    const { parts, batch } = isolate();
    const { number } = await batch.begin(parts, null);
    await batch.end(parts, request(), number);
    expect(reports).toMatchObject([{ number: 1, running: 0, ended: [{ modelId: "m" }] }]);
    const begun = [];
    for (let n = 0; n < 50; n++) begun.push((await batch.begin(parts, null)).number);
    await Promise.all(begun.slice(1).map((one) => batch.end(parts, request(), one)));
    expect(reports).toHaveLength(2);
    expect(reports[1]).toMatchObject({ number: 2, running: 1 });
    expect(ended()).toHaveLength(50);
  });

  it("tells within a second of a request that lasts", async () => {
    const { isolate, reports } = scriptedMeter();
    const { parts, batch } = isolate();
    await batch.begin(parts, null);
    await batch.tellBegun(parts);
    expect(reports).toMatchObject([{ running: 1, ended: [] }]);
  });

  it("is not silent for good where the request that was to report was cut off", async () => {
    const { isolate, ended } = scriptedMeter();
    const { parts, batch } = isolate();
    await batch.end(parts, request(), null);
    // The platform lets no timer of a request that is gone go on.
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    void batch.end(parts, request(), null);
    vi.useRealTimers();
    await pause(2 * SECOND + 100);
    await batch.end(parts, request(), null);
    expect(ended()).toHaveLength(3);
  });

  it("refuses none of several at once for requests that another of them took", async () => {
    const { isolate } = scriptedMeter();
    const { parts, batch } = isolate();
    const gate = { keyId: "k", limit: { requestsPerMinute: 1, burst: 40 } };
    const ask = async (count: number) => {
      const asked = Array.from({ length: count }, () => batch.begin(parts, gate));
      const admissions = await Promise.all(asked);
      return admissions.filter(({ number }) => number !== null).length;
    };
    // The first ones make it expect as many again.
    expect([await ask(10), await ask(10), await ask(10), await ask(15)]).toEqual([10, 10, 10, 10]);
  });

  it("counts once what was cut off with its request, and has it under way no more", async () => {
    const { isolate, reports, ended } = scriptedMeter();
    const { parts, batch } = isolate();
    let now = systemClock();
    parts.clock = () => now;
    const { number } = await batch.begin(parts, null);
    for (const minutes of [6, 12]) {
      now += minutes * MINUTE;
      await batch.end(parts, request(), (await batch.begin(parts, null)).number);
    }
    expect(ended().map(({ code }) => code)).toEqual([null, "unknown", null]);
    expect(reports.at(-1)?.running).toBe(0);
    // Should its end come after all, it has been counted.
    await batch.end(parts, request(), number);
    expect(ended()).toHaveLength(3);
  });

  it("tells a report a second time by its number where the meter failed, and fails nobody", async () => {
    const numbers: number[] = [];
    const { isolate } = scriptedMeter({
      report: async ({ number }) => {
        numbers.push(number);
        throw new Error("moved");
      },
    });
    const { parts, batch, warnings } = isolate();
    await batch.end(parts, request(), null);
    expect([numbers, warnings]).toEqual([[1, 1], ["meter"]]);
  });

  it("lets a key in where its meter is away, and not where it has too much to do", async () => {
    const gate = { keyId: "k", limit: { requestsPerMinute: 60, burst: 3 } };
    const failing = (thrown: Error) =>
      scriptedMeter({ take: () => Promise.reject(thrown) }).isolate();
    const away = failing(new Error("away"));
    expect(await away.batch.begin(away.parts, gate)).toEqual({ waitMs: 0, number: 1 });
    const busy = failing(Object.assign(new Error("busy"), { overloaded: true }));
    expect(await busy.batch.begin(busy.parts, gate)).toEqual({ waitMs: 1_000, number: null });
  });

  it("gives back by itself what it took of a key in advance, so that no other waits for it", async () => {
    const { isolate, takes } = scriptedMeter();
    const gate = { keyId: "k", limit: { requestsPerMinute: 1, burst: 40 } };
    const [one, other] = [isolate(), isolate()];
    const serve = async ({ parts, batch }: typeof one) => {
      const { number } = await batch.begin(parts, gate);
      if (number !== null) void batch.end(parts, request(), number);
      return number !== null;
    };
    for (let n = 0; n < 10; n++) expect(await serve(one)).toBe(true);
    expect(takes()).toBeLessThan(10);
    // Nobody comes to it any more.
    await pause(2.2 * SECOND);
    let admitted = 0;
    while (await serve(other)) admitted += 1;
    // A minute gives one more; what came meanwhile is below that.
    expect(admitted).toBe(30);
  });
});

describe("an endpoint of 5,000 predictions a second", () => {
  it("hears a few calls a second of each isolate, and counts every request", async () => {
    const { isolate, reports, ended, takes } = scriptedMeter();
    const [isolates, seconds, each] = [20, 3, 250];
    const gate: KeyGate = { keyId: "k", limit: { requestsPerMinute: 600_000, burst: 10_000 } };
    let admitted = 0;
    const run = async () => {
      const { parts, batch } = isolate();
      const told: Promise<void>[] = [];
      for (let tick = 0; tick < seconds * 25; tick++) {
        for (let n = 0; n < each / 25; n++) {
          // Every other one comes by a key.
          const { number } = await batch.begin(parts, n % 2 === 0 ? gate : null);
          expect(number).not.toBeNull();
          admitted += 1;
          told.push(batch.tellBegun(parts), batch.end(parts, request(), number));
        }
        await pause(40);
      }
      await Promise.all(told);
    };
    await Promise.all(Array.from({ length: isolates }, run));
    expect(admitted).toBe(isolates * seconds * each);
    expect(ended()).toHaveLength(admitted);
    const last = new Map(reports.map(({ isolate: name, running }) => [name, running]));
    expect([...last.values()]).toEqual(Array(isolates).fill(0));
    // Of 15,000 requests: a report a second of each isolate, and its advances that double.
    expect(reports.length + takes()).toBeLessThan(admitted / 20);
  });

  it("lets a key in as often as its limit says, however many isolates serve it", async () => {
    const { isolate } = scriptedMeter();
    const limit = { requestsPerMinute: 600, burst: 100 };
    const began = systemClock();
    let admitted = 0;
    const run = async () => {
      const { parts, batch } = isolate();
      while (systemClock() < began + 2 * SECOND) {
        const { number } = await batch.begin(parts, { keyId: "k", limit });
        if (number !== null) {
          admitted += 1;
          void batch.end(parts, request(), number);
        }
        await pause(5);
      }
    };
    await Promise.all(Array.from({ length: 10 }, run));
    const seconds = (systemClock() - began) / SECOND;
    expect(admitted).toBeLessThanOrEqual(limit.burst + seconds * 10 + 1);
    expect(admitted).toBeGreaterThanOrEqual(limit.burst);
  });
});

describe("isolates as a meter hears of them", () => {
  it("are lost after five minutes of silence, with what they had under way", () => {
    const isolates = new IsolateReports();
    const report = (isolate: string, number: number, running: number) => ({
      isolate,
      number,
      running,
      ended: [],
      shadows: [],
      givenBack: [],
    });
    expect(isolates.take(report("a", 1, 3), 0)).toBe(true);
    expect(isolates.take(report("b", 1, 2), MINUTE)).toBe(true);
    expect(isolates.running).toBe(5);
    expect(isolates.lost(5 * MINUTE)).toEqual([]);
    expect(isolates.lost(5 * MINUTE + 1)).toEqual([{ running: 3, at: 0 }]);
    expect([isolates.running, isolates.lost(5 * MINUTE + 1)]).toEqual([2, []]);
  });
});
