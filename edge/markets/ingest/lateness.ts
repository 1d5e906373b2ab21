// Whether a pipeline's data is late: older than what its releases and its cadence allow. Pure.

import { expectedUntil, startOf } from "./completeness.ts";
import { latestPartition, shiftPartition } from "./partition.ts";
import type { Pipeline } from "./pipeline.ts";

/** How new a pipeline's data is; instants in epoch milliseconds, null where there is none. */
export interface DataAge {
  /** The newest valid time of what has happened. */
  newest: number | null;
  /** The newest valid time of what lies ahead: forecasts, and prices settled for the next day. */
  horizon: number | null;
  /** When something was last learned. */
  asOf: number | null;
}

/** Partitions whose release window may be open at one time. */
const OPEN_MAX = 4;

/**
 * Since when a pipeline's data is late, or null. With a release, it must reach into the newest
 * partition whose window is over; without one, it is late at the age at which a check calls it
 * stale. A pipeline that is run by hand is never late, and neither is one without any data.
 */
export function lateSince(pipeline: Pipeline, age: DataAge, now: number): number | null {
  const { schedules, release, partitions, freshness } = pipeline;
  const { newest, horizon, asOf } = age;
  if (schedules.length === 0 || asOf === null) return null;
  const grown = (newest ?? asOf) + freshness.errorMs;
  // The values of a longer partition are dated by its start.
  const isDated = release !== null && !["day", "operating_day"].includes(partitions.unit);
  const aged = now >= grown && !isDated && (release === null || newest !== null) ? grown : null;
  if (!release) return aged;
  let key = latestPartition(partitions, now);
  for (let back = 0; back < OPEN_MAX && expectedUntil(pipeline, key) > now; back++) {
    key = shiftPartition(partitions, key, -1);
  }
  const reached = Math.max(newest ?? -Infinity, horizon ?? -Infinity);
  const isReached = reached >= startOf(pipeline, key) || key < partitions.first;
  return isReached ? aged : expectedUntil(pipeline, key);
}
