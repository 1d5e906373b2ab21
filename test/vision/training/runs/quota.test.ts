// What models and training runs take of a workspace's storage: runs begin and go on only where
// there is room, and end whatever there is.

import { beforeAll, expect, it } from "vitest";
import { variantRecords } from "../../../../edge/vision/training/runs/variants.ts";
import { createTrainingWorld, epoch, type TrainingWorld } from "../../../support/training-world.ts";

/** What a run of det26n needs to begin: its weights in single precision. */
const WEIGHTS = (variantRecords()[0]?.parameters ?? 0) * 4;
const SPARE = 100_000;
const BYTES_MAX = WEIGHTS + SPARE;

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld({ WORKSPACE_BYTES_MAX: String(BYTES_MAX) });
});

const refusalOf = async (path: string, body: unknown) => {
  const answer = await w.admin.send("POST", path, body);
  const said = (await answer.json()) as Record<string, unknown>;
  return { ...said, bytes_used: Number(said.bytes_used), status: answer.status };
};
/** Bytes that count, as the refusal of an upload of all there may be tells them. */
const used = async () => {
  const body = { project_id: w.projectId, filename: "all.mp4", bytes: BYTES_MAX };
  const { status, bytes_used } = await refusalOf("/uploads", body);
  expect(status).toBe(413);
  return bytes_used;
};
const manifestOf = async (runId: string) => {
  const [key = ""] = (await w.keys(runId)).filter((one) => one.endsWith("manifest.json"));
  const manifest = await w.world.media.get(key);
  return (await manifest?.arrayBuffer())?.byteLength ?? Number.NaN;
};

const FULL = {
  status: 413,
  code: "quota_exceeded",
  detail: expect.stringMatching(/full; delete videos, training runs, models or files of weights/),
  bytes_wanted: WEIGHTS,
  bytes_max: BYTES_MAX,
};

it("counts what a run left and its model once, and refuses no end but the next beginning", async () => {
  const before = await used();
  const runId = await w.train();
  const manifest = await manifestOf(runId);
  expect(await used()).toBe(before + manifest);
  const task = await w.claimed();
  const checkpoint = await w.stored(task, "checkpoint", 30_000);
  const progress = { ...checkpoint, epoch: 1, batch: 0 };
  expect((await w.report(task, { checkpoint: progress })).status).toBe(200);
  expect(await used()).toBe(before + manifest + 30_000);
  // More than the workspace has room for.
  const image = await w.stored(task, "results.png", 2 * SPARE);
  const done = await w.result(task, [epoch(1)]);
  const { key = "", bytes = 0 } = done.model?.weights ?? {};
  const artifacts = [
    { name: "results.png", ...image, content_type: "image/png" },
    { name: "best.safetensors", key, bytes, content_type: "application/octet-stream" },
  ];
  const outcome = { outcome: "finished" as const, result: { ...done, artifacts } };
  expect((await w.finish(task, outcome)).status).toBe(200);
  const { status, model_id: modelId } = await w.run(runId);
  expect([status, modelId]).toEqual(["completed", expect.any(String)]);
  const after = before + manifest + 2 * SPARE + bytes;
  expect(await used()).toBe(after);

  const objects = (await w.world.media.list()).objects.length;
  expect(await refusalOf("/train", { job_id: w.jobId })).toMatchObject({
    ...FULL,
    bytes_used: after,
  });
  expect((await w.world.media.list()).objects.length).toBe(objects);

  // The weights go with the model, and its run lists them no more.
  await w.admin.ok("DELETE", `/models/${modelId}`);
  expect(await used()).toBe(after - bytes);
  const left = await w.admin.ok<{ name: string }[]>("GET", `/train/${runId}/artifacts`);
  expect(left.map(({ name }) => name)).toEqual(["results.png"]);
  await w.admin.ok("DELETE", `/train/${runId}`);
  expect(await used()).toBe(before);
});

it("lets a run that was stopped go on once there is room", async () => {
  const runId = await w.train();
  const task = await w.claimed();
  const checkpoint = await w.stored(task, "checkpoint", 10);
  const progress = { ...checkpoint, epoch: 1, batch: 0 };
  expect((await w.report(task, { checkpoint: progress })).status).toBe(200);
  await w.admin.ok("POST", `/train/${runId}/stop`);
  await w.finish(task, { outcome: "cancelled", result: null });
  expect(await w.run(runId)).toMatchObject({ status: "stopped" });

  const large = await w.train();
  const next = await w.claimed();
  const image = await w.stored(next, "results.png", 2 * SPARE);
  const artifacts = [{ name: "results.png", ...image, content_type: "image/png" }];
  const result = await w.result(next, [epoch(1)], { artifacts });
  await w.finish(next, { outcome: "finished", result });
  expect(await refusalOf(`/train/${runId}/resume`, {})).toMatchObject(FULL);
  await w.admin.ok("DELETE", `/train/${large}`);
  expect((await w.admin.send("POST", `/train/${runId}/resume`, {})).status).toBe(202);
});
