// Labels of other tools before the frames that they are of are known, and what all formats of them
// share. Pure.

import {
  BrokenMask,
  boxAround,
  isRectangle,
  type MaskBudget,
  ringOfPolygons,
} from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import { withoutExtension } from "../../../../shared/wire/labeling.ts";
import { type Side, strictestSide } from "./split.ts";

/** One label before its frame is known. */
export interface Label {
  /** Its image, by `imageName`. */
  image: string;
  class: string;
  /** x1, y1, x2, y2, in units of `unit`; null: the box around the polygon. */
  box: Bbox | null;
  polygon: number[] | null;
  /** The length 1 of `box` and `polygon`, as shares of the frame's sides; null: pixels. */
  unit: { x: number; y: number } | null;
  /** From 0 to 1; null: a person drew it, or nothing is told. */
  confidence: number | null;
  /** The track of its video that it belongs to, from 1. */
  track?: number;
}

/** What a file, or several, hold of labels. */
export interface Labels {
  /** Images, also those without any label. */
  images: string[];
  labels: Label[];
  /** In index order. */
  classes: string[];
  /** Labels that are none of an object. */
  leftOut: number;
  /** What was not taken as it stood, a sentence each. */
  notes: string[];
  /** Frames that exports of ours name for images, by the name of the image. */
  frameIds: ReadonlyMap<string, string>;
  /** Sides of the split that are told for images, by the name of the image. */
  sides?: ReadonlyMap<string, Side>;
}

/** Labels of one import, and texts that they come in: all are in the memory of a Worker at once. */
export const IMPORT_LABELS_MAX = 100_000;
export const IMPORT_FILES_MAX = 50_000;
export const CLASSES_MAX = 10_000;

/** Folders that formats have for images and for labels, which tell nothing of an image. */
const OF_FORMATS = /^(images?|imgs?|jpegimages|labels?|annotations?|obj_train_data)$/i;

/**
 * An image as labels name it: a path in one spelling, without the folders that formats have for
 * images and labels. Letters with marks are one character each (NFC), as systems differ in how they
 * write them.
 */
export function imageName(path: string): string {
  const parts = path.normalize("NFC").split(/[/\\]/);
  const name = parts.pop() ?? "";
  const folders: string[] = [];
  for (const folder of parts) {
    if (folder === "..") folders.pop();
    else if (folder !== "" && folder !== ".") folders.push(folder);
  }
  return [...folders.filter((folder) => !OF_FORMATS.test(folder)), name].join("/");
}

/** An image by the name that a document gives it, in the folder where the document lies. */
export const imageBeside = (document: string, name: string): string =>
  imageName(`${folderOf(document.replaceAll("\\", "/"))}${name}`);

/** The image that a file of labels is called after, by its path without the labels' extension. */
export const imageOfText = (path: string): string =>
  imageName(path).replace(/\.(txt|xml|json)$/i, "");

/** The last part of a path. */
export const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** All of a path before its last part: empty, or with a slash at its end. */
export const folderOf = (path: string): string => path.slice(0, path.lastIndexOf("/") + 1);

/** The file name of an image without folders and extension. */
export const stemOf = (image: string): string => withoutExtension(baseName(image));

/** The width and height of an image as the unit of its labels; null where they are not given. */
export const unitOf = (width: number | undefined, height: number | undefined) =>
  width && height && width > 0 && height > 0 ? { x: 1 / width, y: 1 / height } : null;

/** Corners of a box turned clockwise, degrees, about its center or the point that is given. */
export function turnedBox(
  [x1, y1, x2, y2]: Bbox,
  degrees: number,
  [cx, cy]: readonly [number, number] = [(x1 + x2) / 2, (y1 + y2) / 2],
): number[] {
  const angle = (degrees * Math.PI) / 180;
  // Quarter turns give whole corners.
  const exact = (value: number) => Math.round(value * 1e9) / 1e9;
  const [cos, sin] = [exact(Math.cos(angle)), exact(Math.sin(angle))];
  return [
    [x1, y1],
    [x2, y1],
    [x2, y2],
    [x1, y2],
  ].flatMap(([x = 0, y = 0]) => [
    cx + (x - cx) * cos - (y - cy) * sin,
    cy + (x - cx) * sin + (y - cy) * cos,
  ]);
}

/** Shape of a box that is turned by these degrees: a polygon, unless it is not turned. */
export const boxShape = (box: Bbox, degrees: number): Pick<Label, "box" | "polygon"> =>
  degrees % 180 === 0 ? { box, polygon: null } : { box: null, polygon: turnedBox(box, degrees) };

/** Corners of the polygon that stands for an ellipse. */
export const ELLIPSE_CORNERS = 64;

/** A polygon for an ellipse that is turned clockwise about its center, degrees. */
export function ellipseRing(
  [cx, cy]: readonly [number, number],
  [rx, ry]: readonly [number, number],
  degrees = 0,
): number[] {
  const turn = (degrees * Math.PI) / 180;
  return Array.from({ length: ELLIPSE_CORNERS }, (_, index) => {
    const angle = (2 * Math.PI * index) / ELLIPSE_CORNERS;
    const [x, y] = [rx * Math.cos(angle), ry * Math.sin(angle)];
    return [
      cx + x * Math.cos(turn) - y * Math.sin(turn),
      cy + x * Math.sin(turn) + y * Math.cos(turn),
    ];
  }).flat();
}

/**
 * The mask of polygons: a rectangle is its box; without an area it is left out, and counted. Fails
 * with `invalid_request`, naming `where`, for corners that are no numbers and too large a mask.
 */
export function ringShape(
  where: string,
  rings: number[][],
  budget: MaskBudget,
): Pick<Label, "box" | "polygon"> {
  if (rings.flat().some((value) => !Number.isFinite(value))) {
    throw new Failure("invalid_request", `${where}: a polygon's corners must be numbers`);
  }
  try {
    const ring = ringOfPolygons(rings, budget);
    return ring && isRectangle(ring)
      ? { box: boxAround(ring), polygon: null }
      : { box: null, polygon: ring ?? [] };
  } catch (thrown) {
    throw maskFailure(where, thrown);
  }
}

/** What a mask that cannot be read becomes: a failure that names it; all else stays as it is. */
export const maskFailure = (where: string, thrown: unknown): unknown =>
  thrown instanceof BrokenMask
    ? new Failure("invalid_request", `${where}: ${thrown.message}`)
    : thrown;

/** Adds to a count by name. */
export function count(counts: Map<string, number>, name: string, by = 1) {
  if (by > 0) counts.set(name, (counts.get(name) ?? 0) + by);
}

/** The sum of counts by name. */
export const sumOf = (counts: ReadonlyMap<string, number>): number =>
  counts.values().reduce((total, one) => total + one, 0);

/** The note on counts by name, such as shapes of kinds that are not taken; none without any. */
export const countNotes = (why: string, counts: ReadonlyMap<string, number>): string[] =>
  counts.size > 0 ? [`${why}: ${[...counts].map(([name, n]) => `${n} ${name}`).join(", ")}`] : [];

/** Why shapes are left out that are neither boxes nor polygons nor masks. */
export const NO_AREAS = "left out, as neither boxes nor polygons";

/** A count with its noun, as notes have it. */
export const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : noun.endsWith("x") ? "es" : "s"}`;

/** Images that labels are of, each once, with a note on those that several files label. */
export function distinct(images: readonly string[]): Pick<Labels, "images" | "notes"> {
  const once = [...new Set(images)];
  const repeated = images.length - once.length;
  const why = "labeled by another file or entry of their name too: taken together";
  return { images: once, notes: repeated > 0 ? [`${counted(repeated, "image")} ${why}`] : [] };
}

/** Several files' labels as one import's. */
export function together(all: readonly Labels[]): Labels {
  const { images, notes } = distinct(all.flatMap((one) => one.images));
  return {
    images,
    labels: all.flatMap(({ labels }) => labels),
    classes: [...new Set(all.flatMap(({ classes }) => classes))],
    leftOut: all.reduce((sum, { leftOut }) => sum + leftOut, 0),
    notes: [...all.flatMap((one) => one.notes), ...notes],
    frameIds: oneIdEach(all.flatMap(({ frameIds }) => [...frameIds])),
    sides: oneSideEach(all.flatMap(({ sides }) => [...(sides ?? [])])),
  };
}

/** The sides of images; of several that are told for one the most held-out. */
export function oneSideEach(pairs: readonly (readonly [string, Side])[]): Map<string, Side> {
  const sides = new Map<string, Side>();
  for (const [image, side] of pairs) {
    sides.set(image, strictestSide([sides.get(image) ?? side, side]));
  }
  return sides;
}

/** The frames of images; fails with `invalid_request` where one image has two. */
export function oneIdEach(pairs: readonly (readonly [string, string])[]): Map<string, string> {
  const frameIds = new Map<string, string>();
  for (const [image, frameId] of pairs) {
    const known = frameIds.get(image) ?? frameId;
    if (known !== frameId) {
      const detail = `${image} has two frame_ids: ${known} and ${frameId}`;
      throw new Failure("invalid_request", detail);
    }
    frameIds.set(image, frameId);
  }
  return frameIds;
}
