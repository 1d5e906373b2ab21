// An edit of boxes as pure data, and what can be done with one: applied, inverted, composed with
// the one after it, rebased onto somebody else's change, written as rows of a request.

import { type Box, type BoxFields, FIELD_NAMES, isSame } from "./box.ts";

/** What an edit does to one annotation. */
export interface EditRow {
  /** The annotation. */
  id: string;
  /** Revision that it was made at; null for one that it creates. */
  revision: number | null;
  /** Touched fields as they were; all of them where it deletes; null where it creates. */
  before: Readonly<Partial<BoxFields>> | null;
  /** Touched fields as they become; all of them where it creates; null where it deletes. */
  after: Readonly<Partial<BoxFields>> | null;
}

/** One action of a person, on any number of annotations, each of which it names once. */
export interface Edit {
  edit_id: string;
  job: string;
  rows: readonly EditRow[];
  /** For people, such as `accept 12 boxes`. */
  label: string;
}

/** A row of the body of `POST /jobs/{id}/edits`. */
export interface EditRequest {
  edit_id: string;
  op: "create" | "set" | "delete";
  annotation_id: string;
  revision?: number;
  fields?: Partial<BoxFields>;
}

const touched = (fields: Readonly<Partial<BoxFields>>) =>
  FIELD_NAMES.filter((name) => name in fields);

/**
 * A box after a row of an edit; null: there is none. What is gone stays gone but for a creation.
 */
export function appliedRow(box: Box | null, row: EditRow): Box | null {
  if (row.after === null) return null;
  if (box) return { ...box, ...row.after, keyframe: box.keyframe || "bbox" in row.after };
  if (row.before !== null) return null;
  return {
    id: row.id,
    revision: row.revision ?? 0,
    confidence: null,
    source: "person",
    keyframe: true,
    duplicate: false,
    disputed: false,
    // An edit that creates has all fields.
    ...(row.after as BoxFields),
  };
}

/** Boxes by id, after an edit. */
export function apply(boxes: ReadonlyMap<string, Box>, edit: Edit): Map<string, Box> {
  const after = new Map(boxes);
  for (const row of edit.rows) {
    const box = appliedRow(after.get(row.id) ?? null, row);
    if (box) after.set(row.id, box);
    else after.delete(row.id);
  }
  return after;
}

/**
 * The edit that takes another back. `revisionOf` gives the revision that the other one made of an
 * annotation; the inverse applies to that one alone.
 */
export function invert(
  edit: Edit,
  editId: string,
  revisionOf: (id: string) => number | null,
): Edit {
  const rows = edit.rows.map(({ id, before, after }) => ({
    id,
    revision: after === null ? null : revisionOf(id),
    before: after,
    after: before,
  }));
  return { edit_id: editId, job: edit.job, rows, label: edit.label };
}

/** Both rows of one annotation as one; null where the second takes back the first. */
export function compose(first: EditRow, second: EditRow): EditRow | null {
  const { id, revision, before } = first;
  const after = second.after && first.after ? { ...first.after, ...second.after } : second.after;
  // Fields that only the second touched are before it as they were before the first.
  const was = before && second.before ? { ...second.before, ...before } : before;
  const row = { id, revision, before: was, after };
  return isIdle(row) ? null : row;
}

/** Whether a row changes nothing. */
export function isIdle({ before, after }: EditRow): boolean {
  if (before === null || after === null) return before === after;
  return touched(after).every((name) => isSame(name, before, after));
}

/** A row with other values in fields that it touches, as they were before it. */
export function withBefore(row: EditRow, values: Readonly<Partial<BoxFields>>): EditRow {
  const { before } = row;
  if (!before) return row;
  const known = touched(values).filter((name) => name in before);
  const own = Object.fromEntries(known.map((name) => [name, values[name]]));
  return { ...row, before: { ...before, ...own } };
}

/** What becomes of a row whose annotation somebody else changed. */
export type Rebase =
  /** The annotation is as the row wants it. */
  | { kind: "met" }
  /** Others changed other fields: the row applies to their revision. */
  | { kind: "resent"; row: EditRow }
  /** People have to choose. */
  | { kind: "conflict" };

/**
 * Compares a row with the annotation as somebody else left it. With `strict`, as for an undo, any
 * change of theirs is a conflict.
 */
export function rebase(row: EditRow, theirs: Box, { strict }: { strict: boolean }): Rebase {
  const { before, after } = row;
  if (after === null) {
    // A deletion was meant for the whole box: whoever changed any of it is asked.
    const isUntouched =
      !strict && before && touched(before).every((name) => isSame(name, before, theirs));
    const own = { ...row, revision: theirs.revision };
    return isUntouched ? { kind: "resent", row: own } : { kind: "conflict" };
  }
  const names = touched(after);
  if (names.every((name) => isSame(name, after, theirs))) return { kind: "met" };
  if (strict || before === null) return { kind: "conflict" };
  const isFree = names.every(
    (name) => !(name in before) || isSame(name, before, theirs) || isSame(name, after, theirs),
  );
  if (!isFree) return { kind: "conflict" };
  // What undoes it later must restore what the others left.
  const left = Object.fromEntries(names.map((name) => [name, theirs[name]]));
  return { kind: "resent", row: { ...row, revision: theirs.revision, before: left } };
}

const SETTABLE = ["class", "bbox", "polygon", "accepted", "track_id"] as const;

/** A row as the server takes it. */
export function requestOf({ id, ...row }: EditRow, editId: string): EditRequest {
  const request = { edit_id: editId, annotation_id: id };
  // Without a revision the newest would be meant, whoever made it: none is that old.
  const revision = row.revision ?? 0;
  const { before, after } = row;
  if (after === null) return { ...request, op: "delete", revision };
  const isCreation = before === null;
  // The route takes no null for what a new box lacks.
  const given = SETTABLE.filter(
    (name) => name in after && !(isCreation && name !== "accepted" && after[name] === null),
  );
  const fields: Partial<BoxFields> = Object.fromEntries(given.map((name) => [name, after[name]]));
  if (!isCreation) return { ...request, op: "set", revision, fields };
  return { ...request, op: "create", fields: { frame_id: after.frame_id ?? "", ...fields } };
}
