// A node that is broken, or bad: numbers, names and keys that no trainer of ours sends. Goal: each
// run gets to its end, and what is somebody else's is not named, read, deleted or registered.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Outcome } from "../../../../shared/tasks/node-protocol.ts";
import type { TrainDetail } from "../../../../shared/tasks/train-task.ts";
import type { RunEpoch } from "../../../../shared/wire/training.ts";
import {
  createTrainingWorld,
  epoch,
  type TrainingWorld,
  type TrainTask,
} from "../../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

type Result = Awaited<ReturnType<TrainingWorld["result"]>>;
const there = async (key: string) => (await w.world.media.get(key)) !== null;
const stop = async (runId: string, task: TrainTask, result: Result | null = null) => {
  await w.admin.ok("POST", `/train/${runId}/stop`);
  expect((await w.finish(task, { outcome: "cancelled", result })).status).toBe(200);
};
const told = async (task: TrainTask, detail: Partial<TrainDetail>) =>
  expect((await w.report(task, detail)).status).toBe(200);
const HUGE = 3_000_000_000;

describe("numbers that nothing holds", () => {
  const wrong: [string, (done: Result) => Result][] = [
    ["an epoch", (done) => ({ ...done, history: [{ ...epoch(1), epoch: HUGE }] })],
    ["an epoch before the first", (done) => ({ ...done, history: [{ ...epoch(1), epoch: 0 }] })],
    ["the model's epoch", (done) => ({ ...done, model: { ...modelOf(done), epoch: HUGE } })],
    ["parameters", (done) => ({ ...done, model: { ...modelOf(done), parameters: -1 } })],
    [
      "a hash",
      (done) => {
        const weights = { ...modelOf(done).weights, sha256: "none" };
        return { ...done, model: { ...modelOf(done), weights } };
      },
    ],
  ];
  const modelOf = (done: Result) => done.model as NonNullable<Result["model"]>;

  it.each(wrong)("are refused as a result: %s", async (_, spoil) => {
    const runId = await w.train();
    const task = await w.claimed();
    const spoilt = spoil(await w.result(task, [epoch(1)]));
    const answer = await w.finish(task, { outcome: "finished", result: spoilt });
    expect(await answer.json()).toMatchObject({
      status: "queued",
      problem: expect.stringMatching(/^result\./),
    });
    await w.admin.ok("POST", `/train/${runId}/stop`);
    expect(await w.run(runId)).toMatchObject({ status: "stopped", model_id: null });
  });

  it("are none of a stop, whose result is not taken for them", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const done = await w.result(task, [epoch(1)]);
    await stop(runId, task, { ...done, history: [{ ...epoch(1), epoch: HUGE }] });
    expect(await w.run(runId)).toMatchObject({ status: "stopped", model_id: null });
  });

  it("are passed over in a report, which is a sign of life all the same", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await told(task, { recent: [epoch(1)] });
    await told(task, { recent: [{ ...epoch(2), epoch: HUGE }] });
    await told(task, { log: [{ n: HUGE, line: "far" }] });
    await told(task, { epoch: HUGE });
    await told(task, { epoch: 2, recent: [epoch(2)] });
    expect(await w.run(runId)).toMatchObject({ status: "running", epoch: 2, best_epoch: 2 });
    await stop(runId, task);
  });
});

describe("text that Postgres does not store", () => {
  const odd = "a\0\ud800";
  const spoilt: RunEpoch = { ...epoch(1), metrics: { ...epoch(1).metrics, [odd]: 1 } };

  it("loses neither a report nor a result, where it is a value or a name", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await told(task, { recent: [spoilt], log: [{ n: 1, line: odd }] });
    expect(await w.run(runId)).toMatchObject({ status: "running", epoch: 1 });
    const done = await w.result(task, [spoilt]);
    expect((await w.finish(task, { outcome: "finished", result: done })).status).toBe(200);
    expect(await w.run(runId)).toMatchObject({ status: "completed", best_epoch: 1 });
  });

  it("does not keep a node from saying that it lives", async () => {
    const beat = { tasks: [], loaded: [odd] };
    expect((await w.node.api.send("POST", "/node/heartbeat", beat)).status).toBe(200);
  });
});

describe("keys that are not the run's to name", () => {
  /** Begins with the run's folder, and leads out of it where somebody resolves it. */
  const escaping = (key: string, victim: string) =>
    `${key.split("/").slice(0, 4).join("/")}/../../../../${victim}`;

  it("gives out no artifact beyond the run's own that are there", async () => {
    const victim = `ws/${crypto.randomUUID()}/videos/secret`;
    await w.world.media.put(victim, "secret");
    const runId = await w.train();
    const task = await w.claimed();
    const own = await w.stored(task, "results.png");
    const of = (name: string, key: string, bytes: number) => ({
      name,
      key,
      bytes,
      content_type: "image/png",
    });
    const artifacts = [
      of("results.png", own.key, own.bytes),
      of("again.png", escaping(own.key, victim), 6),
      of("gone.png", `${own.key}x`, own.bytes),
      of("short.png", own.key, -1),
    ];
    const done = await w.result(task, [epoch(1)], { artifacts });
    expect((await w.finish(task, { outcome: "finished", result: done })).status).toBe(200);
    const left = await w.admin.ok<{ name: string }[]>("GET", `/train/${runId}/artifacts`);
    expect(left.map(({ name }) => name)).toEqual(["results.png"]);
    const path = `/train/${runId}/artifacts/again.png`;
    expect(await w.admin.refused("GET", path)).toEqual([404, "not_found"]);
  });

  it("goes on from no checkpoint that is not there, and keeps the one before", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const one = { ...(await w.stored(task, "checkpoint.bin")), epoch: 1, batch: 0 };
    await told(task, { epoch: 1, recent: [epoch(1)], checkpoint: one });
    await told(task, { epoch: 2, checkpoint: { ...one, key: `${one.key}x`, epoch: 2 } });
    const out = escaping(one.key, "ws/other/secret");
    await told(task, { epoch: 3, checkpoint: { ...one, key: out, epoch: 3 } });
    expect(await there(one.key)).toBe(true);
    const asked = { fence: task.fence, key: out };
    const path = `/node/tasks/${task.task_id}/source`;
    expect(await w.node.api.refused("POST", path, asked)).toEqual([404, "not_found"]);
    const killed = { code: "exit", detail: "signal 9", retryable: true };
    await w.finish(task, { outcome: "failed", ...killed });
    await w.world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    const again = await w.claimed();
    expect(again.train.resume?.at).toEqual(one);
    await stop(runId, again);
  });

  it("never deletes weights of a model, or the dataset, as an old checkpoint", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const first = { ...(await w.stored(task, "checkpoint.bin")), epoch: 1, batch: 0 };
    const done = await w.result(task, [epoch(1)], { stopped: true, checkpoint: first });
    await w.finish(task, { outcome: "finished", result: done });
    const weights = done.model?.weights.key as string;
    const { manifest } = task.train;
    await w.admin.ok("POST", `/train/${runId}/resume`);
    const next = await w.claimed();
    const at = { epoch: 1, batch: 1 };
    await told(next, { epoch: 1, batch: 1, checkpoint: { key: weights, bytes: 16, ...at } });
    const data = { key: manifest.key, bytes: manifest.bytes, epoch: 1, batch: 2 };
    await told(next, { epoch: 1, batch: 2, checkpoint: data });
    const real = { ...(await w.stored(next, "checkpoint.bin")), epoch: 2, batch: 0 };
    await told(next, { epoch: 2, checkpoint: real });
    expect([await there(weights), await there(manifest.key)]).toEqual([true, true]);
    await stop(runId, next);
  });

  it("registers the weights of one model as no other one", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const done = await w.result(task, [epoch(1)], { stopped: true });
    await w.finish(task, { outcome: "finished", result: done });
    await w.admin.ok("POST", `/train/${runId}/resume`);
    const next = await w.claimed();
    const outcome: Outcome = { outcome: "finished", result: { ...done, stopped: false } };
    const answer = await w.finish(next, outcome);
    expect(await answer.json()).toMatchObject({
      problem: expect.stringContaining("another model"),
    });
    await w.admin.ok("POST", `/train/${runId}/stop`);
    expect(await w.admin.ok("GET", `/models?run_id=${runId}`)).toHaveLength(1);
  });
});

describe("epochs of an attempt that was lost", () => {
  it("are none of the run, once it ended without them", async () => {
    const runId = await w.train({ epochs: 9 });
    const task = await w.claimed();
    const from = { ...(await w.stored(task, "checkpoint.bin")), epoch: 1, batch: 0 };
    await told(task, { epoch: 3, recent: [epoch(1), epoch(2), epoch(3, 0.9)], checkpoint: from });
    const killed = { code: "exit", detail: "signal 9", retryable: true };
    await w.finish(task, { outcome: "failed", ...killed });
    await w.world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second'`,
    );
    const again = await w.claimed();
    const done = await w.result(again, [epoch(1), epoch(2)], { stopped: true });
    await stop(runId, again, done);
    const run = await w.run(runId);
    const [model] = await w.admin.ok<{ metrics: object }[]>("GET", `/models?run_id=${runId}`);
    expect(run).toMatchObject({ epoch: 2, best_epoch: 2, best_metrics: epoch(2).metrics });
    expect(model?.metrics).toEqual(run.best_metrics);
    const epochs = await w.admin.ok<RunEpoch[]>("GET", `/train/${runId}/epochs`);
    expect(epochs.map((one) => one.epoch)).toEqual([1, 2]);
  });
});

describe("queries of models", () => {
  it.each([
    ["a name that nothing has", "/models?name=%00"],
    ["an offset beyond all", `/models/moves?offset=${HUGE}`],
  ])("refuse %s", async (_, path) => {
    expect(await w.admin.refused("GET", path)).toEqual([422, "invalid_request"]);
  });
});
