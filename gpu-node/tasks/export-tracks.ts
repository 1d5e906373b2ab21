// The annotations of one video as tracks, for the formats that have nothing else.

import type { Annotation } from "./layout.ts";

/** Shapes of one object by the index of their frame, in ascending order. */
export interface ExportedTrack {
  /** From 1; unique in its video. */
  id: number;
  classIndex: number;
  shapes: Map<number, Annotation>;
  /** Whether it is a track of the job's, or an annotation that has none. */
  isTracked: boolean;
}

/** A frame with its annotations. */
interface TrackedFrame {
  index: number;
  annotations: readonly Annotation[];
}

/**
 * The tracks of frames in ascending order, by their ids. A track has one class and one shape on a
 * frame: what else has its id, and what has none, becomes a track with an id that is free.
 */
export function tracksOf(frames: readonly TrackedFrame[]): ExportedTrack[] {
  const named = new Map<number, ExportedTrack>();
  const others = new Map<string, ExportedTrack>();
  let last = 0;
  for (const { annotations } of frames) {
    for (const { track_id: id } of annotations) last = Math.max(last, id ?? 0);
  }
  const trackFor = (one: Annotation, index: number): ExportedTrack => {
    const id = one.track_id ?? null;
    const fresh = (isTracked: boolean, own = ++last): ExportedTrack => ({
      id: own,
      classIndex: one.class_index,
      shapes: new Map(),
      isTracked,
    });
    const own = id === null ? null : (named.get(id) ?? fresh(true, id));
    if (own && id !== null) named.set(id, own);
    if (own && own.classIndex === one.class_index && !own.shapes.has(index)) return own;
    const key = id === null || own?.shapes.has(index) ? one.id : `${id} ${one.class_index}`;
    const other = others.get(key);
    const isFree = other !== undefined && !other.shapes.has(index);
    const track = isFree ? other : fresh(id !== null);
    others.set(isFree || !other ? key : one.id, track);
    return track;
  };
  for (const { index, annotations } of frames) {
    for (const one of annotations) trackFor(one, index).shapes.set(index, one);
  }
  return [...named.values(), ...others.values()].toSorted((one, other) => one.id - other.id);
}
