// What a run on a node asks for outside: as much as its answer can hold, else the run ends.

import { expect, it } from "vitest";
import { rootImage } from "../../../gpu-node/workflows/node-image.ts";
import {
  answerRun,
  effectReports,
  GivenFile,
  ImageAllowance,
} from "../../../gpu-node/workflows/session.ts";
import { EFFECTS_MAX, WorkflowAnswer } from "../../../shared/tasks/workflow-task.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { NO_MODELS, twoRectangles } from "../../support/workflow-images.ts";

/** An effect of each of these sinks for each object. */
const sending = (sinks: readonly string[]): WorkflowDefinition => ({
  version: "1.0",
  inputs: [
    { name: "image", kind: "image" },
    { name: "objects", kind: "detections" },
  ],
  steps: [
    {
      id: "cut",
      type: "crop@1",
      parameters: { image: "$inputs.image", detections: "$inputs.objects" },
    },
    ...sinks.map((id) => ({
      id,
      type: "webhook@1",
      parameters: { payload: "$steps.cut.detections", url: "https://example.com/hook" },
    })),
  ],
  outputs: [{ name: "crops", value: "$steps.cut.detections" }],
});

it("ends at the sink that asks for more than an answer can hold", async () => {
  const file = new GivenFile("image", await twoRectangles(), "rectangles");
  const objects = Array(1_000).fill({ class: "a", confidence: 1, bbox: [4, 4, 8, 8] });
  const answer = async (sinks: readonly string[]) => {
    const request = {
      definition: sending(sinks),
      inputs: { objects: { frame: { width: 64, height: 48 }, objects } },
      models: {},
      state: {},
      workspace: "effects",
      now: 0,
    };
    const services = { ...NO_MODELS, log: console };
    const { signal } = new AbortController();
    // As whoever asked reads it.
    return WorkflowAnswer.parse(await answerRun(request, [file], services, signal));
  };
  const sinks = Array.from({ length: 11 }, (_, index) => `send_${index}`);
  const whole = await answer(sinks.slice(0, 10));
  expect("effects" in whole && whole.effects.length).toBe(EFFECTS_MAX);
  const { failure } = await answer(sinks);
  expect(failure).toMatchObject({ code: "limit", step: "send_10" });
});

it("writes no image behind the one that is too many", async () => {
  const looked: number[] = [];
  const image = rootImage({ data: new Uint8Array(64 * 48 * 3), width: 64, height: 48 });
  const effects = [0, 1, 2, 3].map((index) => ({
    step: "send",
    element: [index],
    kind: "webhook" as const,
    request: {},
    get image() {
      if (!looked.includes(index)) looked.push(index);
      return image;
    },
  }));
  const [one] = await effectReports(effects.slice(0, 1), new ImageAllowance(10_000));
  const room = new ImageAllowance((one?.image ?? "").length);
  await expect(effectReports(effects, room)).rejects.toMatchObject({ code: "limit" });
  expect(looked).toEqual([0, 1]);
});
