// Fields of annotations as requests give them.

import { z } from "@hono/zod-openapi";

/** Corners of polygons lie in frames, or not far out. */
const COORDINATE_MAX = 1_000_000;

/** The outline of an annotation. */
export const Polygon = z
  .array(z.number().min(-COORDINATE_MAX).max(COORDINATE_MAX))
  .min(6)
  .max(20_000)
  .refine(({ length }) => length % 2 === 0, "must be x and y in turn")
  .meta({ description: "x and y in turn, pixels; cut to the frame" });

/** The track of an annotation. */
export const TrackId = z.int().min(1).max(2_147_483_647);

/** The revision of an annotation that its editor saw. */
export const Revision = z.int().min(0).max(2_147_483_647);
