// JSON bodies that are meant to cost a route the most, made of its schema: every list filled, every
// object with keys that it does not know, every text against its pattern, depth wherever it is
// taken. Each is as long as it is asked to be.

import type { Description } from "../../edge/http/example-request.ts";
import { type Schema, sampleOf, shapeOf, withValue } from "../support/hostile.ts";

/** A body of a route that may be costly; its text has about so many bytes, and no more. */
export interface WorstInput {
  name: string;
  make: (bytes: number) => string;
}

/** A JSON value of at most so many bytes. */
type Fill = (bytes: number) => string;

/** Stands where a value is to be put. */
const HOLE = "@@hole@@";
/** Objects within objects of a schema that are looked into. */
const DEPTH_MAX = 5;

/** Items and what encloses them, until no more fits. */
function joined(
  [open, close]: readonly [string, string],
  item: (index: number) => string,
  countMax = Number.POSITIVE_INFINITY,
): Fill {
  return (bytes) => {
    const items: string[] = [];
    let left = bytes - 2;
    for (let index = 0; index < countMax; index++) {
      const one = item(index);
      left -= Buffer.byteLength(one) + 1;
      if (left < 0) break;
      items.push(one);
    }
    return open + items.join(",") + close;
  };
}

const list = (item: (index: number) => string, countMax?: number) =>
  joined(["[", "]"], item, countMax);
const object = (member: (index: number) => string) => joined(["{", "}"], member);
const repeated =
  (piece: string, [open, close]: readonly [string, string] = ['"', '"']): Fill =>
  (bytes) => {
    const count = Math.max(
      0,
      Math.floor((bytes - (open + close).length) / Buffer.byteLength(piece)),
    );
    return open + piece.repeat(count) + close;
  };
const nested =
  (open: string, close: string): Fill =>
  (bytes) => {
    const count = Math.max(1, Math.floor((bytes - 2) / (open.length + close.length)));
    return `${open.repeat(count)}0${close.repeat(count)}`;
  };

/** Texts, by what they are meant to be hard for. */
const TEXTS: Readonly<Record<string, Fill>> = {
  letters: repeated("a"),
  "blanks and NUL": repeated(" ", ['"', '\\u0000"']),
  dotted: repeated("a."),
  hyphens: repeated("a-", ['"', '!"']),
  "e-mail": repeated("a.", ['"a@', '"']),
  digits: repeated("0"),
  // Marks that normalization sorts.
  marks: repeated("\u0315\u0300"),
  surrogates: repeated("\\ud800"),
  reference: repeated("a.", ['"$steps.', '"']),
  image: repeated("AAAA", ['"data:image/png;base64,', '"']),
};
/** Numbers of ten digits that differ in their high bits only: sparse, and near in many a hash. */
const colliding = (index: number) => String(2 ** 31 + ((index * 2 ** 15) % 2 ** 31));

const DEEP: Readonly<Record<string, Fill>> = {
  "deep lists": nested("[", "]"),
  "deep objects": nested('{"a":', "}"),
};
const TEXT_LISTS: Readonly<Record<string, Fill>> = {
  "distinct texts": list((index) => `"n${index}"`),
  "one text again and again": list(() => '"name"'),
  "texts of one hash": list((index) => `"${colliding(index)}"`),
  "long texts": list((index) => `"${"x".repeat(190)}${index}"`),
};

/** A schema with its reference looked up. */
const known = (schema: Schema | undefined, document: Description): Schema => {
  const name = schema?.$ref?.split("/").at(-1);
  return (name === undefined ? schema : shapeOf(document, name)) ?? {};
};
const partsOf = ({ anyOf = [], oneOf = [], allOf = [] }: Schema) => [...anyOf, ...oneOf, ...allOf];
const typesOf = ({ type }: Schema): unknown[] => [type].flat();

/** Each member, and each list's first item, of a schema: the way to it, and its own schema. */
function* spotsOf(
  schema: Schema | undefined,
  document: Description,
  path: readonly string[] = [],
): Generator<{ path: readonly string[]; schema: Schema }> {
  const own = known(schema, document);
  yield { path, schema: own };
  if (path.length >= DEPTH_MAX) return;
  for (const part of partsOf(own)) yield* spotsOf(part, document, path);
  for (const [name, inner] of Object.entries(own.properties ?? {}))
    yield* spotsOf(inner, document, [...path, name]);
  if (own.items) yield* spotsOf(own.items, document, [...path, "0"]);
  const member = memberOf(own);
  if (member) yield* spotsOf(member, document, [...path, "m"]);
}

/** The schema of a map's members; null where an object is no map. */
const memberOf = ({ additionalProperties: member }: Schema): Schema | null =>
  typeof member === "object" && Object.keys(member).length > 0 ? member : null;

/** Items of a list that its schema takes, and some that it nearly does. */
function itemsOf(schema: Schema, document: Description): Record<string, unknown> {
  const own = known(schema, document);
  const options = partsOf(own).length > 0 ? partsOf(own) : [own];
  const items: Record<string, unknown> = { nulls: null, "empty objects": {}, lists: [] };
  for (const [index, option] of options.entries()) {
    const shape = known(option, document);
    const sample = sampleOf(shape, document);
    items[`items ${index}`] = sample;
    if (!shape.properties) continue;
    const required = new Set(shape.required ?? []);
    const optional = Object.keys(shape.properties).filter((name) => !required.has(name));
    const nulls = Object.fromEntries(optional.map((name) => [name, null]));
    if (optional.length > 0) {
      items[`items ${index}, nulls in them`] = { ...(sample as object), ...nulls };
      items[`nulls of ${index} alone`] = { [optional[0] as string]: null };
    }
    items[`items ${index}, unknown keys`] = { ...(sample as object), unknown: 0 };
  }
  return items;
}

/** What a place of a schema can be filled with. */
function fillsOf(schema: Schema & { maxItems?: number }, document: Description) {
  const fills: Record<string, Fill> = {};
  const types = typesOf(schema);
  if (types.includes("string")) {
    const all = schema.enum || schema.format === "uuid" ? { letters: TEXTS.letters } : TEXTS;
    Object.assign(fills, all);
  }
  if (types.includes("number") || types.includes("integer")) {
    fills["a long number"] = repeated("1", ["", ""]);
    fills["a long fraction"] = repeated("1", ["0.", ""]);
  }
  if (types.includes("array") && schema.items) {
    for (const [name, item] of Object.entries(itemsOf(schema.items, document))) {
      const text = JSON.stringify(item);
      const isUuid = typeof item === "string" && item.length === 36;
      const next = isUuid ? () => JSON.stringify(crypto.randomUUID()) : () => text;
      fills[`${name}, beyond`] = list(next);
      if (schema.maxItems !== undefined) fills[`${name}, at most`] = list(next, schema.maxItems);
    }
    Object.assign(fills, TEXT_LISTS);
  }
  const isOpen = types.includes("object") || (schema.type === undefined && !partsOf(schema).length);
  if (isOpen) {
    const [first = "name"] = Object.keys(schema.properties ?? {});
    fills["unknown keys"] = object((index) => `"x${index}":0`);
    fills["keys near known ones"] = object((index) => `"${first}${index}":0`);
    fills["keys that are numbers"] = object((index) => `"${colliding(index)}":0`);
    fills["one key again and again"] = object(() => `"${first}":0`);
    fills["long keys"] = object((index) => `"${"k".repeat(60)}${index}":null`);
  }
  const member = memberOf(schema);
  if (member) {
    for (const [name, item] of Object.entries(itemsOf(member, document))) {
      const text = JSON.stringify(item);
      fills[`members, ${name}`] = object((index) => `"m${index}":${text}`);
    }
  }
  if (isOpen || types.includes("array")) Object.assign(fills, DEEP);
  return fills;
}

/** The body with a value in a place of it that takes all the bytes that the others leave. */
export function placed(body: unknown, path: readonly string[], fill: Fill): WorstInput["make"] {
  const [before = "", after = ""] = JSON.stringify(withValue(body, [...path], HOLE)).split(
    `"${HOLE}"`,
  );
  return (bytes) => before + fill(bytes - Buffer.byteLength(before + after)) + after;
}

/** All bodies for a schema; `body` is one in order. */
export function worstOfSchema(
  schema: Schema,
  document: Description,
  { body, at = [] }: { body: unknown; at?: readonly string[] },
): WorstInput[] {
  const inputs = new Map<string, WorstInput>();
  const add = (path: readonly string[], name: string, fill: Fill) => {
    const whole = `${path.join(".") || "body"}: ${name}`;
    inputs.set(whole, { name: whole, make: placed(body, path, fill) });
  };
  for (const { path, schema: own } of spotsOf(schema, document)) {
    for (const [name, fill] of Object.entries(fillsOf(own, document)))
      add([...at, ...path], name, fill);
  }
  if (at.length > 0) return [...inputs.values()];
  add([], "members beside others", (bytes) => besideOthers(body, bytes));
  add([], "a list", TEXT_LISTS["distinct texts"] as Fill);
  add([], "blanks", (bytes) => " ".repeat(bytes - 2) + JSON.stringify(0));
  return [...inputs.values()];
}

/** A body in order, and keys that nobody knows. */
function besideOthers(body: unknown, bytes: number): string {
  const own = JSON.stringify(body ?? {});
  const others = object((index) => `"x${index}":0`)(bytes - own.length);
  return own === "{}" ? others : `${own.slice(0, -1)},${others.slice(1)}`;
}
