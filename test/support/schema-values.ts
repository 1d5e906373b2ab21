// Values that a JSON schema lets through, drawn at random; schemas of the kind that zod writes of
// parameters. Numbers stay small, so that what is made of them is.

import fc from "fast-check";
import { z } from "zod";

const NUMBER_MAX = 64;

interface Schema {
  type?: string;
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  exclusiveMinimum?: number;
  maximum?: number;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  propertyNames?: Schema;
  additionalProperties?: Schema;
}

function numberOf({ type, minimum, exclusiveMinimum, maximum }: Schema): fc.Arbitrary<number> {
  const min = Math.max(minimum ?? exclusiveMinimum ?? -NUMBER_MAX, -NUMBER_MAX);
  const max = Math.min(maximum ?? NUMBER_MAX, min + NUMBER_MAX);
  if (type === "integer") return fc.integer({ min, max });
  const minExcluded = exclusiveMinimum !== undefined;
  return fc.double({ min, max, minExcluded, noNaN: true });
}

function stringOf({ pattern, minLength = 0, maxLength = 20 }: Schema): fc.Arbitrary<string> {
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  return fc.string({ minLength, maxLength: Math.min(maxLength, minLength + 20) });
}

function objectOf(schema: Schema): fc.Arbitrary<unknown> {
  const { properties, required, propertyNames, additionalProperties } = schema;
  if (!properties && propertyNames && additionalProperties) {
    const [keys, values] = [stringOf(propertyNames), schemaValues(additionalProperties)];
    return fc.dictionary(keys, values, { maxKeys: 3, noNullPrototype: true });
  }
  const model: Record<string, fc.Arbitrary<unknown>> = {};
  for (const [name, each] of Object.entries(properties ?? {})) model[name] = schemaValues(each);
  return fc.record(model, { requiredKeys: required ?? [], noNullPrototype: true });
}

function schemaValues(schema: Schema): fc.Arbitrary<unknown> {
  if ("const" in schema) return fc.constant(schema.const);
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.anyOf) return fc.oneof(...schema.anyOf.map(schemaValues));
  switch (schema.type) {
    case "object":
      return objectOf(schema);
    case "array": {
      const { items = {}, minItems: minLength = 0, maxItems = 3 } = schema;
      const maxLength = Math.max(minLength, Math.min(maxItems, 3));
      return fc.array(schemaValues(items), { minLength, maxLength });
    }
    case "integer":
    case "number":
      return numberOf(schema);
    case "boolean":
      return fc.boolean();
    case "string":
      return stringOf(schema);
    default:
      return fc.jsonValue({ maxDepth: 2 });
  }
}

/** Values of an object schema's input that the schema itself has parsed; its refinements, too. */
export function parsedValues(
  schema: z.ZodObject,
  isRight: (parsed: unknown) => boolean,
  otherwise: Readonly<Record<string, unknown>>,
): fc.Arbitrary<Record<string, unknown>> {
  const json = z.toJSONSchema(schema, { io: "input" }) as Schema;
  return schemaValues(json).map((value) => {
    const parsed = schema.safeParse(value);
    const fits = parsed.success && isRight(parsed.data);
    return { ...(fits ? (value as Record<string, unknown>) : otherwise) };
  });
}
