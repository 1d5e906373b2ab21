// Training runs in workerd: from a request to a registered model. The node is scripted; its
// protocol, the database and the store are real.

import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../../shared/tasks/export-manifest.ts";
import { DatasetReport } from "../../../../shared/wire/dataset-report.ts";
import { Model, RunEpoch, TrainingRun } from "../../../../shared/wire/training.ts";
import { SCRIPTED, scriptedNode } from "../../../support/scripted-node.ts";
import {
  box,
  createTrainingWorld,
  epoch,
  labelsOf,
  mask,
  RESOLVED,
  sha256OfZeros,
  type TrainingWorld,
} from "../../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

const refusal = async (response: Response) => {
  const { code, detail } = (await response.json()) as { code: string; detail: string };
  return [response.status, code, detail];
};
const endRun = async (runId: string) => {
  await w.admin.ok("POST", `/train/${runId}/stop`);
};

describe("GET /train/variants", () => {
  it("counts the family from its graphs, and names every option", async () => {
    const { variants, options } = await w.admin.ok<{
      variants: Record<string, unknown>[];
      options: Record<string, unknown>;
    }>("GET", "/train/variants");
    expect(variants.map((one) => [one.variant, one.parameters, one.gflops_640])).toEqual([
      ["det26n", 2_572_280, 5.36],
      ["det26s", 10_009_784, 20.69],
      ["det26m", 21_896_248, 68.18],
      ["det26l", 26_299_704, 86.43],
      ["det26x", 58_993_368, 193.87],
    ]);
    expect(options).toMatchObject({
      tasks: [
        { task: "detection", trainable: true },
        { task: "segmentation", trainable: true },
      ],
      augmentations: { minimal: { mosaic: 0 }, aggressive: { rotate: 10, mixup: 0.15 } },
      defaults: { epochs: 50, image_size: 640, batch_size: null, learning_rate: null },
      pretrained: { models: [], weights: [], datasets: [] },
    });
  });
});

describe("GET /train/dataset-stats/{job_id}", () => {
  const reportOf = async (jobId: string) =>
    DatasetReport.parse(await w.admin.ok("GET", `/train/dataset-stats/${jobId}`));

  it("counts what a run learns from, and recommends what runs as it stands", async () => {
    const report = await reportOf(w.jobId);
    expect(report).toMatchObject({
      annotated_frames: 10,
      total_frames: 10,
      total_annotations: 10,
      class_count: 1,
      imbalance_ratio: 1,
      small_object_share: 0,
      not_trainable: null,
      recommended: { variant: "det26n", augmentation: "aggressive", epochs: 150 },
    });
    const { run_id: id } = await w.admin.ok<{ run_id: string }>(
      ...(["POST", "/train", report.recommended] as const),
    );
    expect((await w.run(id)).settings).toMatchObject({ epochs: 150, augmentation: "aggressive" });
    await endRun(id);
  });

  it("leaves out the rejected and what is under the threshold, as the manifest does", async () => {
    const lines = `${box(0)}\n${box(1, 0.05)}\n${box(1, 0.1)}`;
    const background = { left_000009: "" };
    const jobId = await w.labeled(
      { ...labelsOf("left", 4, lines), ...labelsOf("right", 1, box(0)), ...background },
      ["cell", "dot", "never"],
    );
    const { items } = await w.admin.ok<{ items: { annotation_id: string; class: string }[] }>(
      ...(["GET", `/jobs/${jobId}/annotations?class_name=dot`] as const),
    );
    const [first, second] = items;
    await w.admin.ok("PATCH", `/annotations/${first?.annotation_id}`, { accepted: false });
    // An unsure one of the model's, under the job's threshold.
    await w.admin.ok("PATCH", `/jobs/${jobId}`, { threshold: 0.5 });
    await w.world.visionDatabase.execute(sql`
      UPDATE annotation SET confidence = 0.4 WHERE id = ${second?.annotation_id}::uuid`);
    const report = await reportOf(jobId);
    const runId = await w.train({ job_id: jobId });
    const task = await w.claimed();
    const text = await (await fetch(task.train.manifest.url)).text();
    const { videos } = ExportManifest.parse(JSON.parse(text));
    const frames = videos.flatMap((video) => video.frames);
    const annotations = frames.flatMap((frame) => frame.annotations);
    expect(report).toMatchObject({
      total_frames: frames.length,
      annotated_frames: frames.filter((frame) => frame.annotations.length > 0).length,
      total_annotations: annotations.length,
      imbalance_ratio: 6 / 5,
      class_count: 3,
    });
    expect(report).toMatchObject({ total_frames: 6, annotated_frames: 5, total_annotations: 11 });
    // 5 % by 5 % of the frame is small, exactly 1 % is not.
    const small = annotations.filter(({ bbox: [x1, , x2] }) => x2 - x1 < 40).length;
    expect(report.small_object_share).toBeCloseTo(small / 11, 9);
    await endRun(runId);
    await w.finish(task, { outcome: "cancelled", result: null });
  });

  it("says why a job cannot be trained on, in the words of the refusal", async () => {
    const bare = await w.labeled({ left_000000: "", right_000000: "" });
    const { not_trainable } = await reportOf(bare);
    expect(not_trainable).toContain("no annotation to learn from");
    const [status, code, detail] = await refusal(
      await w.admin.send("POST", "/train", { job_id: bare }),
    );
    expect([status, code, detail]).toEqual([422, "invalid_request", `job_id: ${not_trainable}`]);
    const single = await w.labeled({ left_000000: box() });
    const one = await refusal(await w.admin.send("POST", "/train", { job_id: single }));
    expect(one).toEqual([422, "invalid_request", expect.stringContaining("measure on")]);
  });
});

describe("POST /train", () => {
  it("writes the dataset down, and no later edit of the job changes it", async () => {
    const response = await w.admin.send("POST", "/train", {
      job_id: w.jobId,
      variant: "det26n",
      epochs: 3,
      image_size: 320,
      batch_size: 4,
      name: "Cells",
      val_share: 0.5,
      seed: 7,
    });
    expect(response.status).toBe(202);
    const { run_id: runId } = (await response.json()) as { run_id: string };
    const run = await w.run(runId);
    expect(run).toMatchObject({
      status: "queued",
      name: "Cells",
      epoch: 0,
      epochs: 3,
      loss: null,
      mAP: null,
      classes: ["cell"],
      job_id: w.jobId,
      project_id: w.projectId,
      model_id: null,
    });
    const { items } = await w.admin.ok<{ items: { annotation_id: string }[] }>(
      ...(["GET", `/jobs/${w.jobId}/annotations`] as const),
    );
    const path = `/annotations/${items[0]?.annotation_id}`;
    await w.admin.ok("PATCH", path, { accepted: false });
    const task = await w.claimed();
    await w.admin.ok("PATCH", path, { accepted: null });
    const bytes = Buffer.from(await (await fetch(task.train.manifest.url)).arrayBuffer());
    expect(createHash("sha256").update(bytes).digest("hex")).toBe(run.dataset_sha256);
    const manifest = ExportManifest.parse(JSON.parse(bytes.toString()));
    const sides = manifest.videos.map(({ frames }) => new Set(frames.map(({ split }) => split)));
    expect(sides.map(({ size }) => size)).toEqual([1, 1]);
    const count = manifest.videos.flatMap(({ frames }) => frames.flatMap((one) => one.annotations));
    expect(count).toHaveLength(10);
    expect(task.train).toMatchObject({
      run_id: runId,
      name: "Cells",
      pretrained: null,
      resume: null,
      settings: { epochs: 3, image_size: 320, batch_size: 4, seed: 7, optimizer: "auto" },
    });
    expect(task.train.videos).toHaveLength(2);
    await endRun(runId);
    await w.finish(task, { outcome: "cancelled", result: null });
  });

  it("starts one run for an idempotency key, and refuses the key for another body", async () => {
    const headers = { "Idempotency-Key": "once" };
    const body = { job_id: w.jobId };
    const one = await w.admin.ok<{ run_id: string }>("POST", "/train", body, headers);
    expect(await w.admin.ok("POST", "/train", body, headers)).toEqual(one);
    const other = await w.admin.refused("POST", "/train", { ...body, epochs: 2 }, headers);
    expect(other).toEqual([409, "idempotency_conflict"]);
    expect((await w.run(one.run_id)).name).toMatch(/^det26n \d{4}-\d\d-\d\d$/);
    await endRun(one.run_id);
  });

  it("takes only a finished labeling job, as add-class does; a copy of another one is finished", async () => {
    const jobId = await w.labeled({ ...labelsOf("left", 2), ...labelsOf("right", 2) });
    for (const state of ["failed", "stopped", "running", "queued"]) {
      await w.world.visionDatabase.execute(
        sql`UPDATE job SET state = ${state} WHERE id = ${jobId}::uuid`,
      );
      const refused = await refusal(await w.admin.send("POST", "/train", { job_id: jobId }));
      const said = expect.stringContaining(`the job is ${state}; only a finished one`);
      expect(refused).toEqual([409, "state_conflict", said]);
      const path = `/train/dataset-stats/${jobId}`;
      const { not_trainable } = await w.admin.ok<DatasetReport>("GET", path);
      expect(not_trainable).toEqual(refused[2]);
    }
    await w.world.visionDatabase.execute(
      sql`UPDATE job SET state = 'stopped' WHERE id = ${jobId}::uuid`,
    );
    const copy = await w.admin.ok<{ job_id: string }>("POST", `/jobs/${jobId}/duplicate`);
    await endRun(await w.train({ job_id: copy.job_id }));
  });

  it("refuses to learn masks at once where no frame to train on has one", async () => {
    const body = { job_id: w.jobId, task: "segmentation" };
    const [status, code, detail] = await refusal(await w.admin.send("POST", "/train", body));
    expect([status, code]).toEqual([422, "invalid_request"]);
    expect(detail).toMatch(/^task: no frame to train on has a mask/);
    expect(await w.admin.ok("GET", `/train?job_id=${w.jobId}&status=failed`)).toEqual([]);
    expect(await w.node.claim(["train"])).toBeNull();
  });

  it("takes a run of segmentation as one of detection", async () => {
    const masked = { ...labelsOf("left", 5, mask()), ...labelsOf("right", 5, mask()) };
    const body = { job_id: await w.labeled(masked), task: "segmentation" };
    const { run_id: id } = await w.admin.ok<{ run_id: string }>("POST", "/train", body);
    expect((await w.run(id)).settings).toMatchObject({ task: "segmentation" });
    await endRun(id);
  });

  it.each([
    [{ job_id: crypto.randomUUID() }, 404, "not_found"],
    [{ job_id: undefined }, 422, "invalid_request"],
    [{ variant: "det27n" }, 422, "invalid_request"],
    [{ epochs: 0 }, 422, "invalid_request"],
    [{ image_size: 333 }, 422, "invalid_request"],
    [{ batch_size: 0 }, 422, "invalid_request"],
    [{ task: "keypoints" }, 422, "invalid_request"],
    [{ pretrained: { model_id: crypto.randomUUID() } }, 404, "not_found"],
    [{ pretrained: { weights_id: crypto.randomUUID() } }, 404, "not_found"],
  ])("refuses %j", async (more, status, code) => {
    const body = { job_id: w.jobId, ...more };
    expect(await w.admin.refused("POST", "/train", body)).toEqual([status, code]);
  });

  it("starts from weights that a node has installed, and names the command where none has", async () => {
    const body = { job_id: w.jobId, pretrained: { dataset: "coco" } };
    const refused = await w.admin.send("POST", "/train", body);
    const [status, code, detail] = await refusal(refused);
    expect([status, code]).toEqual([422, "invalid_request"]);
    expect(detail).toMatch(/"coco" for det26n.*npm run models -- install/);
    const told = { dataset: "coco", title: "COCO", licence: "CC-BY-4.0", source: "somewhere" };
    const weights = [{ ...told, variant: "det26s" }];
    await scriptedNode(w.world, w.admin, {}, { ...SCRIPTED, weights });
    const still = await refusal(await w.admin.send("POST", "/train", body));
    expect(still).toEqual([422, "invalid_request", expect.stringMatching(/"coco" for det26s/)]);
    const { options } = await w.admin.ok<{ options: { pretrained: object } }>(
      "GET",
      "/train/variants",
    );
    expect(options.pretrained).toMatchObject({ datasets: weights });
    const runId = await w.train({ variant: "det26s", pretrained: body.pretrained });
    const task = await w.claimed();
    expect(task.train.pretrained).toEqual(body.pretrained);
    expect((await w.run(runId)).settings.pretrained).toEqual(body.pretrained);
    await endRun(runId);
  });

  it("waits for a job's end, and takes none that was stopped halfway", async () => {
    const id = await w.video("late.mp4");
    const { job_id: jobId } = await w.admin.ok<{ job_id: string }>("POST", "/label", {
      project_id: w.projectId,
      video_ids: [id],
      prompts: ["person"],
      threshold: 0.5,
    });
    const body = { job_id: jobId };
    expect(await w.admin.refused("POST", "/train", body)).toEqual([409, "state_conflict"]);
    const early = DatasetReport.parse(await w.admin.ok("GET", `/train/dataset-stats/${jobId}`));
    expect(early.not_trainable).toContain("the job is queued");
    await w.admin.ok("POST", `/jobs/${jobId}/stop`);
    expect(await w.admin.refused("POST", "/train", body)).toEqual([409, "state_conflict"]);
  });
});

describe("a run that succeeds", () => {
  it("keeps of its epochs what was told of them where the result has less", async () => {
    const runId = await w.train({ name: "Long", epochs: 2 });
    const task = await w.claimed();
    const whole = [epoch(1, 0.3), epoch(2, 0.6)];
    expect((await w.report(task, { epoch: 2, recent: whole })).status).toBe(200);
    const [first, second] = whole as [RunEpoch, RunEpoch];
    const means = Object.entries(first.metrics).filter(([name]) => !name.startsWith("per_class/"));
    const thin = { ...first, metrics: Object.fromEntries(means) };
    const done = await w.result(task, [thin, second]);
    await w.finish(task, { outcome: "finished", result: done });
    expect(await w.admin.ok("GET", `/train/${runId}/epochs`)).toEqual(whole);
  });

  it("has no losses of validation for epochs of a node that tells of none", async () => {
    const runId = await w.train({ name: "Earlier", epochs: 1 });
    const task = await w.claimed();
    const { validation_losses: _, ...earlier } = epoch(1);
    const done = await w.result(task, [epoch(1)]);
    await w.finish(task, { outcome: "finished", result: { ...done, history: [earlier] } });
    const stored = sql`UPDATE training_epoch SET record = record - 'validation_losses'
      WHERE run_id = ${runId}::uuid`;
    await w.world.visionDatabase.execute(stored);
    const epochs = await w.admin.ok<RunEpoch[]>("GET", `/train/${runId}/epochs`);
    expect(epochs).toEqual([{ ...earlier, validation_losses: null }]);
    expect((await w.run(runId)).validation_loss).toBeNull();
  });

  it("registers its model with the metrics of its best epoch, once", async () => {
    const runId = await w.train({ name: "Best", epochs: 3 });
    const task = await w.claimed();
    const history = [epoch(1, 0.3), epoch(2, 0.6), epoch(3, 0.5)];
    const image = await w.stored(task, "results.png", 5);
    const artifact = { name: "results.png", ...image, content_type: "image/png" };
    const foreign = { ...artifact, name: "passwords", key: "ws/elsewhere/secret" };
    const done = await w.result(task, history, { artifacts: [artifact, foreign] });
    const outcome = { outcome: "finished" as const, result: done };
    expect((await w.finish(task, outcome)).status).toBe(200);
    expect((await w.finish(task, outcome)).status).toBe(200);
    const run = await w.run(runId);
    expect(run).toMatchObject({
      status: "completed",
      epoch: 3,
      best_epoch: 2,
      best_metrics: epoch(2, 0.6).metrics,
      resolved: RESOLVED,
      eta_seconds: null,
      failure: null,
      mAP: { mAP50: 0.6, "mAP50-95": 0.5 },
    });
    expect(run.best_metrics?.["per_class/cell/recall"]).toBe(0.6);
    const models = await w.admin.ok<Model[]>("GET", `/models?run_id=${runId}`);
    expect(models.map((one) => Model.parse(one))).toMatchObject([
      {
        model_id: run.model_id,
        name: "Best",
        version: 1,
        variant: "det26n",
        parameters: 7,
        metrics: epoch(2, 0.6).metrics,
        classes: ["cell"],
        aliases: [],
        active: false,
      },
    ]);
    const epochs = (await w.admin.ok<unknown[]>("GET", `/train/${runId}/epochs`)).map((one) =>
      RunEpoch.parse(one),
    );
    expect(epochs).toEqual(history);
    const artifacts = await w.admin.ok<{ name: string; url: string }[]>(
      ...(["GET", `/train/${runId}/artifacts`] as const),
    );
    expect(artifacts.map(({ name }) => name)).toEqual(["results.png"]);
    const file = await w.admin.send("GET", `/train/${runId}/artifacts/results.png`);
    expect(file.status).toBe(302);
    const fetched = await fetch(file.headers.get("Location") ?? "");
    expect((await fetched.arrayBuffer()).byteLength).toBe(5);
    const absent = await w.admin.refused("GET", `/train/${runId}/artifacts/passwords`);
    expect(absent).toEqual([404, "not_found"]);
    for (const path of ["stop", "resume"]) {
      const refused = await w.admin.refused("POST", `/train/${runId}/${path}`);
      expect(refused).toEqual([409, "state_conflict"]);
    }
  });

  it("gives the next version of its name to each, also to two that end at once", async () => {
    const ids = [await w.train({ name: "Twin" }), await w.train({ name: "Twin" })];
    const tasks = [await w.claimed(), await w.claimed(w.rival)];
    const results = await Promise.all(
      tasks.map((task, at) => {
        const by = at === 0 ? w.node : w.rival;
        return w
          .stored(task, "weights.safetensors", 16, by)
          .then((weights) => ({ weights, by, task }));
      }),
    );
    await Promise.all(
      results.map(async ({ weights, by, task }) => {
        const model = {
          weights: { ...weights, sha256: sha256OfZeros(weights.bytes) },
          parameters: 1,
          epoch: 1,
          metrics: {},
          confidence_bins: null,
        };
        const result = { stopped: false, history: [], resolved: null, model, checkpoint: null };
        const outcome = { outcome: "finished" as const, result: { ...result, artifacts: [] } };
        expect((await w.finish(task, outcome, by)).status).toBe(200);
      }),
    );
    const models = await w.admin.ok<Model[]>("GET", "/models?name=Twin");
    expect(models.map(({ version }) => version).toSorted()).toEqual([1, 2]);
    expect(models.map(({ run_id }) => run_id).toSorted()).toEqual(ids.toSorted());
  });

  it.each([
    ["are not there", (key: string) => ({ key: `${key}x`, bytes: 16 }), "not in the store"],
    ["are of another size", (key: string) => ({ key, bytes: 17 }), "reported 17"],
    ["are somebody else's", () => ({ key: "ws/other/model", bytes: 1 }), "not the run's"],
    ["are others", (key: string) => ({ key, bytes: 16, sha256: "cd".repeat(32) }), "SHA-256"],
  ])("fails its attempt instead when the weights %s", async (_, wrong, why) => {
    const runId = await w.train();
    const task = await w.claimed();
    const done = await w.result(task, [epoch(1)]);
    const model = done.model as NonNullable<typeof done.model>;
    const weights = { ...model.weights, ...wrong(model.weights.key) };
    const result = { ...done, model: { ...model, weights } };
    const answer = await w.finish(task, { outcome: "finished", result });
    expect(await answer.json()).toMatchObject({
      status: "queued",
      problem: expect.stringContaining(why),
    });
    await w.admin.ok("POST", `/train/${runId}/stop`);
    expect(await w.run(runId)).toMatchObject({ status: "stopped", model_id: null });
    expect(await w.admin.ok("GET", `/models?run_id=${runId}`)).toEqual([]);
  });

  it("fails without a model, and with the node's words when it fails", async () => {
    const one = await w.train();
    const first = await w.claimed();
    const nothing = { stopped: false, history: [], resolved: null, model: null, checkpoint: null };
    await w.finish(first, { outcome: "finished", result: { ...nothing, artifacts: [] } });
    expect((await w.run(one)).failure).toContain("before an epoch was evaluated");
    const other = await w.train();
    const second = await w.claimed();
    const failed = { code: "bad_image", detail: "frame 3 is torn", retryable: false };
    await w.finish(second, { outcome: "failed", ...failed });
    expect(await w.run(other)).toMatchObject({ status: "failed", failure: "frame 3 is torn" });
  });
});

describe("what is listed and edited", () => {
  it("filters runs, renames them, and deletes them with what they left", async () => {
    const { runId, modelId } = await w.trained({ name: "Edited" });
    const list = async (query: string) =>
      (await w.admin.ok<unknown[]>("GET", `/train?${query}`)).map(
        (one) => TrainingRun.parse(one).run_id,
      );
    expect(await list("")).toContain(runId);
    expect((await list(`job_id=${w.jobId}&status=completed`))[0]).toBe(runId);
    expect(await list("status=running")).toEqual([]);
    expect(await list(`project_id=${crypto.randomUUID()}`)).toEqual([]);
    expect(await w.admin.refused("GET", "/train?status=done")).toEqual([422, "invalid_request"]);
    const edited = await w.admin.ok("PATCH", `/train/${runId}`, { name: "New", notes: "good" });
    expect(edited).toMatchObject({ name: "New", notes: "good" });
    expect(await w.admin.ok("PATCH", `/train/${runId}`, {})).toMatchObject({ name: "New" });
    expect((await w.admin.send("DELETE", `/train/${runId}`)).status).toBe(204);
    expect(await w.admin.refused("GET", `/train/${runId}`)).toEqual([404, "not_found"]);
    const model = await w.admin.ok<Model>("GET", `/models/${modelId}`);
    expect(model).toMatchObject({ name: "Edited", run_id: null });
    // All that is left of the run is the model's weights.
    expect(await w.keys(runId)).toHaveLength(1);
    expect((await w.admin.send("DELETE", `/models/${modelId}`)).status).toBe(204);
    expect(await w.keys(runId)).toEqual([]);
  });

  it("keeps a run's dataset when its job goes, and its videos while it is not over", async () => {
    const video = await w.video("kept.mp4");
    const jobId = await w.labeled(labelsOf("kept", 10));
    const runId = await w.train({ job_id: jobId });
    await w.admin.send("DELETE", `/jobs/${jobId}`);
    expect((await w.run(runId)).job_id).toBeNull();
    expect(await w.admin.refused("DELETE", `/videos/${video}`)).toEqual([409, "state_conflict"]);
    const task = await w.claimed();
    expect((await fetch(task.train.manifest.url)).status).toBe(200);
    await endRun(runId);
    await w.finish(task, { outcome: "cancelled", result: null });
    expect((await w.admin.send("DELETE", `/videos/${video}`)).status).toBe(204);
    const [status, code, detail] = await refusal(
      await w.admin.send("POST", `/train/${runId}/resume`),
    );
    expect([status, code]).toEqual([409, "state_conflict"]);
    expect(detail).toContain("deleted");
    const project = await w.admin.refused("DELETE", `/projects/${w.projectId}`);
    expect(project).toEqual([409, "state_conflict"]);
  });
});
