// The blocks that make images of images, and those that look at pixels without a model: their
// entries. A GPU node runs them.

import { z } from "zod";
import { type Block, defineBlock } from "../block.ts";
import { BAR_CODE, CHECKERED, EXAMPLES } from "./image-examples.ts";

const image = { kind: "image", meaning: "the image" } as const;
/** Pixels of an image's side. */
const side = () => z.number().int().min(1).max(8_192);
const made = { kind: "image", meaning: "the new image" } as const;

/** Tiles of one image: more are no image that anybody looks at piece by piece. */
export const TILES_MAX = 400;

export const CropParameters = z.object({
  /** Pixels around each box. */
  padding: z.number().int().min(0).max(1_000).default(0),
});
const crop = defineBlock({
  type: "crop@1",
  title: "Crop objects",
  description:
    "Cuts each object out of the image by its box. Every crop becomes an element of its own, " +
    "and goes with its object. What lies outside of the image is left out.",
  section: "images",
  inputs: {
    image,
    detections: { kind: "detections", meaning: "the objects, of this image or of a part of it" },
  },
  parameters: CropParameters,
  outputs: {
    crops: { kind: "image", meaning: "one object's part of the image", deepens: true },
    detections: { kind: { like: "detections" }, meaning: "that object alone", deepens: true },
  },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.crop,
  run: null,
});

export const StaticCropParameters = z.object({
  /** Whole pixels, or shares of the image's sides, 0 to 1. */
  unit: z.enum(["pixels", "share"]).default("pixels"),
  x: z.number().min(0).max(65_535),
  y: z.number().min(0).max(65_535),
  width: z.number().positive().max(8_192),
  height: z.number().positive().max(8_192),
});
const staticCrop = defineBlock({
  type: "static_crop@1",
  title: "Crop a rectangle",
  description:
    "Cuts a fixed rectangle out of the image, in pixels or in shares of its sides. What reaches beyond the image is " +
    "cut off; a rectangle that lies outside of it masks the output.",
  section: "images",
  inputs: { image },
  parameters: StaticCropParameters,
  problemOf: ({ unit, ...sides }) => {
    const wrong = Object.entries(sides).find(([, value]) =>
      unit === "pixels" ? !Number.isInteger(value) : value > 1,
    );
    if (!wrong) return null;
    return `${wrong[0]} is ${wrong[1]}; ${unit === "pixels" ? "pixels are whole" : "a share is at most 1"}`;
  },
  outputs: { image: made },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.static_crop,
  run: null,
});

export const ResizeParameters = z.object({
  /** Within both sides in proportion; to exactly both; by the longest side alone. */
  mode: z.enum(["fit", "stretch", "longest_side"]).default("fit"),
  width: side().optional(),
  height: side().optional(),
  longest_side: side().optional(),
});
const resize = defineBlock({
  type: "resize@1",
  title: "Resize",
  description:
    "Makes the image larger or smaller: `fit` within width and height in proportion, `stretch` " +
    "to exactly these, `longest_side` in proportion to one side. Objects found on the new image " +
    "still lie right on the old one.",
  section: "images",
  inputs: { image },
  parameters: ResizeParameters,
  problemOf: ({ mode, width, height, longest_side }) => {
    if (mode === "longest_side") return longest_side ? null : "longest_side must be given";
    return width && height ? null : `${mode} takes width and height`;
  },
  outputs: { image: made },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.resize,
  run: null,
});

export const TileParameters = z.object({
  width: side().default(640),
  height: side().default(640),
  /** Share of a tile that it has in common with the next one. */
  overlap: z.number().min(0).max(0.9).default(0.2),
});
const tile = defineBlock({
  type: "tile@1",
  title: "Tile",
  description:
    "Cuts the image into tiles that overlap, row by row, so that a detector sees small objects " +
    `large. The last of a row ends with the image. At most ${TILES_MAX} tiles; stitch@1 puts ` +
    "what was found on them together again.",
  section: "images",
  inputs: { image },
  parameters: TileParameters,
  outputs: { tiles: { kind: "image", meaning: "one part of the image", deepens: true } },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.tile,
  run: null,
});

const convertGrayscale = defineBlock({
  type: "convert_grayscale@1",
  title: "Make gray",
  description: "Takes the colours out of the image.",
  section: "images",
  inputs: { image },
  parameters: z.object({}),
  outputs: { image: made },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.convert_grayscale,
  run: null,
});

export const ContrastParameters = z.object({
  /** Factor around the middle gray; 1 leaves it. */
  contrast: z.number().min(0).max(10).default(1),
  /** Share of the whole range that every channel is lifted by; 0 leaves it. */
  brightness: z.number().min(-1).max(1).default(0),
});
const contrast = defineBlock({
  type: "contrast@1",
  title: "Contrast and brightness",
  description:
    "Spreads the channels around the middle gray by a factor, and lifts them by a share.",
  section: "images",
  inputs: { image },
  parameters: ContrastParameters,
  outputs: { image: made },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.contrast,
  run: null,
});

export const BlurParameters = z.object({
  /** `gaussian` is smooth, `pixelate` shows squares; both leave 8 values a side or fewer. */
  mode: z.enum(["gaussian", "pixelate"]).default("gaussian"),
  /** Pixels around each box. */
  padding: z.number().int().min(0).max(1_000).default(0),
});
const blur = defineBlock({
  type: "blur@1",
  title: "Blur regions",
  description:
    "Makes objects, or what lies in a zone, unrecognisable: each region keeps at most 8 values a " +
    "side, from which nothing can be got back. With neither it blurs the whole image.",
  section: "images",
  inputs: {
    image,
    detections: { kind: "detections", meaning: "objects, by their boxes", optional: true },
    zone: { kind: "zone", meaning: "a part of the image", optional: true },
  },
  parameters: BlurParameters,
  outputs: { image: made },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: EXAMPLES.blur,
  run: null,
});

/** Kinds of codes that people print, as they are named in `data.format`. */
export const BAR_CODE_FORMATS = [
  "qr_code",
  "data_matrix",
  "aztec",
  "pdf417",
  "ean_13",
  "ean_8",
  "upc_a",
  "upc_e",
  "code_128",
  "code_93",
  "code_39",
  "itf",
  "codabar",
] as const;
export const BarCodeParameters = z.object({
  /** Kinds to look for; all of them when left out. */
  formats: z.array(z.enum(BAR_CODE_FORMATS)).min(1).max(BAR_CODE_FORMATS.length).optional(),
});
const barcode = defineBlock({
  type: "barcode@1",
  title: "Read barcodes",
  description:
    "Finds barcodes and QR codes and reads them: each one is an object whose class is the kind " +
    "of code, with `data.text` and `data.format`.",
  section: "images",
  inputs: { image },
  parameters: BarCodeParameters,
  outputs: {
    detections: { kind: "detections", meaning: "the codes, where they are" },
    texts: { kind: "list<string>", meaning: "what they say, in the same order" },
  },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: {
    parameters: { formats: ["qr_code"] },
    inputs: { image: BAR_CODE },
    outputs: {
      detections: {
        frame: { width: 58, height: 58, offset: [0, 0], scale: [1, 1] },
        objects: [
          {
            class: "qr_code",
            confidence: 1,
            bbox: [8, 8, 52, 52],
            data: { text: "dock 7", format: "qr_code" },
          },
        ],
      },
      texts: ["dock 7"],
    },
  },
  run: null,
});

const imageProperties = defineBlock({
  type: "image_properties@1",
  title: "Image properties",
  description: "Measures the image: its sides, how bright it is, and how sharp.",
  section: "images",
  inputs: { image },
  parameters: z.object({}),
  outputs: {
    width: { kind: "integer", meaning: "pixels across" },
    height: { kind: "integer", meaning: "pixels down" },
    brightness: { kind: "number", meaning: "mean lightness, 0 is black and 1 is white" },
    sharpness: {
      kind: "number",
      meaning: "variance of the Laplacian of lightness from 0 to 255; a blurred image has less",
    },
  },
  runsOn: "node",
  purity: "pure",
  cost: "pixels",
  example: {
    parameters: {},
    inputs: { image: CHECKERED },
    outputs: { width: 8, height: 6, brightness: 0.5, sharpness: 1_040_400 },
  },
  run: null,
});

export const IMAGE_BLOCKS: readonly Block[] = [
  crop,
  staticCrop,
  resize,
  tile,
  convertGrayscale,
  contrast,
  blur,
  barcode,
  imageProperties,
];
