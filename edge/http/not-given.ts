// In JSON bodies null is what is not given: a field that may be left out is left out by a null, at
// any depth, on every route. Where null says something of its own the field's schema takes it, and
// it stays; where it could be meant in two ways it is refused. Bodies are made so before their
// schemas see them, and their descriptions say so.

import { z } from "@hono/zod-openapi";
import { type Description, endpointsOf, type Json } from "./example-request.ts";

/** In the meta of a field that may be left out: a null is refused all the same. */
export const NULL_REFUSED = "x-null-refused";

/** The schema of a body, to which a null is what is not given. */
export const nullsAsNotGiven = <Schema extends z.ZodType>(schema: Schema) =>
  z.preprocess((body) => stripped(schema, body), schema);

/** What is read of the schemas that hold others, by the name of their kind. */
type Definition = { type: string } & Partial<{
  shape: Readonly<Record<string, z.core.$ZodType>>;
  element: z.core.$ZodType;
  valueType: z.core.$ZodType;
  innerType: z.core.$ZodType;
  catchall: z.core.$ZodType;
  in: z.core.$ZodType;
  out: z.core.$ZodType;
  options: readonly z.core.$ZodType[];
}>;

/** What a schema consists of. */
// The library tells its kinds of schemas apart by this member, whose type only says that it is one.
export const definitionOf = (schema: z.core.$ZodType) => schema._zod.def as Definition;

/** The schema within optional, nullable and default ones and pipes, which a body is held to. */
export function unwrapped(schema: z.core.$ZodType): z.core.$ZodType {
  const { innerType, in: first, out } = definitionOf(schema);
  if (innerType) return unwrapped(innerType);
  if (!first || !out) return schema;
  return unwrapped(definitionOf(first).type === "transform" ? out : first);
}

const takes = (schema: z.core.$ZodType, value: unknown) => z.core.safeParse(schema, value).success;

const isLeftOutByNull = (schema: z.core.$ZodType) =>
  takes(schema, undefined) && !takes(schema, null) && !z.globalRegistry.get(schema)?.[NULL_REFUSED];

/** Items of a list at most, of the checks of its schema; infinity where none bounds it. */
function itemsMaxOf({ _zod: { def } }: z.core.$ZodType): number {
  const bounds = (def.checks ?? []).map((check) => {
    // The library tells checks apart by `check`; those of a length alone have such bounds.
    const bound = check._zod.def as { check: string; maximum?: number; length?: number };
    if (bound.check === "max_length") return bound.maximum;
    return bound.check === "length_equals" ? bound.length : undefined;
  });
  return Math.min(...bounds.filter((one) => one !== undefined));
}

/** Members that a schema does not know, of which it tells. */
const UNKNOWN_MAX = 32;

/**
 * An object's members that its schema knows, and the first ones that it does not. Each that a body
 * brings is looked up in a set of names otherwise, which V8 does in quadratic time for numbers that
 * it hashes alike: a body of 1 MiB took 4 s.
 */
function withFewUnknown(
  shape: Readonly<Record<string, unknown>>,
  given: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const [named, keys] = [Object.keys(shape), Object.keys(given)];
  if (keys.length <= named.length + UNKNOWN_MAX) return given;
  const known = named.filter((key) => Object.hasOwn(given, key));
  const unknown: string[] = [];
  for (const key of keys) {
    if (unknown.length === UNKNOWN_MAX) break;
    if (!Object.hasOwn(shape, key)) unknown.push(key);
  }
  // The error lists unknown members by name; their values are not read.
  return Object.fromEntries([
    ...known.map((key) => [key, given[key]]),
    ...unknown.map((key) => [key, null]),
  ]);
}

/**
 * An object without the nulls that another option of its union knows, and this one does not: of
 * generators some write a union as one object with the fields of all options.
 */
function withoutOthers(
  option: z.core.$ZodType,
  options: readonly z.core.$ZodType[],
  value: object,
): object {
  const { shape } = definitionOf(option);
  if (!shape || Array.isArray(value)) return value;
  const others = options.map((one) => definitionOf(one).shape ?? {});
  const isOthers = (key: string) =>
    !Object.hasOwn(shape, key) && others.some((other) => Object.hasOwn(other, key));
  const fields = Object.entries(value);
  const kept = fields.filter(([key, field]) => field !== null || !isOthers(key));
  return kept.length === fields.length ? value : Object.fromEntries(kept);
}

const sizeOf = (body: unknown) => Object.keys(body as object).length;

/** A body without what is not given; the same one where nothing is so. */
function stripped(outer: z.core.$ZodType, value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const schema = unwrapped(outer);
  const { shape, element, valueType, catchall, options } = definitionOf(schema);
  if (options) {
    const candidates = options.map((option) => ({
      option,
      body: stripped(option, withoutOthers(option, options, value)),
    }));
    if (candidates.every(({ body }) => body === value)) return value;
    const taken = candidates.find(({ option, body }) => takes(option, body));
    // Where none takes it, what the option says that knows more of its members.
    const changed = candidates.filter(({ body }) => body !== value);
    return (taken ?? changed.toSorted((one, other) => sizeOf(other.body) - sizeOf(one.body))[0])
      ?.body;
  }
  if (Array.isArray(value)) {
    const given: unknown[] = value;
    if (!element || !holdsOthers(element)) return value;
    // A list that is too long is refused for that alone: its schema looks at no item either.
    if (given.length > itemsMaxOf(schema)) return value;
    const items = given.map((one) => stripped(element, one));
    return items.some((one, index) => one !== given[index]) ? items : value;
  }
  // A schema that bounds its members refuses one too many, and needs to look at no more.
  const membersMax = z.globalRegistry.get(schema)?.maxProperties;
  if (valueType && typeof membersMax === "number" && Object.keys(value).length > membersMax) {
    return Object.fromEntries(Object.entries(value).slice(0, membersMax + 1));
  }
  if (valueType && !holdsOthers(valueType)) return value;
  if (!valueType && !shape) return value;
  const isClosed = !catchall || definitionOf(catchall).type === "never";
  const given = value as Readonly<Record<string, unknown>>;
  const own = shape && isClosed ? withFewUnknown(shape, given) : given;
  const changed: [string, unknown][] = [];
  for (const key of Object.keys(shape ?? own)) {
    const inner = shape ? shape[key] : valueType;
    const field = Object.hasOwn(own, key) ? own[key] : undefined;
    if (!inner || field === undefined) continue;
    const kept =
      field === null && shape && isLeftOutByNull(inner) ? undefined : stripped(inner, field);
    if (kept !== field) changed.push([key, kept]);
  }
  if (changed.length === 0) return own;
  const kept = { ...own };
  for (const [key, field] of changed) {
    if (field === undefined) delete kept[key];
    else kept[key] = field;
  }
  return kept;
}

const SCALARS: ReadonlySet<string> = new Set(["string", "number", "boolean", "enum", "literal"]);
const holdsOthers = (schema: z.core.$ZodType) => !SCALARS.has(definitionOf(schema).type);

/** Says of each field that may be left out of a JSON body that it may be null. */
export function describeNulls(document: Description) {
  const shapes = (document.components?.schemas ?? {}) as Record<string, Json>;
  const seen = new Set<unknown>();
  const visit = (schema: unknown) => {
    if (typeof schema !== "object" || schema === null || seen.has(schema)) return;
    seen.add(schema);
    const { $ref, properties, required, items, additionalProperties, ...parts } = schema as Json;
    const given = (properties ?? {}) as Record<string, Json>;
    for (const [name, property] of Object.entries(given)) {
      visit(property);
      const isNeeded = ((required ?? []) as string[]).includes(name);
      const isSaid = isNeeded || NULL_REFUSED in property || maybeNull(property, shapes);
      if (!isSaid) given[name] = orNull(property);
    }
    const { anyOf = [], oneOf = [], allOf = [] } = parts as Record<string, unknown[]>;
    for (const one of [...anyOf, ...oneOf, ...allOf, items, additionalProperties]) visit(one);
    if (typeof $ref === "string") visit(shapes[shapeName($ref)]);
  };
  for (const { operation } of endpointsOf(document)) {
    visit(operation.requestBody?.content?.["application/json"]?.schema);
  }
}

const shapeName = ($ref: string) => $ref.slice($ref.lastIndexOf("/") + 1);

function maybeNull(schema: Json, shapes: Record<string, Json>): boolean {
  const { $ref, type, enum: values, anyOf, oneOf, allOf } = schema;
  if (typeof $ref === "string") return maybeNull(shapes[shapeName($ref)] ?? {}, shapes);
  if (type !== undefined) return [type].flat().includes("null");
  if (values !== undefined) return (values as unknown[]).includes(null);
  if ("const" in schema) return schema.const === null;
  const parts = (anyOf ?? oneOf) as Json[] | undefined;
  if (parts) return parts.some((part) => maybeNull(part, shapes));
  return allOf === undefined;
}

/**
 * The schema with null beside what it takes; words and defaults stay where they are, but for a
 * default that is an object or a list: of what may be null generators of clients take none.
 */
function orNull({ default: fallback, ...schema }: Json): Json {
  const { type, enum: values, anyOf, const: only, description } = schema;
  const isRich = typeof fallback === "object" && fallback !== null;
  const byDefault = fallback === undefined || isRich ? {} : { default: fallback };
  if (anyOf) return { ...schema, anyOf: [...(anyOf as Json[]), { type: "null" }], ...byDefault };
  if (type === undefined || only !== undefined) {
    const { description: _, ...bare } = schema;
    const words = description === undefined ? {} : { description };
    return { anyOf: [bare, { type: "null" }], ...words, ...byDefault };
  }
  const nullable = { ...schema, type: [type, "null"].flat(), ...byDefault };
  return values ? { ...nullable, enum: [...(values as unknown[]), null] } : nullable;
}
