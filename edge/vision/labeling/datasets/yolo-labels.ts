// YOLO's label texts as labels: boxes, or the rings of masks.

import { z } from "@hono/zod-openapi";
import { boxAround, isRectangle } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { ClassName } from "../classes.ts";
import {
  CLASSES_MAX,
  counted,
  distinct,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  imageOfText,
  type Label,
  type Labels,
} from "./labels.ts";

/** Characters of all texts of a body, and of one text wherever it comes from. */
const YOLO_CHARACTERS_MAX = 16 * 1024 * 1024;
const TEXT_CHARACTERS_MAX = 1_000_000;

/** Label texts by file, with the names of the classes that they number. */
export const Yolo = z.strictObject({
  names: z.array(ClassName).min(1).max(CLASSES_MAX),
  labels: z
    .record(z.string(), z.string().max(TEXT_CHARACTERS_MAX))
    .refine((labels) => {
      const lengths = Object.values(labels).map(({ length }) => length);
      const whole = lengths.reduce((sum, length) => sum + length, 0);
      return lengths.length <= IMPORT_FILES_MAX && whole <= YOLO_CHARACTERS_MAX;
    }, `at most ${IMPORT_FILES_MAX} files of ${YOLO_CHARACTERS_MAX} characters in all`)
    .meta({
      maxProperties: IMPORT_FILES_MAX,
      description: "label file texts by image file name, with or without folders and extension",
    }),
});

/** What the numbers of label texts mean. */
export interface YoloClasses {
  /** By number. */
  names: readonly (string | undefined)[];
  /** Numbers of key points that follow each box; 0: there are none. */
  keyPointNumbers: number;
}

/** A text of labels, and what its numbers mean. */
export interface YoloText {
  file: string;
  text: string;
  classes: YoloClasses;
}

/** The labels of texts; `where` names them in failures. Fails with `invalid_request`. */
export function yoloLabels(texts: Iterable<YoloText>, where = "yolo.labels"): Labels {
  const images: string[] = [];
  const labels: Label[] = [];
  const names = new Set<string>();
  let posed = 0;
  for (const { file, text, classes } of texts) {
    const image = imageOfText(file);
    images.push(image);
    for (const name of classes.names) if (name !== undefined) names.add(name);
    if (text.length > TEXT_CHARACTERS_MAX) {
      const detail = `${where}: ${file}: has over ${TEXT_CHARACTERS_MAX} characters`;
      throw new Failure("invalid_request", detail);
    }
    for (const [index, line] of text.split("\n").entries()) {
      if (line.trim() === "") continue;
      const refusal = (problem: string) =>
        new Failure("invalid_request", `${where}: ${file}, line ${index + 1}: ${problem}`);
      const { shape, className, isPosed } = readLine(line, classes, refusal);
      posed += Number(isPosed);
      labels.push({ image, class: className, ...shape, unit: { x: 1, y: 1 }, confidence: null });
      if (labels.length > IMPORT_LABELS_MAX) {
        throw new Failure("invalid_request", `${where}: over ${IMPORT_LABELS_MAX} in one import`);
      }
    }
  }
  const { images: once, notes } = distinct(images);
  return {
    images: once,
    labels,
    classes: [...names],
    leftOut: 0,
    notes: [...notes, ...keyPointNotes(posed)],
    frameIds: new Map(),
  };
}

/** What is said of objects whose key points were not taken. */
export const keyPointNotes = (objects: number): string[] =>
  objects > 0 ? [`key points of ${counted(objects, "object")} not taken: boxes and masks are`] : [];

function readLine(line: string, classes: YoloClasses, refusal: (problem: string) => Failure) {
  const [number = -1, ...shares] = line.trim().split(/\s+/).map(Number);
  if (!shares.every(Number.isFinite)) throw refusal("must be numbers alone");
  const { names, keyPointNumbers } = classes;
  const className = names[number];
  if (className === undefined) {
    throw refusal(`class ${number} is none of the ${names.length} that are named`);
  }
  const isPosed = keyPointNumbers > 0 && shares.length === 4 + keyPointNumbers;
  const shape = shapeOf(isPosed ? shares.slice(0, 4) : shares);
  if (shape && (isPosed || keyPointNumbers === 0 || shares.length === 4)) {
    return { shape, className, isPosed };
  }
  throw refusal(
    keyPointNumbers > 0
      ? `must be class cx cy w h, and ${keyPointNumbers} numbers of key points`
      : "must be class cx cy w h, or class x1 y1 x2 y2 x3 y3 …",
  );
}

/** A line's box, or the ring of its mask; null for neither. */
function shapeOf(shares: number[]): Pick<Label, "box" | "polygon"> | null {
  if (shares.length === 4) {
    const [x = 0, y = 0, w = 0, h = 0] = shares;
    return { box: [x - w / 2, y - h / 2, x + w / 2, y + h / 2], polygon: null };
  }
  if (shares.length < 6 || shares.length % 2 === 1) return null;
  return isRectangle(shares)
    ? { box: boxAround(shares), polygon: null }
    : { box: null, polygon: shares };
}
