// Workflows as a node runs them: by the direct line and by the queue, on images and on videos.
// Goal: outputs are those of the image, what is asked again is not done again, one workspace shares
// nothing with another, and whoever's workflow cannot be run hears why, by step.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { lookAtImage } from "../../../gpu-node/tasks/sam-objects.ts";
import { answerLine } from "../../../gpu-node/workflows/line-runs.ts";
import type { TaskResult } from "../../../shared/tasks/tasks.ts";
import {
  type ResolvedModel,
  WorkflowAnswer,
  WorkflowAsk,
} from "../../../shared/tasks/workflow-task.ts";
import { BLOCKS } from "../../../shared/workflow/blocks.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { inlineWorkflows } from "../../../shared/workflow/inline.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { noiseImage } from "../../support/noise.ts";
import { openRectangles } from "../../support/rectangles.ts";
import { generatedModel } from "../../support/weights.ts";
import { twoRectangles } from "../../support/workflow-images.ts";

const ffmpeg = toolsOrSay();
let service: NodeService;
let context: RunnerContext;
beforeEachTask("workflows", (own) => {
  ({ service, context } = own);
});

type Step = WorkflowDefinition["steps"][number];
const step = (id: string, type: string, parameters: Step["parameters"]): Step => ({
  id,
  type: `${type}@1`,
  parameters: { image: "$inputs.image", ...parameters },
});
const definition = (
  steps: Step[],
  outputs: Record<string, string>,
  more: WorkflowDefinition["inputs"] = [],
): WorkflowDefinition => ({
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }, ...more],
  steps,
  outputs: Object.entries(outputs).map(([name, value]) => ({ name, value: `$steps.${value}` })),
});
const segment = (prompts: string[]) => step("segment", "segmenter", { prompts });
const NAMED = { prompts: ["green"], segmenter: "rectangles" };

function model(): ResolvedModel {
  const source = generatedModel((key, bytes) => service.source(key, bytes), { image_size: 32 });
  return { model_id: source.model_id, name: "generated", version: 2, source, told: null };
}

interface Question extends Partial<WorkflowAsk> {
  file: Buffer;
  signal?: AbortSignal;
}

/** Asks as the line does. */
async function ask(asked: WorkflowDefinition, { file, signal, ...more }: Question) {
  const head = WorkflowAsk.parse({
    definition: asked,
    inputs: {},
    models: {},
    state: {},
    workspace: "a",
    now: 5,
    images: [{ name: "image", bytes: file.length }],
    ...more,
  });
  const segmenter = openRectangles();
  const end = signal ?? new AbortController().signal;
  const answer = await answerLine(
    new Uint8Array(file),
    head,
    {
      predictors: context.predictors,
      sam: async (readImage, request, ended) =>
        lookAtImage(await readImage(), request, {
          useSegmenter: (_, work) => work(segmenter),
          signal: ended,
        }),
      log: context.log,
    },
    end,
  );
  return { answer: WorkflowAnswer.parse(answer), encoded: segmenter.encoded };
}
type Answer = Extract<WorkflowAnswer, { failure: null }>;
async function finished(asked: WorkflowDefinition, more: Question): Promise<Answer> {
  const { answer } = await ask(asked, more);
  if (answer.failure !== null) throw new Error(JSON.stringify(answer.failure));
  return answer;
}
const failed = async (asked: WorkflowDefinition, more: Question) =>
  (await ask(asked, more)).answer.failure;
const sidesOf = async (address: unknown) => {
  const { width, height, format } = await sharp(
    Buffer.from(String(address).split(",")[1] ?? "", "base64"),
  ).metadata();
  return [format, width, height];
};

const CROPS = definition(
  [
    segment(["red", "green"]),
    step("cut", "crop", { detections: "$steps.segment.masks" }),
    step("look", "detector", { image: "$steps.cut.crops", confidence: 0 }),
    step("drawn", "draw_boxes", { detections: "$steps.segment.masks" }),
  ],
  { crops: "cut.crops", found: "look.detections", image: "drawn.image", masks: "segment.masks" },
);

describe("a run", () => {
  it("looks at each crop, tells outputs by depth and who answered", async () => {
    const active = model();
    const { outputs, steps } = await finished(CROPS, {
      file: await twoRectangles(),
      models: { active },
    });
    const crops = await Promise.all((outputs.crops as string[]).map(sidesOf));
    expect(crops).toEqual([
      ["jpeg", 12, 10],
      ["jpeg", 20, 8],
    ]);
    expect(outputs.found).toMatchObject([
      { frame: { offset: [4, 4], root: { width: 64, height: 48 } } },
      { frame: { offset: [30, 30] } },
    ]);
    expect(await sidesOf(outputs.image)).toEqual(["jpeg", 64, 48]);
    const look = steps.find(({ step: id }) => id === "look");
    expect(look).toMatchObject({ type: "detector@1", elements: 2, masked: 0 });
    expect(look?.models).toEqual([
      { asked: "active", model_id: active.model_id, name: "generated", version: 2 },
    ]);
  });

  it("does the steps of a sub-workflow, a limit of which the outer one gives", async () => {
    const inner = definition(
      [
        segment(["red", "green"]),
        {
          id: "large",
          type: "filter@1",
          parameters: { detections: "$steps.segment.masks", confidence_min: "$inputs.confidence" },
        },
      ],
      { masks: "large.detections" },
      [{ name: "confidence", kind: "number", default: 0 }],
    );
    const use = (id: string, confidence: number) => {
      const parameters = { slug: "inner", image: "$inputs.image", confidence };
      return { id, type: "workflow@1", parameters };
    };
    const outer = definition([use("some", 0.01), use("none", 1)], {
      some: "some.masks",
      none: "none.masks",
    });
    const workflows = new Map([["inner", inner]]);
    const inlined = inlineWorkflows(outer, { blocks: BLOCKS, workflows });
    expect(inlined.problems.all).toEqual([]);
    const answer = await finished(inlined.definition, { file: await twoRectangles() });
    const counts = [answer.outputs.some, answer.outputs.none].map(
      (value) => (value as { objects: unknown[] }).objects.length,
    );
    expect(counts).toEqual([2, 0]);
    expect(answer.steps.map(({ step: id }) => id).sort()).toEqual([
      "none.large",
      "none.segment",
      "some.large",
      "some.segment",
    ]);
  });

  it("does not do again what it has done on the same image, for the same workspace", async () => {
    const asked = definition([segment(["red"])], { count: "segment.count" });
    const file = await noiseImage(40, 30).png().toBuffer();
    const workspace = crypto.randomUUID();
    const looks: number[] = [];
    for (const more of [{}, {}, { workspace: crypto.randomUUID() }]) {
      looks.push((await ask(asked, { file, workspace, ...more })).encoded);
    }
    expect(looks).toEqual([1, 0, 1]);
    expect((await finished(asked, { file, workspace })).steps[0]?.cache_hits).toBe(1);
  });

  it("asks a model again that a name has come to mean", async () => {
    const asked = definition([step("look", "detector", { confidence: 0 })], { n: "look.count" });
    const file = await twoRectangles();
    const workspace = crypto.randomUUID();
    const answers = [model(), model()].map((active) => ({ active }));
    const ids: unknown[] = [];
    for (const models of answers) {
      const { steps } = await finished(asked, { file, workspace, models });
      ids.push(steps[0]?.models[0]?.model_id);
    }
    expect(ids).toEqual(answers.map(({ active }) => active.model_id));
  });

  it("asks a model again that looks at another size of image since, as an endpoint may say", async () => {
    const asked = definition(
      [step("look", "detector", { model: "endpoint:gate", confidence: 0 })],
      {
        found: "look.detections",
      },
    );
    const file = await twoRectangles();
    const workspace = crypto.randomUUID();
    const gate = model();
    const larger = { ...gate, source: { ...gate.source, image_size: 64 } };
    const hits: unknown[] = [];
    for (const now of [gate, gate, larger, gate]) {
      // Every run has other addresses for the same weights.
      const weights = { ...now.source.weights, url: `${now.source.weights.url}?at=${hits.length}` };
      const models = { "endpoint:gate": { ...now, source: { ...now.source, weights } } };
      const { steps } = await finished(asked, { file, workspace, models });
      hits.push(steps[0]?.cache_hits);
    }
    expect(hits).toEqual([0, 1, 0, 1]);
  });

  it("tells of an endpoint's objects those that the endpoint tells itself, or fewer", async () => {
    const gate = model();
    const asked = (more: Step["parameters"]) =>
      definition([step("look", "detector", { model: "endpoint:gate", confidence: 0, ...more })], {
        found: "look.detections",
      });
    const file = await twoRectangles();
    const seen = async (told: ResolvedModel["told"], more: Step["parameters"] = {}) => {
      const models = { "endpoint:gate": { ...gate, told } };
      const { outputs } = await finished(asked(more), { file, models });
      return (outputs.found as { objects: { class: string; confidence: number }[] }).objects;
    };
    const all = await seen(null);
    const [surest, middle] = [all[0], all[Math.floor(all.length / 2)]];
    if (!surest || !middle) throw new Error("the model finds nothing");
    const { confidence } = middle;
    const those = (confidence: number, classes: readonly string[]) =>
      all.filter((one) => one.confidence >= confidence && classes.includes(one.class));
    const names = gate.source.classes;
    expect(await seen({ confidence, classes: null })).toEqual(those(confidence, names));
    const own = [surest.class];
    expect(await seen({ confidence, classes: own })).toEqual(those(confidence, own));
    // A step asks for less of them, never for more.
    const other = names.filter((name) => name !== surest.class);
    expect(await seen({ confidence: 0, classes: own }, { classes: other })).toEqual([]);
    expect(await seen({ confidence: 0, classes: null }, { confidence })).toEqual(
      those(confidence, names),
    );
    const fewer = await seen({ confidence, classes: null }, { classes: own });
    expect(fewer).toEqual(those(confidence, own));
  });

  it("segments by points, by boxes and by examples, with the classes that these have", async () => {
    const frame = { width: 64, height: 48, offset: [0, 0], scale: [1, 1] };
    const object = (name: string, bbox: number[], more: object = {}) => ({
      class: name,
      confidence: 0.5,
      bbox,
      ...more,
    });
    const inputs = {
      // One on the red rectangle, which is 12 by 10 pixels from (4, 4).
      points: [[8, 8]],
      boxes: {
        frame,
        objects: [
          object("crate", [30, 30, 50, 38], { track_id: 7, data: { dock: 3 } }),
          object("box", [4, 4, 16, 14]),
        ],
      },
      exemplars: { frame, objects: [object("red", [4, 4, 16, 14])] },
    };
    const by = (port: keyof typeof inputs) =>
      step(port, "segmenter", { [port]: `$inputs.${port}` });
    const kinds = { points: "list<point>", boxes: "detections", exemplars: "detections" } as const;
    const asked = definition(
      [by("points"), by("boxes"), by("exemplars")],
      { points: "points.masks", boxes: "boxes.masks", exemplars: "exemplars.masks" },
      Object.entries(kinds).map(([name, kind]) => ({ name, kind })),
    );
    const { outputs } = await finished(asked, { file: await twoRectangles(), inputs });
    const red = { bbox: [4, 4, 16, 14], mask: { size: [48, 64] } };
    expect(outputs.points).toMatchObject({ objects: [{ class: "object", ...red }] });
    expect(outputs.boxes).toMatchObject({
      objects: expect.arrayContaining([
        expect.objectContaining({
          class: "crate",
          bbox: [30, 30, 50, 38],
          track_id: 7,
          data: { dock: 3 },
        }),
        expect.objectContaining({ class: "box", bbox: [4, 4, 16, 14] }),
      ]),
    });
    expect(outputs.exemplars).toMatchObject({ objects: [{ class: "red", ...red }] });
  });

  it("tells which segmenter answered, by its name", async () => {
    const asked = definition([segment(["red"]), step("named", "segmenter", NAMED)], {
      default: "segment.count",
      named: "named.count",
    });
    const { steps } = await finished(asked, { file: await twoRectangles() });
    const answering = (asked: string) => [
      { asked, model_id: "segmenter:rectangles", name: "rectangles", version: 0 },
    ];
    expect(steps.map(({ models }) => models)).toEqual([
      answering("default"),
      answering("rectangles"),
    ]);
  });

  it("takes images of its inputs as data addresses, too", async () => {
    const second = [{ name: "other", kind: "image" as const }];
    const properties = step("size", "image_properties", { image: "$inputs.other" });
    const asked = definition(
      [segment(["red"]), properties],
      {
        n: "segment.count",
        width: "size.width",
      },
      second,
    );
    const other = (await noiseImage(33, 20).png().toBuffer()).toString("base64");
    const inputs = { other: `data:image/png;base64,${other}` };
    const { outputs } = await finished(asked, { file: await twoRectangles(), inputs });
    expect(outputs).toEqual({ n: 1, width: 33 });
  });

  it("that fails names its step and says why in the block's words", async () => {
    const file = await twoRectangles();
    const words = definition([segment(["kangaroo"])], { n: "segment.count" });
    expect(await failed(words, { file })).toMatchObject({
      code: "step_failed",
      step: "segment",
      detail: expect.stringContaining('no word for "kangaroo"'),
    });
    const nothing = definition([step("segment", "segmenter", {})], { n: "segment.count" });
    expect(await failed(nothing, { file })).toMatchObject({
      detail: expect.stringContaining("give prompts, exemplars, points or boxes"),
    });
    const unresolved = definition([step("look", "detector", {})], { n: "look.count" });
    expect(await failed(unresolved, { file })).toMatchObject({ step: "look" });
  });

  it("is refused inputs that are none", async () => {
    const asked = definition([segment(["red"])], { n: "segment.count" });
    const [none, some] = [Buffer.from("no image"), await twoRectangles()];
    expect(await failed(asked, { file: none })).toMatchObject({ code: "bad_input", step: null });
    expect(await failed(asked, { file: some, images: [] })).toMatchObject({
      detail: expect.stringContaining("image"),
    });
    expect(await failed(asked, { file: some, inputs: { more: 1 } })).toMatchObject({
      detail: expect.stringContaining("more"),
    });
    const images = [{ name: "image", bytes: some.length + 1 }];
    await expect(ask(asked, { file: some, images })).rejects.toMatchObject({
      code: "invalid_request",
    });
  });

  it("is refused where its definition does not hold, whoever has checked it before", async () => {
    const asked = definition([step("cut", "crop", {})], { crops: "cut.crops" });
    await expect(ask(asked, { file: await twoRectangles() })).rejects.toMatchObject({
      code: "invalid_request",
      message: expect.stringContaining("cut, detections"),
    });
  });

  it("tells outputs that are too large instead of a part of them", async () => {
    const copies = [1, 2, 3, 4, 5, 6, 7, 8].map((copy) => [`image_${copy}`, "gray.image"]);
    const gray = step("gray", "convert_grayscale", {});
    const asked = definition([gray], Object.fromEntries(copies));
    const file = await noiseImage(1_000, 800).jpeg().toBuffer();
    expect(await failed(asked, { file })).toMatchObject({
      code: "limit",
      detail: expect.stringContaining("3 MiB"),
    });
  });

  it("ends when nobody waits for it any more", async () => {
    const signal = AbortSignal.abort();
    await expect(ask(CROPS, { file: await twoRectangles(), signal })).rejects.toThrow();
  });

  it("is the same as a task of the queue", async () => {
    const file = await twoRectangles();
    const asked = definition([segment(["red"])], { masks: "segment.masks" });
    const payload = {
      definition: asked,
      inputs: {},
      models: {},
      state: {},
      workspace: "q",
      now: 5,
      images: [{ name: "image", file: service.source(crypto.randomUUID(), file) }],
    };
    const outcome = await runTask("workflow", payload, context);
    const { outputs } = await finished(asked, { file });
    expect(outcome).toMatchObject({ outcome: "finished", result: { failure: null, outputs } });
  });
});

describe.skipIf(!ffmpeg)("a run over a video", () => {
  const payload = (asked: WorkflowDefinition, more: Record<string, unknown> = {}) => ({
    definition: asked,
    inputs: {},
    models: {},
    state: {},
    workspace: "v",
    images: [],
    frames_input: "image",
    origin: null,
    fps: null,
    frames_max: 100,
    video: service.source("rectangles", readFileSync(rectangles())),
    ...more,
  });
  type Result = TaskResult<"workflow_video">;
  async function video(asked: WorkflowDefinition, more: Record<string, unknown> = {}) {
    const outcome = await runTask("workflow_video", payload(asked, more), context);
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    return outcome.result as Result;
  }
  const track = {
    frame: { width: 160, height: 120 },
    objects: [{ class: "a", confidence: 1, bbox: [1, 1, 9, 9], track_id: 1 }],
  };
  const trails = step("trails", "draw_tracks", { tracks: track, length: 300 });

  it("sees every frame at its time, in order, and its state goes through them", async () => {
    const told: number[] = [];
    context = { ...context, progress: ({ done }) => told.push(done) };
    const asked = definition([segment(["red"]), trails], {
      masks: "segment.masks",
      image: "trails.image",
    });
    const { frames, steps, state, left_out, ...rest } = await video(asked);
    expect(frames.map(({ time }) => Math.round(time * 10))).toEqual([...Array(20).keys()]);
    for (const { frame_index, outputs } of frames) {
      const { objects } = outputs.masks as { objects: { bbox: number[] }[] };
      // The red one moves 2 pixels a frame; the codec halves the resolution of colours.
      expect(Math.abs((objects[0]?.bbox[0] ?? 0) - (10 + 2 * frame_index))).toBeLessThanOrEqual(2);
      expect(outputs.image).toBeNull();
    }
    expect(state).toMatchObject({ trails: { frame: 20 } });
    expect(steps.map(({ elements }) => elements)).toEqual([20, 20]);
    expect(left_out).toEqual({ frames: 0, effects: 0, images: 20 });
    expect(rest).toMatchObject({ failure: null, width: 160, height: 120 });
    expect(rest.warnings).toEqual([expect.stringContaining("Images are left out")]);
    expect(told).toEqual(frames.map((_, index) => index + 1));
  });

  it("goes on from a state, looks at some frames, and counts those beyond the bound", async () => {
    const state = { trails: { frame: 7, trails: [] } };
    const asked = definition([trails], { image: "trails.image" });
    const result = await video(asked, { fps: 5, frames_max: 4, state });
    expect(result.frames.map(({ frame_index }) => frame_index)).toEqual([0, 2, 4, 6]);
    expect(result.left_out.frames).toBe(6);
    expect(result.state).toMatchObject({ trails: { frame: 11 } });
  });

  it("tells the frames before one that failed, and where", async () => {
    const asked = definition([segment(["kangaroo"])], { n: "segment.count" });
    const result = await video(asked);
    expect(result.failure).toMatchObject({ code: "step_failed", step: "segment" });
    expect(result.frames).toEqual([]);
  });

  it("gives the frames that were done when it is canceled", async () => {
    const cancel = new AbortController();
    context = {
      ...context,
      cancel: cancel.signal,
      progress: ({ done }) => done === 3 && cancel.abort(),
    };
    const asked = payload(definition([trails], { image: "trails.image" }));
    const outcome = await runTask("workflow_video", asked, context);
    expect(outcome).toMatchObject({ outcome: "cancelled", result: { failure: null } });
    const { frames } = (outcome as unknown as { result: Result }).result; // As was just seen.
    expect(frames).toHaveLength(3);
  });

  it("is refused an input that takes no frames", async () => {
    const asked = payload(definition([trails], { image: "trails.image" }), { frames_input: "x" });
    expect(await runTask("workflow_video", asked, context)).toMatchObject({
      outcome: "failed",
      code: "invalid_request",
      retryable: false,
    });
  });
});
