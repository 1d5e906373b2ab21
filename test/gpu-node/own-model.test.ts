// Labeling with a model of the registry on a node. Goal: a labeling task finds what a prediction
// finds at the lowest confidence that is stored, in pixels of the frame, and of the classes that
// prompts name alone.

import { beforeEach, expect, it } from "vitest";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import type { ModelSource, ObjectSource, TaskResult } from "../../shared/tasks/tasks.ts";
import { STORED_CONFIDENCE_MIN } from "../../shared/wire/labeling.ts";
import type { NodeService } from "../support/node-service.ts";
import { beforeEachTask } from "../support/node-tasks.ts";
import { noiseImage } from "../support/noise.ts";
import { generatedModel } from "../support/weights.ts";

let service: NodeService;
let context: RunnerContext;
beforeEachTask("own-model", (own) => {
  ({ service, context } = own);
});

const FRAMES = [0];
let image: ObjectSource;

async function run<Result>(kind: string, payload: unknown): Promise<Result> {
  const outcome = await runTask(kind, payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}

beforeEach(async () => {
  image = service.source(crypto.randomUUID(), await noiseImage(300, 200).png().toBuffer());
});

/** A class of the model as a prompt, under a name of the job's. */
const prompt = (text: string, class_name = text) => ({ kind: "text", class_name, text });

const search = (model: ModelSource, prompts: unknown[]) => ({
  video: image,
  video_id: "v",
  frames: FRAMES,
  prompts,
  resolution: null,
  segmenter: null,
  model,
});

const label = (model: ModelSource, prompts: unknown[]) =>
  run<TaskResult<"label">>("label", {
    ...search(model, prompts),
    job_id: "j",
    images: FRAMES.map(() => null),
  });

async function predicted(model: ModelSource) {
  const { frames } = await run<TaskResult<"predict">>("predict", {
    model,
    video: image,
    fps: null,
    frames_max: 100,
    confidence: STORED_CONFIDENCE_MIN,
    ...(model.task === "segmentation" && { mask: "polygon" }),
  });
  return FRAMES.map((index) => {
    const found = frames.find(({ frame_index }) => frame_index === index)?.predictions ?? [];
    return found.map(({ class: class_name, bbox, confidence, mask }) => ({
      class_name,
      bbox,
      confidence,
      polygon: mask && "polygon" in mask ? mask.polygon : null,
    }));
  });
}

const told = ({ frames }: TaskResult<"label">) =>
  frames.map(({ detections }) => detections.map(({ duplicate_of: _, ...rest }) => rest));

it.each(["detection", "segmentation"] as const)(
  "finds what a prediction of %s finds",
  async (task) => {
    const model = generatedModel((key, bytes) => service.source(key, bytes), { task });
    const result = await label(
      model,
      model.classes.map((one) => prompt(one)),
    );
    const wanted = await predicted(model);
    expect(wanted.flat().length).toBeGreaterThan(0);
    expect(told(result)).toEqual(wanted);
    expect(result.segmenter).toBe(model.model_id);
    if (task === "segmentation") {
      expect(wanted.flat().some(({ polygon }) => polygon !== null)).toBe(true);
    }
  },
);

it("takes of the model's classes those that prompts name, as the job calls them", async () => {
  const model = generatedModel((key, bytes) => service.source(key, bytes));
  const wanted = await predicted(model);
  const [first = ""] = wanted.flat().map(({ class_name }) => class_name);
  const result = await label(model, [prompt(first, "mine")]);
  expect(told(result)).toEqual(
    wanted.map((found) =>
      found
        .filter(({ class_name }) => class_name === first)
        .map((one) => ({ ...one, class_name: "mine" })),
    ),
  );
  const previewed = await run<TaskResult<"preview">>("preview", {
    ...search(model, [prompt(first, "mine")]),
    threshold: 0,
  });
  expect(previewed.frames.map(({ detections }) => detections)).toEqual(
    result.frames.map(({ detections }) => detections),
  );
});
