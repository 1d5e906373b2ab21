// The clip of a workflow's output, as a node makes it while it runs the frames. Goal: it has every
// frame that was run, at its true time, as the output showed it; frames without an output are
// counted; no more frames are held than are worked on; and a run that cannot give it says why.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import type { TaskResult } from "../../../shared/tasks/tasks.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { rectangles, TOOLS, toolsOrSay } from "../../support/clips.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { distance, shownVideo } from "../../support/shown-video.ts";

const found = toolsOrSay();
let service: NodeService;
let context: RunnerContext;
let dir: string;
beforeEachTask("output-clip", (own) => {
  ({ service, context, dir } = own);
});

type Result = TaskResult<"workflow_video">;
type Step = WorkflowDefinition["steps"][number];

const step = (id: string, type: string, parameters: Step["parameters"], when?: string): Step => ({
  id,
  type: `${type}@1`,
  parameters,
  ...(when ? { when } : {}),
});
const FRAME = "$inputs.image";
const WHITE = [255, 255, 255];

const find = step("find", "segmenter", { image: FRAME, prompts: ["red"] });
/** Says whether the red rectangle is in a zone, which begins at x = 40. */
const near = [
  find,
  step("near", "zone_filter", {
    detections: "$steps.find.masks",
    zone: [
      [40, 0],
      [160, 0],
      [160, 120],
      [40, 120],
    ],
  }),
  step("is_near", "condition", { left: "$steps.near.count", operator: "greater", right: 0 }),
];
/** The red rectangle with a white box. */
const draw = (when?: string) =>
  step(
    "draw",
    "draw_boxes",
    { image: FRAME, detections: "$steps.find.masks", colour: "#ffffff", thickness: 4 },
    when,
  );
const small = (when?: string) =>
  step("draw", "resize", { image: FRAME, mode: "stretch", width: 40, height: 60 }, when);

interface Wish {
  steps?: Step[];
  output?: string;
  more?: Record<string, unknown>;
}

/** A run over 20 frames of 160 × 120 pixels, ten a second. */
function payload({ steps = [find, draw()], output = "drawn", more = {} }: Wish) {
  return {
    definition: {
      version: "1.0",
      inputs: [{ name: "image", kind: "image" }],
      steps,
      outputs: [
        { name: "drawn", value: "$steps.draw.image" },
        { name: "found", value: "$steps.find.count" },
        { name: "crops", value: "$steps.cut.crops" },
        { name: "sum", value: "$steps.sum.value" },
      ].filter(({ value }) => steps.some(({ id }) => value.startsWith(`$steps.${id}.`))),
    },
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
    annotated_output: output,
    annotated: service.target("made/drawn.mp4", "video/mp4"),
    ...more,
  };
}

async function ran(wish: Wish = {}): Promise<Result> {
  const outcome = await runTask("workflow_video", payload(wish), context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}

function shown({ annotated }: Result) {
  const file = service.objects.get(annotated?.key ?? "") as Buffer;
  expect(file.length).toBe(annotated?.bytes);
  return shownVideo(file);
}

/** Where the left edge of the red rectangle is on a frame. */
const left = (index: number) => 10 + 2 * index;
/** How far a frame's pixel is from white where the box's left edge is. */
const fromWhite = ({ at }: ReturnType<typeof shownVideo>, frame: number, index = frame) =>
  distance(at(frame, left(index), 30), WHITE);

/** ffmpeg by a script of the shell, which decides of the encoding. */
function scripted(encoding: string) {
  const path = join(dir, "ffmpeg");
  const lines = ["#!/bin/sh", `case "$*" in *libx264*) ${encoding};; esac`];
  const real = TOOLS?.ffmpeg ?? "ffmpeg";
  writeFileSync(path, `${[...lines, `exec ${real} "$@"`].join("\n")}\n`, { mode: 0o755 });
  return TOOLS && { ...TOOLS, ffmpeg: path };
}

describe.skipIf(!found)("the clip of an output", () => {
  it("has each frame at its time with what the output drew, and nothing else changed", async () => {
    const result = await ran();
    expect(result).toMatchObject({ failure: null, annotated: { frames_without_output: 0 } });
    expect(result.frames).toHaveLength(20);
    // Images are in the clip alone.
    expect(result.frames.every(({ outputs }) => outputs.drawn === null)).toBe(true);
    const clip = shown(result);
    const { width, height, times } = clip;
    expect([width, height]).toEqual([160, 120]);
    expect(times).toEqual(result.frames.map(({ time }) => time));
    const before = shownVideo(readFileSync(rectangles()));
    for (const index of times.keys()) {
      expect(fromWhite(clip, index)).toBeLessThan(90);
      expect(fromWhite(before, index)).toBeGreaterThan(150);
      for (const [x, y] of [
        [150, 10],
        [70, 80],
      ] as const) {
        expect(distance(clip.at(index, x, y), before.at(index, x, y))).toBeLessThan(20);
      }
    }
  });

  it("has the frames that are looked at alone, at their times", async () => {
    const result = await ran({ more: { fps: 5, frames_max: 4 } });
    expect(result.frames.map(({ frame_index }) => frame_index)).toEqual([0, 2, 4, 6]);
    const clip = shown(result);
    expect(clip.times).toEqual([0, 0.2, 0.4, 0.6]);
    for (const frame of [0, 1, 2, 3]) expect(fromWhite(clip, frame, 2 * frame)).toBeLessThan(90);
  });

  it("shows frames without an output as they came, and counts them", async () => {
    const result = await ran({ steps: [...near, draw("$steps.is_near.result")] });
    const clip = shown(result);
    expect(clip.times).toHaveLength(20);
    const drawn = [...clip.times.keys()].filter((index) => fromWhite(clip, index) < 90);
    // The middle of the rectangle, 30 pixels wide, is past x = 40 from frame 8 on.
    expect(drawn[0]).toBeGreaterThan(4);
    expect(drawn.at(-1)).toBe(19);
    expect(result.annotated?.frames_without_output).toBe(20 - drawn.length);
    expect(drawn).toEqual([...Array(drawn.length).keys()].map((one) => 20 - drawn.length + one));
  });

  it("has its first image's sides, into which others are scaled with black around", async () => {
    const first = await ran({ steps: [small()] });
    expect(shown(first)).toMatchObject({ width: 40, height: 60 });
    expect(first.warnings).toEqual([expect.stringContaining("Images are left out")]);
    const result = await ran({ steps: [...near, small("$steps.is_near.result")] });
    const without = result.annotated?.frames_without_output ?? 0;
    expect(without).toBeGreaterThan(0);
    expect(result.warnings).toContain(
      `Images of \`drawn\` that are scaled into the clip's 160 × 120 pixels: ${20 - without}.`,
    );
    const clip = shown(result);
    expect(clip).toMatchObject({ width: 160, height: 120 });
    // 40 × 60 is 80 × 120 in the middle: the green rectangle's middle, (70, 80) of 160 × 120.
    expect(distance(clip.at(19, 40 + 35, 80), [0, 255, 0])).toBeLessThan(60);
    for (const x of [10, 150]) expect(distance(clip.at(19, x, 80), [0, 0, 0])).toBeLessThan(20);
  });

  it("is held no further than frames are worked on, however slow its writing is", async () => {
    const go = join(dir, "go");
    const tools = scripted(`while [ ! -e ${go} ]; do sleep 0.05; done`);
    let done = 0;
    context = { ...context, tools, progress: (told) => (done = told.done) };
    // 900 kB an image: no pipe holds two.
    const sides = { mode: "stretch", width: 640, height: 480 };
    const running = ran({ steps: [step("draw", "resize", { image: FRAME, ...sides })] });
    // The run comes to a halt while nobody reads its images.
    for (let still = 0, before = -1; still < 20; ) {
      await new Promise((next) => setTimeout(next, 50));
      still = done > 0 && done === before ? still + 1 : 0;
      before = done;
    }
    const doneMax = done;
    writeFileSync(go, "");
    const result = await running;
    expect([result.frames.length, shown(result).times.length]).toEqual([20, 20]);
    expect(doneMax).toBeLessThan(4);
  });

  it("is none of a run that is canceled", async () => {
    const cancel = new AbortController();
    const progress = ({ done }: { done: number }) => done === 3 && cancel.abort();
    const own = { ...context, cancel: cancel.signal, progress };
    const outcome = await runTask("workflow_video", payload({}), own);
    expect(outcome).toMatchObject({ outcome: "cancelled", result: { failure: null } });
    const { frames, annotated } = (outcome as unknown as { result: Result }).result; // As was seen.
    expect([frames.length, annotated]).toEqual([3, undefined]);
  });

  it("ends before the frame at which the run failed, and is none where that is the first", async () => {
    // Twice the sum is beyond what a number holds.
    const sum = step("sum", "counter", { key: "k", add: 1e308 });
    const failed = await ran({ steps: [small(), sum] });
    expect(failed).toMatchObject({
      failure: { code: "step_failed", step: "sum" },
      annotated: { frames_without_output: 0 },
    });
    expect([failed.frames.length, shown(failed).times]).toEqual([1, [0]]);
    const absent = { ...find, parameters: { ...find.parameters, prompts: ["kangaroo"] } };
    const nothing = await ran({ steps: [absent, draw()] });
    expect(nothing).toMatchObject({ failure: { step: "find" }, frames: [] });
    expect(nothing.annotated).toBeUndefined();
  });

  it("is refused of an output that is not one image", async () => {
    const cut = step("cut", "crop", { image: FRAME, detections: "$steps.find.masks" });
    for (const output of ["found", "crops", "other"]) {
      const asked = payload({ steps: [find, cut, draw()], output });
      expect(await runTask("workflow_video", asked, context)).toMatchObject({
        outcome: "failed",
        code: "invalid_request",
        detail: `${output} is no output that is one image`,
      });
    }
  });

  it("has its frames one by one where a segmenter looks, so that none waits while its time runs", async () => {
    let [asking, most] = [0, 0];
    const { useSegmenter } = context;
    context.useSegmenter = async (name, work) => {
      asking += 1;
      most = Math.max(most, asking);
      try {
        return await useSegmenter(name, work);
      } finally {
        asking -= 1;
      }
    };
    expect(shown(await ran()).times).toHaveLength(20);
    expect(most).toBe(1);
  });

  it("fails the task in words where this node's ffmpeg cannot write it", async () => {
    const tools = scripted('echo "no room" >&2; exit 3');
    const asked = payload({ more: { annotated: service.target("made/never.mp4", "video/mp4") } });
    expect(await runTask("workflow_video", asked, { ...context, tools })).toMatchObject({
      outcome: "failed",
      code: "video_not_written",
      detail: "ffmpeg did not write the annotated video: exit status 3; no room",
      retryable: true,
    });
    expect(await runTask("workflow_video", asked, { ...context, tools: null })).toMatchObject({
      outcome: "failed",
      detail: expect.stringContaining("this node has no ffmpeg"),
      retryable: true,
    });
    expect(service.objects.has("made/never.mp4")).toBe(false);
  });
});
