// What steps remember: when a value passes, and what a workflow keeps under a key.

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { MEMORY_BLOCKS } from "../../../shared/workflow/blocks/memory.ts";
import { runBlock } from "../../support/workflow-steps.ts";

const seed = process.env.SEED ? { seed: Number(process.env.SEED) } : {};
const run = runBlock(MEMORY_BLOCKS);

/** Outputs of steps in their order, with the state that they hand on. */
function memory() {
  let state: unknown = null;
  const warnings: string[] = [];
  return {
    warnings,
    state: () => state,
    async step(type: string, inputs: Readonly<Record<string, unknown>>, now = 0, parameters = {}) {
      const result = await run(type, inputs, { parameters, state, now });
      if (result.state !== undefined) state = JSON.parse(JSON.stringify(result.state));
      warnings.push(...(result.warnings ?? []));
      return result.outputs;
    },
  };
}

describe("a rate limiter", () => {
  it("never passes two values within its time, and always one after it", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 900 })), async (gaps) => {
        const { step } = memory();
        let now = 0;
        let last: number | null = null;
        for (const gap of gaps) {
          now += gap;
          const outputs = await step("rate_limiter@1", { value: now }, now, { seconds: 1 });
          const isDue: boolean = last === null || now - last >= 1_000;
          expect(outputs).toEqual({ value: isDue ? now : null, passed: isDue });
          if (isDue) last = now;
        }
      }),
      { ...seed, numRuns: 50 },
    );
  });

  it("passes when the time begins anew, as another video's does", async () => {
    const { step } = memory();
    await step("rate_limiter@1", { value: 1 }, 90_000, { seconds: 60 });
    const outputs = await step("rate_limiter@1", { value: 2 }, 0, { seconds: 60 });
    expect(outputs.passed).toBe(true);
  });
});

describe("a delta filter", () => {
  const passed = async (values: unknown[], threshold = 0) => {
    const { step } = memory();
    const changes: unknown[] = [];
    for (const value of values) {
      changes.push((await step("delta_filter@1", { value, threshold })).changed);
    }
    return changes;
  };

  it("passes the first value and each one that differs from the last that passed", async () => {
    expect(await passed([3, 3, 4, 4, 3])).toEqual([true, false, true, false, true]);
    expect(await passed([3, "3", 3])).toEqual([true, true, true]);
    expect(await passed([{ a: 1, b: 2 }, { b: 2, a: 1 }, { a: 1 }])).toEqual([true, false, true]);
  });

  it("adds small changes up until they pass the threshold", async () => {
    expect(await passed([10, 11, 12, 12.5, 15], 2)).toEqual([true, false, false, true, true]);
  });
});

describe("values of a workflow", () => {
  it("are read by later steps, whatever their keys are called", async () => {
    const { step } = memory();
    for (const key of ["last", "__proto__", "constructor", "toString"]) {
      expect(await step("key_value_get@1", { key })).toEqual({ value: null, is_kept: false });
      expect(await step("key_value_set@1", { key, value: [1] })).toEqual({
        value: [1],
        previous: null,
      });
      expect(await step("key_value_get@1", { key, default: 0 })).toEqual({
        value: [1],
        is_kept: true,
      });
    }
    expect((await step("key_value_get@1", { key: "other", default: 7 })).value).toBe(7);
  });

  it("are gone when their time has come", async () => {
    const { step } = memory();
    await step("key_value_set@1", { key: "a", value: 1, seconds: 2 }, 1_000);
    expect((await step("key_value_get@1", { key: "a" }, 2_999)).value).toBe(1);
    expect((await step("key_value_get@1", { key: "a" }, 3_000)).is_kept).toBe(false);
  });

  it("stay, and leave the others be, where their time would come after all times", async () => {
    const one = await run("key_value_set@1", { key: "a", value: 1 }, {});
    const endless = { key: "b", value: 2, seconds: Number.MAX_VALUE };
    // As a video's next frame is handed it: no JSON in between.
    const { state } = await run("key_value_set@1", endless, { state: one.state });
    for (const [key, value] of [
      ["a", 1],
      ["b", 2],
    ]) {
      const { outputs, warnings } = await run("key_value_get@1", { key }, { state });
      expect([outputs.value, warnings]).toEqual([value, []]);
    }
  });

  it("are counted up, and from 0 after a reset or another kind of value", async () => {
    const { step } = memory();
    const counts = [
      await step("counter@1", { key: "cars" }),
      await step("counter@1", { key: "cars", add: 2.5 }),
      await step("counter@1", { key: "cars", reset: true }),
    ];
    expect(counts.map(({ value }) => value)).toEqual([1, 3.5, 1]);
    await step("key_value_set@1", { key: "cars", value: "many" });
    expect((await step("counter@1", { key: "cars" })).value).toBe(1);
  });

  it("lose the oldest ones beyond their limits, with a warning, and refuse large ones", async () => {
    const { step, state, warnings } = memory();
    for (let index = 0; index < 30; index++) {
      await step("key_value_set@1", { key: `k${index}`, value: "x".repeat(9_000) });
    }
    expect(JSON.stringify(state()).length).toBeLessThan(210_000);
    expect(warnings.length).toBeGreaterThan(0);
    expect((await step("key_value_get@1", { key: "k29" })).is_kept).toBe(true);
    expect((await step("key_value_get@1", { key: "k0" })).is_kept).toBe(false);
    await expect(step("key_value_set@1", { key: "k", value: "x".repeat(10_000) })).rejects.toThrow(
      /10000 can be kept/,
    );
  });

  it("share one state among the steps of these types, and no others do", () => {
    const keys = MEMORY_BLOCKS.map(({ type, stateKey }) => [type, stateKey]);
    expect(Object.fromEntries(keys)).toEqual({
      "rate_limiter@1": undefined,
      "delta_filter@1": undefined,
      "key_value_set@1": "$values",
      "key_value_get@1": "$values",
      "counter@1": "$values",
    });
    expect(z.toJSONSchema(MEMORY_BLOCKS[0]?.parameters ?? z.object({}))).toBeTypeOf("object");
  });
});
