// What formats of videos share: how their numbered frames become images by name, and their tracks
// labels.

import type { MaskBudget } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { exportStem } from "../../../../shared/wire/labeling.ts";
import type { FrameLists } from "./frame-lists.ts";
import {
  counted,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  type Label,
  type Labels,
  together,
} from "./labels.ts";

/** What readers of videos' labels are given besides. */
export interface SequenceContext {
  lists: FrameLists;
  /** Whether the project has an image. */
  isKnown: (image: string) => boolean;
  budget: MaskBudget;
  tally: SequenceTally;
}

/** What of all documents of an import is not taken as it stands. */
export interface SequenceTally {
  /** Tracks of one shape. */
  single: number;
  /** Documents whose tracks count from 0. */
  shifted: number;
  /** Boxes drawn between those of a track, and frames between polygons. */
  drawn: number;
  gaps: number;
  /** Boxes that are marked to be ignored, and sequences that do not name their classes. */
  ignored: number;
  unnamed: number;
}

export const emptyTally = (): SequenceTally => ({
  single: 0,
  shifted: 0,
  drawn: 0,
  gaps: 0,
  ignored: 0,
  unnamed: 0,
});

/** The labels of all sequences, with notes on what the tally has counted. */
export function sequenceLabels(
  sequences: readonly Labels[],
  { tally }: Pick<SequenceContext, "tally">,
): Labels {
  const labels = together(sequences);
  const note = (number: number, noun: string, what: string) =>
    number > 0 ? [`${counted(number, noun)} ${what}`] : [];
  return {
    ...labels,
    notes: [
      ...labels.notes,
      ...note(tally.single, "track", "of one shape taken as a label without a track"),
      ...note(tally.shifted, "file", "of tracks numbered from 0: they are numbered from 1 here"),
      ...note(tally.drawn, "box", "drawn between those of a track, as CVAT does"),
      ...note(tally.gaps, "frame", "between polygons of a track left without a shape"),
      ...note(tally.unnamed, "sequence", "without labels.txt read by MOTChallenge's rules"),
      ...note(tally.ignored, "box", "left out, marked to be ignored"),
    ],
  };
}

/** A shape of a track by the index of its frame, in the numbers of its file. */
export interface TrackShape {
  frame: number;
  shape: Pick<Label, "box" | "polygon">;
}

/** An object of a video, its shapes in ascending order of frames. */
export interface Track {
  /** From 1; null: its boxes belong to no track. */
  id: number | null;
  class: string;
  shapes: TrackShape[];
}

/** Gives the image of a frame by its number in a file of labels. */
export type ImageOf = (frame: number) => string;

/**
 * What our exports call the frames of a video by the first of these names that the project has, or
 * the images that lie `beside` the labels, if it has them; else frames of the first name.
 */
export function clipImages(
  names: readonly string[],
  { first, isKnown, beside }: ClipNames,
): ImageOf {
  const called = (name: string, frame: number) =>
    `${exportStem(name)}_${String(frame - first).padStart(6, "0")}`;
  const given = names.filter((name) => name !== "");
  const known = given.find((one) => isKnown(called(one, first)));
  if (known === undefined && beside && isKnown(beside(first))) return beside;
  const name = known ?? given[0] ?? "video";
  return (frame) => called(name, frame);
}

interface ClipNames {
  /** The number of a video's first frame. */
  first: number;
  isKnown: SequenceContext["isKnown"];
  beside?: ImageOf;
}

/** Numbers from one to another, both included. Fails with `invalid_request` for too many. */
export function framesBetween(
  where: string,
  { first, last, step }: { first: number; last: number; step: number },
): number[] {
  const count = Math.floor((last - first) / step) + 1;
  if (count > IMPORT_FILES_MAX) {
    throw new Failure("invalid_request", `${where}: has over ${IMPORT_FILES_MAX} frames: split it`);
  }
  return Array.from({ length: Math.max(0, count) }, (_, index) => first + index * step);
}

/** Labels of tracks; those of a single shape belong to no track, and are counted. */
export function trackLabels(
  where: string,
  tracks: readonly Track[],
  { imageOf, unit, tally }: { imageOf: ImageOf; unit: Label["unit"]; tally: SequenceTally },
): Label[] {
  const total = tracks.reduce((sum, { shapes }) => sum + shapes.length, 0);
  if (total > IMPORT_LABELS_MAX) {
    throw new Failure("invalid_request", `${where}: over ${IMPORT_LABELS_MAX} in one import`);
  }
  return tracks.flatMap(({ id, class: className, shapes }) => {
    const isSingle = shapes.length === 1;
    if (id !== null && isSingle) tally.single += 1;
    return shapes.map(({ frame, shape }): Label => {
      const label = { image: imageOf(frame), class: className, ...shape, unit, confidence: null };
      return id === null || isSingle ? label : { ...label, track: id };
    });
  });
}
