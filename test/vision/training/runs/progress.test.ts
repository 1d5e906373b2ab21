// What a node says of a run while it trains: repeated, late, out of order, across attempts. Goal:
// an epoch is stored and told once, the newest checkpoint is the one that a later attempt goes on
// from, and it is there at every moment.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { epochScore, type RunEpoch } from "../../../../shared/wire/training.ts";
import {
  createTrainingWorld,
  epoch,
  labelsOf,
  mask,
  RESOLVED,
  type TrainingWorld,
  type TrainTask,
} from "../../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

const told = async (task: TrainTask, detail: Parameters<TrainingWorld["report"]>[1]) =>
  expect((await w.report(task, detail)).status).toBe(200);
const line = (n: number) => ({ n, line: `line ${n}` });
const there = async (key: string) => (await w.world.media.list({ prefix: key })).objects.length > 0;
const end = async (runId: string, task: TrainTask) => {
  await w.admin.ok("POST", `/train/${runId}/stop`);
  expect((await w.finish(task, { outcome: "cancelled", result: null })).status).toBe(200);
};
const checkpoint = async (task: TrainTask, at: number, batch = 0) => ({
  ...(await w.stored(task, "checkpoint.bin")),
  epoch: at,
  batch,
});

describe("progress", () => {
  it("begins the run, and shows the newest that was said, however late the rest comes", async () => {
    const runId = await w.train({ epochs: 10 });
    const task = await w.claimed();
    const losses = { box: 1, cls: 2, dfl: 3 };
    const two = { epoch: 2, batch: 5, losses, eta_seconds: 60, resolved: RESOLVED };
    await told(task, { ...two, recent: [epoch(1)] });
    await told(task, { epoch: 1, batch: 1, eta_seconds: 999, losses: { ...losses, box: 9 } });
    expect(await w.run(runId)).toMatchObject({
      status: "running",
      epoch: 1,
      epochs: 10,
      loss: losses,
      eta_seconds: 60,
      ETA: 60,
      resolved: RESOLVED,
      mAP: { mAP50: 0.2, "mAP50-95": 0.1 },
      best_epoch: 1,
    });
    const started = (await w.run(runId)).started_at;
    await told(task, { epoch: 4, recent: [epoch(3, 0.1), epoch(2, 0.9)] });
    await told(task, { epoch: 4, recent: [epoch(2, 0.9), epoch(3, 0.1), epoch(3, 0.1)] });
    expect(await w.run(runId)).toMatchObject({
      epoch: 3,
      best_epoch: 2,
      started_at: started,
      best_metrics: { "mAP50-95": 0.9 },
    });
    const epochs = await w.admin.ok<RunEpoch[]>("GET", `/train/${runId}/epochs`);
    expect(epochs.map((one) => one.epoch)).toEqual([1, 2, 3]);
    await end(runId, task);
  });

  it("has the newest epoch as its best while nothing is found, as the node has", async () => {
    const runId = await w.train({ epochs: 10 });
    const task = await w.claimed();
    await told(task, { epoch: 2, recent: [epoch(1, 0), epoch(2, 0)] });
    expect((await w.run(runId)).best_epoch).toBe(2);
    await told(task, { epoch: 4, recent: [epoch(3, 0.1), epoch(4, 0.1)] });
    expect((await w.run(runId)).best_epoch).toBe(3);
    await end(runId, task);
  });

  it("of masks has the mask's losses, and as its best epoch that of the best mean of both", async () => {
    const labels = { ...labelsOf("left", 5, mask()), ...labelsOf("right", 5, mask()) };
    const jobId = await w.labeled(labels);
    const runId = await w.train({ epochs: 10, task: "segmentation", job_id: jobId });
    const task = await w.claimed();
    const masked = (number: number, boxes: number, masks: number): RunEpoch => {
      const one = epoch(number, boxes);
      const losses = { ...one.losses, mask: 2.5, semantic: 0.25 };
      return { ...one, losses, metrics: { ...one.metrics, "mask/mAP50-95": masks } };
    };
    const epochs = [masked(1, 0.6, 0.1), masked(2, 0.5, 0.4), masked(3, 0.5, 0.3)];
    expect(epochs.map(({ metrics }) => epochScore(metrics))).toEqual([0.35, 0.45, 0.4]);
    await told(task, { epoch: 3, recent: epochs });
    expect(await w.run(runId)).toMatchObject({
      best_epoch: 2,
      best_metrics: { "mAP50-95": 0.5, "mask/mAP50-95": 0.4 },
      loss: { mask: 2.5, semantic: 0.25 },
    });
    expect(await w.admin.ok<RunEpoch[]>("GET", `/train/${runId}/epochs`)).toEqual(epochs);
    await end(runId, task);
  });

  it("reaches listeners: each line and epoch once, classes under their keys, then the end", async () => {
    const runId = await w.train({ epochs: 2 });
    const task = await w.claimed();
    const heard = await w.listen(runId);
    await told(task, { log: [line(1), line(2)] });
    await told(task, { log: [line(2), line(3)], recent: [epoch(1)], eta_seconds: 5 });
    await told(task, { log: [line(1), line(2), line(3)], recent: [epoch(1)] });
    const done = await w.result(task, [epoch(1), epoch(2)]);
    await w.finish(task, { outcome: "finished", result: done });
    expect(await heard.closed).toBe(1000);
    const of = (type: string) =>
      heard.events.filter((event) => event.type === type).map(({ data }) => data);
    expect(of("log")).toEqual([line(1), line(2), line(3)]);
    expect(of("epoch")).toMatchObject([
      {
        epoch: 1,
        epochs: 2,
        mAP: { mAP50: 0.2 },
        eta_seconds: 5,
        loss: epoch(1).losses,
        validation_loss: epoch(1).validation_losses,
      },
      { epoch: 2, metrics: { "mAP50-95": 0.2 } },
    ]);
    expect(of("epoch")[0]?.metrics).not.toHaveProperty("per_class/cell/recall");
    expect(of("per_class")).toEqual([
      { "per_class/cell/recall": 0.1 },
      { "per_class/cell/recall": 0.2 },
    ]);
    expect(of("state").map(({ status }) => status)).toEqual(["running", "completed"]);
    const { best_metrics, validation_loss } = await w.run(runId);
    expect(best_metrics).toEqual(epoch(2).metrics);
    expect(validation_loss).toEqual(epoch(2).validation_losses);
    expect(heard.events.at(-1)).toMatchObject({
      type: "end",
      data: { status: "completed", best_epoch: 2, best_metrics },
    });
    expect(heard.events.map(({ seq }) => seq).toSorted((a, b) => a - b)).toEqual(
      heard.events.map(({ seq }) => seq),
    );
  });

  it("ends with each class where they are too many for one event, too", async () => {
    const runId = await w.train({ epochs: 1 });
    const task = await w.claimed();
    const heard = await w.listen(runId);
    const classes = Array.from({ length: 2_000 }, (_, at) => [
      `per_class/class with a long name ${at}/mAP50`,
      at === 7 ? null : 0.5,
    ]);
    const one = epoch(1);
    const metrics = { ...one.metrics, ...Object.fromEntries(classes) };
    const done = await w.result(task, [{ ...one, metrics }]);
    await w.finish(task, { outcome: "finished", result: done });
    expect(await heard.closed).toBe(1000);
    expect((await w.run(runId)).best_metrics).toEqual(metrics);
    const afterState = heard.events.findLastIndex(({ type }) => type === "state") + 1;
    const last = heard.events.slice(afterState);
    expect(last.map(({ type }) => type)).toEqual(["per_class", "per_class", "per_class", "end"]);
    const byClass = last.slice(0, -1).map(({ data }) => data);
    expect({
      ...(last.at(-1)?.data.best_metrics as object),
      ...Object.assign({}, ...byClass),
    }).toEqual(metrics);
  });

  it("tells the lines of an attempt that began anew, also where they count from 1", async () => {
    const runId = await w.train();
    const first = await w.claimed();
    const heard = await w.listen(runId);
    await told(first, { log: [line(1), line(2), line(3)] });
    const killed = { code: "exit", detail: "signal 9", retryable: true };
    await w.finish(first, { outcome: "failed", ...killed });
    await w.world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    const second = await w.claimed();
    await told(second, { epoch: 0, batch: 1, log: [line(1)] });
    await told(second, { epoch: 0, batch: 2, log: [line(1), line(2)] });
    await end(runId, second);
    await heard.closed;
    const lines = heard.events.filter(({ type }) => type === "log").map(({ data }) => data.n);
    expect(lines).toEqual([1, 2, 3, 1, 2]);
    expect((await w.run(runId)).status).toBe("stopped");
  });

  it("takes a report that it cannot read for a sign of life", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const url = `/node/tasks/${task.task_id}/progress`;
    const odd = { fence: task.fence, done: 1, total: 2, detail: { epoch: "one" } };
    expect((await w.node.api.send("POST", url, odd)).status).toBe(200);
    expect((await w.run(runId)).status).toBe("running");
    await end(runId, task);
  });

  it("splits the metrics of very many classes over events that a topic takes", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const heard = await w.listen(runId);
    const metrics = Object.fromEntries(
      Array.from({ length: 4_000 }, (_, at) => [`per_class/${"c".repeat(40)}${at}/mAP50`, 0.5]),
    );
    await told(task, { recent: [{ ...epoch(1), metrics: { mAP50: 0.5, ...metrics } }] });
    await end(runId, task);
    await heard.closed;
    const keys = heard.events
      .filter(({ type }) => type === "per_class")
      .flatMap(({ data }) => Object.keys(data));
    expect(new Set(keys).size).toBe(4_000);
  });
});

describe("checkpoints", () => {
  it("let the one before go, and are what a later attempt goes on from", async () => {
    const runId = await w.train({ epochs: 9 });
    const task = await w.claimed();
    const one = await checkpoint(task, 1);
    await told(task, { epoch: 2, recent: [epoch(1)], checkpoint: one });
    expect(await there(one.key)).toBe(true);
    const two = await checkpoint(task, 2);
    await told(task, { epoch: 3, checkpoint: two, recent: [epoch(2)] });
    // A late one changes nothing.
    await told(task, { epoch: 2, checkpoint: one });
    await told(task, { epoch: 3, checkpoint: two });
    expect([await there(one.key), await there(two.key)]).toEqual([false, true]);
    const killed = { code: "exit", detail: "signal 9", retryable: true };
    await w.finish(task, { outcome: "failed", ...killed });
    expect((await w.run(runId)).status).toBe("running");
    await w.world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    const again = await w.claimed(w.rival);
    expect(again.train.resume).toMatchObject({
      at: two,
      checkpoint: { key: two.key, bytes: two.bytes },
    });
    expect((await fetch(again.train.resume?.checkpoint.url ?? "")).status).toBe(200);
    // The first node wakes late: nothing that it says is taken.
    const late = await w.report(task, { epoch: 9, recent: [epoch(9)] });
    expect(late.status).toBe(409);
    const rival = { ...again };
    expect((await w.report(rival, { epoch: 3, eta_seconds: 7 }, w.rival)).status).toBe(200);
    expect(await w.run(runId)).toMatchObject({ epoch: 2, eta_seconds: 7 });
    await w.admin.ok("POST", `/train/${runId}/stop`);
    await w.finish(again, { outcome: "cancelled", result: null }, w.rival);
    // Ended without a word of its process: it is stopped where its last checkpoint is.
    expect(await w.run(runId)).toMatchObject({ status: "stopped", model_id: null });
    expect(await there(two.key)).toBe(true);
  });

  it("are amended again when the service died between row and task", async () => {
    const runId = await w.train({ epochs: 9 });
    const task = await w.claimed();
    const one = await checkpoint(task, 1);
    await told(task, { epoch: 2, checkpoint: one });
    await w.world.visionDatabase.execute(sql`
      UPDATE task SET payload = payload || '{"resume": null}' WHERE id = ${task.task_id}::uuid`);
    await told(task, { epoch: 2, batch: 2, checkpoint: one });
    const { rows } = await w.world.visionDatabase.execute<{ key: string }>(sql`
      SELECT payload->'resume'->'at'->>'key' AS key FROM task WHERE id = ${task.task_id}::uuid`);
    expect(rows).toEqual([{ key: one.key }]);
    await end(runId, task);
  });

  it("of another folder are none", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const key = `ws/${crypto.randomUUID()}/theirs`;
    await told(task, { checkpoint: { key, bytes: 1, epoch: 1, batch: 0 } });
    const { rows } = await w.world.visionDatabase.execute<{ checkpoint: unknown }>(sql`
      SELECT checkpoint FROM training_run WHERE id = ${runId}::uuid`);
    expect(rows).toEqual([{ checkpoint: null }]);
    await end(runId, task);
  });
});
