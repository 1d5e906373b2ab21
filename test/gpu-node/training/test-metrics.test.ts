// Metrics on the test frames of a run's dataset. Goal: the model is measured on them by the code
// and the rule of the validation split, and they change neither its weights nor what is chosen; a
// measurement that fails, or that a stop or a pause cuts off, costs the run nothing.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { type SessionOptions, train } from "../../../gpu-node/training/train-attempt.ts";
import type { Native } from "../../../native/load.ts";
import type { TaskPayload, TaskResult } from "../../../shared/tasks/tasks.ts";
import { type DrawnTask, drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay, machine, resultOf } from "../../support/training.ts";

const native = engineOrSay();
let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

const images = { train: 6, val: 3, isTested: true };

/** The payload of another manifest. */
function relabeled(
  { manifest, payload }: DrawnTask,
  edit: (manifest: DrawnTask["manifest"]) => void,
) {
  const edited = structuredClone(manifest);
  edit(edited);
  const bytes = Buffer.from(JSON.stringify(edited));
  const source = service.source(`ws/a/manifests/${crypto.randomUUID()}`, bytes);
  return { ...payload, manifest: source };
}

const testFrames = ({ videos }: DrawnTask["manifest"]) =>
  videos.flatMap(({ frames }) => frames.filter(({ split }) => split === "test"));

/** Every tensor of a result's model, in hex. */
function tensorsOf({ model }: TaskResult<"train">) {
  const file = service.objects.get(model?.weights.key ?? "") as Buffer;
  return [...readTensors(file).tensors].map(([name, { bytes }]) => [
    name,
    Buffer.from(bytes).toString("hex"),
  ]);
}

describe.skipIf(!native)("metrics on test frames", () => {
  it("are the model's by the rule of the validation split, and choose nothing", async () => {
    const drawn = await drawnDataset(service, { epochs: 2 }, images);
    const results: TaskResult<"train">[] = [];
    for (const payload of [
      drawn.payload,
      relabeled(drawn, (manifest) => {
        for (const { annotations } of testFrames(manifest)) {
          for (const one of annotations) one.class_index = 0;
        }
      }),
      relabeled(drawn, (manifest) => {
        for (const frame of testFrames(manifest)) frame.annotations = [];
      }),
    ]) {
      results.push(await machine(service).finish(payload));
    }
    const [right, wrong, none] = results as [TaskResult<"train">, ...typeof results];
    expect(right.model?.metrics["per_class/square/recall"]).toEqual(expect.any(Number));
    // Its test frames are copies of the validation frames.
    expect(right.model?.test_metrics).toEqual(right.model?.metrics);
    expect(wrong?.model?.test_metrics).toMatchObject({ "per_class/square/recall": null });
    expect(none?.model?.test_metrics).toBeNull();
    for (const other of [wrong, none] as typeof results) {
      expect(other.history.map(({ metrics, losses }) => [metrics, losses])).toEqual(
        right.history.map(({ metrics, losses }) => [metrics, losses]),
      );
      expect(other.model).toMatchObject({
        metrics: right.model?.metrics,
        epoch: right.model?.epoch,
      });
      expect(tensorsOf(other)).toEqual(tensorsOf(right));
      expect(other.resolved).toMatchObject({ train_images: 6, val_images: 3 });
    }
  });

  it("are those of the weights as they were when a run was stopped", async () => {
    const settings = { epochs: 50, batch_size: 1 };
    const { payload } = await drawnDataset(service, settings, { ...images, train: 30 });
    const outcome = await machine(service).attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch > 0 && detail.batch > 0) cancel();
    });
    const { stopped, model, artifacts } = resultOf(outcome);
    expect(stopped).toBe(true);
    expect(model?.test_metrics).toEqual(model?.metrics);
    // The weights that the stop passed over are measured on nothing more.
    const best = artifacts.find(({ name }) => name === "best.safetensors");
    expect(best?.model).toMatchObject({ test_metrics: null });
  });

  /** The engine, with something that happens as the model is measured. */
  function measuring(onMeasure: () => Promise<void>): Native {
    const { Engine, ...rest } = native as Native;
    class Measuring extends Engine {
      readonly #trains: boolean;
      constructor(options: ConstructorParameters<typeof Engine>[0]) {
        super(options);
        this.#trains = options.training !== undefined;
      }
      override async evaluate(...args: Parameters<InstanceType<typeof Engine>["evaluate"]>) {
        if (!this.#trains) await onMeasure();
        return super.evaluate(...args);
      }
    }
    return { ...rest, Engine: Measuring };
  }

  const attempt = async (
    dir: string,
    payload: TaskPayload<"train">,
    { pause, ...options }: SessionOptions & { pause?: AbortController },
  ) => train(payload, await taskContext(service, dir, pause && { pause: pause.signal }), options);

  it("are null where they cannot be measured, which the log says", async () => {
    const { payload } = await drawnDataset(service, { epochs: 1 }, images);
    const engine = measuring(() => Promise.reject(new Error("the GPU is gone")));
    const { model, artifacts } = await attempt(machine(service).dir, payload, { native: engine });
    expect(model?.metrics.mAP50).toEqual(expect.any(Number));
    expect(model?.test_metrics).toBeNull();
    const log = artifacts.find(({ name }) => name === "train.log");
    expect(service.objects.get(log?.key ?? "")?.toString()).toContain(
      "could not be measured on the test frames: the GPU is gone.",
    );
  });

  it("are measured by the attempt that goes on after a pause cut them off", async () => {
    const { payload } = await drawnDataset(service, { epochs: 1 }, images);
    const { dir } = machine(service);
    const pause = new AbortController();
    const engine = measuring(async () => pause.abort());
    await expect(attempt(dir, payload, { native: engine, pause })).rejects.toMatchObject({
      name: "TaskPause",
    });
    const { model } = await attempt(dir, payload, {});
    expect(model?.test_metrics).toEqual(model?.metrics);
  });
});
