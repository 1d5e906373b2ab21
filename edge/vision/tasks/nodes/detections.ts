// What a node says it detected, against what it was asked. Nothing of it is believed: a frame that
// nobody asked for, or a box outside of its frame, is no answer. Each check says what is wrong, in
// words for people, or null.

import { type ImageHeader, imageHeader } from "../../../../shared/image-header.ts";
import { type MaskForm, RING_NUMBERS_MAX, type SamMask } from "../../../../shared/tasks/sam.ts";
import type { Bbox, FrameDetections } from "../../../../shared/tasks/tasks.ts";

/** Width and height, pixels. */
export interface Size {
  width: number;
  height: number;
}

/** What a result's frames have to be. */
export interface AskedFrames {
  frames: readonly number[];
  classes: readonly string[];
  size: Size;
  /** The task was canceled: not every frame has to be answered. */
  partial: boolean;
}

/** Pixels by which a mask's outline may pass its frame: outlines go around pixels. */
const OUTLINE_MARGIN = 1;
const DETECTIONS_MAX = 10_000;

/** A box lies in its image and is one there. */
export function boxProblem(bbox: Readonly<Bbox>, { width, height }: Size): string | null {
  const [x1, y1, x2, y2] = bbox;
  if (x1 >= 0 && y1 >= 0 && x2 <= width && y2 <= height) return null;
  return `the box [${bbox.join(", ")}] is not inside ${width} × ${height} pixels`;
}

/** An outline is a ring of points of its image. */
export function outlineProblem(ring: readonly number[], { width, height }: Size): string | null {
  if (ring.length < 6 || ring.length % 2 > 0) return "a mask's outline is no ring of points";
  if (ring.length > RING_NUMBERS_MAX) return "a mask's outline has too many points";
  const beyond = ring.some((value, at) => {
    const max = (at % 2 === 0 ? width : height) + OUTLINE_MARGIN;
    return !(value >= -OUTLINE_MARGIN && value <= max);
  });
  return beyond ? `a mask's outline is not inside ${width} × ${height} pixels` : null;
}

/** A mask is in the form that was asked for, and of its image. */
export function maskProblem(mask: SamMask, form: MaskForm, size: Size): string | null {
  if (!(form in mask)) return `a mask that is no ${form}`;
  if ("polygon" in mask) return outlineProblem(mask.polygon, size);
  const [height, width] = mask.rle.size;
  const pixels = mask.rle.counts.reduce((sum, count) => sum + count, 0);
  const covers = width === size.width && height === size.height && pixels === width * height;
  return covers ? null : "a mask's runs do not cover the image";
}

/** An image in base64 is one of its type and size, by its header: nobody here decodes it. */
export function imageProblem(
  base64: string,
  { type, width, height }: Readonly<ImageHeader>,
): string | null {
  const header = headerOf(base64);
  if (header?.type !== type) return `the image is no ${type}`;
  const isSize = header.width === width && header.height === height;
  return isSize ? null : `the image is not ${width} × ${height} pixels`;
}

function headerOf(base64: string): ImageHeader | null {
  try {
    return imageHeader(Uint8Array.fromBase64(base64));
  } catch {
    return null;
  }
}

/** Indexes answer what was asked: each once, none else, and all of them unless it was canceled. */
export function indexesProblem(
  answered: readonly number[],
  { frames, partial }: Pick<AskedFrames, "frames" | "partial">,
): string | null {
  const left = new Set(frames);
  for (const index of answered) {
    if (!left.delete(index)) return `frame ${index} was not asked for, or is answered twice`;
  }
  const [missing] = left;
  return missing === undefined || partial ? null : `frame ${missing} is not answered`;
}

/** Frames with detections of the asked classes, inside the frame. */
export function framesProblem(
  answered: readonly FrameDetections[],
  asked: AskedFrames,
): string | null {
  const problem = indexesProblem(
    answered.map(({ frame_index }) => frame_index),
    asked,
  );
  if (problem) return problem;
  for (const { frame_index, detections } of answered) {
    const of = detectionsProblem(detections, asked);
    if (of) return `frame ${frame_index}: ${of}`;
  }
  return null;
}

function detectionsProblem(
  detections: FrameDetections["detections"],
  { classes, size }: Pick<AskedFrames, "classes" | "size">,
): string | null {
  if (detections.length > DETECTIONS_MAX) return `over ${DETECTIONS_MAX} detections`;
  for (const [index, { class_name, bbox, polygon, duplicate_of }] of detections.entries()) {
    if (!classes.includes(class_name)) return "a class that was not asked for";
    const of = duplicate_of ?? 0;
    if (of < 0 || of >= detections.length || duplicate_of === index) {
      return "a duplicate of no other detection";
    }
    const problem = boxProblem(bbox, size) ?? (polygon && outlineProblem(polygon, size));
    if (problem) return problem;
  }
  return null;
}
