// CVAT for video 1.1 as labels: tracks of boxes and polygons, and what CVAT draws between their
// shapes.

import type { XmlElement } from "@rgrove/parse-xml";
import { Failure } from "../../../../shared/errors.ts";
import type { Bbox } from "../../../../shared/tasks/tasks.ts";
import {
  baseName,
  count,
  countNotes,
  folderOf,
  IMPORT_LABELS_MAX,
  imageName,
  imageOfText,
  type Labels,
  NO_AREAS,
  ringShape,
  sumOf,
  unitOf,
} from "./labels.ts";
import {
  clipImages,
  framesBetween,
  type ImageOf,
  type SequenceContext,
  type SequenceTally,
  type Track,
  type TrackShape,
  trackLabels,
} from "./sequences.ts";
import {
  childOf,
  childrenOf,
  cvatBox,
  numberOf,
  sideOf,
  textOf,
  type XmlFile,
} from "./xml-labels.ts";

const INDEX_MAX = 2_147_483_647;

/** Whether a document is of a video's tracks. */
export const hasTracks = ({ root }: XmlFile): boolean =>
  root.name === "annotations" &&
  childOf(root, "image") === undefined &&
  (childOf(root, "track") !== undefined || textOf(taskOf(root), "mode") === "interpolation");

/** The task or job whose frames a document numbers. */
function taskOf(root: XmlElement): XmlElement | undefined {
  const meta = childOf(root, "meta");
  const tasks = childOf(childOf(meta, "project"), "tasks");
  return childOf(meta, "task") ?? childOf(meta, "job") ?? childOf(tasks, "task");
}

/** A shape as it is written: from where it is outside on, there is none. */
interface KeyShape extends TrackShape {
  isOutside: boolean;
}

/** Frames that a document is about, and what they are called. */
interface VideoFrames {
  /** Ascending. */
  frames: number[];
  imageOf: ImageOf;
}

/** Labels of CVAT for video 1.1. Fails with `invalid_request`. */
export function cvatVideoLabels({ name: file, root }: XmlFile, context: SequenceContext): Labels {
  const refusal = (problem: string) => new Failure("invalid_request", `${file}: ${problem}`);
  const meta = childOf(root, "meta");
  const tasks = childOf(childOf(meta, "project"), "tasks");
  if (tasks && childrenOf(tasks, "task").length > 1) {
    throw refusal("holds tracks of several tasks: export each of them");
  }
  const leftOut = new Map<string, number>();
  const elements = childrenOf(root, "track");
  const ids = elements.map(({ attributes: { id = "" } }) => numberOf(id));
  const isNumbered = ids.every((id) => Number.isInteger(id) && id >= 0 && id < INDEX_MAX);
  if (!isNumbered || new Set(ids).size < ids.length) {
    throw refusal("each track must have an id of its own, a whole number from 0");
  }
  // CVAT counts tracks from 0, and ours begin at 1.
  const shift = ids.includes(0) ? 1 : 0;
  const given = elements.map((element, index) => ({
    id: (ids[index] ?? 0) + shift,
    class: element.attributes.label ?? "",
    shapes: shapesOf(file, element, { leftOut, context }),
  }));
  if (given.some((track) => track.class === "")) throw refusal("a track has no label");
  const { frames, imageOf } = framesOf(file, root, context, given);
  const { tally } = context;
  if (shift > 0) tally.shifted += 1;
  const tracks = given.map(({ shapes, ...track }): Track => {
    const drawn = drawnShapes(shapes, frames, tally);
    if (tally.drawn > IMPORT_LABELS_MAX) throw refusal(`over ${IMPORT_LABELS_MAX} shapes`);
    return { ...track, shapes: drawn };
  });
  const size = childOf(taskOf(root), "original_size") ?? childOf(meta, "original_size");
  const unit = unitOf(sideOf(textOf(size, "width")), sideOf(textOf(size, "height")));
  const labels = trackLabels(file, tracks, { imageOf, unit, tally });
  const listed = childrenOf(childOf(taskOf(root), "labels") ?? root, "label").map((label) =>
    textOf(label, "name"),
  );
  const others = tracks.map((track) => track.class);
  return {
    images: frames.map(imageOf),
    labels,
    classes: [...new Set([...listed, ...others].filter((name) => name !== ""))],
    leftOut: sumOf(leftOut),
    notes: countNotes(NO_AREAS, leftOut),
    frameIds: new Map(),
  };
}

/** The shapes of a track in ascending order of frames. */
function shapesOf(
  file: string,
  track: XmlElement,
  { leftOut, context }: { leftOut: Map<string, number>; context: SequenceContext },
): KeyShape[] {
  const where = `${file}: track ${track.attributes.id ?? ""}`;
  const shapes = childrenOf(track).flatMap(({ name, attributes }): KeyShape[] => {
    const isOutside = attributes.outside === "1";
    if (name !== "box" && name !== "polygon") {
      if (!isOutside && name !== "attribute") count(leftOut, name);
      return [];
    }
    const frame = numberOf(attributes.frame ?? "");
    if (!Number.isInteger(frame) || frame < 0 || frame > INDEX_MAX) {
      throw new Failure("invalid_request", `${where}: a frame must be a whole number from 0`);
    }
    const corners = () => [(attributes.points ?? "").split(/[;,]/).map(numberOf)];
    const shape =
      name === "box" ? cvatBox(where, attributes) : ringShape(where, corners(), context.budget);
    return [{ frame, isOutside, shape }];
  });
  shapes.sort((one, other) => one.frame - other.frame);
  for (const [index, { frame }] of shapes.entries()) {
    if (shapes[index + 1]?.frame === frame) {
      throw new Failure("invalid_request", `${where}: has two shapes on frame ${frame}`);
    }
  }
  return shapes;
}

/** The frames of a document: those that an export of ours lists; else those of its task. */
function framesOf(
  file: string,
  root: XmlElement,
  { lists, isKnown }: SequenceContext,
  tracks: readonly { shapes: readonly KeyShape[] }[],
): VideoFrames {
  const listed = lists.numbered(imageName(`${folderOf(file)}images/frame_`));
  if (listed.size > 0) {
    return {
      frames: [...listed.keys()],
      imageOf: (frame) =>
        listed.get(frame) ??
        imageName(`${folderOf(file)}images/frame_${String(frame).padStart(6, "0")}`),
    };
  }
  const task = taskOf(root);
  const folder = baseName(folderOf(file).slice(0, -1));
  const names = [textOf(task, "source"), textOf(task, "name"), imageOfText(file), folder];
  const imageOf = clipImages(names, { first: 0, isKnown });
  const [first, last] = [textOf(task, "start_frame"), textOf(task, "stop_frame")].map(numberOf);
  const [, step = "1"] = /^step=(\d{1,9})$/.exec(textOf(task, "frame_filter")) ?? [];
  if (first !== undefined && last !== undefined && first >= 0 && last >= first) {
    return { frames: framesBetween(file, { first, last, step: Number(step) || 1 }), imageOf };
  }
  const used = tracks.flatMap(({ shapes }) =>
    shapes.filter(({ isOutside }) => !isOutside).map(({ frame }) => frame),
  );
  return { frames: [...new Set(used)].sort((one, other) => one - other), imageOf };
}

/**
 * The shapes of a track on these frames, ascending: those that are written, and between them boxes
 * on a line, or the last one until it is outside. CVAT's way with polygons is not followed.
 */
function drawnShapes(
  shapes: readonly KeyShape[],
  frames: readonly number[],
  tally: SequenceTally,
): TrackShape[] {
  return shapes.flatMap((shape, index): TrackShape[] => {
    if (shape.isOutside) return [];
    const next = shapes[index + 1];
    const [from, end] = [
      positionAfter(frames, shape.frame),
      next ? positionAfter(frames, next.frame - 1) : frames.length,
    ];
    const box = shape.shape.box;
    const to = next && !next.isOutside ? next.shape.box : box;
    if (!box || !to) {
      tally.gaps += Math.max(0, end - from);
      return [shape];
    }
    tally.drawn += Math.max(0, end - from);
    if (tally.drawn > IMPORT_LABELS_MAX) return [shape];
    const drawn = frames.slice(from, end).map((frame): TrackShape => {
      const share = next ? (frame - shape.frame) / (next.frame - shape.frame) : 0;
      const [x1, y1, x2, y2] = box.map((value, at) => value + share * ((to[at] ?? value) - value));
      // A box has four numbers.
      return { frame, shape: { box: [x1, y1, x2, y2] as Bbox, polygon: null } };
    });
    return [shape, ...drawn];
  });
}

/** Position of the first frame after this one, of frames in ascending order. */
function positionAfter(frames: readonly number[], frame: number): number {
  let [low, high] = [0, frames.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((frames[middle] ?? 0) > frame) high = middle;
    else low = middle + 1;
  }
  return low;
}
