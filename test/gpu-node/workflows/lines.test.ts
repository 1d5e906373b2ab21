// Objects that are tracked and counted through the frames of a drawn clip. Goal: a video's counts
// are the clip's, each crossing is told once, and what is to be done is told with its frame and
// image, within bounds, and with no secret but its name.

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../gpu-node/tasks/runners.ts";
import { rootImage } from "../../../gpu-node/workflows/node-image.ts";
import { VideoTally } from "../../../gpu-node/workflows/video-tally.ts";
import type { TaskResult } from "../../../shared/tasks/tasks.ts";
import {
  VIDEO_BYTES_MAX,
  VIDEO_EFFECTS_MAX,
  VIDEO_STATE_BYTES_MAX,
} from "../../../shared/tasks/workflow-task.ts";
import type { StepEffect } from "../../../shared/workflow/execution.ts";
import { clip, toolsOrSay } from "../../support/clips.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";

const ffmpeg = toolsOrSay();
let service: NodeService;
let context: RunnerContext;
beforeEachTask("workflow-lines", (own) => {
  ({ service, context } = own);
});

/** A red rectangle that goes right for 20 frames and back, and a green one that goes down. */
const crossings = () =>
  clip(
    "crossings.mp4",
    ...["-f", "lavfi", "-i", "color=c=black:s=160x120:r=10:d=4"],
    ...["-f", "lavfi", "-i", "color=c=red:s=30x20:r=10"],
    ...["-f", "lavfi", "-i", "color=c=0x00ff00:s=20x20:r=10", "-filter_complex"],
    "[0][1]overlay=x='if(lt(n,20),10+4*n,90-4*(n-20))':y=20:shortest=1[a];" +
      "[a][2]overlay=x=130:y='8+2*n':shortest=1",
    ...["-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "10"],
  );

const counter = (id: string, line: number[][]) => ({
  id,
  type: "line_counter@1",
  parameters: { tracks: "$steps.track.tracks", line },
});
const DEFINITION = {
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [
    {
      id: "segment",
      type: "segmenter@1",
      parameters: { image: "$inputs.image", prompts: ["red", "green"] },
    },
    {
      id: "track",
      type: "tracker@1",
      parameters: { detections: "$steps.segment.masks" },
    },
    // Facing down, right of it is the left of the frame: what goes right comes in.
    counter("upright", [
      [60, 0],
      [60, 60],
    ]),
    // Facing right, what goes down goes out.
    counter("level", [
      [100, 60],
      [160, 60],
    ]),
    {
      id: "drawn",
      type: "draw_tracks@1",
      parameters: { image: "$inputs.image", tracks: "$steps.track.tracks" },
    },
    {
      id: "tell",
      type: "webhook@1",
      parameters: {
        payload: "$steps.upright.by_class",
        image: "$steps.drawn.image",
        url: "https://example.com/hook",
        signing_secret: "receiver",
        cooldown_seconds: 1,
      },
    },
  ],
  outputs: [
    { name: "right", value: "$steps.upright.count_in" },
    { name: "left", value: "$steps.upright.count_out" },
    { name: "up", value: "$steps.level.count_in" },
    { name: "down", value: "$steps.level.count_out" },
    { name: "crossed", value: "$steps.level.crossed_out" },
  ],
};

describe.skipIf(!ffmpeg)("a clip of known crossings", () => {
  it("is counted right on two lines, and tells what is to be done", async () => {
    const payload = {
      definition: DEFINITION,
      inputs: {},
      models: {},
      state: {},
      workspace: "w",
      images: [],
      frames_input: "image",
      origin: null,
      video: service.source("crossings", readFileSync(crossings())),
      fps: null,
      frames_max: 100,
    };
    const outcome = await runTask("workflow_video", payload, context);
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    const { frames, effects, failure } = outcome.result as TaskResult<"workflow_video">;
    expect(failure).toBeNull();
    expect(frames).toHaveLength(40);
    expect(frames.at(-1)?.outputs).toMatchObject({ right: 1, left: 1, up: 0, down: 1 });
    // Half way the red one has gone right, and not come back.
    expect(frames[20]?.outputs).toMatchObject({ right: 1, left: 0, down: 0 });
    const crossed = frames.filter(
      ({ outputs }) => (outputs.crossed as { objects: unknown[] }).objects.length > 0,
    );
    expect(crossed).toHaveLength(1);
    // Once a second of the clip.
    expect(effects.map(({ frame_index }) => frame_index)).toEqual([0, 10, 20, 30]);
    for (const { step, kind, request, image } of effects) {
      expect([step, kind]).toEqual(["tell", "webhook"]);
      expect(request).toMatchObject({ signing_secret: "receiver" });
      expect(Buffer.from(image ?? "", "base64").subarray(0, 2)).toEqual(Buffer.of(0xff, 0xd8));
    }
  });
});

describe("what the frames of a video come to", () => {
  const effect = (index: number, more: Partial<StepEffect> = {}): StepEffect => ({
    step: "tell",
    element: [],
    kind: "webhook",
    request: { index },
    ...more,
  });
  const run = (more: object) => ({ outputs: {}, steps: [], effects: [], state: {}, ...more });

  it("has as many effects as fit, and counts the others", async () => {
    const tally = new VideoTally({});
    const effects = Array.from({ length: VIDEO_EFFECTS_MAX - 1 }, (_, index) => effect(index));
    await tally.add(0, 0, run({ effects }));
    await tally.add(1, 0.1, run({ effects: [effect(0), effect(1), effect(2)] }));
    const { effects: told, left_out } = tally.told();
    expect(told).toHaveLength(VIDEO_EFFECTS_MAX);
    expect(told.at(-1)?.frame_index).toBe(1);
    expect(left_out.effects).toBe(2);
  });

  it("has no more requests of effects than fit beside the outputs", async () => {
    const tally = new VideoTally({});
    const request = { text: "x".repeat(600_000) };
    await tally.add(0, 0, run({ effects: [effect(0, { request }), effect(1, { request })] }));
    expect([tally.told().effects.length, tally.told().left_out.effects]).toEqual([1, 1]);
  });

  it("has no effect without the image that goes with it", async () => {
    const tally = new VideoTally({});
    const data = Uint8Array.from({ length: 2_500 * 2_000 * 3 }, (_, index) => (index * 7919) >> 3);
    const image = rootImage({ data, width: 2_500, height: 2_000 });
    await tally.add(0, 0, run({ effects: [effect(0), effect(1, { image }), effect(2)] }));
    expect(tally.told().effects.map(({ request }) => request)).toEqual([
      { index: 0 },
      { index: 2 },
    ]);
    expect(tally.told().left_out.effects).toBe(1);
  });

  it("has what its steps remember, unless that would take the room of the frames", async () => {
    const tally = new VideoTally({});
    await tally.add(0, 0, run({ state: { count: 3 } }));
    expect(tally.told()).toMatchObject({ state: { count: 3 } });
    const state = { track: "x".repeat(VIDEO_STATE_BYTES_MAX) };
    await tally.add(1, 0.1, run({ state }));
    expect(tally.state).toBe(state);
    const { state: told, frames } = tally.told();
    expect([told, frames.length]).toEqual([{}, 2]);
  });

  it("ends where the outputs are more than a result may have, with the frames that fit", async () => {
    const tally = new VideoTally({});
    const text = "x".repeat(VIDEO_BYTES_MAX / 2);
    await tally.add(0, 0, run({ outputs: { text } }));
    await expect(tally.add(1, 1, run({ outputs: { text } }))).rejects.toThrow(/1 frames/);
    expect(tally.told().frames.map(({ frame_index }) => frame_index)).toEqual([0]);
  });
});
