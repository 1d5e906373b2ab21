// The blocks that draw over an image what other steps found, counted and followed: their entries.
// What is drawn lies where it was found, also on a crop or a smaller copy. A GPU node runs them.

import { z } from "zod";
import { type Block, defineBlock } from "../block.ts";
import { EXAMPLES } from "./image-examples.ts";

const image = { kind: "image", meaning: "the image to draw on" } as const;
const drawn = { kind: "image", meaning: "the image under the drawing" } as const;
const label = {
  kind: "string",
  meaning: "a text beside it, such as a count",
  optional: true,
} as const;

const style = {
  /** One colour for all, as six hexadecimal digits. */
  colour: z
    .string()
    .regex(/^#[0-9a-fA-F]{6}$/, "must be a colour such as #ff8800")
    .optional(),
  /** Pixels; by the image's size when left out. */
  thickness: z.number().min(0.5).max(100).optional(),
};

const objectStyle = {
  ...style,
  /** What objects of one colour have in common, where `colour` is left out. */
  colour_by: z.enum(["class", "track", "index"]).default("class"),
};

export const DrawBoxesParameters = z.object(objectStyle);
const drawBoxes = defineBlock({
  type: "draw_boxes@1",
  title: "Draw boxes",
  description: "Draws the boxes of objects, one colour a class or track.",
  section: "drawing",
  inputs: { image, detections: { kind: "detections", meaning: "the objects" } },
  parameters: DrawBoxesParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.draw_boxes,
  run: null,
});

export const DrawLabelsParameters = z.object({
  ...objectStyle,
  /** What a label says, in this order. */
  parts: z
    .array(z.enum(["class", "confidence", "track"]))
    .max(3)
    .default(["class", "confidence"]),
  /** A field of `data` that is told after these, such as `seconds`. */
  field: z.string().min(1).max(64).optional(),
});
const drawLabels = defineBlock({
  type: "draw_labels@1",
  title: "Draw labels",
  description: "Writes over each object what it is: class, confidence, track, a field of its data.",
  section: "drawing",
  inputs: { image, detections: { kind: "detections", meaning: "the objects" } },
  parameters: DrawLabelsParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.draw_labels,
  run: null,
});

export const DrawMasksParameters = z.object({
  colour: objectStyle.colour,
  colour_by: objectStyle.colour_by,
  /** 0 shows nothing of the masks, 1 nothing of what is under them. */
  opacity: z.number().min(0).max(1).default(0.4),
});
const drawMasks = defineBlock({
  type: "draw_masks@1",
  title: "Draw masks",
  description: "Colours the pixels of each object's mask.",
  section: "drawing",
  inputs: {
    image,
    masks: { kind: "masks", meaning: "the objects; those without a mask stay bare" },
  },
  parameters: DrawMasksParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.draw_masks,
  run: null,
});

export const DrawZonesParameters = z.object({
  ...style,
  /** Opacity of the zones' insides. */
  opacity: z.number().min(0).max(1).default(0.2),
});
const drawZones = defineBlock({
  type: "draw_zones@1",
  title: "Draw zones",
  description: "Draws the outlines of zones and shades them.",
  section: "drawing",
  inputs: {
    image,
    zone: { kind: "zone", meaning: "a zone", optional: true },
    zones: { kind: "list<zone>", meaning: "further zones", optional: true },
    label,
  },
  parameters: DrawZonesParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.draw_zones,
  run: null,
});

export const DrawLinesParameters = z.object(style);
const drawLines = defineBlock({
  type: "draw_lines@1",
  title: "Draw lines",
  description: "Draws lines that objects are counted on, with a dot where each one starts.",
  section: "drawing",
  inputs: {
    image,
    line: { kind: "line", meaning: "a line", optional: true },
    lines: { kind: "list<line>", meaning: "further lines", optional: true },
    label,
  },
  parameters: DrawLinesParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.draw_lines,
  run: null,
});

export const DrawTracksParameters = z.object({
  ...style,
  /** Points of its past that a track shows: frames in which it was seen. */
  length: z.number().int().min(1).max(300).default(30),
});
/** Where tracks were, the one seen last first. */
export const TrailState = z.object({
  /** Frames so far. */
  frame: z.int().min(0),
  trails: z.array(
    z.object({
      id: z.int(),
      /** The frame it was seen in last. */
      seen: z.int(),
      /** Middles of its boxes, tenths of a pixel of the root image, oldest first. */
      points: z.array(z.tuple([z.number(), z.number()])),
    }),
  ),
});
const drawTracks = defineBlock({
  type: "draw_tracks@1",
  title: "Draw tracks",
  description:
    "Draws where each track has come from, through the frames of a stream. One that is not seen " +
    "for as many frames as its trail is long is forgotten.",
  section: "drawing",
  inputs: { image, tracks: { kind: "tracks", meaning: "objects with ids of tracks" } },
  parameters: DrawTracksParameters,
  outputs: { image: drawn },
  runsOn: "node",
  purity: "stateful",
  takesFrames: true,
  cost: "pixels",
  example: EXAMPLES.draw_tracks,
  run: null,
});

export const DRAWING_BLOCKS: readonly Block[] = [
  drawBoxes,
  drawLabels,
  drawMasks,
  drawZones,
  drawLines,
  drawTracks,
];
