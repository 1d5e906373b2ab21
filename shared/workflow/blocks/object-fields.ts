// Numbers that can be told of an object: by them objects are sorted, aggregated and listed.

import { z } from "zod";
import type { WorkflowObject } from "../values.ts";

const BOX_FIELDS = ["confidence", "x", "y", "width", "height", "area", "track_id"] as const;

/** A field of an object: one that each has, or `data.<name>` of what blocks noted of it. */
export const ObjectField = z
  .union([z.enum(BOX_FIELDS), z.templateLiteral(["data.", z.string().min(1).max(64)])])
  .meta({
    description:
      "x and y are the box's center, width, height and area are the box's, in pixels of the image " +
      "that the object was found on",
  });
export type ObjectField = z.infer<typeof ObjectField>;

/** Pixels that the box of an object covers. */
export const areaOf = ({ bbox: [x1, y1, x2, y2] }: WorkflowObject): number => (x2 - x1) * (y2 - y1);

/** What is noted of an object under a name; null for nothing. */
export function noteOf({ data }: WorkflowObject, name: string): number | string | boolean | null {
  return data && Object.hasOwn(data, name) ? (data[name] ?? null) : null;
}

/** A field of an object as a number; null where it has none. */
export function numberOfObject(object: WorkflowObject, field: ObjectField): number | null {
  const [x1, y1, x2, y2] = object.bbox;
  switch (field) {
    case "confidence":
      return object.confidence;
    case "x":
      return (x1 + x2) / 2;
    case "y":
      return (y1 + y2) / 2;
    case "width":
      return x2 - x1;
    case "height":
      return y2 - y1;
    case "area":
      return areaOf(object);
    case "track_id":
      return object.track_id ?? null;
    default: {
      const note = noteOf(object, field.slice("data.".length));
      return typeof note === "number" ? note : null;
    }
  }
}
