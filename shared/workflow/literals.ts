// Values as users write them, in definitions and in what a run is given: JSON, read by the kind
// that is asked for. Images come by references or as files, never as literals.

import { z } from "zod";
import { JsonValue } from "../json-value.ts";
import { digestOf } from "./digest.ts";
import { type Atom, itemOf, KIND_MEANINGS, type Kind } from "./kinds.ts";
import { isShallow, NESTING_MAX } from "./nesting.ts";
import type { KeyedValue } from "./plan.ts";
import { ClickValue, Detections, LineValue, ModelName, PointValue, ZoneValue } from "./values.ts";

const withField = (field: "mask" | "track_id") =>
  Detections.refine(({ objects }) => objects.every((object) => object[field] !== undefined), {
    error: `every object must have a ${field}`,
  });
const tracks = withField("track_id");

const SCHEMAS: Readonly<Record<Exclude<Atom, "image">, z.ZodType>> = {
  any: JsonValue,
  json: JsonValue,
  number: z.number(),
  integer: z.int(),
  string: z.string(),
  boolean: z.boolean(),
  list: z.array(JsonValue),
  point: PointValue,
  click: ClickValue,
  line: LineValue,
  zone: ZoneValue,
  detections: Detections,
  masks: withField("mask"),
  tracks,
  tracked_masks: withField("mask").and(tracks),
  model: ModelName,
  project: z.string().min(1).max(64),
  secret: z.string().min(1).max(64),
};

/** Whether a kind's values can be written as JSON. */
export const isWritable = (kind: Kind): boolean => (itemOf(kind) ?? kind) !== "image";

/** A kind in words. */
export const meaningOf = (kind: Kind): string => {
  const item = itemOf(kind);
  return item && kind !== "list"
    ? `a list, each item of it ${KIND_MEANINGS[item]}`
    : KIND_MEANINGS[kind as Atom];
};

function schemaOf(kind: Kind): z.ZodType | null {
  const item = itemOf(kind);
  const atom = (item ?? kind) as Atom;
  if (atom === "image") return null;
  return item === null ? SCHEMAS[atom] : z.array(SCHEMAS[atom]);
}

/** The key of a value of JSON: by its content, so that equal ones have equal keys. */
export function contentKey(value: unknown): string {
  const json = Object.is(value, -0) ? "-0" : JSON.stringify(value);
  return json.length <= 64 ? `=${json}` : `#${digestOf(json)}`;
}

/** Reads a value of JSON as one of a kind; what is wrong with it is told in a clause. */
export function readLiteral(
  kind: Kind,
  json: unknown,
): { literal: KeyedValue; problem: null } | { literal: null; problem: string } {
  const schema = schemaOf(kind);
  const refused = (problem: string) => ({ literal: null, problem });
  if (schema === null) return refused("an image cannot be written down");
  if (json === null || json === undefined) return refused("null is no value; leave it out");
  if (!isShallow(json)) return refused(`it is more than ${NESTING_MAX} levels deep`);
  const parsed = schema.safeParse(json);
  if (parsed.success) {
    return { literal: { value: parsed.data, key: contentKey(parsed.data) }, problem: null };
  }
  const [issue] = parsed.error.issues;
  const path = issue?.path.join(".");
  return refused(`${path ? `${path}: ` : ""}${issue?.message ?? "it is not of the kind"}`);
}
