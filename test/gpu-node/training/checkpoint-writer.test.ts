// Checkpoints that are written while the training goes on. Goal: they take their share of the time
// and no more, what has to be is written all the same, a failure ends the run with its reason, and
// a run that dies while one is written goes on to the bits of one that never died.

import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  CHECKPOINT_SHARE,
  CheckpointWriter,
} from "../../../gpu-node/training/checkpoint-writer.ts";
import { LAST } from "../../../gpu-node/training/checkpoints.ts";
import { openRunFolder, type RunFolder } from "../../../gpu-node/training/run-folder.ts";
import { train } from "../../../gpu-node/training/train-attempt.ts";
import type { Engine } from "../../../native/index.d.ts";
import type { Native } from "../../../native/load.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import { splitOf, withEngine } from "../../native/training-world.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { runState } from "../../support/run-state.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay, machine } from "../../support/training.ts";

const native = engineOrSay();

const stateAt = (epoch: number, best: number | null = null) =>
  runState({ epoch, best: best === null ? null : { epoch: best, score: 0.5, since: best } });

interface World {
  engine: Engine;
  folder: RunFolder;
  writer: CheckpointWriter;
  /** Epochs of the checkpoints that are there for good. */
  written: number[];
  clock: { ms: number };
  /** What is done once a checkpoint is written, and before that is known. */
  disk: { after(): Promise<void> | void; path(path: string): string };
}

/** A writer of an engine, by a clock that only the test moves. */
async function withWriter(work: (world: World) => Promise<void>) {
  const dir = mkdtempSync(join(tmpdir(), "vantage-writer-"));
  try {
    const folder = await openRunFolder(dir, "a-run");
    await withEngine({}, async (engine) => {
      const [written, clock]: [number[], World["clock"]] = [[], { ms: 0 }];
      const disk: World["disk"] = { after: () => {}, path: (path) => path };
      const onDisk: Pick<Engine, "checkpoint" | "save" | "interrupt"> = {
        save: (...given) => engine.save(...given),
        interrupt: () => engine.interrupt(),
        checkpoint: async (path, metadata) => {
          const answer = await engine.checkpoint(disk.path(path), metadata);
          await disk.after();
          return answer;
        },
      };
      const writer = new CheckpointWriter({
        engine: onDisk,
        folder,
        onCheckpoint: async ({ epoch }) => void written.push(epoch),
        now: () => clock.ms,
      });
      await work({ engine, folder, writer, written, clock, disk });
    });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

describe.skipIf(!native)("checkpoints", () => {
  it("take a share of the time; the first, and one that must be, are written at once", () =>
    withWriter(async ({ writer, written, clock, disk }) => {
      disk.after = () => {
        clock.ms += 1_000;
      };
      for (let epoch = 1; epoch <= 120; epoch++) {
        await writer.write(stateAt(epoch));
        await writer.idle();
        clock.ms += 500;
      }
      expect(written[0]).toBe(1);
      const spent = (written.length - 1) * 1_000;
      expect(spent).toBeLessThanOrEqual(CHECKPOINT_SHARE * clock.ms);
      expect(spent).toBeGreaterThan(0.6 * CHECKPOINT_SHARE * clock.ms);
      expect(writer.isAt({ epoch: 120, batch: 0 })).toBe(false);
      await writer.write(stateAt(120), { must: true });
      expect(writer.isAt({ epoch: 120, batch: 0 })).toBe(true);
      await writer.finish();
      expect(written.at(-1)).toBe(120);
    }));

  it("are written one at a time, and nobody waits for them but the next that must be", () =>
    withWriter(async ({ writer, written, disk }) => {
      await writer.write(stateAt(1));
      expect(written).toEqual([1]);
      const disks = Promise.withResolvers<void>();
      disk.after = () => disks.promise;
      await writer.write(stateAt(2), { must: true });
      await writer.write(stateAt(3));
      const fourth = writer.write(stateAt(4), { must: true });
      expect(written).toEqual([1]);
      disks.resolve();
      await fourth;
      await writer.finish();
      expect(written).toEqual([1, 2, 4]);
    }));

  it("wait for their share, but the best weights do not, and none that one names is lost", () =>
    withWriter(async ({ engine, folder, writer, written, clock, disk }) => {
      disk.after = () => {
        clock.ms += 1_000;
      };
      await engine.setDataset("val", splitOf(folder.path, 2, 64));
      const evaluation = await engine.evaluate({ split: "val", batch: 2, imageSize: 64 });
      const better = async (epoch: number) => {
        const best = { epoch, evaluation, metadata: {} };
        await writer.write(stateAt(epoch, epoch), { best });
        await writer.finish();
      };
      for (const epoch of [1, 2, 3]) await better(epoch);
      expect(written).toEqual([1]);
      const files = () => readdirSync(folder.file("weights")).filter((name) => /best/.test(name));
      const named = (epochs: number[]) =>
        epochs.flatMap((epoch) => [`best-${epoch}.json`, `best-${epoch}.safetensors`]);
      expect(files()).toEqual(named([1, 3]));
      clock.ms += 60_000;
      await better(4);
      expect(written).toEqual([1, 4]);
      expect(files()).toEqual(named([1, 4]));
    }));

  it("that cannot be written are heard of by whoever writes next", () =>
    withWriter(async ({ folder, writer, written, disk }) => {
      await writer.write(stateAt(1));
      disk.path = (path) => join(path, "no folder");
      await writer.write(stateAt(2), { must: true });
      await expect(writer.finish()).rejects.toMatchObject({ code: "io_failed" });
      await expect(writer.write(stateAt(3))).rejects.toMatchObject({ code: "io_failed" });
      expect(written).toEqual([1]);
      expect(existsSync(folder.file(LAST))).toBe(true);
    }));
});

describe.skipIf(!native)("a run", () => {
  let service: NodeService;
  beforeAll(async () => {
    service = await startNodeService();
  });
  afterAll(() => service.close());

  /** The engine, with what is done to checkpoints after the first. */
  function altered(change: { begun?: () => void; pathOf?: (path: string) => string }): Native {
    const { Engine: Own, ...rest } = native as Native;
    class AlteredEngine extends Own {
      #count = 0;
      override checkpoint(path: string, metadata: Record<string, string>) {
        this.#count += 1;
        if (this.#count === 1) return super.checkpoint(path, metadata);
        // Before the engine has it: the folder is what it is while the file is not there yet.
        if (this.#count === 2) change.begun?.();
        return super.checkpoint(change.pathOf?.(path) ?? path, metadata);
      }
    }
    return { ...rest, Engine: AlteredEngine };
  }

  const drawn = async () => {
    const settings = { epochs: 3, batch_size: 2 };
    return (await drawnDataset(service, settings, { train: 6, val: 2 })).payload;
  };
  const runsOf = (dir: string) => join(dir, "training/runs");
  const told = ({ history }: Awaited<ReturnType<typeof train>>) =>
    history.map(({ seconds: _, ...row }) => row);

  it("that dies while a checkpoint is written goes on to the same bits", async () => {
    const payload: TaskPayload<"train"> = await drawn();
    const [here, there] = [machine(service), machine(service)];
    const begun = () => {
      // The best weights may be on the way to their name.
      const filter = (path: string) => !path.includes(".partial.");
      cpSync(runsOf(here.dir), runsOf(there.dir), { recursive: true, filter });
      const last = join(runsOf(there.dir), payload.run_id, LAST);
      const half = readFileSync(last).subarray(0, 1_000_000);
      writeFileSync(`${last}.partial.1.2`, half);
    };
    const copying = altered({ begun });
    const whole = await train(payload, await taskContext(service, here.dir), { native: copying });
    const resumed = await there.finish(payload);
    expect(there.lines().join("\n")).toMatch(/Resumed at epoch 2/);
    expect(told(resumed)).toEqual(told(whole));
    expect(resumed.model?.weights.sha256).toBe(whole.model?.weights.sha256);
  });

  it("whose disk fails under a checkpoint ends with the reason, and goes on from the one before", async () => {
    const payload = await drawn();
    const here = machine(service);
    const failing = altered({ pathOf: (path) => join(path, "no folder") });
    const context = await taskContext(service, here.dir);
    await expect(train(payload, context, { native: failing })).rejects.toMatchObject({
      code: "io_failed",
      retryable: true,
    });
    const result = await here.finish(payload);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2, 3]);
    expect(here.lines().join("\n")).toMatch(/Resumed at epoch 2/);
  });
});
