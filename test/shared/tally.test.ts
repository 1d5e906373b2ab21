// Counters and distributions that are summed from several tallies. Goal: the sum is what one tally
// would have counted, whatever was taken when, and what fits no table changes nothing.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { metricsText } from "../../shared/metrics.ts";
import { type Series, Tally } from "../../shared/tally.ts";
import { readExposition } from "../support/exposition.ts";

const TABLE = {
  plain_total: { help: "Plain.", labels: [] },
  by_kind_total: { help: "By kind.", labels: ["kind", "state"] },
  seconds: { help: "Long.", labels: ["kind"], bounds: [0.1, 1, 10] },
} as const;

const shown = (tally: Tally<typeof TABLE>) => readExposition(metricsText(tally.metrics()));

describe("a tally", () => {
  it("announces what was never counted, and begins plain counters at 0", () => {
    const metrics = shown(new Tally(TABLE));
    expect(metrics.get("plain_total")?.samples.get("")).toBe(0);
    expect(metrics.get("by_kind_total")?.samples.size).toBe(0);
    expect(metrics.get("seconds")?.type).toBe("histogram");
  });

  it("puts a value into the first bucket that holds it, bounds included", () => {
    const tally = new Tally(TABLE);
    for (const value of [0, 0.1, 0.11, 1, 10, 10.01]) {
      tally.observe("seconds", { kind: "a" }, value);
    }
    const buckets = shown(tally).get("seconds_bucket")?.samples;
    expect([...(buckets?.values() ?? [])]).toEqual([2, 4, 5, 6]);
    expect(shown(tally).get("seconds_sum")?.samples.get('kind="a"')).toBeCloseTo(21.22);
  });

  it("leaves out series of another release", () => {
    const tally = new Tally(TABLE);
    const foreign: Series[] = [
      { metric: "gone_total", values: [], counts: [1], sum: 0 },
      { metric: "toString", values: [], counts: [1], sum: 0 },
      { metric: "by_kind_total", values: ["a"], counts: [1], sum: 0 },
      { metric: "seconds", values: ["a"], counts: [1, 2], sum: 1 },
    ];
    tally.add(foreign);
    expect(tally.list()).toEqual([]);
  });

  it("sums batches of several to what one would have counted, however they are taken", () => {
    const step = fc.record({
      who: fc.nat(2),
      kind: fc.constantFrom("a", "b", 'q"\\\n'),
      seconds: fc.double({ min: 0, max: 20, noNaN: true }),
      sends: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step), (steps) => {
        const own = [0, 1, 2].map(() => new Tally(TABLE));
        const [one, all] = [new Tally(TABLE), new Tally(TABLE)];
        for (const { who, kind, seconds, sends } of steps) {
          for (const tally of [one, own[who] as Tally<typeof TABLE>]) {
            tally.count("by_kind_total", { kind, state: "x" });
            tally.observe("seconds", { kind }, seconds);
          }
          if (sends) all.add((own[who] as Tally<typeof TABLE>).take());
        }
        for (const tally of own) all.add(tally.take());
        const [left, right] = [shown(all), shown(one)];
        expect([...left.keys()]).toEqual([...right.keys()]);
        for (const [name, { samples }] of left) {
          for (const [labels, value] of samples) {
            expect(value).toBeCloseTo(right.get(name)?.samples.get(labels) ?? NaN);
          }
        }
      }),
    );
  });
});
