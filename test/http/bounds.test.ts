// What requests may hold is bounded where it is described: texts, numbers, lists, maps. What is
// open is open by name, and for a reason.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Description, endpointsOf, type Json } from "../../edge/http/example-request.ts";

const read = (service: string) =>
  JSON.parse(
    readFileSync(join(import.meta.dirname, `../golden/openapi.${service}.json`), "utf8"),
  ) as Description;

/** Formats whose texts have a length; a file is bounded as it is read. */
const BOUNDED_FORMATS: readonly unknown[] = ["uuid", "date", "date-time", "binary"];

/** Whether the texts that a pattern takes have a greatest length. */
function isBoundedPattern(pattern: unknown): boolean {
  const plain = String(pattern)
    .replace(/\\./g, "c")
    .replace(/\[[^\]]*\]/g, "c");
  return /^\^.*\$$/.test(plain) && !/[*+]|\{\d+,\}/.test(plain);
}

/** What is not bounded of a schema itself, beside what is in it. */
function* unbounded(schema: Json): Generator<string> {
  const { type, format, pattern, properties, additionalProperties } = schema;
  const types = [type ?? []].flat();
  if (schema.enum || "const" in schema) return;
  const has = (...names: string[]) => names.some((name) => name in schema);
  if (!has("type", "anyOf", "oneOf", "allOf", "$ref")) yield "anything";
  if (types.includes("string")) {
    const isShort = has("maxLength") || BOUNDED_FORMATS.includes(format);
    if (!isShort && !(pattern && isBoundedPattern(pattern))) yield "text";
  }
  if (types.includes("number") || types.includes("integer")) {
    if (!has("minimum", "exclusiveMinimum") || !has("maximum", "exclusiveMaximum")) yield "number";
  }
  if (types.includes("array") && !has("maxItems")) yield "list";
  if (types.includes("object") && !has("maxProperties")) {
    if (additionalProperties === undefined ? !properties : additionalProperties) yield "map";
  }
}

/** All that is unbounded in the requests of a document, by operation or shape, and path. */
function holdersOf(document: Description): string[] {
  const [found, seen] = [new Set<string>(), new Set<string>()];
  const visit = (given: unknown, holder: string) => {
    if (typeof given !== "object" || given === null) return;
    const schema = given as Json;
    if (typeof schema.$ref === "string") {
      const name = schema.$ref.slice(schema.$ref.lastIndexOf("/") + 1);
      if (seen.has(name)) return;
      seen.add(name);
      visit(document.components?.schemas?.[name], name);
      return;
    }
    for (const kind of unbounded(schema)) found.add(`${holder} ${kind}`);
    for (const [name, property] of Object.entries((schema.properties ?? {}) as Json)) {
      visit(property, `${holder}.${name}`);
    }
    for (const one of ["anyOf", "oneOf", "allOf", "prefixItems"]) {
      for (const part of (schema[one] ?? []) as unknown[]) visit(part, holder);
    }
    visit(schema.items, `${holder}[]`);
    visit(schema.propertyNames, `${holder} key`);
    visit(schema.additionalProperties, `${holder}{}`);
  };
  for (const { operation } of endpointsOf(document)) {
    const { operationId = "", parameters = [], requestBody } = operation;
    for (const { name, schema } of parameters) visit(schema, `${operationId}.${name}`);
    for (const { schema } of Object.values(requestBody?.content ?? {})) visit(schema, operationId);
  }
  return [...found].sort();
}

const ANY_BOX = "any number: what lies outside of the frame is cut to it, or refused by that name";
const JSON_VALUE = "any JSON value, bounded by the body's bytes and how deep it is";
const JSON_TEXT = "JSON in a form's field, whose bytes are bounded; its schema is the JSON body's";
const KIND = "in the shape of the task's kind, which is checked by the kind's schema";
const OWN_FIELDS = "other fields of a device's own are kept as they come, in bounded bytes";

/** What is open, by its name or the beginning of its name, and why. */
const OTHER_TOOLS = "what other tools write there is their own, bounded by the body's bytes";
const OPEN: Record<string, Record<string, string>> = {
  markets: {},
  console: {},
  vision: {
    "Heartbeat map": OWN_FIELDS,
    "Heartbeat{} anything": OWN_FIELDS,
    "LogLine map": OWN_FIELDS,
    "LogLine{} anything": OWN_FIELDS,
    "ReportedModel map": OWN_FIELDS,
    "ReportedModel{} anything": OWN_FIELDS,
    "WorkflowDefinition.inputs[].default*": JSON_VALUE,
    "WorkflowDefinition.steps[].parameters{}*": JSON_VALUE,
    "runWorkflow.definition.inputs[].default*": JSON_VALUE,
    "runWorkflow.definition.steps[].parameters{}*": JSON_VALUE,
    "runWorkflow.definition map": JSON_TEXT,
    "runWorkflow.inputs map": JSON_TEXT,
    "runWorkflow.inputs{}*": JSON_VALUE,
    "serveWorkflow.inputs map": JSON_TEXT,
    "serveWorkflow.inputs{}*": JSON_VALUE,
    "runWorkflowOnVideo.definition map": JSON_TEXT,
    "runWorkflowOnVideo.inputs map": JSON_TEXT,
    "serveWorkflowOnVideo.inputs map": JSON_TEXT,
    "importRoboflowWorkflow.definition*": "another service's document, bounded by its bytes",
    "importAnnotations.coco.images[].frame_id anything": OTHER_TOOLS,
    "importAnnotations.coco.annotations[].keypoints anything": OTHER_TOOLS,
    "importAnnotations.coco.annotations[].attributes anything": OTHER_TOOLS,
    "drawAnnotation.bbox*": ANY_BOX,
    "editAnnotation.bbox*": ANY_BOX,
    "labelByExemplar.exemplars[].bbox*": ANY_BOX,
    "previewLabels.exemplars[].bbox*": ANY_BOX,
    "segmentPoints.bbox*": ANY_BOX,
    "predictSam.bbox*": ANY_BOX,
    "predictSam.boxes[]*": ANY_BOX,
    "predictSam.exemplars[].bbox*": ANY_BOX,
    "predictSamVideo.exemplars[].bbox*": ANY_BOX,
    "finishTask.outcome.result*": KIND,
    "reportProgress.detail*": KIND,
    "reportProgress.partial*": KIND,
  },
};

describe.each(Object.entries(OPEN))("the requests of %s", (service, open) => {
  const holders = holdersOf(read(service));
  const covers = (entry: string, holder: string) =>
    entry.endsWith("*") ? holder.startsWith(entry.slice(0, -1)) : holder === entry;

  it("hold nothing without a bound but what is open by name", () => {
    const entries = Object.keys(open);
    expect(holders.filter((holder) => !entries.some((one) => covers(one, holder)))).toEqual([]);
    expect(entries.filter((one) => !holders.some((holder) => covers(one, holder)))).toEqual([]);
  });
});

it("finds what is planted", () => {
  const schema = {
    type: "object",
    properties: {
      text: { type: "string", pattern: "^[a-z]+$" },
      short: { type: "string", pattern: "^[*+]{1,3}\\+$" },
      count: { type: ["integer", "null"], minimum: 0 },
      list: { type: "array", items: {} },
      map: { type: "object", additionalProperties: { type: "boolean" } },
      shape: { $ref: "#/components/schemas/Shape" },
    },
  };
  const operation = {
    operationId: "plant",
    requestBody: { content: { "application/json": { schema } } },
  };
  const shape = { type: "object", properties: { name: { type: "string" } } };
  const planted = {
    info: { title: "x", version: "1" },
    paths: { "/x": { post: operation } },
    components: { schemas: { Shape: shape } },
  };
  expect(holdersOf(planted)).toEqual([
    "Shape.name text",
    "plant.count number",
    "plant.list list",
    "plant.list[] anything",
    "plant.map map",
    "plant.text text",
  ]);
});
