// Texts in requests: without what Postgres cannot store, and, where people name something, without
// blanks around them.

import { z } from "@hono/zod-openapi";

/** What the description says of a text without NUL characters. */
export const WITHOUT_NUL = "^[^\\u0000]*$";

/** A text without what Postgres cannot store. */
export const text = () =>
  z
    .string()
    .refine((given) => !given.includes("\0"), "must not hold a NUL character")
    .refine((given) => given.isWellFormed(), "must not hold half a surrogate pair")
    .meta({ pattern: WITHOUT_NUL });

/** A text that names something. */
export const name = () => text().min(1, "must not be empty");

/** The name of something that is there, as an address names it; none of ours is as long. */
export const namePart = () => name().max(1_000);

/** What the description says of a name of at most so many characters that is trimmed first. */
export const trimmed = (maxLength: number) => ({
  minLength: 1,
  maxLength,
  pattern: "^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$",
});

/** A name that people give: without blanks around it. */
export const title = () => z.string().trim().max(200).pipe(name()).meta(trimmed(200));
