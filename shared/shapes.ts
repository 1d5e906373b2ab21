// Boxes, clicks and masks in pixels, as every wire of vision has them.

import { z } from "zod";

/** The largest of float32, in which models count and boxes are stored. */
export const PIXELS_MAX = 2 ** 127 * (2 - 2 ** -23);

/** A coordinate in pixels, or a length. */
export const pixels = () => z.number().min(-PIXELS_MAX).max(PIXELS_MAX);

/**
 * Corners in pixels of the source frame: x1, y1, x2, y2. Any number will do: what lies outside of
 * the frame is cut to it where people draw, and refused by name where nodes answer.
 */
export const Bbox = z
  .tuple([z.number(), z.number(), z.number(), z.number()])
  .refine(
    // As precise as a box is stored: what is thinner than that is no box there.
    ([x1, y1, x2, y2]) => Math.fround(x2) > Math.fround(x1) && Math.fround(y2) > Math.fround(y1),
    "must be [x1, y1, x2, y2] with x2 > x1, y2 > y1",
  )
  .meta({ description: "[x1, y1, x2, y2], pixels of the source frame" });
export type Bbox = z.infer<typeof Bbox>;

/** A click: 1 is on the object, 0 is off it. */
export const Point = z.object({
  x: pixels(),
  y: pixels(),
  label: z.union([z.literal(0), z.literal(1)]),
});
export type Point = z.infer<typeof Point>;

/** One object that a detector found, in pixels of the image. */
export const Prediction = z
  .object({ class: z.string(), confidence: z.number().min(0).max(1), bbox: Bbox })
  .meta({ id: "Prediction" });
export type Prediction = z.infer<typeof Prediction>;

/** A mask over a whole image as COCO's uncompressed run lengths; height and width first. */
export const Rle = z
  .object({
    size: z.tuple([z.number().int(), z.number().int()]),
    counts: z.array(z.number().int().min(0).max(2_147_483_647)),
  })
  .meta({ description: "COCO's uncompressed RLE: column by column, zeros first" });
export type Rle = z.infer<typeof Rle>;
