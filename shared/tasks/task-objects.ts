// What tasks name of the store: objects that a node reads, those that it writes, and models.

import { z } from "zod";
import { VARIANT_NAMES } from "../detector/detector.ts";

/** A whole number that fits into the database's `int`. */
export const int32 = () => z.number().int().min(0).max(2_147_483_647);

/** An object of the store, by the short-lived address at which a node may read it. */
export const ObjectSource = z.object({
  url: z.url(),
  bytes: z.number().int(),
  /** Names the bytes for the node's cache: an object's key never changes meaning. */
  key: z.string(),
});
export type ObjectSource = z.infer<typeof ObjectSource>;

/** What a node makes for the store. It asks for the address when the bytes are there. */
export const ObjectTarget = z.object({ key: z.string(), content_type: z.string() });
export type ObjectTarget = z.infer<typeof ObjectTarget>;

/** An object that a node wrote under a key that it asked for. */
export const StoredObject = z.object({ key: z.string(), bytes: z.number().int().min(0) });

/** A model of the registry, as a node opens it: its weights, and the detector that they fit. */
export const ModelSource = z.object({
  model_id: z.string(),
  variant: z.enum(VARIANT_NAMES),
  task: z.enum(["detection", "segmentation"]),
  /** In index order. */
  classes: z.array(z.string()),
  image_size: z.number().int(),
  sha256: z.string(),
  weights: ObjectSource,
});
export type ModelSource = z.infer<typeof ModelSource>;
