// The example of every block that a node alone runs. Goal: each does to the pixel what its entry in
// the catalogue says. Two are held against less: letters differ by the fonts of a machine, so that
// a label is looked at around them, and a detector gives what its model learned, which is of the
// example's shape.

import { describe, expect, it } from "vitest";
import { readStill } from "../../../gpu-node/media/stills.ts";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import { lookAtImage } from "../../../gpu-node/tasks/sam-objects.ts";
import type { ModelServices } from "../../../gpu-node/workflows/model-runs.ts";
import { NodeImage, rootImage } from "../../../gpu-node/workflows/node-image.ts";
import { nodeRuns } from "../../../gpu-node/workflows/runs.ts";
import { Detections } from "../../../shared/workflow/values.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { generatedModel } from "../../support/weights.ts";
import { callBlock, NODE_BLOCKS } from "../../support/workflow-images.ts";

const { signal } = new AbortController();
let service: NodeService;
let context: RunnerContext;
beforeEachTask("workflow-examples", (own) => {
  ({ service, context } = own);
});

/** The test's own segmenter, and these models. */
const services = (models: ModelServices["models"] = {}): ModelServices => ({
  predictors: context.predictors,
  sam: async (readImage, request) =>
    lookAtImage(await readImage(), request, { useSegmenter: context.useSegmenter, signal }),
  models,
});

/** A model whose weights are generated. */
function generated() {
  const source = generatedModel((key, bytes) => service.source(key, bytes), { image_size: 32 });
  return { model_id: source.model_id, name: "generated", version: 3, source, told: null };
}

const isAddress = (value: unknown): value is string => /^data:image\//.test(String(value));

/** A value of an example with its images decoded. */
async function decoded(value: unknown): Promise<unknown> {
  if (Array.isArray(value)) return Promise.all(value.map(decoded));
  if (!isAddress(value)) return value;
  return rootImage(await readStill(Buffer.from(value.split(",")[1] ?? "", "base64")));
}

const byPort = async (values: Readonly<Record<string, unknown>>) =>
  Object.fromEntries(
    await Promise.all(
      Object.entries(values).map(async ([port, value]) => [port, await decoded(value)] as const),
    ),
  );

/** What is compared of a value: of images, sides and pixels. */
function comparable(value: unknown): unknown {
  if (value instanceof NodeImage) {
    const { data, width, height } = value.pixels;
    return { width, height, pixels: Buffer.from(data).toString("hex") };
  }
  return Array.isArray(value) ? value.map(comparable) : value;
}

async function ran(type: string, models?: ModelServices["models"]) {
  const example = NODE_BLOCKS.get(type)?.example;
  if (!example) throw new Error(`no block ${type}`);
  const { parameters, state } = example;
  const inputs = await byPort(example.inputs);
  const result = await callBlock(type, inputs, { parameters, state, services: services(models) });
  return { outputs: result.outputs, wanted: await byPort(example.outputs), models: result.models };
}

const LOOSE = ["draw_labels@1", "detector@1"];

describe("the example of", () => {
  it.each([...NODE_BLOCKS.keys()].filter((type) => !LOOSE.includes(type)))(
    "%s is what the block does",
    async (type) => {
      const { outputs, wanted } = await ran(type);
      for (const port of Object.keys(wanted)) {
        expect([port, comparable(outputs[port])]).toEqual([port, comparable(wanted[port])]);
      }
      expect(Object.keys(outputs).sort()).toEqual(
        Object.keys(NODE_BLOCKS.get(type)?.outputs ?? {}).sort(),
      );
    },
  );

  it("draw_labels@1 is what the block does, whatever the font", async () => {
    const { outputs, wanted } = await ran("draw_labels@1");
    const [drawn, told] = [outputs.image, wanted.image] as [NodeImage, NodeImage];
    expect(drawn.frame).toEqual(told.frame);
    const { data } = told.pixels;
    const differing = drawn.pixels.data.filter((value, index) => value !== data[index]).length;
    expect(differing / data.length).toBeLessThan(0.1);
  });

  it("detector@1 has the shape of what a model gives, and says which one answered", async () => {
    const { outputs, wanted, models } = await ran("detector@1", {
      active: generated(),
    });
    const found = Detections.parse(outputs.detections);
    expect(found.frame).toEqual((wanted.detections as Detections).frame);
    expect(outputs.count).toBe(found.objects.length);
    expect(models).toEqual([expect.objectContaining({ asked: "active", version: 3 })]);
  });
});

it("a node runs every block that the entries leave to it, and each says what it costs", () => {
  const runs = nodeRuns(services());
  expect([...runs.keys()].sort()).toEqual([...NODE_BLOCKS.keys()].sort());
  for (const block of NODE_BLOCKS.values()) {
    expect([block.type, block.runsOn, block.run]).toEqual([block.type, "node", null]);
    expect([block.type, block.cost === "free"]).toEqual([block.type, false]);
  }
});
