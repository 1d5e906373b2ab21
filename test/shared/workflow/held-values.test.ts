// What a run holds and does: equal work once where no cache is, and no more in memory, of whatever
// it makes, than it may.

import { describe, expect, it } from "vitest";
import type { RunBlock } from "../../../shared/workflow/block.ts";
import { BLOCKS } from "../../../shared/workflow/blocks.ts";
import { RUN_LIMITS } from "../../../shared/workflow/execution.ts";
import { run, step, workflow } from "../../support/workflow-run.ts";

describe("a run", () => {
  it("does equal work of one run once without a cache, too, and no other's", async () => {
    const done: string[] = [];
    const noted: RunBlock = ({ inputs, parameters }) => {
      done.push(JSON.stringify([inputs, parameters]));
      return { outputs: { value: [inputs.value] } };
    };
    const value = "a text that is longer than any key whose content it is, with a number behind: ";
    const steps = [0, 0, 1].flatMap((number, index) => [
      step(`in${index}`, "constant@1", { value: [value + number] }),
      step(`out${index}`, "property@1", { value: `$steps.in${index}.value`, path: [0] }),
      step(`more${index}`, "property@1", { value: `$steps.out${index}.value`, path: [0] }),
    ]);
    const ids = steps.map(({ id }) => id);
    const outputs = Object.fromEntries(ids.map((id) => [id, `$steps.${id}.value`]));
    const runs = new Map([["property@1", noted]]);
    const made = await run(workflow(steps, outputs, []), { runs }, { blocks: BLOCKS });
    expect(made.outputs).toMatchObject({ out1: [[`${value}0`]], out2: [[`${value}1`]] });
    const hits = Object.fromEntries(made.steps.map((each) => [each.step, each.cache_hits]));
    expect(hits).toMatchObject({ out0: 0, more0: 0, out1: 1, more1: 1, out2: 0, more2: 0 });
    expect(done).toHaveLength(4);
  });

  const text = "x".repeat(1_000);
  const texts = (count: number) => Array.from({ length: count }, (_, index) => `t${index}`);
  const limits = { ...RUN_LIMITS, valueBytes: 10_000 };

  it("ends where its outputs would be more than it may hold, each as often as it is named", async () => {
    const inputs = [{ name: "text", kind: "string", default: text } as const];
    const named = (count: number) =>
      workflow(
        [step("go", "continue_if@1", { value: "$inputs.text", condition: true })],
        Object.fromEntries(texts(count).map((name) => [name, "$steps.go.value"])),
        inputs,
      );
    expect((await run(named(4), { limits })).outputs).toMatchObject({ t3: text });
    await expect(run(named(6), { limits })).rejects.toMatchObject({
      code: "limit",
      step: null,
      message: "the outputs of the run would take more than 10000 bytes",
    });
  });

  it("ends at the step that asks for more outside than it may hold", async () => {
    const sends = (count: number) =>
      workflow(
        texts(count).map((id) => step(id, "send@1", { value: 1 })),
        { n: "$inputs.n" },
      );
    const asking = () => ({
      outputs: {},
      effects: [{ kind: "webhook" as const, request: { text } }],
    });
    const sending = { limits, runs: new Map([["send@1", asking]]) };
    expect((await run(sends(4), sending)).effects).toHaveLength(4);
    await expect(run(sends(6), sending)).rejects.toMatchObject({ code: "limit", step: "t4" });
  });

  it("ends at the step that remembers more than it may hold, and not for what was there", async () => {
    const counts = (count: number) =>
      workflow(
        texts(count).map((id) => step(id, "counter@1", { value: 1 })),
        Object.fromEntries(texts(count).map((id) => [id, `$steps.${id}.count`])),
      );
    const remembering: RunBlock = () => ({ outputs: { count: 1 }, state: { text } });
    const runs = new Map([["counter@1", remembering]]);
    const remembered = await run(counts(4), { limits, runs });
    expect(Object.keys(remembered.state)).toHaveLength(4);
    // What takes the stead of what was there before is no more than that.
    await run(counts(4), {
      limits: { ...limits, valueBytes: 1_000 },
      runs,
      state: remembered.state,
    });
    await expect(run(counts(6), { limits, runs })).rejects.toMatchObject({
      code: "limit",
      step: "t4",
    });
  });
});
