// Query parameters that several routes share, and what they mean.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { whole } from "../../shared/scalars.ts";
import {
  DURATION_FORM,
  INSTANT_FORM,
  instantProblem,
  parseDuration,
  parseInstant,
} from "../../shared/time.ts";
import { namePart } from "../http/texts.ts";
import type { Store } from "./store/store.ts";

/** The parameter `library`. */
export const library = namePart().meta({
  description: "library name, as GET /libraries lists it",
  example: "power.demand",
});
/** The parameter `symbol`. */
export const symbol = namePart().meta({ description: "lowercase symbol", example: "erco" });

/** An optional parameter that `instant` parses. */
export const datetime = (description: string, example: string) =>
  z
    .string()
    .optional()
    .meta({ description, example, pattern: `^${INSTANT_FORM}$` });

/** Valid-time bounds. */
export const window = {
  start: datetime("valid-time lower bound, inclusive", "2026-01-01"),
  end: datetime("valid-time upper bound, inclusive", "2026-01-31"),
};

/** Knowledge time, by instant or by name. */
export const knowledge = {
  as_of: datetime("knowledge time; the latest vintage when omitted", "2026-01-31T12:00:00Z"),
  snapshot: namePart().optional().meta({
    description: "a named knowledge time, as GET /snapshots lists it, instead of `as_of`",
    example: "month-end",
  }),
};

/** Which of the versions known at the knowledge time are read. */
export const versions = {
  as_of_offset: z
    .string()
    .optional()
    .meta({
      description:
        "ISO 8601 duration: per row, only what was known by Datetime plus this; -PT10H is ten hours " +
        "before delivery. A row not known by then is left out",
      pattern: `^${DURATION_FORM}$`,
      example: "-PT10H",
    }),
  vintage: z
    .enum(["any", "true_only"])
    .default("any")
    .meta({
      description:
        "true_only: leaves out the versions that backfills wrote. A scheduled run that finds what a " +
        "backfill wrote already writes nothing, so such a row is absent or its last true version",
    }),
};

/** The `as_of_offset` of a query in milliseconds; fails with `invalid_request`. */
export function offset(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseDuration(text);
  if (parsed !== null) return parsed;
  const problem = "must be an ISO 8601 duration of weeks, days, hours, minutes or seconds";
  throw new Failure("invalid_request", `as_of_offset: ${problem}, such as -PT10H`);
}

/** A page size with its default and its maximum. */
export const limit = (fallback: number, max: number) =>
  whole(1, max).default(fallback).meta({ description: "page size", example: 2 });

/** The instant that a parameter names, epoch milliseconds; fails with `bad_datetime`. */
export function instant(
  name: string,
  text: string | undefined,
  rounded: "down" | "up" = "down",
): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseInstant(text, rounded);
  if (parsed === null) {
    const given = JSON.stringify(text.slice(0, 64));
    throw new Failure("bad_datetime", `${name}: ${given} ${instantProblem(text)}`);
  }
  return parsed;
}

/**
 * The window of a read, epoch milliseconds, both ends inclusive; a window that ends before
 * it starts holds no row. Fails with `bad_datetime`.
 */
export function bounds(query: { start?: string | undefined; end?: string | undefined }) {
  return { start: instant("start", query.start, "up"), end: instant("end", query.end) };
}

/**
 * The knowledge time of a read, epoch milliseconds. `pinned` says that a snapshot named it: nothing
 * can become known at a snapshot's time any more, so its answers are immutable. Fails with
 * `bad_datetime`, `unknown_snapshot`, or `invalid_request` when both names are given.
 */
export async function knowledgeTime(
  store: Store,
  query: { as_of?: string | undefined; snapshot?: string | undefined },
): Promise<{ asOf: number | undefined; pinned: boolean }> {
  if (query.snapshot === undefined) return { asOf: instant("as_of", query.as_of), pinned: false };
  if (query.as_of !== undefined) {
    throw new Failure("invalid_request", "snapshot: cannot be combined with as_of");
  }
  return { asOf: (await store.snapshot(query.snapshot)).asOf, pinned: true };
}

/** The index of a value column; the first when none is named. Fails with `invalid_request`. */
export function columnOf(valueColumns: readonly string[], column: string | undefined): number {
  if (column === undefined) return 0;
  const index = valueColumns.indexOf(column);
  if (index >= 0) return index;
  throw new Failure("invalid_request", `column: must be one of ${valueColumns.join(", ")}`);
}
