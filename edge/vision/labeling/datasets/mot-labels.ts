// MOT's gt.txt as labels, by CVAT's rules where its labels.txt is there, else by MOTChallenge's.

import { Failure } from "../../../../shared/errors.ts";
import {
  baseName,
  folderOf,
  IMPORT_LABELS_MAX,
  imageName,
  type Label,
  type Labels,
  unitOf,
} from "./labels.ts";
import {
  clipImages,
  framesBetween,
  type ImageOf,
  type SequenceContext,
  type Track,
  trackLabels,
} from "./sequences.ts";

/** MOTChallenge's classes, by their numbers from 1. */
const CLASSES = [
  "pedestrian",
  "person on vehicle",
  "car",
  "bicycle",
  "motorbike",
  "non motorized vehicle",
  "static person",
  "distractor",
  "occluder",
  "occluder on the ground",
  "occluder full",
  "reflection",
] as const;

/** A sequence: its boxes, with what lies beside them. */
export interface MotFile {
  name: string;
  text: string;
  /** By number from 1; null without labels.txt. */
  classes: string[] | null;
  /** Fields of seqinfo.ini, in small letters. */
  info: ReadonlyMap<string, string>;
}

/** Whether a text is of a sequence, ground truth or detections: YOLO's labels have no commas. */
export const isOfSequence = (file: string, text: string): boolean =>
  /(^|\/)(gt|det)\.txt$/i.test(file) && /^\s*(-?[\d.]+\s*,|$)/.test(text);

/** Whether a text is the ground truth of a sequence. */
export const isMot = (file: string, text: string): boolean =>
  /(^|\/)gt\.txt$/i.test(file) && isOfSequence(file, text);

/** A sequence with the texts beside it: gt/labels.txt, and seqinfo.ini in the folder above. */
export function motFile(
  name: string,
  text: string,
  textsByPath: ReadonlyMap<string, string>,
): MotFile {
  const folder = folderOf(name);
  const textAt = (path: string) => textsByPath.get(path);
  const labels = textAt(`${folder}labels.txt`)
    ?.split("\n")
    .map((line) => line.trim());
  while (labels?.at(-1) === "") labels.pop();
  const lines = textAt(`${rootOf(name)}seqinfo.ini`)?.split("\n") ?? [];
  const fields = lines.flatMap((line): [string, string][] => {
    const [, key = "", value = ""] = /^\s*(\w+)\s*=(.*)$/.exec(line) ?? [];
    return key === "" ? [] : [[key.toLowerCase(), value.trim()]];
  });
  return { name, text, classes: labels ?? null, info: new Map(fields) };
}

/** The folder of a sequence. */
const rootOf = (file: string): string => folderOf(file).replace(/(^|\/)gt\/$/i, "$1");

interface Row {
  frame: number;
  id: number;
  class: string;
  box: NonNullable<Label["box"]>;
}

/** Labels of a sequence. Fails with `invalid_request`. */
export function motLabels(file: MotFile, context: SequenceContext): Labels {
  const { rows, ignored } = rowsOf(file);
  context.tally.ignored += ignored;
  if (!file.classes) context.tally.unnamed += 1;
  const { frames, imageOf } = framesOf(file, rows, context);
  const [width, height] = ["imwidth", "imheight"].map((key) => Number(file.info.get(key)));
  const tracks = tracksOf(file.name, rows);
  const unit = unitOf(width, height);
  const labels = trackLabels(file.name, tracks, { imageOf, unit, tally: context.tally });
  const classes = file.classes ?? [...new Set(rows.map((row) => row.class))];
  return {
    images: frames.map(imageOf),
    labels,
    classes: [...new Set(classes.filter((name) => name !== ""))],
    leftOut: ignored,
    notes: [],
    frameIds: new Map(),
  };
}

function rowsOf({ name: file, text, classes }: MotFile): { rows: Row[]; ignored: number } {
  const rows: Row[] = [];
  let ignored = 0;
  // MOTChallenge's first pixel is 1.
  const first = classes ? 0 : 1;
  for (const [index, line] of text.split("\n").entries()) {
    if (line.trim() === "") continue;
    const refusal = (problem: string) =>
      new Failure("invalid_request", `${file}, line ${index + 1}: ${problem}`);
    const numbers = line.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
    const [frame = 0, id = 0, x = 0, y = 0, width = 0, height = 0, isKept = 1, number = -1] =
      numbers;
    const isWhole = Number.isInteger(frame) && frame >= 1 && Number.isInteger(id);
    if (numbers.length < 6 || !numbers.every(Number.isFinite) || !isWhole) {
      throw refusal("must be frame,id,x,y,w,h, and more numbers");
    }
    if (isKept === 0) {
      ignored += 1;
      continue;
    }
    const className = number === -1 && !classes ? CLASSES[0] : (classes ?? CLASSES)[number - 1];
    if (!className) throw refusal(`class ${number} is none of those that are named`);
    const [left, top] = [x - first, y - first];
    rows.push({ frame, id, class: className, box: [left, top, left + width, top + height] });
    if (rows.length > IMPORT_LABELS_MAX) throw refusal(`over ${IMPORT_LABELS_MAX} in one import`);
  }
  return { rows, ignored };
}

/** The rows by their tracks; an id below 1 is no track's. */
function tracksOf(file: string, rows: readonly Row[]): Track[] {
  const tracks = new Map<string, Track>();
  const seen = new Set<string>();
  for (const { frame, id, class: className, box } of rows.toSorted((a, b) => a.frame - b.frame)) {
    const shape = { frame, shape: { box, polygon: null } };
    const isTracked = id >= 1;
    if (isTracked && seen.has(`${id} ${frame}`)) {
      throw new Failure("invalid_request", `${file}: track ${id} has two boxes on frame ${frame}`);
    }
    seen.add(`${id} ${frame}`);
    const key = isTracked ? `${id} ${className}` : `${tracks.size} alone`;
    const track = tracks.get(key);
    if (track) track.shapes.push(shape);
    else tracks.set(key, { id: isTracked ? id : null, class: className, shapes: [shape] });
  }
  return [...tracks.values()];
}

/** The frames of a sequence: those that an export of ours lists; else stills, or a clip's. */
function framesOf(
  { name: file, info }: MotFile,
  rows: readonly Row[],
  { lists, isKnown }: SequenceContext,
): { frames: number[]; imageOf: ImageOf } {
  const root = rootOf(file);
  const imDir = info.get("imdir") || "img1";
  const still: ImageOf = (frame) => imageName(`${root}${imDir}/${String(frame).padStart(6, "0")}`);
  const listed = lists.numbered(still(0).replace(/0+$/, ""));
  if (listed.size > 0) return { frames: [...listed.keys()], imageOf: still };
  const names = [info.get("name") ?? "", baseName(root.slice(0, -1))];
  const imageOf = clipImages(names, { first: 1, isKnown, beside: still });
  const length = Number(info.get("seqlength"));
  const frames =
    Number.isInteger(length) && length >= 1
      ? framesBetween(file, { first: 1, last: length, step: 1 })
      : [...new Set(rows.map(({ frame }) => frame))].sort((one, other) => one - other);
  return { frames, imageOf };
}
