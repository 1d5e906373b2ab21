// A real node exports for the real service: the file that is downloaded gives, under the runtime
// that other programs use, what the service's own prediction gives for the same image.

import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { readStill } from "../../../../gpu-node/media/stills.ts";
import { float, floats, openSession, run } from "../../../../gpu-node/onnx/runtime.ts";
import { letterbox } from "../../../../gpu-node/serving/letterbox.ts";
import { unletterbox } from "../../../../shared/detector/letterbox.ts";
import { Prediction } from "../../../../shared/tasks/tasks.ts";
import { ModelExport } from "../../../../shared/wire/exports.ts";
import { toolsOrSay } from "../../../support/clips.ts";
import { type NodeProcess, startNode } from "../../../support/gpu-node.ts";
import { form } from "../../../support/media.ts";
import { registerModel } from "../../../support/registered-model.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { sha256 } from "../../../support/weights.ts";
import { createWorld, type World } from "../../../support/world.ts";

const found = toolsOrSay();
let world: World;
let admin: Person;
let workspaceId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
});

async function started(): Promise<NodeProcess> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  return startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
}

/** Begins an export; what is returned reads how it stands. */
async function begun(modelId: string, asked: object): Promise<() => Promise<ModelExport>> {
  const made = ModelExport.parse(await admin.ok("POST", `/models/${modelId}/export`, asked));
  const path = `/models/${modelId}/exports/${made.export_id}`;
  return async () => ModelExport.parse(await admin.ok("GET", path));
}

/** An export once it came to its end. */
async function ended(modelId: string, asked: object): Promise<ModelExport> {
  const read = await begun(modelId, asked);
  await expect.poll(async () => (await read()).status).toMatch(/completed|failed/);
  return read();
}

it.skipIf(!found)("gives the file of a model that predicts as the service does", async () => {
  await started();
  const model = await registerModel(world, workspaceId, { classes: ["disc", "plate"] });
  const made = await ended(model.model_id, { format: "onnx", batch: "dynamic" });
  expect(made).toMatchObject({ status: "completed", failure: null, opset: 17 });
  expect(made.verification).toMatchObject({ images: 4, batches: [1, 4] });

  const file = Buffer.from(await (await fetch(made.download_url ?? "")).arrayBuffer());
  expect([file.length, sha256(file)]).toEqual([made.bytes, made.sha256]);
  const noise = { type: "gaussian", mean: 128, sigma: 60 } as const;
  const create = { width: 200, height: 120, channels: 3, background: "#777", noise } as const;
  const content = new Uint8Array(await sharp({ create }).png().toBuffer());
  const query = `?confidence=0.3&model_id=${model.model_id}`;
  const wanted = Prediction.array().parse(
    await admin.ok("POST", `/predict/image${query}`, form({ content })),
  );
  expect(wanted.length).toBeGreaterThan(3);
  const [height, width] = made.image_size;
  const { pixels, placement } = await letterbox(await readStill(Buffer.from(content)), width);
  const session = await openSession(file, { cpuThreads: 1, device: "cpu" });
  const outputs = await run(session, { images: float(pixels, [1, 3, height, width]) });
  const rows = floats(outputs, "output0");
  for (const { class: name, confidence, bbox } of wanted) {
    const alike = Array.from({ length: rows.length / 6 }, (_, at) => rows.subarray(6 * at)).some(
      ([x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, index = 0]) => {
        const own = unletterbox([x1, y1, x2, y2], placement);
        const near = own?.every((side, at) => Math.abs(side - (bbox[at] ?? 0)) < 0.05);
        return near && model.classes[index] === name && Math.abs(score - confidence) < 2e-4;
      },
    );
    expect([name, confidence, bbox, alike]).toEqual([name, confidence, bbox, true]);
  }
  await session.release();

  // Weights that are no weights: told by name, and nothing is offered.
  const torn = await registerModel(world, workspaceId, { file: Buffer.from("torn weights") });
  const failed = await ended(torn.model_id, { format: "onnx" });
  expect(failed).toMatchObject({
    status: "failed",
    failure: expect.stringMatching(/the weights cannot be read/),
    download_url: null,
  });
  const prefix = `ws/${workspaceId}/model-exports/${torn.model_id}/`;
  expect((await world.media.list({ prefix })).objects).toEqual([]);
});

it.skipIf(!found)("is made anew when the node's processes were killed in its middle", async () => {
  const node = await started();
  const { model_id } = await registerModel(world, workspaceId);
  // Large, so that it takes a while.
  const read = await begun(model_id, { format: "onnx", image_size: [2048, 1024] });
  await expect.poll(async () => (await read()).progress?.done ?? 0).toBeGreaterThan(0);
  for (const pid of node.below()) process.kill(pid, "SIGKILL");
  await expect.poll(async () => (await read()).status).toBe("queued");
  const prefix = `ws/${workspaceId}/model-exports/${model_id}/`;
  expect((await world.media.list({ prefix })).objects).toEqual([]);
  // It would wait ten seconds.
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  await expect.poll(async () => (await read()).status).toBe("completed");
  expect((await world.media.list({ prefix })).objects).toHaveLength(1);
});
