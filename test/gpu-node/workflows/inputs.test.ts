// What a run on a node is given. Goal: an image of more pixels than a node may hold is refused, and
// told to whoever asked.

import sharp from "sharp";
import { expect, it } from "vitest";
import { answerRun, GivenFile } from "../../../gpu-node/workflows/session.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { NO_MODELS } from "../../support/workflow-images.ts";

const measuring: WorkflowDefinition = {
  version: "1.0",
  inputs: [{ name: "image", kind: "image" }],
  steps: [{ id: "look", type: "image_properties@1", parameters: { image: "$inputs.image" } }],
  outputs: [{ name: "width", value: "$steps.look.width" }],
};

it("is refused an image of more than 40 megapixels, as the input that it is", async () => {
  const answer = async (width: number, height: number) => {
    const create = { width, height, channels: 3, background: "#123" } as const;
    const file = new GivenFile("image", await sharp({ create }).png().toBuffer(), `${width}`);
    const given = { definition: measuring, inputs: {}, models: {}, state: {}, now: 0 };
    const request = { ...given, workspace: "inputs" };
    const services = { ...NO_MODELS, log: console };
    return answerRun(request, [file], services, new AbortController().signal);
  };
  expect(await answer(300, 10)).toMatchObject({ failure: null, outputs: { width: 300 } });
  expect(await answer(8_000, 5_001)).toEqual({
    failure: {
      code: "bad_input",
      step: null,
      element: null,
      detail: "image: 8000 × 5001 is over 40 million pixels",
    },
  });
});
