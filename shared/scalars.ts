// Numbers and booleans that come as text: in queries, in the environment, from programs. They are
// parsed, not coerced: an empty text is no 0, and neither hex nor an exponent is a number.

import { z } from "zod";

const WHOLE = /^-?(0|[1-9]\d*)$/;
const DECIMAL = /^-?(0|[1-9]\d*)(\.\d+)?$/;

/** A text of this form as its number; anything else as it came, for the schema to judge. */
const parsedBy = (form: RegExp) => (given: unknown) =>
  typeof given === "string" && form.test(given) ? Number(given) : given;

/** A whole number between bounds, both inclusive. */
export function whole(min: number, max = Number.MAX_SAFE_INTEGER) {
  const bounds = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`;
  const problem = `must be a whole number ${bounds}`;
  return z.preprocess(parsedBy(WHOLE), z.int(problem).min(min, problem).max(max, problem));
}

/** A number, as `bounded` bounds it. */
export const decimal = (bounded: (number: z.ZodNumber) => z.ZodNumber = (number) => number) =>
  z.preprocess(
    parsedBy(DECIMAL),
    bounded(
      z.number({
        // What is a number, but out of bounds, has words of its own.
        error: ({ code }) =>
          code === "invalid_type" ? "must be a number in decimal digits" : undefined,
      }),
    ),
  );

/** `true` or `false`, in letters of either case. */
export const flag = () =>
  z.stringbool({ truthy: ["true"], falsy: ["false"], error: "must be true or false" });

/** A map of at most so many members. */
export const mapOf = <Key extends z.ZodString, Value extends z.ZodType>(
  key: Key,
  value: Value,
  max: number,
) =>
  z
    .record(key, value)
    .refine((map) => Object.keys(map).length <= max, `must have at most ${max} members`)
    .meta({ maxProperties: max });
