// Embeddings and uncertainty on a node. Goal: a model's uncertainty is that of what it finds, and
// one file that cannot be read costs no other its answer.

import { beforeEach, expect, it } from "vitest";
import { entropiesOf } from "../../gpu-node/tasks/frame-embeddings.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import type { EmbedResult } from "../../shared/tasks/embed-task.ts";
import type { ObjectSource, TaskResult } from "../../shared/tasks/tasks.ts";
import type { NodeService } from "../support/node-service.ts";
import { beforeEachTask } from "../support/node-tasks.ts";
import { noiseImage } from "../support/noise.ts";
import { generatedModel } from "../support/weights.ts";

let service: NodeService;
let context: RunnerContext;
beforeEachTask("embed", (own) => {
  ({ service, context } = own);
});

let image: ObjectSource;
let broken: ObjectSource;
beforeEach(async () => {
  image = service.source(crypto.randomUUID(), await noiseImage(300, 200).png().toBuffer());
  broken = service.source(crypto.randomUUID(), Buffer.from("no image at all"));
});

async function run<Result>(kind: string, payload: unknown): Promise<Result> {
  const outcome = await runTask(kind, payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}
const looks = (payload: Record<string, unknown>) =>
  run<EmbedResult>("embed", { segmenter: "rectangles", model: null, ...payload });
const one = (video: ObjectSource, more: Record<string, unknown> = {}) => ({
  video_id: "v",
  video,
  embed: [0],
  score: [],
  ...more,
});

it("gives a vector of signed bytes, whose largest is 127", async () => {
  const { frames } = await looks({ videos: [one(image)] });
  expect(frames).toEqual([
    { video_id: "v", frame_index: 0, vector: expect.any(String), entropies: null },
  ]);
  const bytes = Int8Array.from(Buffer.from(frames[0]?.vector ?? "", "base64"));
  expect(Math.max(...bytes.map(Math.abs))).toBe(127);
});

it("tells of a model how unsure it is, without a segmenter", async () => {
  const model = generatedModel((key, bytes) => service.source(key, bytes), { task: "detection" });
  const { frames: seen } = await run<TaskResult<"predict">>("predict", {
    model,
    video: image,
    fps: null,
    frames_max: 1,
    confidence: 0.05,
  });
  const { frames } = await looks({ model, videos: [one(image, { embed: [], score: [0] })] });
  expect(frames[0]).toMatchObject({
    vector: null,
    entropies: entropiesOf(seen[0]?.predictions ?? []),
  });
  expect(Object.keys(frames[0]?.entropies ?? {}).length).toBeGreaterThan(0);
});

it("names a file that cannot be read, and answers for the others", async () => {
  const gone = { ...image, key: "gone", url: image.url.replace(/[^/]+$/, "gone") };
  const { frames, unreadable } = await looks({
    videos: [
      one(broken, { video_id: "broken" }),
      one(gone, { video_id: "gone" }),
      one(image, { video_id: "beyond", embed: [3] }),
      one(image, { video_id: "good" }),
    ],
  });
  expect(unreadable.map(({ video_id }) => video_id)).toEqual(["broken", "gone", "beyond"]);
  expect(unreadable.at(-1)?.detail).toMatch(/1 frames; none is 3/);
  expect(frames.map(({ video_id }) => video_id)).toEqual(["good"]);
});

it("counts a bit for an object of which a model is as unsure as can be", () => {
  const found = [
    { class: "cat", confidence: 0.5 },
    { class: "cat", confidence: 1 },
    { class: "dog", confidence: 0.05 },
  ];
  const { cat, dog } = entropiesOf(found);
  expect(cat).toBe(1);
  expect(dog).toBeCloseTo(0.2864, 4);
  expect(entropiesOf([])).toEqual({});
});
