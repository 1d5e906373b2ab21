// In which precision a run trains. Goal: bf16 where a measurement says that it pays, what was asked
// for where that is there, the reason always told, and one precision from a run's start to its end.

import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  choosePrecision,
  measureSteps,
  precisionOnResume,
} from "../../../gpu-node/training/precision.ts";
import { train } from "../../../gpu-node/training/train-attempt.ts";
import type { Engine, EngineOptions, Precision } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import type { Checkpoint } from "../../../shared/tasks/train-task.ts";
import { type ResolvedSettings, TrainSettings } from "../../../shared/wire/training.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay, machine, resumed } from "../../support/training.ts";

const native = engineOrSay();
let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

const CPU = { device: "cpu", bf16: true } as const;
const PLAIN_CPU = { device: "cpu", bf16: false } as const;
const GPU = { device: "cuda", bf16: true } as const;

describe("the choice", () => {
  it("is automatic unless a run says otherwise", () => {
    expect(TrainSettings.parse({}).precision).toBe("auto");
    expect(TrainSettings.safeParse({ precision: "fp16" }).success).toBe(false);
  });

  it.each([
    [1.6, "bf16", "1.6 times as fast as fp32 here"],
    [1.15, "bf16", "1.1 times as fast as fp32 here"],
    [1.14, "fp32", "bf16 is only 1.14 times as fast here"],
    [0.1, "fp32", "bf16 is only 0.10 times as fast here"],
    [Number.NaN, "fp32", "bf16 is only NaN times as fast here"],
  ] as const)("is by what was measured: %f times as fast", async (ratio, precision, reason) => {
    const measured = async () => ({ fp32: ratio, bf16: 1 });
    const choice = await choosePrecision("auto", CPU, measured);
    expect(choice).toEqual({ precision, precision_reason: reason });
  });

  it.each([
    ["fp32", CPU, "fp32", "as asked for"],
    ["bf16", CPU, "bf16", "as asked for"],
    ["auto", PLAIN_CPU, "fp32", "this CPU has no instructions for bf16"],
    [
      ...(["bf16", PLAIN_CPU, "fp32"] as const),
      "bf16 was asked for, but this CPU has no instructions for bf16",
    ],
    ["auto", GPU, "bf16", "this GPU has instructions for it"],
    ["fp32", GPU, "fp32", "as asked for"],
  ] as const)(
    "of %s on %o needs no measurement: %s",
    async (asked, hardware, precision, reason) => {
      const unasked = () => Promise.reject(new Error("measured"));
      const choice = await choosePrecision(asked, hardware, unasked);
      expect(choice).toEqual({ precision, precision_reason: reason });
    },
  );

  it("is fp32 where the engine fails in bf16, and a stop while it measures is a stop", async () => {
    const failure = Object.assign(new Error("no kernel"), { code: "internal" });
    const choice = await choosePrecision("auto", CPU, () => Promise.reject(failure));
    const precision_reason = "bf16 could not be measured here (no kernel)";
    expect(choice).toEqual({ precision: "fp32", precision_reason });
    const stop = choosePrecision("auto", CPU, async () => {
      AbortSignal.abort().throwIfAborted();
      throw failure;
    });
    await expect(stop).rejects.toMatchObject({ name: "AbortError" });
  });

  it("of a run that goes on is kept wherever it can be", () => {
    expect(precisionOnResume({ precision: "bf16" }, CPU)).toBeNull();
    expect(precisionOnResume({ precision: "fp32" }, GPU)).toBeNull();
    expect(precisionOnResume({ precision: "bf16" }, PLAIN_CPU)).toEqual({
      precision: "fp32",
      precision_reason: "the run began in bf16, but this CPU has no instructions for it",
    });
  });
});

describe("the measurement", () => {
  it("takes steps in turn, the first ones not, and the fastest of a precision", async () => {
    const asked: object[] = [];
    const spent = { fp32: [9, 1, 0.5, 0.7], bf16: [9, 0.4, 0.8, 0.3] };
    const probe: Engine["probe"] = async (options) => {
      asked.push(options);
      const cpuSeconds = spent[options.precision as Precision].shift() ?? 1;
      // The clock also counts what others do.
      return { bytes: 0, seconds: 0.5, cpuSeconds };
    };
    const found = await measureSteps(probe, { batch: 16, imageSize: 640 });
    expect(found).toEqual({ fp32: 0.5, bf16: 0.3 });
    const [first, step] = [1, 6].map((batch) => ({ batch, imageSize: 320 }));
    expect(asked.slice(0, 4)).toEqual([
      { ...first, precision: "fp32" },
      { ...first, precision: "bf16" },
      { ...step, precision: "fp32" },
      { ...step, precision: "bf16" },
    ]);
    expect(asked).toHaveLength(8);
  });

  it("is short: of a large model one step each of few images, of a small one eight", async () => {
    /** Images of each step that counts, of a model that takes so many seconds for one. */
    const batchesOf = async (imageSeconds: number) => {
      const batches: number[] = [];
      const probe: Engine["probe"] = async ({ batch }) => {
        batches.push(batch);
        const seconds = batch * imageSeconds;
        return { bytes: 0, seconds, cpuSeconds: seconds };
      };
      await measureSteps(probe, { batch: 4, imageSize: 64 });
      return batches.slice(2);
    };
    expect(await batchesOf(30)).toEqual([1, 1]);
    expect(await batchesOf(1.2)).toEqual([2, 2]);
    expect(await batchesOf(0.001)).toEqual(Array(16).fill(4));
  });
});

/** The engine on a CPU where bf16 is as many times as fast; says which engines were made. */
function measuring(ratio: number): { engine: Native; made: EngineOptions["precision"][] } {
  const { Engine: Plain, describe: found, ...rest } = native as Native;
  const made: EngineOptions["precision"][] = [];
  class SteadyEngine extends Plain {
    constructor(options: EngineOptions) {
      super(options);
      made.push(options.precision);
    }
    override async probe({ precision }: Parameters<Engine["probe"]>[0]) {
      const cpuSeconds = precision === "bf16" ? 1 : ratio;
      return { bytes: 1, seconds: 10, cpuSeconds };
    }
  }
  return {
    engine: { ...rest, describe: () => ({ ...found(), cpuBf16: true }), Engine: SteadyEngine },
    made,
  };
}

// Its steps are really made in bf16, which takes a CPU that has it.
describe.skipIf(!native?.describe().cpuBf16)("a run", () => {
  const few = { train: 4, val: 2 };
  const short = { epochs: 1, batch_size: 2 };

  it.each([
    [2, "bf16", "Device: CPU, 1 thread, bf16: 2.0 times as fast as fp32 here."],
    [0.5, "fp32", "Device: CPU, 1 thread, fp32: bf16 is only 0.50 times as fast here."],
  ] as const)("whose steps in bf16 are %f times as fast", async (ratio, precision, line) => {
    const { payload } = await drawnDataset(service, { ...short, precision: "auto" }, few);
    const here = machine(service);
    const lines: string[] = [];
    const context = await taskContext(service, here.dir, {
      progress: ({ detail }) => {
        for (const row of (detail as { log: { line: string }[] }).log) lines.push(row.line);
      },
    });
    const { engine, made } = measuring(ratio);
    const result = await train(payload, context, { native: engine });
    const precision_reason = line.slice(line.indexOf(": ", 8) + 2, -1);
    expect(result.resolved).toMatchObject({ precision, precision_reason });
    expect(result.history).toHaveLength(1);
    expect(lines).toContain(line);
    // One to measure, one to train, one to predict samples.
    expect(made).toEqual(["fp32", precision, precision]);
  });

  it("goes on in the precision that it began with, whatever is faster by then", async () => {
    const two = { epochs: 2, batch_size: 2, precision: "auto" } as const;
    const { payload } = await drawnDataset(service, two, few);
    const first = machine(service);
    const pause = new AbortController();
    const uploaded: Checkpoint[] = [];
    const context = await taskContext(service, first.dir, {
      pause: pause.signal,
      progress: ({ detail }) => {
        const told = detail as { epoch: number; checkpoint: Checkpoint | null };
        if (told.checkpoint) uploaded.push(told.checkpoint);
        if (told.epoch === 1) pause.abort();
      },
    });
    const begun = train(payload, context, { native: measuring(2).engine });
    await expect(begun).rejects.toThrow();
    const at = uploaded.at(-1) as Checkpoint;
    expect(at).toMatchObject({ epoch: 1 });
    const slower = measuring(0.5);
    const elsewhere = await taskContext(service, join(first.dir, "elsewhere"));
    const rest = resumed(service, payload, at);
    const result = await train(rest, elsewhere, { native: slower.engine });
    const kept: Partial<ResolvedSettings> = {
      precision: "bf16",
      precision_reason: "2.0 times as fast as fp32 here",
    };
    expect(result.resolved).toMatchObject(kept);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2]);
    expect(slower.made).toEqual(["bf16", "bf16"]);
  });
});
