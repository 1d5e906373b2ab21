// The blocks that ask models of the registry and segmenters: their entries. A GPU node runs them.

import { z } from "zod";
import { SEGMENTER_PREFIX } from "../../tasks/node-protocol.ts";
import { type AnsweringModel, type Block, defineBlock } from "../block.ts";
import type { PlannedStep, WorkflowPlan } from "../plan.ts";
import { COLOURS } from "./image-examples.ts";

const frame = { width: 32, height: 24, offset: [0, 0], scale: [1, 1] };
/** The red rectangle of the examples' image. */
const red = { class: "red", confidence: 0.9, bbox: [4, 4, 14, 12] };

const detector = defineBlock({
  type: "detector@1",
  title: "Detector",
  description:
    "Finds objects by a model of the registry: `active`, `staging`, a model's id, or an endpoint " +
    "as `endpoint:<slug>`, whose model answers that is live there when the run begins. Of an " +
    "endpoint's objects those are told that it tells itself: `confidence` and `classes` narrow " +
    "its own further.",
  section: "models",
  inputs: {
    image: { kind: "image", meaning: "the image" },
    model: { kind: "model", meaning: "the model", default: "active" },
    confidence: { kind: "number", meaning: "the lowest confidence, 0 to 1", default: 0.25 },
    classes: { kind: "list<string>", meaning: "the classes to tell; all of them", optional: true },
  },
  parameters: z.object({}),
  outputs: {
    detections: { kind: "detections", meaning: "the objects, surest first" },
    count: { kind: "integer", meaning: "how many there are" },
  },
  runsOn: "node",
  purity: "pure",
  cost: "model",
  example: {
    parameters: {},
    inputs: { image: COLOURS, model: "active", confidence: 0.3 },
    outputs: { detections: { frame, objects: [red] }, count: 1 },
  },
  run: null,
});

export const SegmenterParameters = z.object({
  /** Name of an installed segmenter; the node's own when left out. */
  segmenter: z.string().min(1).max(200).optional(),
});

/** The segmenter that a step asks for, by its name; null is the node's own. */
export interface StepSegmenter {
  name: string | null;
}

/** The segmenter of a step; null of one that asks for none. */
export function segmenterOf({ block, parameters }: PlannedStep): StepSegmenter | null {
  if (block !== segmenter) return null;
  // The plan has what the block's schema has parsed.
  return { name: (parameters as z.output<typeof SegmenterParameters>).segmenter ?? null };
}

/** The segmenters that a plan's steps ask for, each once; null is the node's own. */
export function segmentersOf({ steps }: Pick<WorkflowPlan, "steps">): (string | null)[] {
  const asked = steps.map(segmenterOf).filter((one) => one !== null);
  return [...new Set(asked.map(({ name }) => name))];
}

/**
 * A segmenter that has answered, as a run reports it: it is no model of the registry and has no
 * versions, so that its name tells which one it was. Null asks for the node's default.
 */
export const segmenterModel = ({
  asked,
  name,
}: {
  asked: string | null;
  name: string;
}): AnsweringModel => ({
  asked: asked ?? "default",
  model_id: SEGMENTER_PREFIX + name,
  name,
  version: 0,
});

const segmenter = defineBlock({
  type: "segmenter@1",
  title: "Segmenter",
  description:
    "Finds objects with their masks by prompts, by exemplars on the image, by points on one object " +
    "or by boxes. Each object that a box means has the class, track and data of its box. At " +
    "least one of the four must be there.",
  section: "models",
  inputs: {
    image: { kind: "image", meaning: "the image" },
    prompts: { kind: "list<string>", meaning: "what to look for, in words", optional: true },
    exemplars: {
      kind: "detections",
      meaning: "objects on the image whose like is looked for, by class",
      optional: true,
    },
    points: { kind: "list<click>", meaning: "clicks on one object, or off it", optional: true },
    boxes: { kind: "detections", meaning: "boxes around one object each", optional: true },
    threshold: {
      kind: "number",
      meaning: "the lowest confidence of what prompts and exemplars find, 0 to 1",
      default: 0.5,
    },
  },
  parameters: SegmenterParameters,
  outputs: {
    masks: { kind: "masks", meaning: "the objects, surest first" },
    count: { kind: "integer", meaning: "how many there are" },
  },
  runsOn: "node",
  purity: "pure",
  cost: "model",
  example: {
    parameters: {},
    inputs: { image: COLOURS, prompts: ["red"] },
    outputs: {
      masks: {
        frame,
        objects: [
          {
            ...red,
            mask: {
              size: [24, 32],
              counts: [
                ...[100, 8, 16, 8, 16, 8, 16, 8, 16, 8],
                ...[16, 8, 16, 8, 16, 8, 16, 8, 16, 8, 444],
              ],
            },
          },
        ],
      },
      count: 1,
    },
  },
  run: null,
});

export const MODEL_BLOCKS: readonly Block[] = [detector, segmenter];
