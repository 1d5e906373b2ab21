// Fields of a JSON body that its schema does not know. Each is refused by name, with the name that
// was probably meant: a setting that is mistyped, or called as another tool calls it, must not be
// passed over. Queries and forms name what was meant by the same table. That the objects of a body
// are closed is checked when its route is added.

import type { z } from "@hono/zod-openapi";
import { nearest } from "../../shared/detector/vocabulary.ts";
import { definitionOf, unwrapped } from "./not-given.ts";

/** Names in other tools' requests and files, and ours of the same thing. */
const OTHER_NAMES: Readonly<Record<string, readonly string[]>> = {
  imgsz: ["image_size"],
  img_size: ["image_size"],
  batch: ["batch_size"],
  device: ["devices"],
  lr: ["learning_rate"],
  lr0: ["learning_rate"],
  cos_lr: ["learning_rate_schedule"],
  amp: ["precision"],
  half: ["precision"],
  model: ["variant", "model_id"],
  weights: ["pretrained", "weight"],
  augment: ["augmentation"],
  conf: ["threshold", "confidence"],
  confidence_threshold: ["threshold", "confidence"],
  score_threshold: ["threshold", "confidence"],
  confidence: ["threshold"],
  threshold: ["confidence"],
  score: ["confidence"],
  iou: ["nms_iou"],
  classes: ["prompts"],
  text: ["prompts"],
  prompt: ["prompts"],
  label: ["class", "class_name"],
  category: ["class", "class_name"],
  class_name: ["class"],
  class: ["class_name"],
  box: ["bbox"],
  xyxy: ["bbox"],
  point_coords: ["points"],
  zone: ["polygon"],
  segmentation: ["polygon"],
  mask: ["polygon"],
  video_id: ["video_ids", "videos"],
  id: ["job_id", "model_id"],
};

/** Which of the known names was probably meant by another one, or null. */
export function meantName(name: string, known: readonly string[]): string | null {
  const named = Object.hasOwn(OTHER_NAMES, name) ? (OTHER_NAMES[name] ?? []) : [];
  return named.find((one) => known.includes(one)) ?? nearest(name, known);
}

/** The problem of a field beside those that are known, with what was probably meant. */
export function unknownFieldProblem(name: string, known: readonly string[]): string {
  const meant = meantName(name, known);
  const all = known.length > 0 ? `known are ${known.join(", ")}` : "none is known";
  return `unknown field; ${meant ? `did you mean ${meant}?` : all}`;
}

/** Names of the fields that a schema knows of the object at a path of a value. */
export function fieldsAt(schema: z.core.$ZodType, path: readonly PropertyKey[]): string[] {
  const { shape, element, valueType, options } = definitionOf(unwrapped(schema));
  if (options) return [...new Set(options.flatMap((option) => fieldsAt(option, path)))];
  const [key, ...rest] = path;
  if (key === undefined) return Object.keys(shape ?? {});
  const inner = shape ? shape[String(key)] : (element ?? valueType);
  return inner ? fieldsAt(inner, rest) : [];
}

/** Paths of the objects within a schema that pass over fields that they do not know. */
export function openObjects(schema: z.core.$ZodType, path = "body"): string[] {
  const { type, shape, catchall, element, valueType, options } = definitionOf(unwrapped(schema));
  if (options) return options.flatMap((option) => openObjects(option, path));
  if (element) return openObjects(element, `${path}[]`);
  if (valueType) return openObjects(valueType, `${path}.*`);
  if (type !== "object" || !shape) return [];
  // A loose object takes every field: it passes over none.
  const own = catchall ? [] : [path];
  const inner = Object.entries(shape).flatMap(([name, one]) => openObjects(one, `${path}.${name}`));
  return [...own, ...inner];
}
