// Checkpoints a run goes on from: whatever can still be read. Goal: a damaged checkpoint is never
// mistaken for a whole one, and memory that does not suffice costs a smaller batch at most.

import {
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pack, unpack } from "../../../gpu-node/training/checkpoint-archive.ts";
import { findCheckpoints } from "../../../gpu-node/training/checkpoints.ts";
import { openRunFolder, sweepRuns } from "../../../gpu-node/training/run-folder.ts";
import { train } from "../../../gpu-node/training/train-attempt.ts";
import type { EngineOptions } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import type { Checkpoint } from "../../../shared/tasks/train-task.ts";
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

type Payload = TaskPayload<"train">;
const few = { train: 6, val: 2 };
const settings = { epochs: 3, batch_size: 2 };

const fileOf = (dir: string, { run_id }: Payload, name: string) =>
  join(dir, "training/runs", run_id, "weights", name);

describe.skipIf(!native)("a checkpoint", () => {
  /** A run that was put aside after two epochs, with two checkpoints here. */
  async function aside() {
    const { payload } = await drawnDataset(service, settings, few);
    const here = machine(service);
    await here.attempt(payload, ({ detail, pause }) => {
      if (detail.epoch === 2) pause();
    });
    const last = fileOf(here.dir, payload, "last.safetensors");
    const previous = fileOf(here.dir, payload, "previous.safetensors");
    expect([existsSync(last), existsSync(previous)]).toEqual([true, true]);
    return { payload, here, last, previous, at: here.told.at(-1)?.checkpoint as Checkpoint };
  }

  it("that is cut short, empty or none at all is passed over for the one before it", async () => {
    const { payload, here, last, previous } = await aside();
    const folder = await openRunFolder(join(here.dir, "training"), payload.run_id);
    const whole = readFileSync(last);
    const damaged = ["", "nothing of the kind", whole.subarray(0, 1_000), whole.subarray(0, 9)];
    for (const bytes of damaged) {
      writeFileSync(last, bytes);
      const why: string[] = [];
      const found = await findCheckpoints(
        folder,
        () => null,
        (reason) => why.push(reason),
      );
      expect(found.map(({ path }) => path)).toEqual([previous]);
      expect(why).toEqual([expect.stringMatching(/^the checkpoint cannot be read: /)]);
    }
    // A whole header before tensors that are not all there: only the engine sees it.
    writeFileSync(last, whole.subarray(0, whole.length - 1_000_000));
    const result = await here.finish(payload);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2, 3]);
    expect(here.lines().join("\n")).toMatch(
      /A checkpoint is not used: .*\n[\s\S]*Resumed at epoch 2/,
    );
  });

  it("of the store is taken where none here can be read", async () => {
    const { payload, here, last, previous, at } = await aside();
    for (const path of [last, previous]) truncateSync(path, 100);
    const result = await here.finish(resumed(service, payload, at));
    expect(result.history).toHaveLength(3);
    expect(service.reads.get(at.key)).toBe(1);
    expect(here.lines().join("\n")).toMatch(/Resumed at epoch 3/);
  });

  it("that is damaged in the store as well fails the run with the reason", async () => {
    const { payload, here, last, previous, at } = await aside();
    for (const path of [last, previous]) truncateSync(path, 100);
    const bytes = service.objects.get(at.key) as Buffer;
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 255;
    const outcome = await here.attempt(resumed(service, payload, at));
    expect(outcome).toMatchObject({ outcome: "failed", code: "bad_checkpoint", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/cannot go on.*damaged/));
  });

  it("of which nobody was told is missed by nobody: the run begins anew", async () => {
    const { payload, here, last, previous } = await aside();
    for (const path of [last, previous]) truncateSync(path, 100);
    const result = await here.finish(payload);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2, 3]);
    expect(here.lines().join("\n")).toMatch(/beginning anew/);
  });

  it("without its best weights is not gone on from", async () => {
    const { payload, here, last } = await aside();
    const folder = await openRunFolder(join(here.dir, "training"), payload.run_id);
    for (const name of readdirSync(folder.file("weights"))) {
      if (name.startsWith("best-")) rmSync(folder.file(`weights/${name}`));
    }
    const why: string[] = [];
    expect(
      await findCheckpoints(
        folder,
        () => null,
        (reason) => why.push(reason),
      ),
    ).toEqual([]);
    expect(why[0]).toMatch(/best weights/);
    expect(existsSync(last)).toBe(true);
  });

  it("is uploaded while the training goes on, as often as is wanted", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const seen = new Map<string, Checkpoint>();
    const here = machine(service);
    const context = await taskContext(service, here.dir, {
      progress: ({ detail }) => {
        const { checkpoint } = detail as { checkpoint: Checkpoint | null };
        if (checkpoint) seen.set(checkpoint.key, checkpoint);
      },
    });
    const result = await train(payload, context, { uploadEveryMs: 0 });
    expect(result.history).toHaveLength(3);
    expect(seen.size).toBeGreaterThan(0);
    for (const { key, bytes } of seen.values())
      expect(service.objects.get(key)?.length).toBe(bytes);
  });
});

describe.skipIf(!native)("memory that does not suffice", () => {
  /** The engine on a machine where a step of more than so many images does not fit. */
  function narrow(most: number): Native {
    const { Engine, ...rest } = native as Native;
    class Narrow extends Engine {
      readonly #batch: number;
      constructor(options: EngineOptions) {
        super(options);
        this.#batch = options.training?.batch ?? 0;
      }
      override trainEpoch(...args: Parameters<InstanceType<typeof Engine>["trainEpoch"]>) {
        if (this.#batch <= most) return super.trainEpoch(...args);
        const error = new Error("CUDA out of memory");
        return Promise.reject(Object.assign(error, { code: "gpu_out_of_memory" }));
      }
    }
    return { ...rest, Engine: Narrow };
  }

  it("halves an automatic batch until it does", async () => {
    const asked = { epochs: 1, batch_size: null };
    const { payload } = await drawnDataset(service, asked, { train: 6, val: 2 });
    const lines = new Set<string>();
    const here = machine(service);
    const context = await taskContext(service, here.dir, {
      progress: ({ detail }) => {
        for (const { line } of (detail as { log: { line: string }[] }).log) lines.add(line);
      },
    });
    const result = await train(payload, context, { native: narrow(1) });
    expect(result).toMatchObject({ resolved: { batch_size: 1 }, history: [{ epoch: 1 }] });
    expect([...lines].filter((line) => line.startsWith("Out of memory"))).toEqual([
      "Out of memory at batch size 4: trying again with 2.",
      "Out of memory at batch size 2: trying again with 1.",
    ]);
  });

  /** The engine on a machine where no more than so many images are measured together. */
  function crowded(most: number, seen: number[]): Native {
    const { Engine, ...rest } = native as Native;
    class SmallEngine extends Engine {
      override evaluate(...args: Parameters<InstanceType<typeof Engine>["evaluate"]>) {
        const [{ batch }] = args;
        seen.push(batch);
        if (batch <= most) return super.evaluate(...args);
        const error = new Error("the machine's memory does not suffice");
        return Promise.reject(Object.assign(error, { code: "out_of_memory" }));
      }
    }
    return { ...rest, Engine: SmallEngine };
  }

  it("halves the images that are measured together, and keeps to that", async () => {
    const { payload } = await drawnDataset(service, { epochs: 2, batch_size: 4 }, few);
    const seen: number[] = [];
    const context = await taskContext(service, machine(service).dir);
    const result = await train(payload, context, { native: crowded(1, seen) });
    expect(result).toMatchObject({ resolved: { batch_size: 4 }, history: [{}, { epoch: 2 }] });
    expect(seen).toEqual([8, 4, 2, 1, 1]);
  });

  it("fails where not even one image can be measured", async () => {
    const { payload } = await drawnDataset(service, { epochs: 1, batch_size: 1 }, few);
    const seen: number[] = [];
    const context = await taskContext(service, machine(service).dir);
    const training = train(payload, context, { native: crowded(0, seen) });
    await expect(training).rejects.toMatchObject({ code: "out_of_memory" });
    expect(seen).toEqual([2, 1]);
  });

  it("fails a batch that was asked for, with advice", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const context = await taskContext(service, machine(service).dir);
    await expect(train(payload, context, { native: narrow(1) })).rejects.toMatchObject({
      code: "gpu_out_of_memory",
      retryable: false,
      message: expect.stringMatching(/leave the batch size blank/),
    });
  });
});

describe("a bundle", () => {
  it("gives back what was packed, and refuses what was touched", async () => {
    const { dir } = machine(service);
    const [one, other] = [join(dir, "one"), join(dir, "other")];
    writeFileSync(one, "a".repeat(100_000));
    writeFileSync(other, "");
    const path = join(dir, "bundle");
    const files = [
      { name: "one", path: one },
      { name: "other", path: other },
    ];
    await pack(path, files);
    const out = (name: string) => join(dir, `out-${name}`);
    expect(await unpack(path, out)).toEqual(["one", "other"]);
    expect(readFileSync(out("one"), "utf8")).toBe("a".repeat(100_000));
    expect(readFileSync(out("other"), "utf8")).toBe("");
    const whole = readFileSync(path);
    const touched = Buffer.from(whole);
    touched[whole.length - 1] = 0x62;
    const long = Buffer.concat([whole, Buffer.from("x")]);
    for (const bytes of [
      touched,
      long,
      whole.subarray(0, 50),
      whole.subarray(0, 4),
      Buffer.alloc(0),
    ]) {
      writeFileSync(path, bytes);
      await expect(unpack(path, out)).rejects.toMatchObject({ code: "bad_checkpoint" });
    }
    const away = Buffer.from(whole.toString("latin1").replace('"one"', '"../"'), "latin1");
    writeFileSync(path, away);
    await expect(unpack(path, out)).rejects.toMatchObject({ code: "bad_checkpoint" });
  });
});

describe("folders of runs", () => {
  it("go a week after their run last wrote", async () => {
    const { dir } = machine(service);
    const day = 86_400_000;
    for (const name of ["own", "other"]) {
      await (await openRunFolder(dir, name)).write("args.json", "{}");
    }
    const runs = join(dir, "runs");
    await sweepRuns(runs, "own", Date.now() + 6 * day);
    expect(readdirSync(runs).sort()).toEqual(["other", "own"]);
    await sweepRuns(runs, "own", Date.now() + 8 * day);
    expect(readdirSync(runs)).toEqual(["own"]);
  });
});
