// Any JSON value. Goal: what zod's own schema of it takes and makes of it, this one does.

import { expect, it } from "vitest";
import { z } from "zod";
import { JsonValue } from "../../shared/json-value.ts";

it.each([
  null,
  true,
  "text",
  0,
  -0,
  1.5,
  [],
  {},
  [[], {}, [null]],
  { a: { b: [1, "x", false, null] }, constructor: 1 },
  JSON.parse('{"__proto__": {"a": 1}, "b": [{"__proto__": 1, "c": 2}]}') as unknown,
  JSON.parse('{"a": [1e400]}') as unknown,
  undefined,
  Number.NaN,
  [undefined],
  { a: undefined },
  10n,
  new Date(0),
  new Map([["a", 1]]),
  { a: [new Uint8Array(1)] },
  () => 1,
])("%o is read as zod reads it", (value) => {
  const [own, known] = [JsonValue.safeParse(value), z.json().safeParse(value)];
  expect(own.success).toBe(known.success);
  if (own.success) expect(own.data).toStrictEqual(known.data);
  const issuesOf = ({ error }: typeof own | typeof known) =>
    error?.issues.map(({ path, message }) => ({ path, message }));
  expect(issuesOf(own)).toEqual(issuesOf(known));
});

it("is not copied where nothing is left out of it", () => {
  const value = JSON.parse('{"a": [{}], "b": [{"__proto__": 1}]}') as Record<string, object>;
  const read = JsonValue.parse(value) as typeof value;
  expect(read.a).toBe(value.a);
  expect(read.b).toStrictEqual([{}]);
  expect(JSON.stringify(value)).toContain("__proto__");
});
