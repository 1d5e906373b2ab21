// A training from its payload to its result, with the real engine, over drawn shapes and an object
// store. Goal: the result is of the protocol's shape and true, what people look at is there, and a
// dataset that cannot be learned from is refused in words.

import { createHash } from "node:crypto";
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { installBundle } from "../../../gpu-node/segmenters/install.ts";
import { train } from "../../../gpu-node/training/train-attempt.ts";
import type { Native } from "../../../native/load.ts";
import { detectorGraph, parameterCount } from "../../../shared/detector/detector.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import { CURVES, RunCurves } from "../../../shared/wire/run-curves.ts";
import { classMetricKey } from "../../../shared/wire/training.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { taskContext } from "../../support/task-context.ts";
import { engineOrSay, machine, resultOf } from "../../support/training.ts";
import { randomWeights, tensorFile } from "../../support/weights.ts";

const native = engineOrSay();
let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

const object = (key: string) => service.objects.get(key) as Buffer;
const few = { train: 6, val: 3 };

describe.skipIf(!native)("a training", () => {
  it("gives a model with its metrics, and leaves what people look at", async () => {
    const here = machine(service);
    const { payload } = await drawnDataset(service, { epochs: 2 }, few);
    const result = await here.finish(payload);
    expect(result).toMatchObject({
      stopped: false,
      checkpoint: null,
      resolved: { batch_size: 4, optimizer: "adamw", train_images: 6, val_images: 3 },
    });
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2]);
    expect(Object.keys(result.history[0]?.metrics ?? {})).toEqual(
      expect.arrayContaining(["mAP50", "mAP50-95", "precision", "recall"]),
    );
    expect(Object.keys(result.history[0]?.metrics ?? {}).join()).toMatch(/per_class\/disc\/recall/);
    const model = result.model as NonNullable<typeof result.model>;
    const weights = object(model.weights.key);
    expect(weights.length).toBe(model.weights.bytes);
    expect(createHash("sha256").update(weights).digest("hex")).toBe(model.weights.sha256);
    expect(model.parameters).toBe(parameterCount(detectorGraph("det26n", 2)));
    expect(model.metrics).toEqual(result.history[model.epoch - 1]?.metrics);
    // What drift is held against: all that it finds on the three validation images.
    const detections = model.confidence_bins?.reduce((sum, count) => sum + count, 0) ?? 0;
    expect([model.confidence_bins?.length, detections > 3]).toEqual([20, true]);
    const file = readTensors(weights);
    expect(file.metadata).toMatchObject({ variant: "det26n", classes: '["disc","square"]' });
    const shape = { variant: "det26n", task: "detection" } as const;
    expect(
      deployedModel({ ...shape, classes: ["disc", "square"] }, file).weights.size,
    ).toBeGreaterThan(50);
    expect(result.artifacts.map(({ name }) => name).sort()).toEqual([
      ...["args.json", "best.safetensors", "confusion_matrix.png", CURVES, "f1_curve.png"],
      ...[
        "labels.png",
        "pr_curve.png",
        "results.csv",
        "results.png",
        "train.log",
        "train_batch0.jpg",
      ],
      ...["val_batch0_labels.jpg", "val_batch0_pred.jpg"],
    ]);
    const written = result.artifacts.find(({ name }) => name === "args.json");
    expect(JSON.parse(object(written?.key ?? "").toString())).toMatchObject({
      run_id: payload.run_id,
      settings: payload.settings,
      resolved: result.resolved,
      options: { optimizer: "adamw", augmentation: { mosaic: 1 } },
      dataset: { classes: ["disc", "square"], images: { train: 6, val: 3 } },
      machine: { torch: expect.stringMatching(/^\d/), threads: expect.any(Number) },
    });
    const drawn = result.artifacts.find(({ name }) => name === CURVES);
    const curves = RunCurves.parse(JSON.parse(object(drawn?.key ?? "").toString()));
    expect(curves.model).toEqual(curves.best_epoch);
    expect(curves.model).toMatchObject({ epoch: model.epoch, confidence: expect.any(Number) });
    const { classes = [] } = curves.model ?? {};
    expect(classes.map((own) => own.class)).toEqual(["disc", "square"]);
    for (const own of classes) {
      const mean = own.curves?.precision_by_recall.reduce((sum, value) => sum + value / 101, 0);
      expect(mean).toBeCloseTo(model.metrics[classMetricKey(own.class, "mAP50")] ?? -1, 3);
    }
    for (const { name, key, bytes, content_type } of result.artifacts) {
      expect([name, object(key).length]).toEqual([name, bytes]);
      if (!content_type.startsWith("image/")) continue;
      const { channels } = await sharp(object(key)).stats();
      expect([name, channels.some(({ stdev }) => stdev > 5)]).toEqual([name, true]);
    }
  });

  it("says how far it is: lines in their order, steps, epochs, what was chosen", async () => {
    const here = machine(service);
    const drawn = await drawnDataset(service, { epochs: 2, batch_size: null }, few);
    const bytes = Buffer.from(JSON.stringify({ ...drawn.manifest, left_out_frames: 5 }));
    const manifest = service.source(`ws/a/manifests/${crypto.randomUUID()}`, bytes);
    const result = await here.finish({ ...drawn.payload, manifest });
    const last = here.told.at(-1);
    expect(last).toMatchObject({ epoch: 2, batch: 0, batches: 2, resolved: result.resolved });
    expect(last?.recent).toEqual(result.history);
    for (const { losses, validation_losses: validated } of result.history) {
      expect(Object.keys(validated ?? {})).toEqual(Object.keys(losses));
      expect(validated?.cls).toBeGreaterThan(0);
    }
    expect(last?.losses).toEqual(expect.objectContaining({ box: expect.any(Number) }));
    const positions = here.told.map(({ epoch, batch }) => epoch * 100 + batch);
    expect(positions).toEqual(positions.toSorted((one, other) => one - other));
    const numbers = here.told.flatMap(({ log }) => log.map(({ n }) => n));
    expect(Math.max(...numbers)).toBe(new Set(numbers).size);
    const log = here.lines().join("\n");
    for (const said of [
      /Dataset: 6 pictures/,
      /5 frames are left out: too near in time to a picture to validate on/,
      /Batch size 4 \(automatic/,
      /Epoch 2\/2 +box/,
      /val box \d+\.\d{3} +cls \d+\.\d{3} +dfl \d+\.\d{3} +P /,
      /mAP50/,
    ])
      expect(log).toMatch(said);
    const artifact = result.artifacts.find(({ name }) => name === "train.log");
    expect(object(artifact?.key ?? "").toString()).toMatch(/Epoch 2\/2/);
  });

  it("keeps pixels for the next run on the same frames, and nothing of the run itself", async () => {
    const here = machine(service);
    const { payload, manifest } = await drawnDataset(service, { epochs: 1 }, { ...few, seed: 7 });
    await here.finish(payload);
    const runs = join(here.dir, "training/runs");
    expect(readdirSync(runs)).toEqual([]);
    const pixels = readdirSync(join(here.dir, "training/datasets"));
    expect(pixels.filter((name) => name.endsWith(".rgb"))).toHaveLength(2);
    // Other boxes on the same frames; the images themselves are gone.
    for (const { frames } of manifest.videos) frames[0]?.annotations.splice(1);
    for (const { key } of payload.videos) service.objects.delete(key);
    const bytes = Buffer.from(JSON.stringify(manifest));
    const again: TaskPayload<"train"> = {
      ...payload,
      run_id: crypto.randomUUID(),
      videos: payload.videos.map((one) => ({ ...one, key: one.key })),
      manifest: service.source(`ws/a/manifests/${crypto.randomUUID()}`, bytes),
    };
    expect((await here.finish(again)).history).toHaveLength(1);
    expect(readdirSync(join(here.dir, "training/datasets")).sort()).toEqual(pixels.sort());
  });

  it("is the same again under the same seed, and another under another", async () => {
    const losses = async (seed: number) => {
      const { payload } = await drawnDataset(service, { epochs: 1, seed }, few);
      return (await machine(service).finish(payload)).history[0]?.losses;
    };
    const first = await losses(1);
    expect(await losses(1)).toEqual(first);
    expect(await losses(2)).not.toEqual(first);
  });

  it("ends early when nothing gets better", async () => {
    const settings = { epochs: 9, patience: 1, learning_rate: 1e-12 };
    const { payload } = await drawnDataset(service, settings, few);
    const here = machine(service);
    const result = await here.finish(payload);
    expect(result).toMatchObject({ stopped: false, checkpoint: null });
    expect(result.history).toHaveLength(2);
    // While nothing is found at all, who learned longer is the better one.
    expect(result.model?.epoch).toBe(2);
    expect(here.lines().join()).toMatch(/Stopped early: nothing got better in 1 epoch/);
  });
});

describe.skipIf(!native)("a dataset", () => {
  const refused = async (change: (given: Awaited<ReturnType<typeof drawnDataset>>) => void) => {
    const drawn = await drawnDataset(service, {}, { ...few, seed: 3 });
    change(drawn);
    const { payload, manifest } = drawn;
    const bytes = Buffer.from(JSON.stringify(manifest));
    const source = service.source(`ws/a/manifests/${crypto.randomUUID()}`, bytes);
    return machine(service).attempt({ ...payload, manifest: source });
  };

  it.each([
    ["without a picture to validate on", "val", /no picture to validate on/],
    ["without a picture to train on", "train", /no picture to train on/],
  ] as const)("%s is refused in words", async (_, split, said) => {
    const outcome = await refused(({ manifest }) => {
      for (const { frames } of manifest.videos) {
        for (const frame of frames) frame.split = split === "val" ? "train" : "val";
      }
    });
    expect(outcome).toMatchObject({ outcome: "failed", code: "bad_dataset", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(said));
  });

  it("without an annotation, or with classes that it does not list, is refused too", async () => {
    const bare = await refused(({ manifest }) => {
      for (const { frames } of manifest.videos) for (const frame of frames) frame.annotations = [];
    });
    expect(bare).toMatchObject({ code: "bad_dataset", retryable: false });
    const foreign = await refused(({ manifest }) => {
      manifest.classes = ["disc"];
    });
    expect(foreign).toMatchObject({ code: "bad_dataset", retryable: false });
    const torn = await drawnDataset(service, {}, few);
    const manifest = service.source(`ws/a/manifests/${crypto.randomUUID()}`, Buffer.from("{"));
    const outcome = await machine(service).attempt({ ...torn.payload, manifest });
    expect(outcome).toMatchObject({ code: "bad_dataset", retryable: false });
  });

  it("with a picture that cannot be decoded names it", async () => {
    const { payload } = await drawnDataset(service, {}, { ...few, seed: 4 });
    const [first] = payload.videos;
    const bytes = object(first?.key ?? "");
    bytes.fill(0, 60);
    const outcome = await machine(service).attempt(payload);
    expect(outcome).toMatchObject({ outcome: "failed", code: "unsupported_media" });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/^image-0\.png: /));
  });

  it("without a mask is refused where masks are to be learned", async () => {
    const { payload } = await drawnDataset(service, { task: "segmentation" }, few);
    const outcome = await machine(service).attempt(payload);
    expect(outcome).toMatchObject({ code: "bad_dataset", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/has a mask/));
  });
});

describe.skipIf(!native)("a training of masks", () => {
  it("gives a model of segmentation, with average precision by masks beside that by boxes", async () => {
    const here = machine(service);
    const settings = { task: "segmentation", epochs: 2 } as const;
    const { payload } = await drawnDataset(service, settings, { ...few, masks: true });
    const result = await here.finish(payload);
    expect(result.history.map(({ epoch }) => epoch)).toEqual([1, 2]);
    for (const { metrics } of result.history) {
      expect(Object.keys(metrics)).toEqual(
        expect.arrayContaining([
          ...["mAP50", "mAP50-95", "mask/mAP50", "mask/mAP50-95"],
          ...["per_class/disc/mask/mAP50", "per_class/square/mask/mAP50-95"],
        ]),
      );
    }
    const model = result.model as NonNullable<typeof result.model>;
    const graph = detectorGraph("det26n", 2, "segmentation");
    expect(model.parameters).toBe(parameterCount(graph));
    const file = readTensors(object(model.weights.key));
    expect(file.metadata).toMatchObject({ task: "segmentation" });
    const shape = { variant: "det26n", task: "segmentation" } as const;
    const deployed = deployedModel({ ...shape, classes: ["disc", "square"] }, file);
    expect(deployed.weights.size).toBeGreaterThan(60);
    const log = result.artifacts.find(({ name }) => name === "train.log");
    expect(object(log?.key ?? "").toString()).toMatch(/ mask \d.*\n.*mask mAP50 /);
  });
});

describe.skipIf(!native)("a stop", () => {
  it("in the first epoch looks at what there is, and registers it", async () => {
    const here = machine(service);
    // Its first step is told; of this many the others are not over before that is heard.
    const settings = { epochs: 50, batch_size: 1 };
    const { payload } = await drawnDataset(service, settings, { train: 24, val: 3 });
    const outcome = await here.attempt(payload, ({ detail, cancel }) => {
      if (detail.batch > 0) cancel();
    });
    expect(outcome.outcome).toBe("cancelled");
    const result = resultOf(outcome);
    expect(result).toMatchObject({ stopped: true, history: [], model: { epoch: 1 } });
    const { metadata } = readTensors(object(result.model?.weights.key ?? ""));
    expect(metadata).toMatchObject({
      variant: "det26n",
      classes: '["disc","square"]',
      run_id: payload.run_id,
      epoch: "1",
    });
    expect(result.checkpoint).toMatchObject({ epoch: 0, batch: expect.any(Number) });
    expect(result.checkpoint?.batch).toBeGreaterThan(0);
  });

  it("before the first step leaves no model, and while pictures are made ready nothing", async () => {
    const { payload } = await drawnDataset(service, { epochs: 50 }, few);
    const early = await machine(service).attempt(payload, ({ detail, cancel }) => {
      if (detail.resolved) cancel();
    });
    expect(resultOf(early)).toMatchObject({ stopped: true, model: null, history: [] });
    const earlier = await machine(service).attempt(payload, ({ cancel }) => cancel());
    expect(earlier).toEqual({ outcome: "cancelled", result: null });
  });

  it("within an epoch registers the weights of that step, and keeps the best epoch's", async () => {
    const here = machine(service);
    // Steps of an epoch are told once a second: this many take longer.
    const settings = { epochs: 50, batch_size: 1 };
    const { payload } = await drawnDataset(service, settings, { train: 100, val: 3 });
    const outcome = await here.attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch > 0 && detail.batch > 0) cancel();
    });
    const result = resultOf(outcome);
    const done = result.history.length;
    expect([result.stopped, done > 0]).toEqual([true, true]);
    expect(result.checkpoint).toMatchObject({ epoch: done, batch: expect.any(Number) });
    const model = result.model as NonNullable<typeof result.model>;
    const [last, best] = ["last.safetensors", "best.safetensors"].map((name) =>
      result.artifacts.find((artifact) => artifact.name === name),
    );
    // What is registered is where the checkpoint is, whatever was better before.
    expect(model.epoch).toBe(done + 1);
    expect(last).toMatchObject({ key: model.weights.key, model });
    expect(best?.model?.weights.sha256).not.toBe(model.weights.sha256);
    const bestEpoch = best?.model?.epoch ?? 0;
    expect(best?.model?.metrics).toEqual(result.history[bestEpoch - 1]?.metrics);
    for (const [artifact, epoch] of [
      [last, done + 1],
      [best, bestEpoch],
    ] as const) {
      const { metadata } = readTensors(object(artifact?.key ?? ""));
      expect(metadata.epoch).toBe(String(epoch));
    }
    expect(Object.keys(model.metrics)).toEqual(Object.keys(result.history[0]?.metrics ?? {}));
    expect(model.metrics["per_class/disc/mAP50"]).toEqual(expect.any(Number));
    expect(model.confidence_bins).toHaveLength(20);
    const log = result.artifacts.find(({ name }) => name === "train.log");
    const said = object(log?.key ?? "").toString();
    expect(said).toContain(`Model: epoch ${done + 1}, mAP50 `);
    expect(said).toContain(`Best epoch before: epoch ${bestEpoch}, mAP50 `);
    const names = result.artifacts.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(["results.png", "confusion_matrix.png"]));
    expect(existsSync(join(here.dir, "training/runs", payload.run_id))).toBe(false);
  });

  /** The engine, which fails in one thing once a run was stopped. */
  function failing(method: "evaluate" | "save", isStopped: () => boolean): Native {
    const { Engine, ...rest } = native as Native;
    const fail = () =>
      Promise.reject(Object.assign(new Error("the GPU is gone"), { code: "gpu_unavailable" }));
    class Failing extends Engine {
      override evaluate(...args: Parameters<InstanceType<typeof Engine>["evaluate"]>) {
        return method === "evaluate" && isStopped() ? fail() : super.evaluate(...args);
      }
      override save(...args: Parameters<InstanceType<typeof Engine>["save"]>) {
        return method === "save" && isStopped() ? fail() : super.save(...args);
      }
    }
    return { ...rest, Engine: Failing };
  }

  it.each([
    ["measured are a model without metrics", "evaluate"],
    ["saved leave the best epoch's as the model", "save"],
  ] as const)("whose weights cannot be %s", async (_, method) => {
    const here = machine(service);
    const settings = { epochs: 50, batch_size: 1 };
    const { payload } = await drawnDataset(service, settings, { train: 30, val: 3 });
    const stop = new AbortController();
    const scores = join(here.dir, "training/runs", payload.run_id, "weights/latest.json");
    const context = await taskContext(service, here.dir, {
      cancel: stop.signal,
      progress: ({ detail }) => {
        const { epoch, batch } = detail as { epoch: number; batch: number };
        if (epoch === 0 || batch === 0 || stop.signal.aborted) return;
        // Of another stop, on this node, of the same run.
        writeFileSync(scores, JSON.stringify({ confidenceBins: [1, 2, 3] }));
        stop.abort();
      },
    });
    const result = await train(payload, context, {
      native: failing(method, () => stop.signal.aborted),
    });
    const best = result.history.length;
    const names = result.artifacts.flatMap(({ name, model }) => (model ? [name] : []));
    if (method === "save") {
      expect(result).toMatchObject({ stopped: true, model: { epoch: expect.any(Number) } });
      expect(result.model?.epoch).toBeLessThanOrEqual(best);
      expect(result.model?.metrics).toEqual(
        result.history[(result.model?.epoch ?? 0) - 1]?.metrics,
      );
      expect(names).toEqual(["best.safetensors"]);
    } else {
      expect(result.model).toMatchObject({ epoch: best + 1, confidence_bins: null });
      expect(new Set(Object.values(result.model?.metrics ?? {}))).toEqual(new Set([null]));
      expect(names.toSorted()).toEqual(["best.safetensors", "last.safetensors"]);
    }
    expect(result.checkpoint).toMatchObject({ epoch: best });
  });

  it("at the end of its best epoch hands in one file of weights", async () => {
    const here = machine(service);
    // Nothing is learned and nothing found: the newest epoch is the best one.
    const settings = { epochs: 50, learning_rate: 1e-12 };
    const { payload } = await drawnDataset(service, settings, few);
    const outcome = await here.attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch === 2) cancel();
    });
    const result = resultOf(outcome);
    expect(result).toMatchObject({ stopped: true, model: { epoch: 2 } });
    expect(result.model?.metrics).toEqual(result.history[1]?.metrics);
    const weights = result.artifacts.filter(({ model }) => model);
    expect(weights.map(({ name }) => name)).toEqual(["best.safetensors"]);
    expect(here.lines().join("\n")).toMatch(/Model: epoch 2, mAP50 0\.000/);
    expect(existsSync(join(here.dir, "training/runs", payload.run_id))).toBe(false);
  });
});

describe.skipIf(!native)("weights of the node", () => {
  it("are what a run starts from; a node without them leaves it to others", async () => {
    const { payload } = await drawnDataset(service, { epochs: 1 }, few);
    const asked = { ...payload, pretrained: { dataset: "cells" } };
    const modelsDir = mkdtempSync(join(tmpdir(), "vantage-sets-"));
    const device = "cpu" as const;
    const trainingDir = join(modelsDir, "training");
    const here = machine(service, {
      machine: { device, cpuThreads: 1, trainingDir, modelsDir: join(modelsDir, "models") },
    });
    expect(await here.attempt(asked)).toEqual({ outcome: "snoozed", seconds: 10 });
    const file = join(modelsDir, "cells.safetensors");
    writeFileSync(file, tensorFile(randomWeights(detectorGraph("det26n", 1))));
    const weights = { name: "cells", licence: "MIT", source: "a drawing" };
    const { folder } = await installBundle(file, { modelsDir: join(modelsDir, "models"), weights });
    const installed = join(folder, "cells.safetensors");
    appendFileSync(installed, "x");
    expect(await here.attempt(asked)).toMatchObject({
      outcome: "failed",
      code: "bad_weights",
      detail: "the weights cells-det26n are damaged on this node: npm run models -- install",
      retryable: true,
    });
    copyFileSync(file, installed);
    const { resolved } = await here.finish(asked);
    rmSync(modelsDir, { recursive: true, force: true });
    const { matched = 0, of = 0, mismatched } = resolved?.pretrained ?? {};
    // All but the last convolutions of the classes, of which the file has one.
    expect([of - matched, mismatched?.length]).toEqual([12, 12]);
    expect(here.lines().join("\n")).toMatch(/cells, det26n, from a drawing; licence: MIT/);
  });
});

describe.skipIf(!native)("weights that overflow", () => {
  it("end the run with the reason and advice", async () => {
    const { payload } = await drawnDataset(service, { epochs: 6, batch_size: 1 }, few);
    const graph = detectorGraph("det26n", 2);
    const engine = new (native as NonNullable<typeof native>).Engine({
      graph,
      device: "cpu",
      seed: 0,
      threads: 1,
    });
    const here = machine(service);
    const path = join(here.dir, "huge.safetensors");
    await engine.save(path, {});
    await engine.close();
    const bytes = readFileSync(path);
    const header = Number(bytes.readBigUInt64LE());
    bytes.fill(Buffer.from(Float32Array.of(3e38).buffer), 8 + header);
    const weights = service.source(`ws/a/weights/${crypto.randomUUID()}`, bytes);
    const pretrained = { weights, format: "safetensors" as const };
    const outcome = await here.attempt({ ...payload, pretrained });
    expect(outcome).toMatchObject({ outcome: "failed", code: "not_finite", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/smaller learning rate/));
  });
});
