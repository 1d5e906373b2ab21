// YOLO's label texts as labels: boxes, or the rings of masks.

import { z } from "@hono/zod-openapi";
import { boxAround, isRectangle } from "../../../../shared/detector/rings.ts";
import { Failure } from "../../../../shared/errors.ts";
import { ClassName } from "../classes.ts";
import {
  CLASSES_MAX,
  distinct,
  IMPORT_FILES_MAX,
  IMPORT_LABELS_MAX,
  type Label,
  type Labels,
  stem,
} from "./labels.ts";

/** Characters of all texts of a body, and of one text wherever it comes from. */
const YOLO_CHARACTERS_MAX = 16 * 1024 * 1024;
const TEXT_CHARACTERS_MAX = 1_000_000;

/** Label texts by file, with the names of the classes that they number. */
export const Yolo = z.object({
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
      description: "label file texts by image file name, without folders or extensions",
    }),
});

/** The labels of texts; `where` names them in failures. Fails with `invalid_request`. */
export function yoloLabels(
  names: readonly (string | undefined)[],
  texts: Iterable<readonly [file: string, text: string]>,
  where = "yolo.labels",
): Labels {
  const images: string[] = [];
  const labels: Label[] = [];
  for (const [file, text] of texts) {
    images.push(stem(file));
    if (text.length > TEXT_CHARACTERS_MAX) {
      const detail = `${where}: ${file}: has over ${TEXT_CHARACTERS_MAX} characters`;
      throw new Failure("invalid_request", detail);
    }
    for (const [index, line] of text.split("\n").entries()) {
      if (line.trim() === "") continue;
      const [number = -1, ...shares] = line.trim().split(/\s+/).map(Number);
      const className = names[number];
      const shape = shapeOf(shares);
      if (className === undefined || !shape || !shares.every(Number.isFinite)) {
        const form = "must be class cx cy w h, or class x1 y1 x2 y2 x3 y3 …";
        throw new Failure("invalid_request", `${where}: ${file}, line ${index + 1}: ${form}`);
      }
      labels.push({ file: stem(file), class: className, ...shape, unit: { x: 1, y: 1 } });
      if (labels.length > IMPORT_LABELS_MAX) {
        throw new Failure("invalid_request", `${where}: over ${IMPORT_LABELS_MAX} in one import`);
      }
    }
  }
  const classes = [...new Set(names.filter((one) => one !== undefined))];
  return { ...distinct(images), labels, classes, leftOut: 0 };
}

/** A line's box, or the ring of its mask with the box around it; null for neither. */
function shapeOf(shares: number[]): Pick<Label, "box" | "polygon"> | null {
  if (shares.length === 4) {
    const [x = 0, y = 0, w = 0, h = 0] = shares;
    return { box: [x - w / 2, y - h / 2, x + w / 2, y + h / 2], polygon: null };
  }
  if (shares.length < 6 || shares.length % 2 === 1) return null;
  return { box: boxAround(shares), polygon: isRectangle(shares) ? null : shares };
}
