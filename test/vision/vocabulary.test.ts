// One vocabulary: what the API says of prompts, thresholds, points, boxes, polygons and masks has
// one name and one shape in every route, and in every block of workflows. Goal: a new route or
// block that says the same thing otherwise is refused here, by its path. The contract fixes
// `prompts` and `threshold` of `POST /label`, `class_name` of a query, and `class`, `confidence`
// and `bbox` of an object; all else follows from them. `threshold` goes with prompts, `confidence`
// with a model.

import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { z } from "zod";
import { BLOCKS } from "../../shared/workflow/blocks.ts";
import { readLiteral } from "../../shared/workflow/literals.ts";

interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  properties?: Record<string, Schema>;
  items?: Schema;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  additionalProperties?: Schema | boolean;
}
interface Description {
  components: { schemas: Record<string, Schema> };
  paths: Record<string, Record<string, Record<string, unknown>>>;
}

/** The shapes that a name may have, wherever it stands. */
const SHAPES: Readonly<Record<string, readonly string[]>> = {
  bbox: ["(number, number, number, number)"],
  boxes: ["[(number, number, number, number)]"],
  points: ["[{label: 0|1, x: number, y: number}]"],
  polygon: ["[number]"],
  rle: ["{counts: [number], size: (number, number)}"],
  // An object's mask, and the form in which masks are asked for.
  mask: [
    "{polygon: [number]} or {rle: {counts: [number], size: (number, number)}}",
    '"none"|"polygon"|"rle"',
  ],
  prompts: ["[string]"],
  prompt: ["string"],
  class: ["string"],
  class_name: ["string"],
  threshold: ["number"],
  confidence: ["number"],
  min_confidence: ["number"],
  max_confidence: ["number"],
  iou: ["number"],
  segmenter: ["string"],
};

/** Words for things that have another name here. */
const OTHERS: Readonly<Record<string, string>> = {
  score: "confidence",
  conf: "threshold or confidence",
  probability: "confidence",
  min_score: "min_confidence",
  score_threshold: "threshold",
  confidence_threshold: "threshold",
  box: "bbox",
  xyxy: "bbox",
  xywh: "bbox",
  bounding_box: "bbox",
  text: "prompts",
  texts: "prompts",
  query: "prompts",
  queries: "prompts",
  segmentation: "polygon or rle",
  polygons: "polygon",
  contour: "polygon",
  outline: "polygon",
  ring: "polygon",
  zone: "polygon",
  point: "points",
  clicks: "points",
  label_name: "class",
  category: "class",
  category_name: "class",
};

/** Where a name of these stands for another thing, and for which; the end of a path will do. */
const EXCEPTIONS: Readonly<Record<string, string>> = {
  "losses.box": "a loss of the training, as the contract names it",
  "losses.mask": "a loss of the training, beside `box`",
  "loss.box": "a loss of the training",
  "loss.mask": "a loss of the training",
  "SamObject.prompt": "which of the prompts found the object: its kind and index",
  "segment-points 200.mask": "a clicked mask in three forms at once, with its box",
  "coco.annotations.score": "COCO's own document",
  "coco.annotations.segmentation": "COCO's own document",
  "AnnotationComment.text": "what a person says",
  "comments body.text": "what a person says",
  "{comment_id} body.text": "what a person says",
  "segmenters.text": "whether a segmenter understands words",
};

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A schema's shape without bounds, defaults, descriptions and null. */
function shapeOf(schema: Schema, named: Readonly<Record<string, Schema>>): string {
  const inner = (one: Schema) => shapeOf(one, named);
  if (schema.$ref) return inner(named[schema.$ref.split("/").at(-1) ?? ""] ?? {});
  const values = schema.enum ?? (schema.const === undefined ? null : [schema.const]);
  if (values) {
    const texts = values.filter((value) => value !== null).map((value) => JSON.stringify(value));
    return texts.toSorted().join("|");
  }
  const options = schema.anyOf ?? schema.oneOf;
  if (options) {
    const shapes = [...new Set(options.map(inner))].filter((shape) => shape !== "null").toSorted();
    const areValues = options.every((one) => one.enum ?? one.const !== undefined);
    return shapes.join(areValues ? "|" : " or ");
  }
  if (schema.prefixItems) return `(${schema.prefixItems.map(inner).join(", ")})`;
  if (schema.properties) {
    const entries = Object.entries(schema.properties).toSorted();
    return `{${entries.map(([name, one]) => `${name}: ${inner(one)}`).join(", ")}}`;
  }
  if (schema.items) return `[${inner(schema.items)}]`;
  const types = [schema.type ?? "any"].flat().filter((type) => type !== "null");
  return types.map((type) => (type === "integer" ? "number" : type)).join("|") || "null";
}

/** What deviates of a property, or null. */
function deviation(path: string, name: string, shape: string): string | null {
  const own = Object.hasOwn(OTHERS, name) ? OTHERS[name] : undefined;
  if (own) return `${path}: say ${own}`;
  const shapes = Object.hasOwn(SHAPES, name) ? SHAPES[name] : undefined;
  if (!shapes || shapes.includes(shape)) return null;
  return `${path}: it is ${shape}, and elsewhere ${shapes.join(", or ")}`;
}

/** What deviates in a description, exceptions included. */
function allDeviations({ components: { schemas }, paths }: Description): string[] {
  const found = new Set<string>();
  const judge = (path: string, name: string, schema: Schema) => {
    const problem = deviation(path, name, shapeOf(schema, schemas));
    if (problem) found.add(problem);
  };
  const walk = (value: unknown, path: string): void => {
    if (Array.isArray(value)) for (const one of value) walk(one, path);
    if (!isObject(value)) return;
    const { properties, example: _, examples: __, ...rest } = value;
    for (const [name, schema] of Object.entries((properties ?? {}) as Record<string, Schema>)) {
      judge(`${path}.${name}`, name, schema);
      walk(schema, `${path}.${name}`);
    }
    for (const one of Object.values(rest)) walk(one, path);
  };
  for (const [name, schema] of Object.entries(schemas)) walk(schema, name);
  for (const [route, methods] of Object.entries(paths)) {
    for (const [method, { parameters = [], requestBody, responses = {} }] of Object.entries(
      methods,
    )) {
      const at = `${method.toUpperCase()} ${route}`;
      for (const { name, schema } of parameters as { name: string; schema: Schema }[]) {
        judge(`${at} query.${name}`, name, schema);
      }
      walk(requestBody, `${at} body`);
      for (const [status, answer] of Object.entries(responses as object)) {
        walk(answer, `${at} ${status}`);
      }
    }
  }
  return [...found];
}

/** What deviates in a description and is no exception. */
const deviationsOf = (description: Description): string[] =>
  allDeviations(description).filter(
    (one) => !Object.keys(EXCEPTIONS).some((end) => one.includes(`${end}: `)),
  );

const document = (): Description =>
  JSON.parse(readFileSync(new URL("../golden/openapi.vision.json", import.meta.url), "utf8"));

it("has one name and one shape for a thing in every route", () => {
  expect(deviationsOf(document())).toEqual([]);
});

it("refuses a route that says a thing otherwise", () => {
  const { components, paths } = document();
  const properties = {
    polygon: { type: "array", items: { type: "array", items: { type: "number" } } },
    bbox: { type: "object", properties: { x: { type: "number" }, width: { type: "number" } } },
    points: { type: "array", items: { type: "array", items: { type: "number" } } },
    prompts: { type: "string" },
    threshold: { type: ["string", "null"] },
    score: { type: "number" },
  };
  const schema = { type: "object", properties };
  const requestBody = { content: { "application/json": { schema } } };
  const parameters = [{ name: "conf", in: "query", schema: { type: "number" } }];
  const more = { "/api/v1/new": { post: { requestBody, parameters } } };
  const at = "POST /api/v1/new";
  expect(deviationsOf({ components, paths: { ...paths, ...more } })).toEqual([
    `${at} query.conf: say threshold or confidence`,
    `${at} body.polygon: it is [[number]], and elsewhere [number]`,
    `${at} body.bbox: it is {width: number, x: number}, and elsewhere ${SHAPES.bbox?.[0]}`,
    `${at} body.points: it is [[number]], and elsewhere ${SHAPES.points?.[0]}`,
    `${at} body.prompts: it is string, and elsewhere [string]`,
    `${at} body.threshold: it is string, and elsewhere number`,
    `${at} body.score: say confidence`,
  ]);
});

it("makes no exception that is none", () => {
  const all = allDeviations(document());
  const unused = Object.keys(EXCEPTIONS).filter(
    (end) => !all.some((one) => one.includes(`${end}: `)),
  );
  expect(unused).toEqual([]);
});

/** Kinds of ports by name, where the same name stands in routes. */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  prompts: ["list<string>"],
  points: ["list<click>"],
  boxes: ["detections"],
  exemplars: ["detections"],
  threshold: ["number"],
  confidence: ["number"],
  zone: ["zone"],
  polygon: ["zone"],
};

it("has the same names in the blocks of workflows", () => {
  const wrong = [...BLOCKS.values()].flatMap(({ type, inputs, parameters }) => {
    const ports = Object.entries(inputs).flatMap(([name, { kind }]) => {
      const kinds = KINDS[name];
      const isWrong = kinds && !(typeof kind === "string" && kinds.includes(kind));
      return isWrong || (name in OTHERS && name !== "zone") ? [`${type}.${name}`] : [];
    });
    const { properties = {} } = z.toJSONSchema(parameters, { io: "input" }) as Schema;
    const own = Object.entries(properties).flatMap(([name, schema]) => {
      const problem = deviation(`${type}.${name}`, name, shapeOf(schema, {}));
      return problem ? [problem] : [];
    });
    return [...ports, ...own];
  });
  expect(wrong).toEqual([
    // How the confidence of what several models found is made, not a confidence.
    expect.stringContaining("consensus@1.confidence"),
  ]);
});

it("reads a polygon and clicks in blocks as routes have them, and as definitions had them", () => {
  const corners = [
    [0, 120],
    [640, 120],
    [640, 360],
  ];
  expect(readLiteral("zone", corners.flat())).toEqual(readLiteral("zone", corners));
  expect(readLiteral("zone", corners).literal?.value).toEqual(corners);
  const zones = [corners.flat(), corners];
  expect(readLiteral("list<zone>", zones).literal?.value).toEqual([corners, corners]);
  for (const wrong of [[0, 120, 640, 120], [0, 120, 640, 120, 640], [...corners.flat(), "1"], []]) {
    expect([wrong, readLiteral("zone", wrong).literal]).toEqual([wrong, null]);
  }
  const clicks = [[3, 4], { x: 5, y: 6, label: 0 }];
  expect(readLiteral("list<click>", clicks).literal?.value).toEqual(clicks);
  expect(readLiteral("list<click>", [{ x: 5, y: 6 }]).literal).toBeNull();
});
