// Runs that go on: after a stop on another node, after the node was drained, and from whatever
// checkpoint can still be read. Goal: nothing that was handed in is lost, a run that went on is the
// run that was never interrupted, and a damaged checkpoint is never mistaken for a whole one.

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
import { train } from "../../../gpu-node/training/attempt.ts";
import { pack, unpack } from "../../../gpu-node/training/checkpoint-archive.ts";
import { findCheckpoints } from "../../../gpu-node/training/checkpoints.ts";
import { openRunFolder, sweepRuns } from "../../../gpu-node/training/run-folder.ts";
import type { EngineOptions } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import type { Checkpoint, TaskPayload } from "../../../shared/tasks.ts";
import type { RunEpoch } from "../../../shared/training.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay, machine, resultOf } from "../../support/training.ts";

const native = engineOrSay();
let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

type Payload = TaskPayload<"train">;
const few = { train: 6, val: 2 };
const settings = { epochs: 3, batch_size: 2 };

/** As the service hands the payload to the next attempt. */
const after = (payload: Payload, at: Checkpoint): Payload => {
  const bytes = service.objects.get(at.key) as Buffer;
  return { ...payload, resume: { checkpoint: service.source(at.key, bytes), at } };
};
/** What of an epoch does not depend on the clock. */
const told = (history: readonly RunEpoch[]) =>
  history.map(({ epoch, losses, metrics, learning_rate }) => ({
    epoch,
    losses,
    metrics,
    learning_rate,
  }));
const fileOf = (dir: string, { run_id }: Payload, name: string) =>
  join(dir, "training/runs", run_id, "weights", name);

describe.skipIf(!native)("a run that was stopped", () => {
  it("goes on on another node as if it had never been stopped", async () => {
    const long = { ...settings, epochs: 2 };
    const { payload } = await drawnDataset(service, long, { train: 12, val: 2 });
    const whole = await machine(service).finish({ ...payload, run_id: crypto.randomUUID() });
    const first = machine(service);
    const outcome = await first.attempt(payload, ({ detail, cancel }) => {
      if (detail.batch > 0) cancel();
    });
    const stopped = resultOf(outcome);
    const at = stopped.checkpoint as Checkpoint;
    expect(stopped).toMatchObject({ stopped: true, history: [], model: { epoch: 1 } });
    expect(at).toMatchObject({ epoch: 0, batch: expect.any(Number) });
    expect(at.batch).toBeGreaterThan(0);
    const second = machine(service);
    const result = await second.finish(after(payload, at));
    expect(result.stopped).toBe(false);
    expect(told(result.history)).toEqual(told(whole.history));
    expect(result.model?.weights.sha256).not.toBe(stopped.model?.weights.sha256);
    expect(result.model?.epoch).toBe(whole.model?.epoch);
    expect(second.lines().join("\n")).toMatch(/Resumed at epoch 1, after \d of 6 steps/);
    // Lines go on behind those of the first attempt.
    const numbers = (node: typeof first) => node.told.flatMap(({ log }) => log.map(({ n }) => n));
    expect(Math.min(...numbers(second).slice(-1))).toBeGreaterThan(Math.max(...numbers(first)));
  });

  it("registers the best of before where nothing later is better", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const outcome = await machine(service).attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch === 2) cancel();
    });
    const at = resultOf(outcome).checkpoint as Checkpoint;
    const again = await machine(service).attempt(after(payload, at), ({ detail, cancel }) => {
      if (detail.resolved) cancel();
    });
    const result = resultOf(again);
    expect(result.history).toEqual(resultOf(outcome).history);
    expect(result.model?.weights.sha256).toBe(resultOf(outcome).model?.weights.sha256);
    expect(result.artifacts.map(({ name }) => name)).toContain("confusion_matrix.png");
  });
});

describe.skipIf(!native)("a run that is stopped while the store takes no checkpoint", () => {
  it("hands in its model, and stays on its node", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const here = machine(service);
    service.fault(/checkpoint\.bundle$/, 403);
    const outcome = await here.attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch === 1) cancel();
    });
    expect(resultOf(outcome)).toMatchObject({
      stopped: true,
      checkpoint: null,
      model: { weights: { key: expect.any(String) } },
    });
    expect(here.lines().join("\n")).toMatch(/checkpoint could not be handed in: .*403/);
    const result = await here.finish(payload);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2, 3]);
    expect(here.lines().join("\n")).toMatch(/Resumed at epoch/);
  });
});

describe.skipIf(!native)("a node that drains", () => {
  it("hands in where the run is and gives the task back; here or elsewhere it goes on", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const here = machine(service);
    const outcome = await here.attempt(payload, ({ detail, pause }) => {
      if (detail.epoch === 1) pause();
    });
    expect(outcome).toEqual({ outcome: "snoozed", seconds: 0 });
    const at = here.told.at(-1)?.checkpoint as Checkpoint;
    expect(service.objects.get(at.key)?.length).toBe(at.bytes);
    // The local one is as new: nothing is fetched.
    const local = await here.finish(after(payload, at));
    expect(service.reads.get(at.key) ?? 0).toBe(0);
    const elsewhere = await machine(service).finish(after(payload, at));
    expect(service.reads.get(at.key)).toBe(1);
    expect(told(elsewhere.history)).toEqual(told(local.history));
  });

  it("while pictures are made ready gives it back as it was", async () => {
    const { payload } = await drawnDataset(service, settings, { ...few, seed: 11 });
    const outcome = await machine(service).attempt(payload, ({ pause }) => pause());
    expect(outcome).toEqual({ outcome: "snoozed", seconds: 0 });
  });
});

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
    const result = await here.finish(after(payload, at));
    expect(result.history).toHaveLength(3);
    expect(service.reads.get(at.key)).toBe(1);
    expect(here.lines().join("\n")).toMatch(/Resumed at epoch 3/);
  });

  it("that is damaged in the store as well fails the run with the reason", async () => {
    const { payload, here, last, previous, at } = await aside();
    for (const path of [last, previous]) truncateSync(path, 100);
    const bytes = service.objects.get(at.key) as Buffer;
    bytes[bytes.length - 5] = (bytes[bytes.length - 5] ?? 0) ^ 255;
    const outcome = await here.attempt(after(payload, at));
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
