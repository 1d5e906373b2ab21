// Points and polygons that a workflow is given, in the shapes that routes have and in those of
// older definitions. Goal: both mean the same, and a click that is off the object reaches the
// segmenter.

import { expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { lookAtImage } from "../../../gpu-node/tasks/sam-objects.ts";
import { answerLine } from "../../../gpu-node/workflows/line-runs.ts";
import type { SessionServices } from "../../../gpu-node/workflows/session.ts";
import type { SamPrompt } from "../../../shared/tasks/sam.ts";
import { WorkflowAnswer, WorkflowAsk } from "../../../shared/tasks/workflow-task.ts";
import type { WorkflowDefinition } from "../../../shared/workflow/definition.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { openRectangles } from "../../support/rectangles.ts";
import { twoRectangles } from "../../support/workflow-images.ts";

let context: RunnerContext;
beforeEachTask("given-shapes", (own) => {
  ({ context } = own);
});

/** Asks as the line does; gives the outputs, and what the segmenter was asked for. */
async function outputsOf(definition: Pick<WorkflowDefinition, "inputs" | "steps" | "outputs">) {
  const file = await twoRectangles();
  const head = WorkflowAsk.parse({
    definition: { version: "1.0", ...definition },
    inputs: {},
    models: {},
    state: {},
    workspace: "a",
    now: 5,
    images: [{ name: "image", bytes: file.length }],
  });
  const asked: SamPrompt[] = [];
  const segmenter = openRectangles();
  const { signal } = new AbortController();
  const services: SessionServices = {
    predictors: context.predictors,
    sam: async (readImage, request, ended) => {
      asked.push(...request.prompts);
      const useSegmenter: RunnerContext["useSegmenter"] = (_, work) => work(segmenter);
      return lookAtImage(await readImage(), request, { useSegmenter, signal: ended });
    },
    log: context.log,
  };
  const answer = await answerLine(new Uint8Array(file), head, services, signal);
  const { failure, ...said } = WorkflowAnswer.parse(answer);
  expect(failure).toBeNull();
  return { outputs: "outputs" in said ? said.outputs : {}, asked };
}

type Parameters = WorkflowDefinition["steps"][number]["parameters"];
const image = { name: "image", kind: "image" } as const;

it("takes clicks as routes do, and points as clicks on the object", async () => {
  const clicked = async (points: Parameters[string], kind?: "list<point>" | "list<click>") => {
    const given = kind ? [{ name: "points", kind, default: points }] : [];
    const { outputs, asked } = await outputsOf({
      inputs: [image, ...given],
      steps: [
        {
          id: "find",
          type: "segmenter@1",
          parameters: { image: "$inputs.image", points: kind ? "$inputs.points" : points },
        },
      ],
      outputs: [{ name: "masks", value: "$steps.find.masks" }],
    });
    return {
      masks: outputs.masks,
      points: asked.flatMap((one) => ("points" in one ? one.points : [])),
    };
  };
  const on = { x: 8, y: 8, label: 1 };
  const off = { x: 60, y: 2, label: 0 };
  const older = await clicked([[8, 8]]);
  expect(older.points).toEqual([on]);
  expect(older.masks).toMatchObject({ objects: [{ bbox: [4, 4, 16, 14] }] });
  expect(await clicked([on])).toEqual(older);
  expect(await clicked([[9, 9]], "list<point>")).toMatchObject({
    masks: older.masks,
    points: [{ x: 9, y: 9, label: 1 }],
  });
  expect((await clicked([[8, 8], off])).points).toEqual([on, off]);
  expect((await clicked([on, off], "list<click>")).points).toEqual([on, off]);
});

it("takes polygons as annotations have them, and as lists of corners", async () => {
  const corners = [
    [0, 0],
    [30, 0],
    [30, 48],
    [0, 48],
  ];
  const counted = async (zone: Parameters[string], given: "literal" | "input" | "constant") => {
    const references = { literal: null, input: "$inputs.zone", constant: "$steps.fixed.value" };
    const reference = references[given];
    const fixed = { id: "fixed", type: "constant@1", parameters: { kind: "zone", value: zone } };
    const { outputs } = await outputsOf({
      inputs: [
        image,
        ...(given === "input" ? [{ name: "zone", kind: "zone", default: zone } as const] : []),
      ],
      steps: [
        ...(given === "constant" ? [fixed] : []),
        {
          id: "find",
          type: "segmenter@1",
          parameters: { image: "$inputs.image", prompts: ["red"] },
        },
        {
          id: "inside",
          type: "zone_filter@1",
          parameters: { detections: "$steps.find.masks", zone: reference ?? zone },
        },
      ],
      outputs: [
        { name: "inside", value: "$steps.inside.count" },
        { name: "zone", value: reference ?? "$steps.inside.count" },
      ],
    });
    return outputs;
  };
  for (const given of ["literal", "input", "constant"] as const) {
    const older = await counted(corners, given);
    expect(await counted(corners.flat(), given)).toEqual(older);
    expect(older.inside).toBe(1);
    // A zone is told as a list of corners, however it was given.
    expect(older.zone).toEqual(given === "literal" ? 1 : corners);
  }
});
