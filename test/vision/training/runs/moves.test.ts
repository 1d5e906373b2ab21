// A run's life as people and crashes decide it: stop, resume, delete, force-fail; a service that
// dies between two writes; two nodes and one run.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { Outcome } from "../../../../shared/tasks/node-protocol.ts";
import type { Model, RunEpoch, TrainingRun } from "../../../../shared/wire/training.ts";
import { colleague, SCRIPTED } from "../../../support/scripted-node.ts";
import {
  createTrainingWorld,
  epoch,
  firstWeightsUrl,
  type TrainingWorld,
  type TrainTask,
} from "../../../support/training-world.ts";
import { alterTables } from "../../../support/transactions.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

const { execute } = {
  execute: (text: ReturnType<typeof sql>) => w.world.visionDatabase.execute(text),
};
const stop = (runId: string) => w.admin.ok<TrainingRun>("POST", `/train/${runId}/stop`);
const resume = (runId: string, body?: object) =>
  w.admin.ok<TrainingRun>("POST", `/train/${runId}/resume`, body);
const modelsOf = (runId: string) => w.admin.ok<Model[]>("GET", `/models?run_id=${runId}`);
const verdictOf = async (task: TrainTask) => {
  const tasks = [{ task_id: task.task_id, fence: task.fence }];
  const reply = await w.node.api.ok<{ tasks: { verdict: string }[] }>(
    ...(["POST", "/node/heartbeat", { tasks }] as const),
  );
  return reply.tasks[0]?.verdict;
};
const checkpointed = async (task: TrainTask, at: number) => {
  const mark = { ...(await w.stored(task, "checkpoint.bin")), epoch: at, batch: 0 };
  await w.report(task, { epoch: at + 1, recent: [epoch(at)], checkpoint: mark });
  return mark;
};

describe("stop", () => {
  it("ends a queued run at once, and asks nothing of a run that has ended", async () => {
    const runId = await w.train();
    expect(await stop(runId)).toMatchObject({ status: "stopped", stop_requested: true });
    expect(await w.node.claim(["train"])).toBeNull();
    const again = await w.admin.refused("POST", `/train/${runId}/stop`);
    expect(again).toEqual([409, "state_conflict"]);
    expect(await modelsOf(runId)).toEqual([]);
  });

  it("lets a running one flush and register what it has, then go on in another round", async () => {
    const runId = await w.train({ name: "Halfway", epochs: 5 });
    const task = await w.claimed();
    const heard = await w.listen(runId);
    await checkpointed(task, 1);
    expect(await stop(runId)).toMatchObject({ status: "running", stop_requested: true });
    expect(await stop(runId)).toMatchObject({ status: "running" });
    expect(await verdictOf(task)).toBe("cancel");
    const mark = { ...(await w.stored(task, "checkpoint.bin")), epoch: 2, batch: 1 };
    const flushed = await w.result(task, [epoch(1), epoch(2)], { stopped: true, checkpoint: mark });
    await w.finish(task, { outcome: "cancelled", result: flushed });
    await heard.closed;
    const stopped = await w.run(runId);
    expect(stopped).toMatchObject({ status: "stopped", epoch: 2, failure: null });
    expect(await modelsOf(runId)).toMatchObject([{ name: "Halfway", version: 1 }]);

    const going = await resume(runId, { epochs: 4 });
    expect(going).toMatchObject({ status: "queued", epochs: 4, epoch: 2, stop_requested: false });
    expect(going.topic).not.toBe(stopped.topic);
    expect(await w.admin.refused("POST", `/train/${runId}/resume`)).toEqual([
      409,
      "state_conflict",
    ]);
    const next = await w.claimed();
    expect(next.train).toMatchObject({ resume: { at: mark }, settings: { epochs: 4 } });
    const done = await w.result(
      next,
      [1, 2, 3, 4].map((at) => epoch(at)),
    );
    await w.finish(next, { outcome: "finished", result: done });
    const completed = await w.run(runId);
    expect(completed).toMatchObject({ status: "completed", epoch: 4, best_epoch: 4 });
    const models = await modelsOf(runId);
    expect(models.map(({ version }) => version)).toEqual([2, 1]);
    expect(completed.model_id).toBe(models[0]?.model_id);
    // The manifest and the weights of two models; no checkpoint is left of a run that is complete.
    expect(await w.keys(runId)).toHaveLength(3);
  });

  it("keeps of a model what it found on its validation split, by confidence", async () => {
    const measured = Array.from({ length: 20 }, (_, bin) => bin);
    const bins: unknown[] = [];
    for (const confidence_bins of [measured, null]) {
      const runId = await w.train();
      const task = await w.claimed();
      const result = await w.result(task, [epoch(1)]);
      const model = { ...result.model, confidence_bins };
      await w.finish(task, { outcome: "finished", result: { ...result, model } });
      const { rows } = await w.world.visionDatabase.execute<{ bins: unknown }>(
        sql`SELECT confidence_bins AS bins FROM model WHERE run_id = ${runId}::uuid`,
      );
      bins.push(...rows.map((row) => row.bins));
    }
    expect(bins).toEqual([measured, null]);
  });

  it("shows its model's metrics on test frames, which nodes of before do not send", async () => {
    const runId = await w.train();
    const measured = { mAP50: 0.4, "mAP50-95": 0.3, "per_class/cell/recall": null };
    const shown: unknown[] = [];
    const look = async () => {
      const { test_metrics, model_id } = await w.run(runId);
      const model = model_id && (await w.admin.ok<Model>("GET", `/models/${model_id}`));
      shown.push([test_metrics, model ? model.test_metrics : null]);
    };
    const first = await w.claimed();
    const mark = { ...(await w.stored(first, "checkpoint.bin")), epoch: 1, batch: 0 };
    await stop(runId);
    const stopped = await w.result(first, [epoch(1)], { stopped: true, checkpoint: mark });
    const model = { ...stopped.model, test_metrics: measured };
    await w.finish(first, { outcome: "cancelled", result: { ...stopped, model } });
    await look();
    // While it goes on, its newest model is of the round before.
    await resume(runId);
    expect((await w.run(runId)).test_metrics).toBeNull();
    const next = await w.claimed();
    const done = await w.result(next, [epoch(1), epoch(2)]);
    await w.finish(next, { outcome: "finished", result: done });
    await look();
    expect(shown).toEqual([
      [measured, measured],
      [null, null],
    ]);
  });

  it("lets a run that is done before it hears be completed", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await stop(runId);
    const result = await w.result(task, [epoch(1)]);
    await w.finish(task, { outcome: "finished", result });
    expect((await w.run(runId)).status).toBe("completed");
    // Also where the stop reaches the node while it hands in what it finished.
    const other = await w.train();
    const late = await w.claimed();
    await stop(other);
    const whole = await w.result(late, [epoch(1)]);
    await w.finish(late, { outcome: "cancelled", result: whole });
    expect((await w.run(other)).status).toBe("completed");
  });

  it("ends a run whose node is gone, with its last checkpoint", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    const mark = await checkpointed(task, 1);
    await stop(runId);
    await execute(sql`UPDATE task SET lease_until = now() - interval '5 minutes'
      WHERE id = ${task.task_id}::uuid`);
    await w.world.tick(Date.now());
    expect(await w.run(runId)).toMatchObject({ status: "stopped", model_id: null, epoch: 1 });
    await resume(runId);
    const next = await w.claimed();
    expect(next.train.resume?.at).toEqual(mark);
    await w.finish(next, { outcome: "finished", result: await w.result(next, [epoch(1)]) });
  });

  it("is what a purge of the queue and a revoked task come to", async () => {
    const one = await w.train();
    expect((await w.run(one)).intervention).toBeNull();
    await w.admin.ok("POST", "/admin/queue/train/purge");
    const purged = { kind: "purged", actor_id: w.admin.id, at: expect.any(String) };
    expect(await w.run(one)).toMatchObject({ status: "stopped", intervention: purged });
    // What was done to the round before is no part of the next one.
    await resume(one);
    expect((await w.run(one)).intervention).toBeNull();
    await w.admin.ok("POST", `/train/${one}/stop`);
    const other = await w.train();
    const task = await w.claimed();
    await w.report(task, {});
    await w.admin.ok("POST", `/admin/tasks/${task.task_id}/revoke`);
    const revoked = { kind: "revoked", task_id: task.task_id, actor_id: w.admin.id };
    const asked = await w.run(other);
    expect(asked).toMatchObject({ status: "running", intervention: revoked });
    // Asking again changes nothing.
    await w.admin.ok("POST", `/admin/tasks/${task.task_id}/revoke`);
    await w.finish(task, { outcome: "revoked", exited: true });
    const ended = await w.run(other);
    expect(ended).toMatchObject({ status: "stopped", intervention: asked.intervention });
  });
});

describe("resume", () => {
  const dies = {
    outcome: "failed",
    code: "oom",
    detail: "out of memory",
    retryable: false,
  } as const;

  it("starts a failed run without a checkpoint from the beginning", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await w.report(task, { epoch: 2, recent: [epoch(1)] });
    await w.finish(task, dies);
    expect(await w.run(runId)).toMatchObject({ status: "failed", epoch: 1 });
    expect(await resume(runId)).toMatchObject({ status: "queued", epoch: 0, best_epoch: null });
    expect(await w.admin.ok<RunEpoch[]>("GET", `/train/${runId}/epochs`)).toEqual([]);
    const next = await w.claimed();
    expect(next.train.resume).toBeNull();
    await w.finish(next, { outcome: "finished", result: await w.result(next, [epoch(1)]) });
    expect(await w.run(runId)).toMatchObject({ status: "completed", failure: null });
  });

  it("is refused fewer epochs than are done, and weights that are gone", async () => {
    const { modelId } = await w.trained({ name: "Start" });
    const runId = await w.train({ pretrained: { model_id: modelId } });
    const inUse = await w.admin.refused("DELETE", `/models/${modelId}`);
    expect(inUse).toEqual([409, "state_conflict"]);
    const task = await w.claimed();
    expect(task.train.pretrained).toMatchObject({ format: "safetensors" });
    expect((await fetch(firstWeightsUrl(task))).status).toBe(200);
    await w.finish(task, dies);
    expect((await w.admin.send("DELETE", `/models/${modelId}`)).status).toBe(204);
    const gone = await w.admin.send("POST", `/train/${runId}/resume`);
    expect([gone.status, ((await gone.json()) as { detail: string }).detail]).toEqual([
      ...[409, "the weights that the run starts from were deleted: start anew"],
    ]);
    const other = await w.train({ epochs: 9 });
    const long = await w.claimed();
    await checkpointed(long, 3);
    await w.finish(long, dies);
    const fewer = await w.admin.refused("POST", `/train/${other}/resume`, { epochs: 2 });
    expect(fewer).toEqual([422, "invalid_request"]);
  });

  it("takes nothing of the round before", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await w.report(task, {});
    await w.admin.ok("POST", `/admin/training/${runId}/mark-failed`);
    await resume(runId);
    const next = await w.claimed(w.rival);
    const late = await w.node.api.send("POST", `/node/tasks/${task.task_id}/finish`, {
      fence: task.fence,
      outcome: { outcome: "revoked", exited: true },
    });
    expect(late.status).toBe(200);
    expect((await w.run(runId)).status).toBe("queued");
    await w.report(next, { recent: [epoch(1)] }, w.rival);
    expect(await w.run(runId)).toMatchObject({ status: "running", epoch: 1 });
    await stop(runId);
    await w.finish(next, { outcome: "cancelled", result: null }, w.rival);
  });
});

describe("POST /admin/training/{run_id}/mark-failed", () => {
  it("fails the run for good, whatever its node does, and writes down who did", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await w.report(task, { recent: [epoch(1)] });
    const heard = await w.listen(runId);
    const marked = await w.admin.ok<TrainingRun>("POST", `/admin/training/${runId}/mark-failed`);
    expect(marked).toMatchObject({ status: "failed", failure: expect.stringContaining("marked") });
    await heard.closed;
    expect(heard.events.map(({ type }) => type)).toContain("error");
    const again = await w.admin.refused("POST", `/admin/training/${runId}/mark-failed`);
    expect(again).toEqual([409, "state_conflict"]);
    expect((await w.report(task, { epoch: 2 })).status).toBe(409);
    const outcome: Outcome = { outcome: "finished", result: {} };
    const late = { ...outcome, result: await lateResult() };
    expect((await w.finish(task, late)).status).toBe(409);
    expect((await w.finish(task, { outcome: "revoked", exited: true })).status).toBe(200);
    expect(await w.run(runId)).toMatchObject({ status: "failed", model_id: null });
    const { rows } = await execute(sql`
      SELECT subject, before FROM audit_entry WHERE action = 'failRun'
       AND subject = ${`run:${runId}`}`);
    expect(rows).toEqual([{ subject: `run:${runId}`, before: { status: "running" } }]);
  });

  const lateResult = async () => ({
    stopped: false,
    history: [],
    resolved: null,
    model: null,
    checkpoint: null,
    artifacts: [],
  });

  it("is for admins, and starting for engineers", async () => {
    const engineer = await colleague(w.world, w.admin, "engineer");
    const annotator = await colleague(w.world, w.admin, "annotator");
    const body = { job_id: w.jobId };
    expect(await annotator.refused("POST", "/train", body)).toEqual([403, "forbidden"]);
    const { run_id: id } = await engineer.ok<{ run_id: string }>("POST", "/train", body);
    expect(await annotator.ok("GET", `/train/${id}`)).toMatchObject({ run_id: id });
    expect(await annotator.refused("POST", `/train/${id}/stop`)).toEqual([403, "forbidden"]);
    const path = `/admin/training/${id}/mark-failed`;
    expect(await engineer.refused("POST", path)).toEqual([403, "forbidden"]);
    expect(await w.admin.ok("POST", path)).toMatchObject({ status: "failed" });
    expect(await w.node.claim(["train"])).toBeNull();
  });
});

describe("delete", () => {
  it("ends a run's process, keeps nothing of it, and what it writes last goes too", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await checkpointed(task, 1);
    const heard = await w.listen(runId);
    expect((await w.admin.send("DELETE", `/train/${runId}`)).status).toBe(204);
    expect((await heard.closed) === 1000 && heard.events.at(-1)?.data.deleted).toBe(true);
    expect(await w.keys(runId)).toEqual([]);
    expect(await verdictOf(task)).toBe("revoke");
    const folder = task.train.manifest.key.replace("manifest.json", "");
    await w.world.media.put(`${folder}late.bin`, "x");
    expect((await w.finish(task, { outcome: "revoked", exited: true })).status).toBe(200);
    expect(await w.keys(runId)).toEqual([]);
    expect(await w.admin.refused("GET", `/train/${runId}`)).toEqual([404, "not_found"]);
  });
});

describe("a crash of the service", () => {
  it("between row and task: the cron hands the run to the nodes, once", async () => {
    const runId = await w.train();
    await execute(sql`DELETE FROM task WHERE subject = ${`run:${runId}`}`);
    await execute(sql`UPDATE training_run SET created_at = now() - interval '1 hour'
      WHERE id = ${runId}::uuid`);
    await w.world.tick(Date.now());
    await w.world.tick(Date.now());
    const task = await w.claimed();
    expect(task.train.run_id).toBe(runId);
    expect(await w.node.claim(["train"])).toBeNull();
    await w.finish(task, { outcome: "finished", result: await w.result(task, [epoch(1)]) });
  });

  it("between row and task, then stopped: no node ever gets it", async () => {
    const runId = await w.train();
    await execute(sql`DELETE FROM task WHERE subject = ${`run:${runId}`}`);
    expect(await stop(runId)).toMatchObject({ status: "stopped" });
    await w.world.tick(Date.now());
    expect(await w.node.claim(["train"])).toBeNull();
  });

  it("before its task is there: the request is answered, and its repetition starts no other", async () => {
    await alterTables(
      w.world.visionDatabase,
      `CREATE FUNCTION no_task() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$`,
      "CREATE TRIGGER no_task BEFORE INSERT ON task FOR EACH ROW EXECUTE FUNCTION no_task()",
    );
    const key = { "Idempotency-Key": crypto.randomUUID() };
    const start = () =>
      w.admin.send("POST", "/train", { job_id: w.jobId, name: "Cut off" }, key).catch(String);
    await start();
    await alterTables(w.world.visionDatabase, "DROP TRIGGER no_task ON task");
    await start();
    const runs = await w.admin.ok<TrainingRun[]>("GET", "/train?status=queued");
    const [run, ...others] = runs.filter(({ name }) => name === "Cut off");
    expect(others).toEqual([]);
    await execute(sql`UPDATE training_run SET created_at = now() - interval '1 minute'
      WHERE id = ${run?.run_id}::uuid`);
    await w.world.tick(Date.now());
    expect((await w.claimed()).train.run_id).toBe(run?.run_id);
    await w.admin.send("DELETE", `/train/${run?.run_id}`);
  });

  it("between a stop and its task: the cron tells the node", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await w.report(task, {});
    await execute(sql`UPDATE training_run SET created_at = now() - interval '1 hour',
      stop_requested_at = now() - interval '1 minute' WHERE id = ${runId}::uuid`);
    expect(await verdictOf(task)).toBe("go_on");
    await w.world.tick(Date.now());
    expect(await verdictOf(task)).toBe("cancel");
    await w.finish(task, { outcome: "cancelled", result: null });
    expect((await w.run(runId)).status).toBe("stopped");
  });

  it("after the weights that a run starts from went: it fails with the reason", async () => {
    const { modelId } = await w.trained({ name: "Gone" });
    const runId = await w.train({ pretrained: { model_id: modelId } });
    await execute(sql`DELETE FROM task WHERE subject = ${`run:${runId}`}`);
    await execute(sql`DELETE FROM model WHERE id = ${modelId}::uuid`);
    await execute(sql`UPDATE training_run SET created_at = now() - interval '1 hour'
      WHERE id = ${runId}::uuid`);
    await w.world.tick(Date.now());
    const run = await w.run(runId);
    expect([run.status, run.failure]).toEqual(["failed", "no such model in your workspaces"]);
  });

  it("between a node's report and the run's end: registers one model, a minute later", async () => {
    const runId = await w.train({ name: "Crash" });
    const task = await w.claimed();
    await alterTables(
      w.world.visionDatabase,
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$`,
      "CREATE TRIGGER refuse BEFORE INSERT ON model FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    const result = await w.result(task, [epoch(1)]);
    expect((await w.finish(task, { outcome: "finished", result })).status).toBe(200);
    // Neither the end without its model, nor half of both.
    expect(await w.run(runId)).toMatchObject({ status: "queued", model_id: null, epoch: 0 });
    await alterTables(w.world.visionDatabase, "DROP TRIGGER refuse ON model");
    await execute(sql`UPDATE task SET ended_at = now() - interval '1 minute'
      WHERE id = ${task.task_id}::uuid`);
    await Promise.all([w.world.tick(Date.now()), w.world.tick(Date.now())]);
    expect(await w.run(runId)).toMatchObject({ status: "completed", epoch: 1 });
    expect(await modelsOf(runId)).toHaveLength(1);
    // The whole outcome again, as if it had not been noted that it was taken.
    await execute(sql`UPDATE task SET settled_at = NULL WHERE id = ${task.task_id}::uuid`);
    await w.world.tick(Date.now());
    expect(await modelsOf(runId)).toHaveLength(1);
  });

  it("after its task was noted as taken: the run ends all the same", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await execute(sql`
      UPDATE task SET state = 'failed', settled_at = now(), lease_until = NULL,
        ended_at = now() - interval '1 hour',
        errors = '[{"detail": "it broke", "fence": 1}]' WHERE id = ${task.task_id}::uuid`);
    await execute(sql`UPDATE training_run SET created_at = now() - interval '2 hours'
      WHERE id = ${runId}::uuid`);
    await w.world.tick(Date.now());
    expect(await w.run(runId)).toMatchObject({ status: "failed", failure: "it broke" });
  });
});

describe("a run whose first weights no node has any more", () => {
  const offer = (...datasets: string[]) => {
    const words = { variant: "det26n", title: "A set", licence: "MIT", source: "somewhere" };
    const weights = datasets.map((dataset) => ({ dataset, ...words }));
    const capabilities = { ...SCRIPTED, weights };
    return w.node.api.ok("POST", "/node/heartbeat", { tasks: [], capabilities });
  };

  it("waits for them, names the command, and begins once they are back", async () => {
    await offer("cells");
    const runId = await w.train({ pretrained: { dataset: "cells" } });
    await offer("coco");
    const again = { job_id: w.jobId, pretrained: { dataset: "cells" } };
    expect(await w.admin.refused("POST", "/train", again)).toEqual([422, "invalid_request"]);
    await execute(sql`UPDATE task SET created_at = now() - interval '1 day'
      WHERE kind = 'train' AND state = 'queued'`);
    await w.world.tick(Date.now());
    const waiting = await w.run(runId);
    expect(waiting.status).toBe("queued");
    expect(waiting.waiting_for).toMatch(/"cells" for det26n.*npm run models -- install/);
    await offer("cells");
    expect((await w.run(runId)).waiting_for).toBeNull();
    expect((await w.claimed()).payload).toMatchObject({ run_id: runId });
    await stop(runId);
  });
});

describe("a node that is at a run nobody wants", () => {
  it("is told to end it with its next word", async () => {
    const runId = await w.train();
    const task = await w.claimed();
    await execute(sql`UPDATE training_run SET state = 'stopped', ended_at = now()
      WHERE id = ${runId}::uuid`);
    expect((await w.report(task, { recent: [epoch(1)] })).status).toBe(200);
    expect(await verdictOf(task)).toBe("revoke");
    expect(await w.run(runId)).toMatchObject({ status: "stopped", epoch: 0 });
    await w.finish(task, { outcome: "revoked", exited: true });
  });
});
