// Models as files, asked for over HTTP and made by nodes that answer as scripted over the real
// protocol. Goal: the same request is one artifact however often and at once it comes, nothing that
// a node says of its file is believed, and what nobody names any more leaves nothing behind.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { findTask } from "../../../../edge/vision/tasks/queue/queue.ts";
import { expectedBytes } from "../../../../edge/vision/training/exports/options.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload } from "../../../../shared/tasks/tasks.ts";
import { ModelExport } from "../../../../shared/wire/exports.ts";
import { exportedBy, exportedFile } from "../../../support/model-exports.ts";
import { registerModel } from "../../../support/registered-model.ts";
import { workspaceOf } from "../../../support/rollout-world.ts";
import {
  colleague,
  newProject,
  type Person,
  register,
  type ScriptedNode,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { trainedThings } from "../../../support/trained-run.ts";
import { tensorFile } from "../../../support/weights.ts";
import { createWorld, type World } from "../../../support/world.ts";

/** The registry does not look into weights: a node would. */
const NO_WEIGHTS = tensorFile(new Map());

let world: World;
let admin: Person;
let engineer: Person;
let node: ScriptedNode;
let workspaceId: string;
let modelId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  workspaceId = await workspaceOf(admin);
  engineer = await colleague(world, admin, "engineer");
  node = await scriptedNode(world, admin, { model_export: exportedBy });
});

beforeEach(async () => {
  const name = `Früh & cells ${crypto.randomUUID()}`;
  modelId = (await registerModel(world, workspaceId, { file: NO_WEIGHTS, name })).model_id;
});

const path = () => `/models/${modelId}/export`;
const ask = async (more: object = {}, by: Person = engineer) => {
  const response = await by.send("POST", path(), { format: "onnx", ...more });
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};
const begun = async (more: object = {}) => {
  const { status, body } = await ask(more);
  expect(status).toBe(202);
  return ModelExport.parse(body);
};
const read = async (id: string) =>
  ModelExport.parse(await engineer.ok("GET", `/models/${modelId}/exports/${id}`));
const list = () => engineer.ok<ModelExport[]>("GET", `/models/${modelId}/exports`);
const keys = async () => {
  const { objects } = await world.media.list({ prefix: `ws/${workspaceId}/model-exports/` });
  return objects.map(({ key }) => key).filter((key) => key.includes(modelId));
};
const payloadOf = (task: ClaimedTask): TaskPayload<"model_export"> =>
  TASK_KINDS.model_export.payload.parse(task.payload);
async function claimed(by: ScriptedNode = node): Promise<ClaimedTask> {
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  const task = await by.claim(["model_export"]);
  expect(task).not.toBeNull();
  return task as ClaimedTask;
}
const finished = async (task: ClaimedTask, result: object, by: ScriptedNode = node) => {
  const outcome = { outcome: "finished" as const, result: result as Record<string, unknown> };
  const response = await by.finish(task, outcome);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};

describe("POST /models/{model_id}/export", () => {
  it("is made by a node, and offered with its figures under a name that people know", async () => {
    const asked = await begun();
    expect(asked).toMatchObject({
      model_id: modelId,
      format: "onnx",
      output: "end_to_end",
      image_size: [96, 96],
      batch: 1,
      status: "queued",
      waiting_for: null,
      progress: null,
      download_url: null,
      bytes: null,
      sha256: null,
      verification: null,
      failure: null,
      ended_at: null,
    });
    const task = await claimed();
    const payload = payloadOf(task);
    expect(payload).toMatchObject({ size: [96, 96], batch: 1, output: "end_to_end", images: [] });
    expect(payload.metadata).toEqual({ name: expect.stringContaining("Früh"), version: "1" });
    await node.api.ok("POST", `/node/tasks/${task.task_id}/progress`, {
      fence: task.fence,
      done: 3,
      total: 10,
    });
    expect(await read(asked.export_id)).toMatchObject({
      status: "running",
      progress: { done: 3, total: 10 },
    });
    const bytes = new TextEncoder().encode("a model");
    const result = await exportedBy(task, node, bytes);
    expect((await finished(task, result)).status).toBe(200);
    const done = await read(asked.export_id);
    const { sha256, verification, opset } = exportedFile(bytes);
    expect(done).toMatchObject({ status: "completed", bytes: 7, sha256, opset, verification });
    expect(done.not_verified.join()).toContain("onnx.checker");
    const address = done.download_url ?? "";
    expect(await (await fetch(address)).text()).toBe("a model");
    const saved = new URL(address).searchParams.get("response-content-disposition") ?? "";
    expect(decodeURIComponent(saved)).toMatch(/Früh_cells_[\w-]+-v1-96x96\.onnx$/);
    // The same again is the same, and there.
    expect(await ask({ batch: 1, image_size: 96 })).toMatchObject({
      status: 200,
      body: { export_id: asked.export_id },
    });
    expect((await list()).map(({ export_id }) => export_id)).toEqual([asked.export_id]);
    expect(await keys()).toHaveLength(1);
  });

  it("makes another one of each option, listed newest first", async () => {
    const wanted = [
      {},
      { output: "raw" },
      { batch: "dynamic" },
      { batch: 4 },
      { image_size: [96, 160] },
      { image_size: [160, 96] },
      { image_size: 2048 },
    ];
    const made: ModelExport[] = [];
    for (const more of wanted) made.push(await begun(more));
    expect(new Set(made.map(({ export_id }) => export_id)).size).toBe(wanted.length);
    expect((await list()).map(({ export_id }) => export_id)).toEqual(
      made.map(({ export_id }) => export_id).toReversed(),
    );
    expect(made.map(({ batch }) => batch)).toEqual([1, 1, "dynamic", 4, 1, 1, 1]);
    expect(made[6]?.image_size).toEqual([2048, 2048]);
    await node.work();
    const names = (await list()).map(({ download_url }) =>
      decodeURIComponent(new URL(download_url ?? "").search).replace(/.*-v1-|&.*/g, ""),
    );
    expect(names.toReversed()).toEqual([
      ...["96x96.onnx", "96x96-raw.onnx", "96x96-batch-dynamic.onnx", "96x96-batch-4.onnx"],
      ...["160x96.onnx", "96x160.onnx", "2048x2048.onnx"],
    ]);
    const raw = (await list()).find(({ output }) => output === "raw");
    expect(raw?.not_verified.join()).toContain("Ultralytics");
  });

  it("is one artifact of requests at once", async () => {
    const replies = await Promise.all(Array.from({ length: 8 }, () => ask()));
    expect(new Set(replies.map(({ body }) => body.export_id)).size).toBe(1);
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([202]));
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT id FROM task WHERE payload->'model'->>'model_id' = ${modelId}`);
    expect(rows).toHaveLength(1);
    await node.work();
  });

  it.each<[string, object, RegExp]>([
    ["a format that is not made", { format: "ncnn" }, /^format: .*made: onnx, coreml/],
    ["no format", { format: undefined }, /^format: /],
    ["another output", { output: "nms" }, /^output: /],
    ["a side that is no multiple of 32", { image_size: 100 }, /^image_size/],
    ["sides that are none", { image_size: [96, 100] }, /^image_size/],
    ["three sides", { image_size: [96, 96, 96] }, /^image_size/],
    ["a side of nothing", { image_size: 0 }, /^image_size/],
    ["a side above 2048", { image_size: 2080 }, /^image_size/],
    ["no image", { batch: 0 }, /^batch/],
    ["half an image", { batch: 1.5 }, /^batch/],
    ["any other word", { batch: "any" }, /^batch/],
    ["too many images", { batch: 65 }, /^batch/],
    ["too many images of that size", { batch: 3, image_size: 2048 }, /^batch: .*at most 2; dyn/],
    ["a name that it does not know", { imgsz: 96 }, /imgsz/],
  ])("refuses %s", async (_, more, detail) => {
    const { status, body } = await ask(more);
    const refusal = [422, "invalid_request", expect.stringMatching(detail)];
    expect([status, body.code, body.detail]).toEqual(refusal);
    expect(await list()).toEqual([]);
  });

  it("refuses a model without classes, and one that is not there", async () => {
    const none = await registerModel(world, workspaceId, { classes: ["a"], file: NO_WEIGHTS });
    await world.visionDatabase.execute(
      sql`UPDATE model SET classes = '{}' WHERE id = ${none.model_id}::uuid`,
    );
    const body = { format: "onnx" };
    const refused = await engineer.refused("POST", `/models/${none.model_id}/export`, body);
    expect(refused).toEqual([409, "state_conflict"]);
    const promotion = { alias: "canary", exports: [body] };
    const promoted = await engineer.refused("POST", `/models/${none.model_id}/promote`, promotion);
    expect(promoted).toEqual([409, "state_conflict"]);
    const nobodys = `/models/${crypto.randomUUID()}/export`;
    expect(await engineer.refused("POST", nobodys, body)).toEqual([404, "not_found"]);
  });

  it("is for engineers; viewers read and download", async () => {
    const { export_id } = await begun();
    await node.work();
    const own = `/models/${modelId}/exports/${export_id}`;
    for (const role of ["viewer", "annotator"] as const) {
      const person = await colleague(world, admin, role);
      const refusal = [403, "forbidden"];
      expect(await person.refused("POST", path(), { format: "onnx" })).toEqual(refusal);
      expect(await person.refused("DELETE", own)).toEqual(refusal);
      expect(await person.ok("GET", own)).toMatchObject({ status: "completed" });
      expect(await person.ok("GET", `/models/${modelId}/exports`)).toHaveLength(1);
    }
  });

  it("gives the node frames of the model's dataset, and what the registry knows", async () => {
    const { project_id: projectId } = await newProject(admin);
    const job = crypto.randomUUID();
    await world.visionDatabase.execute(sql`
      INSERT INTO job (id, workspace_id, project_id, name, kind, state, threshold, settings,
        ended_at)
      VALUES (${job}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, 'j', 'manual', 'completed',
        0.5, '{}', now())`);
    const { run_id, model_id } = await trainedThings(world, { workspaceId, projectId, jobId: job });
    const videos = Array.from({ length: 6 }, () => crypto.randomUUID());
    for (const video of videos.slice(1)) {
      await world.media.put(`ws/${workspaceId}/videos/${video}/frames/7.jpg`, "a frame");
    }
    await world.visionDatabase.execute(sql`
      UPDATE training_run SET dataset = dataset || ${JSON.stringify({ videos })}::jsonb
       WHERE id = ${run_id}::uuid`);
    modelId = model_id;
    await begun();
    const { images, metadata, size } = payloadOf(await claimed());
    expect(images.map(({ key }) => key.split("/")[3])).toEqual(videos.slice(1, 4));
    expect(await (await fetch(images[0]?.url ?? "")).text()).toBe("a frame");
    expect(metadata).toMatchObject({ run: run_id, dataset_sha256: "ab", version: "1" });
    expect(size).toEqual([640, 640]);
  });

  it("waits, and says for what, while no node is there that exports models", async () => {
    const away = await createWorld({ services: ["vision"] });
    const alone = await register(away);
    const { model_id } = await registerModel(away, await workspaceOf(alone), { file: NO_WEIGHTS });
    const asked = { format: "onnx" };
    const made = await alone.ok<ModelExport>("POST", `/models/${model_id}/export`, asked);
    expect(made).toMatchObject({ status: "queued", waiting_for: expect.stringMatching(/no GPU/) });
  });

  it("is enqueued by the next minute where a crash kept it from that", async () => {
    const { export_id } = await begun();
    const taskless = sql`DELETE FROM task WHERE subject = ${`model_export:${export_id}`}`;
    await world.visionDatabase.execute(taskless);
    await world.visionDatabase.execute(sql`
      UPDATE model_export SET created_at = now() - interval '2 minutes'
       WHERE id = ${export_id}::uuid`);
    await world.tick(Date.now());
    await node.work();
    expect(await read(export_id)).toMatchObject({ status: "completed" });
  });
});

describe("what a node says of its file", () => {
  const MASKS = {
    objects: 80,
    prototype_error: 0,
    prototype_tolerance: 1e-4,
    coefficient_error: 0,
    coefficient_tolerance: 1e-4,
    iou: 1,
    iou_min: 0.99,
  };
  const good = exportedFile(new Uint8Array(16));
  const off = (more: Partial<NonNullable<typeof good.verification>>) => ({
    verification: { ...good.verification, ...more },
  });
  it.each<[string, object, RegExp]>([
    ["another size", { bytes: 15 }, /of 15 bytes has 16/],
    ["another SHA-256", { sha256: "0".repeat(64) }, /not that of the SHA-256/],
    ["no SHA-256", { sha256: "none" }, /^result\.sha256/],
    ["nothing compared", off({ rows: 0 }), /held against nothing/],
    ["boxes that are off", off({ box_difference_max: 0.4 }), /boxes by 0\.400 pixels/],
    [
      "masks that are off",
      off({ masks: { ...MASKS, prototype_error: 0.5 } }),
      /prototypes of masks by 0\.500 of their size/,
    ],
    ["scores that are off", off({ score_difference_max: 0.1 }), /scores by 0\.100 /],
    ["no image looked at", off({ images: 0 }), /^result\.verification\.images/],
  ])("is refused, by name: %s", async (_, more, problem) => {
    const { export_id } = await begun();
    const task = await claimed();
    await node.write(task, { key: payloadOf(task).file.key }, new Uint8Array(16));
    const { body } = await finished(task, { ...good, ...more });
    expect(body).toEqual({
      status: "queued",
      repeated: false,
      problem: expect.stringMatching(problem),
    });
    expect(await read(export_id)).toMatchObject({ status: "queued", download_url: null });
    // The next attempt's good answer is taken, and the spoilt file of the first is gone.
    const again = await claimed();
    expect((await finished(again, await exportedBy(again, node))).body).toMatchObject({
      status: "finished",
    });
    expect(await read(export_id)).toMatchObject({ status: "completed" });
    expect(await keys()).toHaveLength(1);
  });

  it("is refused where the file is not there, or larger than such a model is", async () => {
    await begun();
    const { body } = await finished(await claimed(), good);
    expect(body.problem).toMatch(/of 16 bytes is not in the store/);
    const task = await claimed();
    const payload = payloadOf(task);
    const large = new Uint8Array(Math.ceil(expectedBytes(payload.model, payload) * 1.3));
    await node.write(task, { key: payload.file.key }, large);
    const reply = await finished(task, exportedFile(large));
    expect(reply.body.problem).toMatch(/more than such a model takes/);
    await claimed();
  });
});

describe("an export that does not come to its end", () => {
  const failure = { outcome: "failed", code: "bad_weights", retryable: false } as const;

  it("says why, frees its room, and is tried anew when it is asked for again", async () => {
    const { export_id } = await begun();
    const detail = "the weights lack layers.0.weight";
    await node.finish(await claimed(), { ...failure, detail });
    const failed = await read(export_id);
    expect(failed).toMatchObject({ status: "failed", failure: detail, download_url: null });
    expect(failed.ended_at).not.toBeNull();
    const again = await begun();
    expect(again).toMatchObject({ export_id, status: "queued", failure: null, ended_at: null });
    await node.work();
    expect(await read(export_id)).toMatchObject({ status: "completed" });
  });

  it("goes to another node when its own was killed; what comes late changes nothing", async () => {
    const { export_id } = await begun();
    const first = await claimed();
    const late = await exportedBy(first, node, new TextEncoder().encode("the first node's"));
    await world.visionDatabase.execute(sql`
      UPDATE task SET lease_until = now() - interval '1 second' WHERE id = ${first.task_id}::uuid`);
    await world.tick(Date.now());
    expect(await read(export_id)).toMatchObject({ status: "queued" });
    const rival = await scriptedNode(world, admin, {});
    const second = await claimed(rival);
    expect(second.task_id).toBe(first.task_id);
    expect((await finished(first, late)).body).toMatchObject({ code: "lease_stale" });
    const bytes = new TextEncoder().encode("the second node's");
    const result = await exportedBy(second, rival, bytes);
    expect((await finished(second, result, rival)).body).toMatchObject({ repeated: false });
    const done = await read(export_id);
    expect(await (await fetch(done.download_url ?? "")).text()).toBe("the second node's");
    // Once more, and from the one that was lost.
    expect((await finished(second, result, rival)).body).toMatchObject({ repeated: true });
    expect((await finished(first, late)).status).toBe(409);
    expect((await read(export_id)).sha256).toBe(done.sha256);
    expect(await keys()).toHaveLength(1);
  });

  it("fails once its last attempt was lost, and when an admin takes it away", async () => {
    const { export_id } = await begun();
    for (let attempt = 0; attempt < 3; attempt++) {
      const { task_id } = await claimed();
      await world.visionDatabase.execute(sql`
        UPDATE task SET lease_until = now() - interval '1 second' WHERE id = ${task_id}::uuid`);
      await world.tick(Date.now());
    }
    expect(await read(export_id)).toMatchObject({
      status: "failed",
      failure: "the node stopped renewing its lease",
    });
    await begun();
    await admin.ok("POST", "/admin/queue/model_export/purge");
    expect(await read(export_id)).toMatchObject({ status: "failed" });
    await begun();
    const { task_id } = await claimed();
    await admin.ok("POST", `/admin/tasks/${task_id}/revoke`);
    await world.visionDatabase.execute(sql`
      UPDATE task SET lease_until = now() - interval '5 minutes' WHERE id = ${task_id}::uuid`);
    await world.tick(Date.now());
    expect(await read(export_id)).toMatchObject({
      status: "failed",
      failure: expect.stringMatching(/lease|revoked/),
    });
  });

  it("of an earlier round does not touch the one that came after it", async () => {
    const { export_id } = await begun();
    const early = await claimed();
    // As after a stall of minutes: the row was failed by hand while its node worked.
    await world.visionDatabase.execute(sql`
      UPDATE model_export SET state = 'failed', failure = 'lost' WHERE id = ${export_id}::uuid`);
    await begun();
    const bytes = new TextEncoder().encode("of the first round");
    await finished(early, await exportedBy(early, node, bytes));
    expect(await read(export_id)).toMatchObject({ status: "queued", download_url: null });
    expect(await keys()).toEqual([]);
    const task = await claimed();
    expect(payloadOf(task).round).toBe(2);
    await finished(task, await exportedBy(task, node));
    expect(await read(export_id)).toMatchObject({ status: "completed" });
    expect(await keys()).toHaveLength(1);
  });
});

describe("a deletion", () => {
  it("of an export takes its file, and the same may be asked for again", async () => {
    const { export_id } = await begun();
    await node.work();
    const { download_url } = await read(export_id);
    const own = `/models/${modelId}/exports/${export_id}`;
    expect((await engineer.send("DELETE", own)).status).toBe(204);
    expect(await engineer.refused("GET", own)).toEqual([404, "not_found"]);
    expect(await engineer.refused("DELETE", own)).toEqual([404, "not_found"]);
    expect((await fetch(download_url ?? "")).status).toBe(404);
    expect(await keys()).toEqual([]);
    expect((await begun()).export_id).not.toBe(export_id);
    await node.work();
  });

  it("of an export that is being made has its node stop; what it wrote goes", async () => {
    const { export_id } = await begun();
    const task = await claimed();
    await engineer.ok("DELETE", `/models/${modelId}/exports/${export_id}`);
    const beat = { tasks: [{ task_id: task.task_id, fence: task.fence }] };
    expect(await node.api.ok("POST", "/node/heartbeat", beat)).toMatchObject({
      tasks: [{ verdict: "cancel" }],
    });
    const result = await exportedBy(task, node);
    expect((await finished(task, result)).status).toBe(200);
    expect(await keys()).toEqual([]);
    expect(await list()).toEqual([]);
  });

  it("of a model takes its exports, those that are being made too", async () => {
    await begun();
    await node.work();
    await begun({ output: "raw" });
    const task = await claimed();
    await begun({ batch: 2 });
    const written = await exportedBy(task, node);
    expect(await keys()).toHaveLength(2);
    expect((await engineer.send("DELETE", `/models/${modelId}`)).status).toBe(204);
    expect(await engineer.refused("POST", path(), { format: "onnx" })).toEqual([404, "not_found"]);
    await finished(task, written);
    await world.tick(Date.now());
    expect(await keys()).toEqual([]);
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT state FROM task WHERE payload->'model'->>'model_id' = ${modelId}
         AND state IN ('queued', 'running')`);
    expect(rows).toEqual([]);
    // What its node wrote went with the model: the task ended as it was asked to.
    expect((await findTask(world.visionDatabase, task.task_id))?.state).toBe("cancelled");
  });
});
