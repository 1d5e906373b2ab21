// Any JSON value, read in one pass and not copied. Zod's own schema tries each kind of value at
// every level, and notes why each of the others does not fit: half a second for a body of 1 MiB.

import { z } from "zod";

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  z.core.util.isPlainObject(value);

/** The value, without members called `__proto__`; undefined for what is no JSON. */
function read(value: unknown): JsonValue | undefined {
  if (value === null || typeof value === "string" || typeof value === "boolean") return value;
  if (typeof value === "number") return Number.isFinite(value) ? value : undefined;
  if (Array.isArray(value)) {
    const given: readonly unknown[] = value;
    let list: unknown[] | null = null;
    for (const [index, one] of given.entries()) {
      const item = read(one);
      if (item === undefined) return undefined;
      if (item === one) continue;
      list ??= [...given];
      list[index] = item;
    }
    // Each item was read.
    return (list ?? value) as JsonValue[];
  }
  if (!isObject(value)) return undefined;
  if (Object.hasOwn(value, "__proto__")) {
    return read(Object.fromEntries(Object.entries(value).filter(([key]) => key !== "__proto__")));
  }
  let object: Record<string, unknown> | null = null;
  // Keys of an object with very many members are read faster than its entries.
  for (const key of Object.keys(value)) {
    const one = value[key];
    const member = read(one);
    if (member === undefined) return undefined;
    if (member === one) continue;
    object ??= { ...value };
    object[key] = member;
  }
  // Each member was read.
  return (object ?? value) as Record<string, JsonValue>;
}

/** Takes what `z.json()` takes, and makes the same of it. It recurses: bound the depth before. */
export const JsonValue = z.unknown().transform((value, context): z.core.util.JSONType => {
  const json = read(value);
  if (json !== undefined) return json;
  context.addIssue("Invalid input");
  return z.NEVER;
});
export type JsonValue = z.infer<typeof JsonValue>;
