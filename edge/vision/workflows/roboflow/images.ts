// Roboflow's steps that change images, and those that segment what other steps name, as steps of
// ours. Names and fields are those of its published manifests.

import { z } from "zod";
import { NoCounterpart } from "./query.ts";
import { one, type StepReader, type Translation } from "./steps.ts";

export type Translate = (step: StepReader) => Translation;

const share = z.number().min(0).max(1);
const whole = z.int().min(1).max(8_192);
const IMAGE = ["images", "image"];

const imageOf = (step: StepReader): string => step.source(IMAGE, "image").reference;

const staticCrop: Translate = (step) => {
  const side = (name: string) => {
    const value = step.fixed(name, whole, 0);
    if (value > 0) return value;
    throw new NoCounterpart(`its ${name} is not known before the run`);
  };
  const [width, height] = [side("width"), side("height")];
  return one(step, "static_crop@1", {
    parameters: {
      image: imageOf(step),
      x: Math.max(0, Math.round(side("x_center") - width / 2)),
      y: Math.max(0, Math.round(side("y_center") - height / 2)),
      width,
      height,
    },
    outputs: { crops: ["image", "image"] },
  });
};

/** The same in shares of the image's sides. */
const relativeCrop: Translate = (step) => {
  const part = (name: string) => {
    const value = step.fixed(name, share, -1);
    if (value >= 0) return value;
    throw new NoCounterpart(`its ${name} is not known before the run`);
  };
  const [x, y, width, height] = [part("x_center"), part("y_center"), part("width"), part("height")];
  if (width === 0 || height === 0) throw new NoCounterpart("it cuts out nothing");
  return one(step, "static_crop@1", {
    parameters: {
      image: imageOf(step),
      unit: "share",
      x: Math.max(0, x - width / 2),
      y: Math.max(0, y - height / 2),
      width,
      height,
    },
    outputs: { crops: ["image", "image"] },
  });
};

const preprocessing: Translate = (step) => {
  const task = step.raw("task_type");
  if (task !== "resize") throw new NoCounterpart(`the task ${String(task)}`);
  return one(step, "resize@1", {
    parameters: {
      image: imageOf(step),
      mode: "stretch",
      width: step.fixed("width", whole, 640),
      height: step.fixed("height", whole, 640),
    },
    outputs: { image: ["image", "image"] },
  });
};

const grayscale: Translate = (step) =>
  one(step, "convert_grayscale@1", {
    parameters: { image: imageOf(step) },
    outputs: { image: ["image", "image"] },
  });

const OWN_SEGMENTER = "the node's own segmenter stands for its model";

const boxSegmenter: Translate = (step) => {
  if (step.raw("boxes") === undefined) throw new NoCounterpart("masks of all that is there");
  step.warn(OWN_SEGMENTER);
  if (Number(step.raw("threshold") ?? 0) > 0) step.ignore("threshold");
  return one(step, "segmenter@1", {
    parameters: { image: imageOf(step), boxes: step.source("boxes", "detections").reference },
    outputs: { predictions: ["masks", "masks"] },
  });
};

const textSegmenter: Translate = (step) => {
  const prompts = step.port("class_names", "list<string>", z.array(z.string().min(1)).min(1));
  if (prompts === undefined) throw new NoCounterpart("it has no class_names to look for");
  step.warn(OWN_SEGMENTER);
  return one(step, "segmenter@1", {
    parameters: {
      image: imageOf(step),
      prompts,
      threshold: step.port("threshold", "number", share) ?? 0.5,
    },
    outputs: { predictions: ["masks", "masks"] },
  });
};

/** By their types without the plugin's name; one is published with a letter too many. */
export const IMAGE_STEPS: readonly (readonly [string, Translate])[] = [
  ["absolute_static_crop@v1", staticCrop],
  ["AbsoluteStaticCrop", staticCrop],
  ["relative_statoic_crop@v1", relativeCrop],
  ["RelativeStaticCrop", relativeCrop],
  ["image_preprocessing@v1", preprocessing],
  ["convert_grayscale@v1", grayscale],
  ["segment_anything@v1", boxSegmenter],
  ["sam3@v1", textSegmenter],
];
