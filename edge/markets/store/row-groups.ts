// Opening the row groups of an object: fetched from the bucket, or as this isolate still holds them
// since a short read opened them.

import type { PlannedSegment } from "./catalog.ts";
import type { Arrays, Batch } from "./columns.ts";
import type { HeldRowGroups } from "./held-row-groups.ts";
import { fetchBytes, type StoreParts } from "./objects.ts";
import type { Range } from "./rows.ts";
import { decodeSegment, endOf, type RowGroup, type SegmentIndex } from "./segment.ts";

/** A read of more row groups is not short: it would drive out what short ones come back to. */
const SHORT_GROUPS_MAX = 4;

/** The valid times that an object answers for: compaction may have taken what was before them. */
export const rangeWithin = (
  { validMin, validMax }: PlannedSegment,
  { from, to }: Range,
): Range => ({
  from: Math.max(from, validMin),
  to: Math.min(to, validMax + 1),
});

const groupsWithin = ({ groups }: SegmentIndex, { from, to }: Range) =>
  groups.filter(({ validMin, validMax }) => validMax >= from && validMin < to);

/** Whether a read opens few row groups. */
export function isShort(segments: readonly PlannedSegment[], range: Range): boolean {
  const counts = segments.map(
    (segment) => groupsWithin(segment.index, rangeWithin(segment, range)).length,
  );
  return counts.reduce((sum, count) => sum + count, 0) <= SHORT_GROUPS_MAX;
}

/** Whether a short read opens no object: the isolate holds all that it needs of them. */
export const isHeld = (
  { held }: StoreParts,
  segments: readonly PlannedSegment[],
  range: Range,
): boolean =>
  isShort(segments, range) &&
  segments.length > 0 &&
  segments.every((segment) => {
    const { objectKey, index } = segment;
    const groups = groupsWithin(index, rangeWithin(segment, range));
    return groups.every((group) => held?.has(objectKey, group));
  });

/** What is read of an object. */
interface Opening {
  range: Range;
  valueColumns: readonly string[];
  /** Where the row groups of a short read are held. */
  held: HeldRowGroups | undefined;
  /** Those of row groups that are not held. */
  arrays: Arrays;
}

/**
 * The row groups of an object that reach into a range, one at a time. Fails with
 * `store_unavailable`.
 */
export async function openSegment(
  { bucket }: Pick<StoreParts, "bucket">,
  segment: PlannedSegment,
  { range, valueColumns, held, arrays }: Opening,
): Promise<Iterable<Batch>> {
  const { objectKey, index, level, seq, asOf, reconstructed } = segment;
  const writtenBy =
    level === 0 ? { seq, asOf: asOf ?? 0, reconstructed: reconstructed === true } : null;
  const groups = groupsWithin(index, range);
  const opened = groups.map((group) => held?.find(objectKey, group));
  const missing = groups.filter((_, position) => !opened[position]);
  const [first, last] = [missing[0], missing.at(-1)];
  if (!first || !last) return opened.filter((batch) => batch !== undefined);
  const { offset } = first;
  const file = await fetchBytes(bucket, objectKey, { offset, length: endOf(last) - offset });
  const part = { columns: index.columns, groups: missing, bytes: new Uint8Array(file), offset };
  if (!held) return decodeSegment(part, valueColumns, writtenBy, arrays);
  const fetched = [...decodeSegment(part, valueColumns, writtenBy)];
  for (const [position, batch] of fetched.entries()) {
    held.keep(objectKey, missing[position] as RowGroup, batch);
  }
  return opened.map((batch) => batch ?? (fetched.shift() as Batch));
}
