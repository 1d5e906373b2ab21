// Values that flow through a workflow, as blocks see them. They are never changed in place: a block
// makes new ones, so that any step may read what any other has made.

import { z } from "zod";
import { Bbox, Point, Rle } from "../shapes.ts";
import type { Atom, Kind } from "./kinds.ts";

/** Pixels of the root image, which may lie outside of it. */
export const PointValue = z.tuple([z.number(), z.number()]);
export type PointValue = z.infer<typeof PointValue>;
/**
 * From its start to its end. Looking along it, what passes from its right to its left passes `in`:
 * over a line from the left of an image to its right, what moves up.
 */
export const LineValue = z.tuple([PointValue, PointValue]);
export type LineValue = z.infer<typeof LineValue>;
const Corners = z.array(PointValue).min(3).max(1_000);
/** Numbers of a flat polygon in twos; what is no such stays. */
const inTwos = (value: unknown): unknown =>
  Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "number")
    ? Array.from({ length: Math.ceil(value.length / 2) }, (_, index) =>
        value.slice(2 * index, 2 * index + 2),
      )
    : value;
/**
 * Corners of a polygon, in order; the last one is joined to the first. It is also read flat, x and
 * y in turn, as the polygons of annotations and masks are.
 */
export const ZoneValue = z.preprocess(inTwos, Corners);
export type ZoneValue = z.infer<typeof ZoneValue>;
/** A point on an object, or a click as routes take it, whose label says whether it is on it. */
export const ClickValue = z.union([PointValue, Point]);
export type ClickValue = z.infer<typeof ClickValue>;

const side = () => z.number().int().min(1).max(100_000);

/**
 * Where an image lies in the one that it was cut from: the pixel (x, y) of it is the root's pixel
 * (offset[0] + x · scale[0], offset[1] + y · scale[1]).
 */
export const ImageFrame = z.object({
  width: side(),
  height: side(),
  /** Pixels of the root image. */
  offset: PointValue.default([0, 0]),
  /** Pixels of the root image in one of this one, across and down. */
  scale: z.tuple([z.number().positive(), z.number().positive()]).default([1, 1]),
  /** The image that the run was given; by default this one is it. */
  root: z.object({ width: side(), height: side() }).optional(),
});
export type ImageFrame = z.infer<typeof ImageFrame>;

/** An object on an image: its box and mask are in pixels of the image it was found on. */
export const WorkflowObject = z.object({
  class: z.string(),
  confidence: z.number().min(0).max(1),
  bbox: Bbox,
  /** Over the whole image that the object was found on. */
  mask: Rle.optional(),
  track_id: z.number().int().min(0).optional(),
  /** What blocks noted of it, such as the seconds that it has been in a zone. */
  data: z.record(z.string(), z.union([z.number(), z.string(), z.boolean()])).optional(),
});
export type WorkflowObject = z.infer<typeof WorkflowObject>;

/** Objects on one image, surest first unless a block has sorted them. */
export const Detections = z.object({
  frame: ImageFrame,
  objects: z.array(WorkflowObject).max(10_000),
});
export type Detections = z.infer<typeof Detections>;

/** An image as every host knows it; whoever runs blocks on pixels adds what holds them. */
export interface WorkflowImage {
  frame: ImageFrame;
}

/** A model of the registry, as a step names it. */
export const ModelName = z
  .string()
  .regex(/^(active|staging|endpoint:[a-z0-9-]{1,64}|[\w.-]{1,64})$/);
export type ModelName = z.infer<typeof ModelName>;

interface AtomValues {
  any: unknown;
  json: unknown;
  number: number;
  integer: number;
  string: string;
  boolean: boolean;
  list: unknown[];
  point: PointValue;
  click: ClickValue;
  line: LineValue;
  zone: ZoneValue;
  image: WorkflowImage;
  detections: Detections;
  masks: Detections;
  tracks: Detections;
  tracked_masks: Detections;
  model: ModelName;
  project: string;
  secret: string;
}

/** The type of a kind's values. */
export type ValueOf<K extends Kind> = K extends `list<${infer Item extends Atom}>`
  ? AtomValues[Item][]
  : K extends Atom
    ? AtomValues[K]
    : never;

/** Where a pixel of an image lies in its root. */
export const rootPoint = ({ offset, scale }: ImageFrame, [x, y]: PointValue): PointValue => [
  offset[0] + x * scale[0],
  offset[1] + y * scale[1],
];

/** The image that a frame was cut from, by its sides. */
export const rootOf = ({ root, width, height }: ImageFrame): { width: number; height: number } =>
  root ?? { width, height };
