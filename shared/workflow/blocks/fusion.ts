// Blocks that bring objects together: those of one model, of several ones, and of the tiles or
// crops that an image was cut into.

import { z } from "zod";
import { matchObjects } from "../../detector/object-matching.ts";
import { type Block, BlockFailure, defineBlock, type InputPort } from "../block.ts";
import { type FusedBox, fuseBoxes, keptBoxes } from "../box-fusion.ts";
import { BrokenMask, maskOnRoot, maskSteps } from "../root-masks.ts";
import { type Detections, type ImageFrame, rootOf, rootPoint } from "../values.ts";

/** Objects that are weighed against each other, each against each. */
const OBJECTS_MAX = 10_000;
/** Pairs of objects of two models; 2,000 against 2,000. */
const PAIRS_MAX = 4_000_000;

const iouPort = (value: number, meaning: string) =>
  ({ kind: "number", meaning: `${meaning}, 0 to 1`, default: value }) as const;
const classAware = () =>
  z.boolean().default(true).meta({ description: "whether only objects of one class are one" });

const FRAME = { width: 100, height: 100, offset: [0, 0], scale: [1, 1] } as const;
const CAT = { class: "cat", confidence: 0.8, bbox: [10, 10, 50, 50] } as const;
const SAME_CAT = { class: "cat", confidence: 0.4, bbox: [12, 10, 52, 50] } as const;
const DOG = { class: "dog", confidence: 0.5, bbox: [60, 60, 90, 90] } as const;

const nms = defineBlock({
  type: "nms@1",
  title: "Suppress duplicates",
  description:
    "Leaves out each object whose box overlaps that of a surer one too much (hard, greedy " +
    "non-maximum suppression, as torchvision has it). Masks go by their boxes.",
  section: "detections",
  inputs: {
    detections: { kind: "detections", meaning: "objects of one image" },
    iou: iouPort(0.5, "an object that overlaps a surer one by more is left out"),
  },
  parameters: z.object({ class_aware: classAware() }),
  outputs: { detections: { kind: { like: "detections" }, meaning: "what is kept, surest first" } },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: { detections: { frame: FRAME, objects: [SAME_CAT, CAT, DOG] }, iou: 0.6 },
    outputs: { detections: { frame: FRAME, objects: [CAT, DOG] } },
  },
  run: ({ inputs, parameters }) => {
    const { frame, objects } = inputs.detections;
    const kept = keptBoxes(objects, {
      overlapMax: inputs.iou,
      overlap: "union",
      isClassAware: parameters.class_aware,
    });
    return {
      outputs: { detections: { frame, objects: kept.flatMap((index) => objects[index] ?? []) } },
    };
  },
});

const MODELS_MAX = 8;
const modelPorts = Object.fromEntries(
  Array.from({ length: MODELS_MAX }, (_, index): [string, InputPort] => [
    `detections_${index + 1}`,
    {
      kind: "detections",
      meaning: "objects that a model found; one that is masked has no vote",
      optional: true,
      takesMasked: true,
    },
  ]),
);

const isOneImage = (one: ImageFrame, other: ImageFrame) =>
  one.width === other.width &&
  one.height === other.height &&
  one.offset.every((value, index) => value === other.offset[index]) &&
  one.scale.every((value, index) => value === other.scale[index]);

function requireOneImage(frames: readonly ImageFrame[]) {
  const [first] = frames;
  if (first && !frames.every((frame) => isOneImage(first, frame))) {
    throw new BlockFailure("the objects must be of one and the same image");
  }
}

/** Confidence of a fused box, of so many models. */
const CONFIDENCES = {
  agreement: ({ mean, boxes }: FusedBox, models: number) =>
    (mean * Math.min(models, boxes)) / models,
  mean: ({ mean }: FusedBox) => mean,
  max: ({ max }: FusedBox) => max,
} as const;

const consensus = defineBlock({
  type: "consensus@1",
  title: "Consensus of models",
  description:
    "Fuses what several models found on one image (weighted boxes fusion, arXiv:1910.13302): boxes " +
    "that overlap make one, the mean weighted by confidence; one that too few models voted for is " +
    "left out. Fused objects have no masks; `data.votes` is the number of models.",
  section: "detections",
  inputs: {
    ...modelPorts,
    iou: iouPort(0.55, "boxes that overlap by more are of one object"),
  },
  parameters: z.object({
    votes_min: z.int().min(1).max(MODELS_MAX).default(2).meta({
      description: "models that must have found an object; 1 keeps all",
    }),
    class_aware: classAware(),
    confidence: z.enum(["agreement", "mean", "max"]).default("agreement").meta({
      description:
        "agreement: the mean, times boxes / models where there are fewer boxes than models",
    }),
  }),
  outputs: {
    detections: { kind: "detections", meaning: "fused objects, surest first" },
    agreement: {
      kind: "number",
      meaning: "share of the models that voted for an object, mean over all objects; 1 without any",
    },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: { votes_min: 2 },
    inputs: {
      detections_1: { frame: FRAME, objects: [CAT, DOG] },
      detections_2: { frame: FRAME, objects: [SAME_CAT] },
    },
    outputs: {
      detections: {
        frame: FRAME,
        objects: [
          {
            class: "cat",
            confidence: 0.6,
            bbox: [10.666666666666666, 10, 50.666666666666664, 50],
            data: { votes: 2 },
          },
        ],
      },
      agreement: 0.75,
    },
  },
  run: ({ inputs, parameters }) => {
    const given = Object.keys(modelPorts).flatMap((port): Detections[] => {
      // Ports made by a loop have no types of their own; all of these are detections.
      const value = (inputs as Readonly<Record<string, unknown>>)[port];
      return value ? [value as Detections] : [];
    });
    const [first] = given;
    if (!first) return { outputs: { detections: null, agreement: null } };
    requireOneImage(given.map(({ frame }) => frame));
    const boxes = given.flatMap(({ objects }, model) =>
      objects.map(({ class: name, confidence, bbox }) => ({
        class: name,
        confidence,
        bbox,
        model,
      })),
    );
    if (boxes.length > OBJECTS_MAX) {
      throw new BlockFailure(`the models found more than ${OBJECTS_MAX} objects`);
    }
    const fused = fuseBoxes(boxes, { iouMin: inputs.iou, isClassAware: parameters.class_aware });
    const confidenceOf = CONFIDENCES[parameters.confidence];
    const objects = fused
      .filter(({ models }) => models.length >= parameters.votes_min)
      .map((box) => ({
        class: box.class,
        confidence: Math.min(1, confidenceOf(box, given.length)),
        bbox: box.bbox,
        data: { votes: box.models.length },
      }))
      .sort((one, other) => other.confidence - one.confidence);
    const votes = fused.reduce((sum, { models }) => sum + models.length, 0);
    return {
      outputs: {
        detections: { frame: first.frame, objects },
        agreement: fused.length === 0 ? 1 : votes / (fused.length * given.length),
      },
    };
  },
});

const compare = defineBlock({
  type: "compare@1",
  title: "Compare two models",
  description:
    "Pairs what two models found on one image, each object once: under the same class, under " +
    "another one, or by one model alone.",
  section: "detections",
  inputs: {
    a: { kind: "detections", meaning: "objects of model A" },
    b: { kind: "detections", meaning: "objects of model B, of the same image" },
    iou: iouPort(0.5, "boxes that overlap by so much are of one object"),
  },
  parameters: z.object({}),
  outputs: {
    both: { kind: { like: "a" }, meaning: "objects of A that B has, too, of the same class" },
    only_a: { kind: { like: "a" }, meaning: "objects of A that B has not" },
    only_b: { kind: { like: "b" }, meaning: "objects of B that A has not" },
    other_class: {
      kind: { like: "a" },
      meaning: "objects of A that are of another class to B, which `data.other_class` tells",
    },
    agreement: {
      kind: "number",
      meaning: "share of all objects that both have under one class, 0 to 1; 1 without any",
    },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: {
      a: { frame: FRAME, objects: [CAT, DOG] },
      b: { frame: FRAME, objects: [SAME_CAT, { ...DOG, class: "fox" }] },
    },
    outputs: {
      both: { frame: FRAME, objects: [CAT] },
      only_a: { frame: FRAME, objects: [] },
      only_b: { frame: FRAME, objects: [] },
      other_class: { frame: FRAME, objects: [{ ...DOG, data: { other_class: "fox" } }] },
      agreement: 0.5,
    },
  },
  run: ({ inputs: { a, b, iou } }) => {
    requireOneImage([a.frame, b.frame]);
    if (a.objects.length * b.objects.length > PAIRS_MAX) {
      throw new BlockFailure(`there are more than ${PAIRS_MAX} pairs of objects to compare`);
    }
    const { pairs, onlyA, onlyB } = matchObjects(a.objects, b.objects, iou);
    const byA = pairs.toSorted((one, other) => one.a - other.a);
    const same = byA.filter(({ isSameClass }) => isSameClass);
    const other = byA.flatMap((pair) => {
      const [object, partner] = [a.objects[pair.a], b.objects[pair.b]];
      if (pair.isSameClass || !object || !partner) return [];
      return [{ ...object, data: { ...object.data, other_class: partner.class } }];
    });
    const of = ({ frame, objects }: Detections, indexes: readonly number[]) => ({
      frame,
      objects: indexes.flatMap((index) => objects[index] ?? []),
    });
    const total = a.objects.length + b.objects.length;
    return {
      outputs: {
        both: of(
          a,
          same.map((pair) => pair.a),
        ),
        only_a: of(a, onlyA),
        only_b: of(b, onlyB),
        other_class: { frame: a.frame, objects: other },
        agreement: total === 0 ? 1 : (2 * same.length) / total,
      },
    };
  },
});

/** The objects of a tile or crop on its root, boxes cut to what lies on it. */
function onRoot({ frame, objects }: Detections, steps: { left: number }) {
  const { width, height } = rootOf(frame);
  return objects.flatMap((object) => {
    const [x1, y1] = rootPoint(frame, [object.bbox[0], object.bbox[1]]);
    const [x2, y2] = rootPoint(frame, [object.bbox[2], object.bbox[3]]);
    const bbox: Detections["objects"][number]["bbox"] = [
      Math.max(0, x1),
      Math.max(0, y1),
      Math.min(width, x2),
      Math.min(height, y2),
    ];
    if (!(bbox[2] > bbox[0] && bbox[3] > bbox[1])) return [];
    if (!object.mask) return [{ ...object, bbox }];
    return [{ ...object, bbox, mask: maskOnRoot(object.mask, frame, steps) }];
  });
}

function stitched(tiles: readonly Detections[]) {
  const steps = maskSteps();
  try {
    return tiles.flatMap((tile, index) =>
      onRoot(tile, steps).map((object) => ({ object, tile: index })),
    );
  } catch (error) {
    if (!(error instanceof BrokenMask)) throw error;
    throw new BlockFailure(error.message, { cause: error });
  }
}

const stitch = defineBlock({
  type: "stitch@1",
  title: "Stitch tiles",
  description:
    "Brings the objects of tiles or crops onto the image that these were cut from, masks too. Where " +
    "tiles overlap, an object of one that overlaps a surer one of another is left out. Ids of " +
    "tracks are those of the tiles.",
  section: "detections",
  inputs: {
    detections: { kind: "detections", meaning: "objects of each tile or crop", batch: "all" },
    overlap_max: {
      kind: "number",
      meaning: "an object that overlaps a surer one of another tile by more is left out, 0 to 1",
      default: 0.5,
    },
  },
  parameters: z.object({
    class_aware: classAware(),
    overlap: z
      .enum(["smaller", "union"])
      .default("smaller")
      .meta({
        description:
          "of which area an overlap is a share; of the smaller box: what the edge of a tile has cut " +
          "off goes, too",
      }),
  }),
  outputs: {
    detections: {
      kind: { like: "detections" },
      meaning: "objects on the root image, surest first; masked where there was no tile",
    },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: {
      detections: [
        {
          frame: { width: 60, height: 100, root: { width: 100, height: 100 } },
          objects: [{ class: "cat", confidence: 0.9, bbox: [40, 20, 58, 40] }],
        },
        {
          frame: { width: 60, height: 100, offset: [40, 0], root: { width: 100, height: 100 } },
          objects: [
            { class: "cat", confidence: 0.7, bbox: [0, 20, 18, 40] },
            { class: "dog", confidence: 0.5, bbox: [30, 60, 50, 80] },
          ],
        },
      ],
    },
    outputs: {
      detections: {
        frame: FRAME,
        objects: [
          { class: "cat", confidence: 0.9, bbox: [40, 20, 58, 40] },
          { class: "dog", confidence: 0.5, bbox: [70, 60, 90, 80] },
        ],
      },
    },
  },
  run: ({ inputs, parameters }) => {
    const [first] = inputs.detections;
    if (!first) return { outputs: { detections: null } };
    const { width, height } = rootOf(first.frame);
    const roots = inputs.detections.map(({ frame }) => rootOf(frame));
    if (roots.some((root) => root.width !== width || root.height !== height)) {
      throw new BlockFailure("the tiles must be cut from one image");
    }
    const parts = stitched(inputs.detections);
    if (parts.length > OBJECTS_MAX) {
      throw new BlockFailure(`the tiles have more than ${OBJECTS_MAX} objects`);
    }
    const kept = keptBoxes(
      parts.map(({ object }) => object),
      {
        overlapMax: inputs.overlap_max,
        overlap: parameters.overlap,
        isClassAware: parameters.class_aware,
        groupOf: (index) => parts[index]?.tile ?? 0,
      },
    );
    const objects = kept.flatMap((index) => parts[index]?.object ?? []);
    const frame: ImageFrame = { width, height, offset: [0, 0], scale: [1, 1] };
    return { outputs: { detections: { frame, objects } } };
  },
});

export const FUSION_BLOCKS: readonly Block[] = [nms, consensus, compare, stitch];
