// Images of workflows as a node holds them, with their pixels, and where things lie on them: what
// was found on one image is drawn on, or cut out of, another one of the same root.

import type { Bbox } from "../../shared/shapes.ts";
import {
  type BlockCall,
  BlockFailure,
  type BlockResult,
  type RunBlock,
} from "../../shared/workflow/block.ts";
import {
  type ImageFrame,
  type PointValue,
  rootOf,
  rootPoint,
  type WorkflowImage,
} from "../../shared/workflow/values.ts";
import { scaleBox } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";

/** An image of a run, with its pixels; both have the same sides. */
export class NodeImage implements WorkflowImage {
  readonly frame: ImageFrame;
  readonly pixels: RgbImage;

  constructor(frame: ImageFrame, pixels: RgbImage) {
    this.frame = frame;
    this.pixels = pixels;
  }
}

/** What a run was given: an image that is its own root. */
export function rootImage(pixels: RgbImage): NodeImage {
  const { width, height } = pixels;
  return new NodeImage({ width, height, offset: [0, 0], scale: [1, 1] }, pixels);
}

/** Pixels of a part of an image, whose upper left corner is at a point of it. */
export function partOf({ frame }: NodeImage, pixels: RgbImage, corner: PointValue): NodeImage {
  const { width, height } = pixels;
  const offset = rootPoint(frame, corner);
  const { scale } = frame;
  return new NodeImage({ width, height, offset, scale, root: rootOf(frame) }, pixels);
}

/** The whole of an image at other sides. */
export function resizedOf({ frame }: NodeImage, pixels: RgbImage): NodeImage {
  const { width, height } = pixels;
  const scale: PointValue = [
    (frame.scale[0] * frame.width) / width,
    (frame.scale[1] * frame.height) / height,
  ];
  const { offset } = frame;
  return new NodeImage({ width, height, offset, scale, root: rootOf(frame) }, pixels);
}

/** An image of other pixels, as large and where it was. */
export const repainted = ({ frame }: NodeImage, pixels: RgbImage) => new NodeImage(frame, pixels);

/** Where a point of the root lies on an image, in pixels of it. */
export const pointOn = ({ offset, scale }: ImageFrame, [x, y]: PointValue): PointValue => [
  (x - offset[0]) / scale[0],
  (y - offset[1]) / scale[1],
];

/** Where a box lies on an image, in pixels of it, that was found on another one of its root. */
export function boxOn(frame: ImageFrame, found: ImageFrame, bbox: Bbox): Bbox {
  checkRoots(frame, found);
  const [x1, y1] = pointOn(frame, rootPoint(found, [bbox[0], bbox[1]]));
  const [x2, y2] = pointOn(frame, rootPoint(found, [bbox[2], bbox[3]]));
  return [x1, y1, x2, y2];
}

/** The box in pixels of the root. */
export const boxOnRoot = ({ offset, scale }: ImageFrame, bbox: Bbox): Bbox => {
  const [x1, y1, x2, y2] = scaleBox(bbox, scale[0], scale[1]);
  return [x1 + offset[0], y1 + offset[1], x2 + offset[0], y2 + offset[1]];
};

/** Fails where two things cannot be of one root: its sides differ. */
export function checkRoots(frame: ImageFrame, other: ImageFrame): void {
  const [own, found] = [rootOf(frame), rootOf(other)];
  if (own.width === found.width && own.height === found.height) return;
  const sides = ({ width, height }: typeof own) => `${width} × ${height}`;
  throw new BlockFailure(
    `the objects were found on an image of ${sides(found)} pixels, not on this one, which is ` +
      `${sides(own)}`,
  );
}

/** What a block does, its call typed by its entry: the executor hands it nothing else. */
export const blockRun =
  <Inputs, Parameters = unknown>(
    work: (call: BlockCall<Inputs, Parameters>) => BlockResult | Promise<BlockResult>,
  ): RunBlock =>
  (call) =>
    // The executor checked both by the block's ports and schema.
    work(call as unknown as BlockCall<Inputs, Parameters>);
