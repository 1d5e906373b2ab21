// Blocks that write values as text for others to read: JSON by a template, and CSV after RFC 4180.

import { z } from "zod";
import { type Block, BlockFailure, defineBlock } from "../block.ts";
import type { WorkflowObject } from "../values.ts";
import { NamesOfInputs, namedInputs, problemOfNames } from "./named-inputs.ts";
import { noteOf, numberOfObject, ObjectField } from "./object-fields.ts";

const common = { runsOn: "anywhere", purity: "pure", cost: "free" } as const;
const CHARACTERS_MAX = 1_000_000;
/** Values within each other that a template may have. */
const DEPTH_MAX = 20;

const SLOT = /\{\{\s*([A-Za-z_]\w*)\s*\}\}/g;
const ONLY_SLOT = /^\{\{\s*([A-Za-z_]\w*)\s*\}\}$/;

/** Names of the slots in a template, and how deep it is. */
function slotsOf(template: unknown, depth = 0): { names: string[]; depth: number } {
  if (typeof template === "string") {
    return { names: [...template.matchAll(SLOT)].map((match) => match[1] ?? ""), depth };
  }
  if (typeof template !== "object" || template === null) return { names: [], depth };
  if (depth > DEPTH_MAX) return { names: [], depth };
  const parts = Object.values(template).map((part) => slotsOf(part, depth + 1));
  return {
    names: parts.flatMap(({ names }) => names),
    depth: parts.reduce((max, part) => Math.max(max, part.depth), depth),
  };
}

const TOO_LONG = `the text has more than ${CHARACTERS_MAX} characters`;

/** Values by name, each written as JSON once, and the characters that may still be written. */
class Slots {
  readonly #values: ReadonlyMap<string, unknown>;
  readonly #texts = new Map<string, string>();
  #left = CHARACTERS_MAX;

  constructor(values: ReadonlyMap<string, unknown>) {
    this.#values = values;
  }

  /** A template with values in its slots. A text that is nothing but a slot becomes the value. */
  fill(template: unknown): unknown {
    if (typeof template === "string") {
      const only = ONLY_SLOT.exec(template)?.[1];
      if (only === undefined) return template.replace(SLOT, (_, name: string) => this.#text(name));
      this.#text(only);
      return this.#values.get(only) ?? null;
    }
    if (Array.isArray(template)) return template.map((part) => this.fill(part));
    if (typeof template !== "object" || template === null) return template;
    return Object.fromEntries(
      Object.entries(template).map(([name, part]) => [name, this.fill(part)]),
    );
  }

  #text(name: string): string {
    const value = this.#values.get(name) ?? null;
    const known = this.#texts.get(name);
    const text = known ?? (typeof value === "string" ? value : JSON.stringify(value));
    if (known === undefined) this.#texts.set(name, text);
    this.#left -= text.length;
    if (this.#left < 0) throw new BlockFailure(TOO_LONG);
    return text;
  }
}

function bounded(text: string): string {
  if (text.length <= CHARACTERS_MAX) return text;
  throw new BlockFailure(TOO_LONG);
}

const JsonParameters = z.object({
  inputs: NamesOfInputs,
  template: z.json().meta({
    description:
      "any JSON, in which {{name}} stands for an input: alone in a text for its value, among other " +
      "characters for its text",
  }),
});

const jsonFormatter = defineBlock({
  ...common,
  type: "json_formatter@1",
  title: "JSON formatter",
  description: "Puts values into a template, and writes it as JSON.",
  section: "formats",
  inputs: {},
  parameters: JsonParameters,
  outputs: {
    json: { kind: "json", meaning: "the template with its values; null masks" },
    text: { kind: "string", meaning: "the same, written as JSON" },
  },
  portsOf: ({ inputs }) => ({
    inputs: namedInputs(inputs),
    outputs: {
      json: { kind: "json", meaning: "the template with its values; null masks" },
      text: { kind: "string", meaning: "the same, written as JSON" },
    },
  }),
  problemOf: ({ inputs, template }) => {
    const { names, depth } = slotsOf(template);
    const unknown = names.find((name) => !inputs.includes(name));
    if (depth > DEPTH_MAX) return `template: has more than ${DEPTH_MAX} values within each other`;
    if (unknown !== undefined) return `template: no input is called ${unknown}`;
    return problemOfNames(inputs, Object.keys(JsonParameters.shape));
  },
  example: {
    parameters: {
      inputs: ["count", "camera"],
      template: { cars: "{{count}}", message: "{{camera}}: {{count}} cars", tags: ["road"] },
    },
    inputs: { count: 3, camera: "gate" },
    outputs: {
      json: { cars: 3, message: "gate: 3 cars", tags: ["road"] },
      text: '{"cars":3,"message":"gate: 3 cars","tags":["road"]}',
    },
  },
  run: ({ inputs, parameters }) => {
    const given: Readonly<Record<string, unknown>> = inputs;
    const values = new Map(parameters.inputs.map((name) => [name, given[name] ?? null]));
    const json = new Slots(values).fill(parameters.template);
    return { outputs: { json, text: bounded(JSON.stringify(json)) } };
  },
});

const Column = z.union([z.enum(["class", "x1", "y1", "x2", "y2"]), ObjectField]);
type Column = z.infer<typeof Column>;

function cellOf(object: WorkflowObject, column: Column): number | string | boolean | null {
  if (column === "class") return object.class;
  const [x1, y1, x2, y2] = object.bbox;
  const corners = new Map<Column, number>([
    ["x1", x1],
    ["y1", y1],
    ["x2", x2],
    ["y2", y2],
  ]);
  const corner = corners.get(column);
  if (corner !== undefined) return corner;
  if (column.startsWith("data.")) return noteOf(object, column.slice("data.".length));
  // The corners and the class are told above: it is a field of all objects.
  return numberOfObject(object, column as ObjectField);
}

/**
 * A cell after RFC 4180. What a spreadsheet would take for a formula is made a text by an
 * apostrophe, as OWASP advises; numbers are none, negative ones neither.
 */
function written(cell: number | string | boolean | null): string {
  if (cell === null) return "";
  if (typeof cell !== "string") return String(cell);
  const safe = /^[=+\-@\t\r\n＝＋－＠]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const csvFormatter = defineBlock({
  ...common,
  type: "csv_formatter@1",
  title: "CSV formatter",
  description:
    "Writes objects as comma-separated rows after RFC 4180. Texts that a spreadsheet would run as a " +
    "formula get an apostrophe in front.",
  section: "formats",
  inputs: { detections: { kind: "detections", meaning: "objects, a row each" } },
  parameters: z.object({
    columns: z
      .array(Column)
      .min(1)
      .max(50)
      .default(["class", "confidence", "x1", "y1", "x2", "y2"])
      .meta({ description: "what is told of each object, in this order" }),
    header: z.boolean().default(true).meta({ description: "whether the first row names columns" }),
  }),
  outputs: {
    text: { kind: "string", meaning: "rows that each end in CR LF" },
    rows: { kind: "integer", meaning: "objects" },
  },
  example: {
    parameters: { columns: ["class", "confidence", "x1", "data.code"] },
    inputs: {
      detections: {
        frame: { width: 100, height: 100 },
        objects: [
          { class: "label, big", confidence: 0.9, bbox: [1, 2, 3, 4], data: { code: "=1+1" } },
          { class: "label", confidence: 0.5, bbox: [-1.5, 2, 3, 4] },
        ],
      },
    },
    outputs: {
      text: 'class,confidence,x1,data.code\r\n"label, big",0.9,1,\'=1+1\r\nlabel,0.5,-1.5,\r\n',
      rows: 2,
    },
  },
  run: ({ inputs: { detections }, parameters: { columns, header } }) => {
    const lines = detections.objects.map((object) =>
      columns.map((column) => written(cellOf(object, column))).join(","),
    );
    const first = header ? [columns.map(written).join(",")] : [];
    const text = [...first, ...lines].map((line) => `${line}\r\n`).join("");
    return { outputs: { text: bounded(text), rows: lines.length } };
  },
});

export const FORMAT_BLOCKS: readonly Block[] = [jsonFormatter, csvFormatter];
