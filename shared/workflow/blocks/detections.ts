// Blocks that choose among the objects of one image, order, rename and count them. The objects
// themselves stay as they are: boxes and masks are in pixels of the image that they were found on.

import { z } from "zod";
import { mapOf } from "../../scalars.ts";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import { StepBudget } from "../expressions/budget.ts";
import {
  expressionKindProblem,
  expressionProblem,
  expressionValue,
} from "../expressions/program.ts";
import type { Kind } from "../kinds.ts";
import { type Detections, rootPoint, type WorkflowObject } from "../values.ts";
import { areaOf, numberOfObject, ObjectField } from "./object-fields.ts";

const detections = {
  kind: "detections",
  meaning: "objects of one image",
} as const;
const like = (meaning: string) => ({ kind: { like: "detections" }, meaning }) as const;

/** Two dogs and a cat on an image of 100 by 100 pixels, for examples. */
const EXAMPLE = {
  frame: { width: 100, height: 100, offset: [0, 0], scale: [1, 1] },
  objects: [
    { class: "dog", confidence: 0.9, bbox: [10, 10, 50, 50] },
    { class: "cat", confidence: 0.6, bbox: [60, 20, 80, 60] },
    { class: "dog", confidence: 0.3, bbox: [0, 80, 20, 100] },
  ],
} as const;
const exampleOf = (...indexes: number[]) => ({
  frame: EXAMPLE.frame,
  objects: indexes.map((index) => EXAMPLE.objects[index]),
});

const pixels = () => z.number().min(0).optional();
const share = () => z.number().min(0).max(1).optional();
const FilterParameters = z.object({
  area_min: pixels().meta({ description: "pixels of the image that the object was found on" }),
  area_max: pixels().meta({ description: "pixels of the image that the object was found on" }),
  area_share_min: share().meta({ description: "share of the image that the box covers, 0 to 1" }),
  area_share_max: share().meta({ description: "share of the image that the box covers, 0 to 1" }),
  has_track: z.boolean().optional().meta({ description: "whether it belongs to a track" }),
  where: z
    .string()
    .max(2_000)
    .optional()
    .meta({
      description:
        "expression that is true of objects to keep, over `object` (class, confidence, bbox, x, y, " +
        "width, height, area, area_share, track_id, data) and `image` (width, height); x and y " +
        "are the center's",
    }),
});
const WHERE_NAMES = ["object", "image"];

/** An object as expressions see it; its mask stays outside. */
function objectValue(object: WorkflowObject, { frame }: Detections): Record<string, unknown> {
  const [x1, y1, x2, y2] = object.bbox;
  return {
    class: object.class,
    confidence: object.confidence,
    bbox: object.bbox,
    x: (x1 + x2) / 2,
    y: (y1 + y2) / 2,
    width: x2 - x1,
    height: y2 - y1,
    area: areaOf(object),
    area_share: areaOf(object) / (frame.width * frame.height),
    track_id: object.track_id ?? null,
    data: object.data ?? {},
  };
}

function isTrueOf(
  object: WorkflowObject,
  of: Detections,
  { parameters, budget }: { parameters: z.output<typeof FilterParameters>; budget: StepBudget },
): boolean {
  if (parameters.where === undefined) return true;
  const { width, height } = of.frame;
  const values = new Map<string, unknown>([
    ["object", objectValue(object, of)],
    ["image", { width, height }],
  ]);
  const result = expressionValue({ parameters, source: parameters.where }, values, budget);
  if (typeof result === "boolean") return result;
  throw new BlockFailure("where: the expression must be true or false of each object");
}

const isWithin = (value: number, min = -Infinity, max = Infinity) => value >= min && value <= max;

const isOneOf = (value: boolean, wanted?: boolean) => wanted === undefined || wanted === value;

const filter = defineBlock({
  type: "filter@1",
  title: "Filter objects",
  description:
    "Keeps the objects for which all that is asked is true: class, confidence, size, track, and an " +
    "expression. Bounds are inclusive.",
  section: "detections",
  inputs: {
    detections,
    classes: { kind: "list<string>", meaning: "classes to keep; open: all", optional: true },
    confidence_min: { kind: "number", meaning: "lowest confidence, 0 to 1", optional: true },
    confidence_max: { kind: "number", meaning: "highest confidence, 0 to 1", optional: true },
  },
  parameters: FilterParameters,
  outputs: {
    detections: like("the objects that are kept, in their order"),
    rest: like("the other ones, in their order"),
  },
  problemOf: ({ where }) => {
    const problem = where === undefined ? null : expressionProblem(where, WHERE_NAMES);
    if (problem) return `where: ${problem}`;
    const given = new Map<string, Kind>(WHERE_NAMES.map((name) => [name, "json"]));
    const unfit = where === undefined ? null : expressionKindProblem(where, given, "boolean");
    return unfit && `where: ${unfit}`;
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: { where: "object.class == 'dog' or object.area > 500", area_share_min: 0.05 },
    inputs: { detections: EXAMPLE, confidence_min: 0.5 },
    outputs: { detections: exampleOf(0, 1), rest: exampleOf(2) },
  },
  run: ({ inputs, parameters }) => {
    const { frame, objects } = inputs.detections;
    const classes = inputs.classes && new Set(inputs.classes);
    const budget = new StepBudget();
    const isKept = (object: WorkflowObject) => {
      const area = areaOf(object);
      const areaShare = area / (frame.width * frame.height);
      return (
        (!classes || classes.has(object.class)) &&
        isWithin(object.confidence, inputs.confidence_min, inputs.confidence_max) &&
        isWithin(area, parameters.area_min, parameters.area_max) &&
        isWithin(areaShare, parameters.area_share_min, parameters.area_share_max) &&
        isOneOf(object.track_id !== undefined, parameters.has_track) &&
        isTrueOf(object, inputs.detections, { parameters, budget })
      );
    };
    const [kept, rest]: [WorkflowObject[], WorkflowObject[]] = [[], []];
    for (const object of objects) (isKept(object) ? kept : rest).push(object);
    return { outputs: { detections: { frame, objects: kept }, rest: { frame, objects: rest } } };
  },
});

const sort = defineBlock({
  type: "sort@1",
  title: "Sort objects",
  description:
    "Orders the objects, and keeps as many as are wanted. Those of equal values stay as they were; " +
    "those without a value come last.",
  section: "detections",
  inputs: { detections },
  parameters: z.object({
    by: z.union([z.literal("class"), ObjectField]).default("confidence"),
    order: z.enum(["ascending", "descending"]).default("descending"),
    limit: z.int().min(0).max(10_000).optional().meta({ description: "objects to keep" }),
  }),
  outputs: { detections: like("the objects in their new order") },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: { by: "area", order: "ascending", limit: 2 },
    inputs: { detections: EXAMPLE },
    outputs: { detections: exampleOf(2, 1) },
  },
  run: ({ inputs, parameters }) => {
    const { frame, objects } = inputs.detections;
    const { by, order, limit } = parameters;
    const sign = order === "ascending" ? 1 : -1;
    const keyed = objects.map((object) => ({
      object,
      key: by === "class" ? object.class : numberOfObject(object, by),
    }));
    const sorted = keyed.sort((one, other) => {
      if (one.key === null || other.key === null) {
        return Number(one.key === null) - Number(other.key === null);
      }
      if (one.key === other.key) return 0;
      return one.key < other.key ? -sign : sign;
    });
    return {
      outputs: {
        detections: { frame, objects: sorted.slice(0, limit).map(({ object }) => object) },
      },
    };
  },
});

const classMap = defineBlock({
  type: "class_map@1",
  title: "Rename classes",
  description: "Gives objects other classes, and keeps or drops those of classes not named.",
  section: "detections",
  inputs: { detections },
  parameters: z.object({
    classes: mapOf(z.string().min(1).max(200), z.string().min(1).max(200), 1_000).meta({
      description: "new class by old class",
    }),
    others: z.enum(["keep", "drop"]).default("keep"),
  }),
  outputs: { detections: like("the objects by their new classes") },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: { classes: { dog: "animal" }, others: "drop" },
    inputs: { detections: exampleOf(0, 1) },
    outputs: {
      detections: {
        frame: EXAMPLE.frame,
        objects: [{ class: "animal", confidence: 0.9, bbox: [10, 10, 50, 50] }],
      },
    },
  },
  run: ({ inputs, parameters }) => {
    const classes = new Map(Object.entries(parameters.classes));
    const objects = inputs.detections.objects.flatMap((object) => {
      const name = classes.get(object.class);
      if (name !== undefined) return [{ ...object, class: name }];
      return parameters.others === "keep" ? [object] : [];
    });
    return { outputs: { detections: { frame: inputs.detections.frame, objects } } };
  },
});

/** How many objects of each class there are, classes in the order of their names. */
function countsOf(objects: readonly WorkflowObject[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { class: name } of objects) counts.set(name, (counts.get(name) ?? 0) + 1);
  const sorted = [...counts].sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(sorted);
}

const count = defineBlock({
  type: "count@1",
  title: "Count objects",
  description: "Counts the objects, all together and by class.",
  section: "detections",
  inputs: {
    detections,
    classes: { kind: "list<string>", meaning: "classes that count; open: all", optional: true },
  },
  parameters: z.object({}),
  outputs: {
    count: { kind: "integer", meaning: "objects" },
    by_class: { kind: "json", meaning: "objects by class; a class without any is not there" },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: { detections: EXAMPLE },
    outputs: { count: 3, by_class: { cat: 1, dog: 2 } },
  },
  run: ({ inputs }) => {
    const { objects } = inputs.detections;
    const classes = inputs.classes && new Set(inputs.classes);
    const counted = classes ? objects.filter((object) => classes.has(object.class)) : objects;
    return { outputs: { count: counted.length, by_class: countsOf(counted) } };
  },
});

const summary = defineBlock({
  type: "detections_summary@1",
  title: "List what was found",
  description: "Tells objects as lists of single values, in the order of the objects.",
  section: "detections",
  inputs: { detections },
  parameters: z.object({}),
  outputs: {
    count: { kind: "integer", meaning: "objects" },
    is_empty: { kind: "boolean", meaning: "whether there is none" },
    classes: { kind: "list<string>", meaning: "class of each object" },
    confidences: { kind: "list<number>", meaning: "confidence of each object" },
    centers: { kind: "list<point>", meaning: "center of each box, pixels of the root image" },
    track_ids: { kind: "list<integer>", meaning: "ids of tracks, each once" },
  },
  runsOn: "anywhere",
  purity: "pure",
  cost: "free",
  example: {
    parameters: {},
    inputs: { detections: exampleOf(0, 1) },
    outputs: {
      count: 2,
      is_empty: false,
      classes: ["dog", "cat"],
      confidences: [0.9, 0.6],
      centers: [
        [30, 30],
        [70, 40],
      ],
      track_ids: [],
    },
  },
  run: ({ inputs }) => {
    const { frame, objects } = inputs.detections;
    const ids = objects.flatMap(({ track_id: id }) => (id === undefined ? [] : [id]));
    return {
      outputs: {
        count: objects.length,
        is_empty: objects.length === 0,
        classes: objects.map((object) => object.class),
        confidences: objects.map(({ confidence }) => confidence),
        centers: objects.map(({ bbox: [x1, y1, x2, y2] }) =>
          rootPoint(frame, [(x1 + x2) / 2, (y1 + y2) / 2]),
        ),
        track_ids: [...new Set(ids)],
      },
    };
  },
});

export const DETECTION_BLOCKS: readonly Block[] = [filter, sort, classMap, count, summary];
