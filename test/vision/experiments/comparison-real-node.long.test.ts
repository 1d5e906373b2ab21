// A real node compares two models for the real service: on an image, on a job that people reviewed,
// and again after its processes were killed. What it says each found is what the service predicts.

import { readFileSync } from "node:fs";
import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import {
  Comparison,
  ComparisonResult,
} from "../../../edge/vision/experiments/comparisons/records.ts";
import { Prediction } from "../../../shared/tasks/tasks.ts";
import type { Video, VideoBatch } from "../../../shared/wire/vision.ts";
import { longGop, toolsOrSay } from "../../support/clips.ts";
import { type NodeProcess, startNode } from "../../support/gpu-node.ts";
import { form } from "../../support/media.ts";
import { type RegisteredModel, registerModel } from "../../support/registered-model.ts";
import { newProject, type Person, register } from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

const found = toolsOrSay();
const CONFIDENCE = 0.3;
let world: World;
let admin: Person;
let a: RegisteredModel;
let b: RegisteredModel;
let comparisonId: string;
let clip: Uint8Array<ArrayBuffer>;

beforeAll(async () => {
  // Drawn before anything is connected: that takes seconds, in which nobody hears of a closed one.
  if (found) clip = new Uint8Array(readFileSync(longGop(20)));
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  const workspaceId = me.workspaces[0]?.workspace_id ?? "";
  // 84 anchors: never as many detections of a class as COCO leaves out, which is from 100 on.
  const small = { image_size: 64 };
  a = await registerModel(world, workspaceId, { ...small, seed: 1, name: "old" });
  b = await registerModel(world, workspaceId, { ...small, seed: 2, name: "new" });
  const side = ({ model_id }: RegisteredModel) => ({ model_id, confidence: CONFIDENCE });
  const body = { name: "old and new", model_a: side(a), model_b: side(b) };
  comparisonId = Comparison.parse(await admin.ok("POST", "/comparisons", body)).comparison_id;
});

async function started(): Promise<NodeProcess> {
  const { code } = await admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const node = startNode({ VANTAGE_URL: world.urls.vision, VANTAGE_NODE_CODE: code });
  const nodes = async () =>
    (await admin.ok<{ live: boolean }[]>("GET", "/admin/nodes")).filter(({ live }) => live).length;
  await expect.poll(nodes).toBeGreaterThan(0);
  return node;
}

const noise = async (width: number) => {
  const create = {
    width,
    height: 120,
    channels: 3,
    background: "#777",
    noise: { type: "gaussian", mean: 128, sigma: 60 },
  } as const;
  return new Uint8Array(await sharp({ create }).png().toBuffer());
};
const predicted = async (model: RegisteredModel, content: Uint8Array<ArrayBuffer>) => {
  const query = `?confidence=${CONFIDENCE}&model_id=${model.model_id}`;
  return Prediction.array().parse(
    await admin.ok("POST", `/predict/image${query}`, form({ content })),
  );
};
const sorted = (all: readonly (Prediction | null)[]) =>
  all.flatMap((one) => (one ? [JSON.stringify(one)] : [])).sort();

it.skipIf(!found)("compares on an image and on what people reviewed", async () => {
  await started();
  const content = await noise(200);
  const compared = async () =>
    ComparisonResult.parse(
      await admin.ok(
        "POST",
        "/comparisons/run",
        form(["comparison_id", comparisonId], { content }),
      ),
    );
  const one = await compared();
  expect(one).toMatchObject({ status: "completed", total: 1 });
  const objects = one.frames?.[0]?.objects ?? [];
  expect(sorted(objects.map((object) => object.a))).toEqual(sorted(await predicted(a, content)));
  expect(sorted(objects.map((object) => object.b))).toEqual(sorted(await predicted(b, content)));
  const overlay = await (await fetch(one.frames?.[0]?.overlay_url ?? "")).bytes();
  expect(await sharp(overlay).metadata()).toMatchObject({
    format: "jpeg",
    width: 200,
    height: 120,
  });
  const again = await compared();
  const frames = ({ frames: all }: ComparisonResult) =>
    all?.map((frame) => ({ ...frame, overlay_url: null }));
  expect(frames(again)).toEqual(frames(one));
  expect(again.summary?.agreement).toEqual(one.summary?.agreement);

  // What model A finds becomes the truth of a job, once people accepted it.
  const { project_id } = await newProject(admin);
  const stills = await Promise.all([160, 128].map(noise));
  const upload = form(
    ["project_id", project_id],
    ...stills.map((still, at) => ({ field: "files", filename: `${at}.png`, content: still })),
  );
  const { videos } = await admin.ok<VideoBatch>("POST", "/upload/images", upload);
  const isReady = async () =>
    (await Promise.all(videos.map(({ video_id }) => admin.ok<Video>("GET", `/videos/${video_id}`))))
      .map(({ status }) => status)
      .join();
  await expect.poll(isReady, { timeout: 60_000 }).toBe("ready,ready");
  const truths = await Promise.all(stills.map((still) => predicted(a, still)));
  const coco = {
    images: stills.map((_, id) => ({ id, file_name: `${id}.png` })),
    categories: a.classes.map((name, id) => ({ id, name })),
    annotations: truths.flatMap((all, image_id) =>
      all.map(({ class: name, bbox: [x1, y1, x2, y2] }) => ({
        image_id,
        category_id: a.classes.indexOf(name),
        bbox: [x1, y1, x2 - x1, y2 - y1],
      })),
    ),
  };
  const body = { project_id, coco };
  const { job } = await admin.ok<{ job: { job_id: string } }>("POST", "/import", body);
  await admin.ok("POST", `/jobs/${job.job_id}/annotations/review`, { accepted: true });
  const run = { comparison_id: comparisonId, job_id: job.job_id };
  const judged = ComparisonResult.parse(await admin.ok("POST", "/comparisons/run", run));
  const { figures } = judged.summary ?? {};
  expect(judged).toMatchObject({ status: "completed", total: 2, input: { kind: "job" } });
  expect(figures?.overall.a).toMatchObject({
    truths: coco.annotations.length,
    precision: 1,
    recall: 1,
    false_positives: 0,
    false_negatives: 0,
  });
  // Boxes are stored in single precision.
  expect(figures?.overall.a.ap50_95).toBeGreaterThan(0.99);
  expect(figures?.overall.b.ap50_95).toBeLessThan(0.5);
});

it.skipIf(!found)("begins anew when the node's processes were killed in its middle", async () => {
  const node = await started();
  const body = form(["comparison_id", comparisonId], ["frames_max", "600"], { content: clip });
  const path = "/comparisons/run?wait_seconds=0";
  const { session_id } = await admin.ok<ComparisonResult>("POST", path, body);
  const read = async () =>
    ComparisonResult.parse(await admin.ok("GET", `/comparisons/result/${session_id}`));
  await expect.poll(async () => (await read()).progress?.done ?? 0).toBeGreaterThan(1);
  for (const pid of node.below()) process.kill(pid, "SIGKILL");
  await expect.poll(async () => (await read()).status).toBe("queued");
  // It would wait ten seconds.
  await world.visionDatabase.execute(
    sql`UPDATE task SET available_at = now() - interval '1 second'`,
  );
  await expect.poll(async () => (await read()).status, { timeout: 120_000 }).toBe("completed");
  const { total, summary } = await read();
  expect([total, summary?.left_out]).toEqual([600, 0]);
  const { objects } = await world.media.list({ prefix: "ws/" });
  expect(objects.filter(({ key }) => key.includes("/predictions/"))).toEqual([]);
});
