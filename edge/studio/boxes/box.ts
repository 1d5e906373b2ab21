// A box as the client sees it: the fields that people change, and those that only the server sets.
// Conversions from the wire's annotations stand here, and when two values of a field are the same.

import type { Annotation } from "../../../shared/wire/labeling.ts";

/** Fields that an edit may change; `frame_id` is set once, when the box is drawn. */
export interface BoxFields {
  /** `<video id>.<frame index>`. */
  frame_id: string;
  class: string;
  /** Corners x1, y1, x2, y2 in pixels of the frame. */
  bbox: readonly [number, number, number, number];
  /** x and y in turn; null: the box has none; missing: it has one that was not loaded. */
  polygon?: readonly number[] | null;
  /** Null until somebody judged it. */
  accepted: boolean | null;
  track_id: number | null;
}

/** Names of the fields, in the order in which differences are shown. */
export const FIELD_NAMES = [
  "frame_id",
  "class",
  "bbox",
  "polygon",
  "accepted",
  "track_id",
] as const satisfies readonly (keyof BoxFields)[];

/** An annotation of the job. */
export interface Box extends BoxFields {
  id: string;
  revision: number;
  confidence: number | null;
  source: Annotation["source"];
  keyframe: boolean;
  duplicate: boolean;
  /** Two people judged it differently; only the columns of the server tell. */
  disputed: boolean;
}

/** The box of an annotation of the wire. */
export const boxOf = (annotation: Annotation, disputed = false): Box => ({
  id: annotation.annotation_id,
  frame_id: annotation.frame_id,
  class: annotation.class,
  bbox: annotation.bbox,
  polygon: annotation.polygon,
  accepted: annotation.accepted,
  track_id: annotation.track_id,
  revision: annotation.revision,
  confidence: annotation.confidence,
  source: annotation.source,
  keyframe: annotation.keyframe,
  duplicate: annotation.duplicate_of !== null,
  disputed,
});

/** The fields of a box that edits may change. */
export function fieldsOf(box: BoxFields): BoxFields {
  const { frame_id, class: className, bbox, accepted, track_id, polygon } = box;
  const fields = { frame_id, class: className, bbox, accepted, track_id };
  return polygon === undefined ? fields : { ...fields, polygon };
}

const sameNumbers = (one: readonly number[], other: readonly number[]) =>
  one.length === other.length &&
  // The server stores corners as float32.
  one.every((value, index) => Math.fround(value) === Math.fround(other[index] as number));

/** Whether a field has the same value on both sides; two that were not loaded count as the same. */
export function isSame(
  name: keyof BoxFields,
  one: Partial<BoxFields>,
  other: Partial<BoxFields>,
): boolean {
  const [value, otherValue] = [one[name], other[name]];
  if (typeof value !== "object" || typeof otherValue !== "object") return value === otherValue;
  if (value === null || otherValue === null) return value === otherValue;
  return sameNumbers(value, otherValue);
}

/** The video and the index of a frame id. */
export function frameOf(frameId: string): { video: string; index: number } {
  const dot = frameId.lastIndexOf(".");
  return { video: frameId.slice(0, dot), index: Number(frameId.slice(dot + 1)) };
}
