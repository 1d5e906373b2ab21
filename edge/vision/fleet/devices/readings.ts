// What devices say, made fit for the database: numbers as precise as they are stored, and no more
// levels than it takes.

import { Failure } from "../../../../shared/errors.ts";

/** Levels of what a device may say beside the fields that have a name. */
const DEPTH_MAX = 16;

/** Whether a value has more levels than so many. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((one) => isDeeper(one, levels - 1));
}

/** Fails with `invalid_request` for a body of more levels than are stored. */
export function requireShallow(body: unknown): void {
  if (!isDeeper(body, DEPTH_MAX)) return;
  throw new Failure("invalid_request", `body: holds more than ${DEPTH_MAX} levels`);
}

/** A number as Postgres' `real` has it, which refuses one that is too small for it. */
export const single = (given: number | null): number | null =>
  given === null ? null : Math.fround(given);
