// A frame with examples from elsewhere in a column beside it, for models whose examples must lie
// in the image that they search.

import type { Bbox } from "../../shared/tasks/tasks.ts";
import { clip } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { borderColour, canvas, cut, paste, resize } from "../media/image.ts";
import type { Example } from "./segmenter.ts";

/** The column takes at most this share of the frame's width, since it costs resolution. */
const COLUMN_SHARE_MAX = 0.35;
/** Share of an example's sides that is shown around it. */
const SURROUNDINGS = 0.2;
const GAP = 8;

/** A frame with a column of examples at its side. */
export interface Beside {
  image: RgbImage;
  /** Where the examples lie now. */
  boxes: { bbox: Bbox; label: 0 | 1 }[];
}

/** Shows examples of other images, one at least, beside a frame; all are shrunk by one factor. */
export async function besideImage(frame: RgbImage, examples: readonly Example[]): Promise<Beside> {
  const crops = examples.map(cropOf);
  const widthMax = Math.max(16, Math.floor(frame.width * COLUMN_SHARE_MAX) - 2 * GAP);
  const share = Math.floor(frame.height / crops.length);
  const gap = Math.min(GAP, share >> 2);
  const heightMax = Math.max(1, share - 2 * gap);
  // One factor for all, so that the examples keep their sizes to each other.
  const shrink = Math.min(
    1,
    ...crops.map(({ image }) => Math.min(widthMax / image.width, heightMax / image.height)),
  );
  const width = Math.max(
    ...crops.map(({ image }) => Math.max(1, Math.round(image.width * shrink))),
  );
  const image = canvas(frame.width + width + 2 * GAP, frame.height, borderColour(frame));
  paste(image, frame, 0, 0);
  const boxes: Beside["boxes"] = [];
  const left = frame.width + GAP;
  let top = gap;
  for (const { image: crop, bbox, label } of crops) {
    const size = {
      width: Math.max(1, Math.round(crop.width * shrink)),
      height: Math.max(1, Math.round(crop.height * shrink)),
    };
    const placed = await resize(crop, size);
    // Frames of a few pixels leave no room for a gap.
    const at = Math.max(0, Math.min(top, frame.height - size.height));
    paste(image, placed, left, at);
    const [x, y] = [size.width / crop.width, size.height / crop.height];
    boxes.push({
      bbox: [left + bbox[0] * x, at + bbox[1] * y, left + bbox[2] * x, at + bbox[3] * y],
      label,
    });
    top += size.height + 2 * gap;
  }
  return { image, boxes };
}

/** An example cut out with a little of what is around it, and its box in the cut. */
function cropOf({ image, bbox, label = 1 }: Example): {
  image: RgbImage;
  bbox: Bbox;
  label: 0 | 1;
} {
  if (!bbox) return { image, bbox: [0, 0, image.width, image.height], label };
  const margin = Math.round(SURROUNDINGS * Math.max(bbox[2] - bbox[0], bbox[3] - bbox[1]));
  const around = clip(
    [
      Math.floor(bbox[0] - margin),
      Math.floor(bbox[1] - margin),
      Math.ceil(bbox[2] + margin),
      Math.ceil(bbox[3] + margin),
    ],
    image,
  );
  const [left, top, right, bottom] = around ?? [0, 0, image.width, image.height];
  return {
    image: cut(image, [left, top, right, bottom]),
    bbox: [
      Math.max(0, bbox[0] - left),
      Math.max(0, bbox[1] - top),
      Math.min(right, bbox[2]) - left,
      Math.min(bottom, bbox[3]) - top,
    ],
    label,
  };
}
