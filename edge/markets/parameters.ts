// Query parameters that several routes share, and what they mean.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { parseInstant } from "../../shared/time.ts";
import { name } from "../http/app.ts";
import type { Store } from "./store/store.ts";

export const apiKey = [{ apiKey: [] }];

export const library = name().meta({
  description: "library name, as GET /libraries lists it",
  example: "power.demand",
});
export const symbol = name().meta({ description: "lowercase symbol", example: "erco" });

export const datetime = (description: string, example: string) =>
  z.string().optional().meta({ description, example });

/** Valid-time bounds. */
export const window = {
  start: datetime("valid-time lower bound, inclusive", "2026-01-01"),
  end: datetime("valid-time upper bound, inclusive", "2026-01-31"),
};

/** Knowledge time, by instant or by name. */
export const knowledge = {
  as_of: datetime("knowledge time; the latest vintage when omitted", "2026-01-31T12:00:00Z"),
  snapshot: name().optional().meta({
    description: "a named knowledge time, as GET /snapshots lists it, instead of `as_of`",
  }),
};

export const limit = (fallback: number, most: number) =>
  z.coerce.number().int().min(1).max(most).default(fallback).meta({ description: "page size" });

/** The instant a parameter names; fails with `bad_datetime`. */
export function instant(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseInstant(text);
  if (parsed === null) {
    const given = JSON.stringify(text.slice(0, 64));
    throw new Failure("bad_datetime", `${name}: ${given} is not an ISO 8601 date or datetime`);
  }
  return parsed;
}

/** The window of a read; fails when it ends before it starts. */
export function bounds(query: { start?: string | undefined; end?: string | undefined }) {
  const start = instant("start", query.start);
  const end = instant("end", query.end);
  if (start !== undefined && end !== undefined && start > end) {
    throw new Failure("invalid_request", "start: lies after end");
  }
  return { start, end };
}

/**
 * The knowledge time of a read. At a snapshot's nothing can become known any more, so its answers
 * are settled.
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

/** The index of a value column; the first when none is named. */
export function columnOf(valueColumns: readonly string[], column: string | undefined): number {
  if (column === undefined) return 0;
  const index = valueColumns.indexOf(column);
  if (index >= 0) return index;
  throw new Failure("invalid_request", `column: must be one of ${valueColumns.join(", ")}`);
}
