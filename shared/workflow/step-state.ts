// States of steps as they come back from whoever kept them: parsed, since a changed definition may
// have written them. What does not fit is forgotten, and that is told.
// What a step remembers of each of many things is bounded in size: a stream keeps it all.

import type { z } from "zod";

/** A state by its schema; `fresh` where there is none or it has another shape, with a warning. */
export function readState<Schema extends z.ZodType>(
  schema: Schema,
  state: unknown,
  fresh: z.output<Schema>,
): { state: z.output<Schema>; warnings: string[] } {
  if (state === null || state === undefined) return { state: fresh, warnings: [] };
  const parsed = schema.safeParse(state);
  if (parsed.success) return { state: parsed.data, warnings: [] };
  return { state: fresh, warnings: ["the state of the step had another shape: it begins anew"] };
}

/** Characters of JSON that a step may remember of its things together; a stream holds five such. */
const REMEMBERED_CHARACTERS_MAX = 200_000;

/** The first of some things that a step may remember: those worth most stand first. */
export function remembered<Item>(items: readonly Item[]): Item[] {
  let left = REMEMBERED_CHARACTERS_MAX;
  const end = items.findIndex((item) => {
    left -= JSON.stringify(item).length + 1;
    return left < 0;
  });
  return items.slice(0, end < 0 ? items.length : end);
}
