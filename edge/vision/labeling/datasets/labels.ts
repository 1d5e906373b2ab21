// Labels of other tools before the frames that they are of are known, and what all formats of them
// share. Pure.

import type { Bbox } from "../../../../shared/tasks/tasks.ts";

/** One label before its frame is known. */
export interface Label {
  /** Name of its image, without folders and extension. */
  file: string;
  class: string;
  /** x1, y1, x2, y2, in units of `unit`. */
  box: Bbox;
  polygon: number[] | null;
  /** The length 1 of `box` and `polygon`, as shares of the frame's sides; null: pixels. */
  unit: { x: number; y: number } | null;
}

/** What a file, or several, hold of labels. */
export interface Labels {
  /** Images, also those without any label. */
  files: string[];
  labels: Label[];
  /** In index order. */
  classes: string[];
  /** Labels that are none of an object. */
  leftOut: number;
  /** What was not taken as it stood, a sentence each. */
  notes: string[];
}

/** Labels of one import, and texts that they come in: all are in the memory of a Worker at once. */
export const IMPORT_LABELS_MAX = 100_000;
export const IMPORT_FILES_MAX = 50_000;
export const CLASSES_MAX = 10_000;

/** The file name of a label or an image, without folders and extension. */
export const stem = (file: string): string =>
  file
    .replace(/^.*[\\/]/s, "")
    .replace(/\.(?:txt|xml|jpe?g|png|webp|bmp|tiff?|gif|avif|heic)$/i, "");

/** The width and height of an image as the unit of its labels; null where they are not given. */
export const unitOf = (width: number | undefined, height: number | undefined) =>
  width && height && width > 0 && height > 0 ? { x: 1 / width, y: 1 / height } : null;

/** A count with its noun, as notes have it. */
export const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Images that labels are of, each once, with a note on those that several files label. */
export function distinct(images: readonly string[]): Pick<Labels, "files" | "notes"> {
  const files = [...new Set(images)];
  const repeated = images.length - files.length;
  const of = "labeled by another file or entry of their name too: taken together";
  return { files, notes: repeated > 0 ? [`${counted(repeated, "image")} ${of}`] : [] };
}

/** Several files' labels as one import's. */
export function together(all: readonly Labels[]): Labels {
  const { files, notes } = distinct(all.flatMap((one) => one.files));
  return {
    files,
    labels: all.flatMap(({ labels }) => labels),
    classes: [...new Set(all.flatMap(({ classes }) => classes))],
    leftOut: all.reduce((sum, { leftOut }) => sum + leftOut, 0),
    notes: [...all.flatMap((one) => one.notes), ...notes],
  };
}
