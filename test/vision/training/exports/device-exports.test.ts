// Models as files of every format and precision, asked for over HTTP and made by nodes that answer
// as scripted. Goal: each format has its defaults, and 422 names what cannot be made; int8 has
// images to be made by, and ranges that are found once; an alias takes its files along.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { expectedBytes } from "../../../../edge/vision/training/exports/options.ts";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { TASK_KINDS, type TaskPayload, type TaskResult } from "../../../../shared/tasks/tasks.ts";
import { ModelExport } from "../../../../shared/wire/exports.ts";
import { giveDataset } from "../../../support/model-dataset.ts";
import { exportedBy } from "../../../support/model-exports.ts";
import { CAPABILITIES, introduce } from "../../../support/nodes.ts";
import { registerModel } from "../../../support/registered-model.ts";
import {
  colleague,
  newProject,
  type Person,
  register,
  type ScriptedNode,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { tensorFile } from "../../../support/weights.ts";
import { createWorld, type World } from "../../../support/world.ts";

type Result = TaskResult<"device_export">;

const NO_WEIGHTS = tensorFile(new Map());
const KINDS = ["model_export", "device_export", "engine_export"];

let world: World;
let admin: Person;
let engineer: Person;
let node: ScriptedNode;
let workspaceId: string;
let projectId: string;
/** Has a run whose dataset is there. */
let modelId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  engineer = await colleague(world, admin, "engineer");
  node = await scriptedNode(world, admin, {
    model_export: exportedBy,
    device_export: exportedBy,
    engine_export: exportedBy,
  });
  projectId = (await newProject(admin)).project_id;
});

beforeEach(async () => {
  const name = `cells ${randomUUID()}`;
  modelId = (await registerModel(world, workspaceId, { file: NO_WEIGHTS, name })).model_id;
  await trained(modelId);
});

const trained = (id: string) => giveDataset(world, { workspaceId, projectId, modelId: id });

const ask = async (more: object, id = modelId) => {
  const response = await engineer.send("POST", `/models/${id}/export`, more);
  return { status: response.status, body: (await response.json()) as Record<string, unknown> };
};
const begun = async (more: object) => {
  const { status, body } = await ask(more);
  expect([status, body]).toEqual([202, expect.any(Object)]);
  return ModelExport.parse(body);
};
const read = async (id: string) =>
  ModelExport.parse(await engineer.ok("GET", `/models/${modelId}/exports/${id}`));
async function claimed(kinds: readonly string[] = KINDS): Promise<ClaimedTask> {
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  return (await node.claim(kinds)) ?? expect.fail("there is no task");
}
const payloadOf = (task: ClaimedTask): TaskPayload<"device_export"> =>
  TASK_KINDS.device_export.payload.parse(task.payload);

describe("a format", () => {
  it.each<[string, object, string]>([
    ["onnx", { precision: "fp32", output: "end_to_end", artifact: "file" }, ".onnx"],
    ["coreml", { precision: "fp16", output: "raw", artifact: "file" }, "-fp16-raw.mlpackage.zip"],
    ["tflite", { precision: "fp32", output: "joined", artifact: "file" }, ".tflite"],
    [
      "tensorrt",
      { precision: "fp16", output: "end_to_end", artifact: "bundle" },
      "-fp16.tensorrt.zip",
    ],
    ["roboflow", { precision: "fp32", output: "end_to_end", artifact: "bundle" }, ".roboflow.zip"],
  ])("has its defaults: %s", async (format, wanted, name) => {
    const { export_id } = await begun({ format });
    await node.work();
    const made = await read(export_id);
    expect(made).toMatchObject({
      ...wanted,
      format,
      status: "completed",
      calibration_images: null,
    });
    const said = new URL(made.download_url ?? "").searchParams.get("response-content-disposition");
    expect(decodeURIComponent(said ?? "")).toMatch(
      new RegExp(`-v1-96x96${name.replaceAll(".", "\\.")}$`),
    );
    expect(made.not_verified.length).toBeGreaterThan(0);
    const halves = /half-precision maps: they were computed here in single precision/;
    expect(halves.test(made.not_verified.join())).toBe(format === "coreml");
    // In other words the same.
    expect((await ask({ format, ...wanted, artifact: undefined })).body.export_id).toBe(export_id);
  });

  it.each<[string, object, RegExp]>([
    ["a precision", { format: "coreml", precision: "int8" }, /^precision: coreml .* fp16$/],
    ["an output", { format: "onnx", output: "joined" }, /^output: onnx .*end_to_end, raw/],
    ["an output of TFLite", { format: "tflite", output: "end_to_end" }, /^output: tflite .*joined/],
    ["a batch", { format: "tflite", batch: 2 }, /^batch: files of tflite take one image/],
    ["any batch", { format: "coreml", batch: "dynamic" }, /^batch: files of coreml/],
    ["an engine of ONNX", { format: "onnx", artifact: "engine" }, /^artifact: onnx/],
    ["a calibration", { format: "onnx", calibration: { images: 16 } }, /^calibration: only int8/],
    [
      "too few images",
      { format: "onnx", precision: "int8", calibration: { images: 8 } },
      /^calibration\.images/,
    ],
  ])("is refused by name what it does not have: %s", async (_, more, detail) => {
    const { status, body } = await ask(more);
    expect([status, body.code, body.detail]).toEqual([
      422,
      "invalid_request",
      expect.stringMatching(detail),
    ]);
  });

  it("is made by a task of its own kind where it is ONNX in single precision", async () => {
    const made = [{ format: "onnx" }, { format: "onnx", precision: "fp16" }, { format: "tflite" }];
    for (const more of made) await begun(more);
    const first = await claimed(["model_export"]);
    expect(payloadOf(first)).toMatchObject({ format: "onnx", precision: "fp32" });
    expect(await node.claim(["model_export"])).toBeNull();
    const result = await exportedBy(first, node);
    const response = await node.finish(first, { outcome: "finished", result });
    expect(await response.json()).toMatchObject({ status: "finished" });
    await node.work();
  });

  it("is refused where its figures are not whole", async () => {
    const { export_id } = await begun({ format: "tflite" });
    const task = await claimed();
    const { recommended_confidence: _, ...result } = await exportedBy(task, node);
    const response = await node.finish(task, { outcome: "finished", result });
    expect(await response.json()).toMatchObject({
      problem: expect.stringMatching(/^result\.recommended_confidence: /),
    });
    expect(await read(export_id)).toMatchObject({ status: "queued" });
    const again = await claimed();
    await node.finish(again, { outcome: "finished", result: await exportedBy(again, node) });
    expect(await read(export_id)).toMatchObject({ status: "completed" });
  });
});

describe("int8", () => {
  it("is made by the model's own dataset, with its figures", async () => {
    const { export_id } = await begun({ format: "onnx", precision: "int8" });
    const task = await claimed();
    expect(task.kind).toBe("device_export");
    const { dataset, calibration, calibration_images } = payloadOf(task);
    expect([calibration, calibration_images]).toEqual([null, 32]);
    expect(await (await fetch(dataset?.manifest.url ?? "")).json()).toMatchObject({ name: "d" });
    expect(await (await fetch(dataset?.videos[0]?.url ?? "")).text()).toBe("an image");
    const result = await exportedBy(task, node);
    await node.finish(task, { outcome: "finished", result });
    const made = await read(export_id);
    expect(made).toMatchObject({
      status: "completed",
      calibration_images: 32,
      recommended_confidence: 0.24,
      verification: { accuracy: { map50: 0.82, model_map50: 0.8225, drop_max: 0.01 } },
    });
    // Its ranges are for its making, not for reading.
    expect(JSON.stringify(made)).not.toContain("layers.0");
  });

  it("finds its ranges once: other files of that size are made by them", async () => {
    await begun({ format: "onnx", precision: "int8" });
    const first = await claimed();
    await node.finish(first, { outcome: "finished", result: await exportedBy(first, node) });
    const of = async (more: object) => {
      await begun({ precision: "int8", ...more });
      const task = await claimed();
      const { calibration } = payloadOf(task);
      await node.finish(task, { outcome: "finished", result: await exportedBy(task, node) });
      return calibration;
    };
    const ranges = { images: [0, 1], "layers.0": [-0.28125, 6.5] };
    expect(await of({ format: "tflite" })).toEqual({ images: 32, ranges });
    expect(await of({ format: "onnx", image_size: 128 })).toBeNull();
    expect(await of({ format: "onnx", calibration: { images: 16 } })).toBeNull();
  });

  it("is refused where the dataset is gone, unless its ranges are known", async () => {
    await world.visionDatabase.execute(
      sql`UPDATE model SET run_id = NULL WHERE id = ${modelId}::uuid`,
    );
    const request = { format: "onnx", precision: "int8" };
    const { status, body } = await ask(request);
    expect([status, body.detail]).toEqual([
      422,
      expect.stringMatching(/^precision: int8 is made by/),
    ]);
    await world.media.delete(await trained(modelId));
    expect((await ask(request)).status).toBe(422);
    await trained(modelId);
    await begun(request);
    await node.work();
    await world.visionDatabase.execute(
      sql`UPDATE model SET run_id = NULL WHERE id = ${modelId}::uuid`,
    );
    await begun({ format: "tflite", precision: "int8" });
    await node.work();
  });

  it("is not believed without ranges, nor beyond what its average precision may lose", async () => {
    const { export_id } = await begun({ format: "onnx", precision: "int8" });
    const refusalOf = async (more: (good: Result) => Partial<Result>) => {
      const task = await claimed();
      const good = await exportedBy(task, node);
      const result = Object.assign(good, more(good));
      const response = await node.finish(task, { outcome: "finished", result });
      return ((await response.json()) as { problem?: string }).problem;
    };
    const lost = ({ verification }: Result): Partial<Result> => ({
      verification: verification && {
        ...verification,
        accuracy: verification.accuracy && { ...verification.accuracy, map50: 0.8 },
      },
    });
    expect(await refusalOf(() => ({ calibration: null }))).toMatch(/made by no ranges/);
    expect(await refusalOf(lost)).toMatch(/map50 by 0\.0225 \(0\.01 is allowed\)/);
    expect(await read(export_id)).toMatchObject({ download_url: null, bytes: null });
    expect(await refusalOf(() => ({ verification: null }))).toMatch(/held against nothing/);
    expect(await read(export_id)).toMatchObject({ status: "failed" });
  });
});

describe("an engine of TensorRT", () => {
  it("is refused where no node reports trtexec, and built where one does", async () => {
    const away = await createWorld({ services: ["vision"] });
    const owner = await register(away);
    const me = await owner.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
    const own = me.workspaces[0]?.workspace_id ?? "";
    const model = await registerModel(away, own, { file: NO_WEIGHTS });
    const path = `/models/${model.model_id}/export`;
    const code = async () =>
      (await owner.ok<{ code: string }>("POST", "/admin/nodes/codes", {})).code;
    const kinds = ["model_export", "device_export"];
    const plain = { ...CAPABILITIES, kinds };
    await introduce(away.urls.vision, { code: await code(), name: "cpu", capabilities: plain });
    const request = { format: "tensorrt", artifact: "engine" };
    const refused = await owner.send("POST", path, request);
    expect([refused.status, await refused.json()]).toEqual([
      422,
      expect.objectContaining({ detail: expect.stringMatching(/^artifact: .*trtexec.*bundle/) }),
    ]);
    // The bundle is always possible.
    expect((await owner.send("POST", path, { format: "tensorrt" })).status).toBe(202);
    const capabilities = { ...plain, kinds: [...kinds, "engine_export"] };
    await introduce(away.urls.vision, { code: await code(), name: "gpu", capabilities });
    expect((await owner.send("POST", path, request)).status).toBe(202);
  });

  it("is made by a task of its own kind", async () => {
    const { export_id } = await begun({ format: "tensorrt", artifact: "engine" });
    const task = await claimed(["engine_export"]);
    expect(payloadOf(task)).toMatchObject({ artifact: "engine", export_id });
    const report = async (detail: object) => {
      const body = { fence: task.fence, done: 9, total: 10, detail };
      const { status } = await node.api.send("POST", `/node/tasks/${task.task_id}/progress`, body);
      expect(status).toBe(200);
    };
    await report({});
    expect(await read(export_id)).toMatchObject({ status: "running" });
    await report({ stage: "building", seconds: 20 });
    expect(await read(export_id)).toMatchObject({
      status: "building",
      progress: { done: 9, total: 10 },
    });
    await node.finish(task, { outcome: "finished", result: await exportedBy(task, node) });
    const made = await read(export_id);
    const engine = { gpu: "NVIDIA T4", tensorrt: "10.8.0" };
    expect(made.verification).toMatchObject({ engine });
    expect(made.not_verified.join()).toMatch(/trtexec --loadEngine/);
    expect(decodeURIComponent(made.download_url ?? "")).toMatch(/-fp16\.engine/);
  });
});

it("exports of a model are listed in pages, newest first", async () => {
  const formats = ["onnx", "tflite", "coreml", "roboflow"];
  const ids: string[] = [];
  for (const format of formats) ids.push((await begun({ format })).export_id);
  const page = async (query: string) => {
    const listed = await engineer.ok<ModelExport[]>("GET", `/models/${modelId}/exports${query}`);
    return listed.map(({ export_id }) => export_id);
  };
  const newest = ids.toReversed();
  expect(await page("")).toEqual(newest);
  expect(await page("?limit=2")).toEqual(newest.slice(0, 2));
  expect(await page("?limit=2&offset=3")).toEqual(newest.slice(3));
  const beyond = `/models/${modelId}/exports?limit=0`;
  expect(await engineer.refused("GET", beyond)).toEqual([422, "invalid_request"]);
  await node.work();
});

describe("a promotion", () => {
  const promote = (body: object) => engineer.send("POST", `/models/${modelId}/promote`, body);

  it("takes its files along: they are made of the model that has the alias now", async () => {
    const exports = [{ format: "tflite" }, { format: "onnx", precision: "int8" }];
    const response = await promote({ alias: "staging", exports });
    const { exports: ids } = (await response.json()) as { exports: string[] };
    expect([response.status, ids.length]).toEqual([200, 2]);
    await node.work();
    for (const id of ids) expect(await read(id)).toMatchObject({ status: "completed" });
    // They are exports like any other, made once.
    expect(await ask(exports[0] ?? {})).toMatchObject({ status: 200, body: { export_id: ids[0] } });
    const again = await promote({ alias: "staging" });
    expect(await again.json()).toMatchObject({ move: null, exports: [] });
  });

  /** What a refused promotion must not have changed. */
  async function expectUnmoved(exports: readonly object[], status: number) {
    const held = await engineer.ok<{ model_id: string }[]>("GET", "/models?alias=canary");
    const response = await promote({ alias: "canary", exports });
    expect([response.status, await response.text()]).toEqual([status, expect.any(String)]);
    expect(await engineer.ok("GET", "/models?alias=canary")).toEqual(held);
    expect(await engineer.ok("GET", `/models/${modelId}/exports`)).toEqual([]);
  }

  it("is refused as a whole where a file is none that is made", async () => {
    await expectUnmoved([{ format: "tflite" }, { format: "coreml", precision: "int8" }], 422);
  });

  it("is refused as a whole where what a file is made by is not there", async () => {
    const name = `untrained ${randomUUID()}`;
    modelId = (await registerModel(world, workspaceId, { file: NO_WEIGHTS, name })).model_id;
    await expectUnmoved([{ format: "tflite" }, { format: "onnx", precision: "int8" }], 422);
  });

  it("is refused as a whole where not all files have room, and those that are there need none", async () => {
    const model = { variant: "det26n", task: "detection", classes: ["disc", "square", "star"] };
    const file = { format: "onnx", artifact: "file", precision: "fp32", size: [96, 96] } as const;
    const each = expectedBytes(model as Parameters<typeof expectedBytes>[0], file);
    const tight = await createWorld({
      services: ["vision"],
      environment: { vision: { WORKSPACE_BYTES_MAX: String(each + 1_000) } },
    });
    const owner = await register(tight);
    const me = await owner.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
    const own = me.workspaces[0]?.workspace_id ?? "";
    const { model_id } = await registerModel(tight, own, { file: NO_WEIGHTS });
    const [one, other] = [{ format: "onnx" }, { format: "onnx", output: "raw" }];
    const asked = (...exports: object[]) =>
      owner.send("POST", `/models/${model_id}/promote`, { alias: "canary", exports });
    const listed = () => owner.ok<ModelExport[]>("GET", `/models/${model_id}/exports`);
    const full = await asked(one, other);
    const refusal = { code: "quota_exceeded", bytes_wanted: 2 * each };
    expect([full.status, await full.json()]).toMatchObject([413, refusal]);
    expect(await listed()).toEqual([]);
    // The same twice is one, and one that is there already takes no room again.
    expect((await asked(one, one)).status).toBe(200);
    expect((await asked(one)).status).toBe(200);
    expect(await listed()).toHaveLength(1);
  });

  it("begins files that failed anew, and leaves those that are there", async () => {
    const exports = [{ format: "tflite" }, { format: "onnx" }];
    await begun(exports[0] ?? {});
    const failed = { outcome: "failed", code: "x", detail: "no", retryable: false } as const;
    await node.finish(await claimed(), failed);
    await begun(exports[1] ?? {});
    await node.work();
    expect((await promote({ alias: "staging", exports })).status).toBe(200);
    const found = await engineer.ok<ModelExport[]>("GET", `/models/${modelId}/exports`);
    const states = found.map(({ format, status }) => [format, status]).sort();
    expect(states).toEqual([
      ["onnx", "completed"],
      ["tflite", "queued"],
    ]);
    await node.work();
  });
});
