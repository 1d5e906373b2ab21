// Runs that go on: after a stop on another node, and after the node was drained. Goal: nothing that
// was handed in is lost, and a run that went on is the run that was never interrupted.

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { detectorGraph, HEAD_LAYER } from "../../../shared/detector/detector.ts";
import type { Checkpoint } from "../../../shared/tasks/train-task.ts";
import type { RunEpoch } from "../../../shared/wire/training.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { engineOrSay, machine, resultOf, resumed } from "../../support/training.ts";
import { randomWeights, tensorFile } from "../../support/weights.ts";

const native = engineOrSay();
let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

const few = { train: 6, val: 2 };
const settings = { epochs: 3, batch_size: 2 };

/** What of an epoch does not depend on the clock. */
const told = (history: readonly RunEpoch[]) =>
  history.map(({ epoch, losses, metrics, learning_rate }) => ({
    epoch,
    losses,
    metrics,
    learning_rate,
  }));

const lively = {
  freeze: "backbone",
  multi_scale: 0.5,
  augmentation_overrides: { copy_paste: 0.5, mosaic: 0.5 },
} as const;

describe.skipIf(!native)("a run that was stopped", () => {
  it.each([
    ["goes on on another node as if it had never been stopped", {}],
    ["does so with frozen layers, several sizes and nothing to paste", lively],
  ])("%s", async (_, more) => {
    const long = { ...settings, ...more, epochs: 2 };
    // Of this many steps the others are not over before the first one is heard of.
    const { payload } = await drawnDataset(service, long, { train: 24, val: 2 });
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
    const result = await second.finish(resumed(service, payload, at));
    expect(result.stopped).toBe(false);
    expect(told(result.history)).toEqual(told(whole.history));
    expect(result.model?.weights.sha256).not.toBe(stopped.model?.weights.sha256);
    expect(result.model?.epoch).toBe(whole.model?.epoch);
    expect(second.lines().join("\n")).toMatch(/Resumed at epoch 1, after \d+ of 12 steps/);
    const isLively = "freeze" in more;
    expect(/first 11 layers are frozen/.test(first.lines().join("\n"))).toBe(isLively);
    expect(/size of its own, ± 50 %/.test(first.lines().join("\n"))).toBe(isLively);
    // Lines go on behind those of the first attempt.
    const numbers = (node: typeof first) => node.told.flatMap(({ log }) => log.map(({ n }) => n));
    expect(Math.min(...numbers(second).slice(-1))).toBeGreaterThan(Math.max(...numbers(first)));
  });

  it("registers the same weights again where it is stopped before another step", async () => {
    const { payload } = await drawnDataset(service, settings, few);
    const outcome = await machine(service).attempt(payload, ({ detail, cancel }) => {
      if (detail.epoch === 2) cancel();
    });
    const at = resultOf(outcome).checkpoint as Checkpoint;
    const again = await machine(service).attempt(
      resumed(service, payload, at),
      ({ detail, cancel }) => {
        if (detail.resolved) cancel();
      },
    );
    const result = resultOf(again);
    expect(result.history).toEqual(resultOf(outcome).history);
    expect(result.model?.weights.sha256).toBe(resultOf(outcome).model?.weights.sha256);
    expect(result.artifacts.map(({ name }) => name)).toContain("confusion_matrix.png");
  });
});

describe.skipIf(!native)("a run that starts from a backbone and a neck", () => {
  it("has the automatic rate of a run from scratch, and keeps it where it goes on", async () => {
    const features = new Map(
      [...randomWeights(detectorGraph("det26n", 2))].filter(
        ([name]) => !name.startsWith(`layers.${HEAD_LAYER}.`),
      ),
    );
    const weights = service.source(`ws/a/weights/${crypto.randomUUID()}`, tensorFile(features));
    const asked = { ...settings, pretrained: { weights_id: crypto.randomUUID() } };
    const { payload } = await drawnDataset(service, asked, few);
    const started = { ...payload, pretrained: { weights, format: "safetensors" as const } };
    const first = machine(service);
    const outcome = await first.attempt(started, ({ detail, cancel }) => {
      if (detail.epoch === 1) cancel();
    });
    const { resolved, checkpoint } = resultOf(outcome);
    expect(resolved).toMatchObject({ learning_rate: 0.004, pretrained: { mismatched: [] } });
    const second = machine(service);
    const going = resumed(service, started, checkpoint as Checkpoint);
    expect((await second.finish(going)).resolved?.learning_rate).toBe(0.004);
    const said = [first, second].map((node) => node.lines().join("\n"));
    expect(said[0]).toMatch(/The head starts fresh: the automatic learning rate is the one from/);
    for (const lines of said) expect(lines).toMatch(/Optimiser adamw, learning rate 0\.004 to/);
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
    const local = await here.finish(resumed(service, payload, at));
    expect(service.reads.get(at.key) ?? 0).toBe(0);
    const elsewhere = await machine(service).finish(resumed(service, payload, at));
    expect(service.reads.get(at.key)).toBe(1);
    expect(told(elsewhere.history)).toEqual(told(local.history));
  });

  it("while pictures are made ready gives it back as it was", async () => {
    const { payload } = await drawnDataset(service, settings, { ...few, seed: 11 });
    const outcome = await machine(service).attempt(payload, ({ pause }) => pause());
    expect(outcome).toEqual({ outcome: "snoozed", seconds: 0 });
  });
});
