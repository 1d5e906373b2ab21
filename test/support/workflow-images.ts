// Images of workflows for tests: drawn ones, and blocks of a node called on them as the executor
// calls them.

import sharp from "sharp";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import type { ModelServices } from "../../gpu-node/workflows/model-runs.ts";
import { type NodeImage, rootImage } from "../../gpu-node/workflows/node-image.ts";
import { nodeRuns } from "../../gpu-node/workflows/runs.ts";
import type { Block, BlockResult } from "../../shared/workflow/block.ts";
import { DRAWING_BLOCKS } from "../../shared/workflow/blocks/drawing.ts";
import { IMAGE_BLOCKS } from "../../shared/workflow/blocks/images.ts";
import { MODEL_BLOCKS } from "../../shared/workflow/blocks/model-blocks.ts";
import type { Detections } from "../../shared/workflow/values.ts";

/** The blocks that a node alone runs, by type. */
export const NODE_BLOCKS: ReadonlyMap<string, Block> = new Map(
  [...IMAGE_BLOCKS, ...DRAWING_BLOCKS, ...MODEL_BLOCKS].map((block) => [block.type, block]),
);

/** Services of runs in which no model is asked. */
export const NO_MODELS: ModelServices = {
  predictors: { use: () => Promise.reject(new Error("no model is asked")) },
  sam: () => Promise.reject(new Error("no segmenter is asked")),
  models: {},
};

/** A black image with these shapes of SVG. */
export async function drawnImage(width: number, height: number, shapes = ""): Promise<NodeImage> {
  const svg =
    `<svg width="${width}" height="${height}" shape-rendering="crispEdges">` +
    `<rect width="100%" height="100%" fill="#000"/>${shapes}</svg>`;
  return rootImage(await readStill(await sharp(Buffer.from(svg)).png().toBuffer()));
}

interface CallOptions {
  parameters?: Record<string, unknown>;
  state?: unknown;
  services?: ModelServices;
  signal?: AbortSignal;
}

/** Calls a block; its parameters go through its schema, and open ports have their defaults. */
export async function callBlock(
  type: string,
  inputs: Readonly<Record<string, unknown>>,
  options: CallOptions = {},
): Promise<BlockResult> {
  const { parameters = {}, state = null, services = NO_MODELS } = options;
  const block = NODE_BLOCKS.get(type);
  const run = nodeRuns(services).get(type);
  if (!block || !run) throw new Error(`no block ${type}`);
  const defaults = Object.entries(block.inputs).flatMap(([port, { default: value }]) =>
    value === undefined ? [] : [[port, value]],
  );
  return run({
    inputs: { ...Object.fromEntries(defaults), ...inputs },
    parameters: block.parameters.parse(parameters),
    state,
    now: 0,
    signal: options.signal ?? new AbortController().signal,
  });
}

/** Red, green and blue of a pixel. */
export function pixelOf({ pixels }: { pixels: RgbImage }, x: number, y: number): number[] {
  const from = (y * pixels.width + x) * 3;
  return [...pixels.data.subarray(from, from + 3)];
}

/** Objects on an image by their boxes, with what else is told of each. */
export const detectionsOn = (
  { frame }: NodeImage,
  ...objects: (Partial<Detections["objects"][number]> & {
    bbox: [number, number, number, number];
  })[]
): Detections => ({
  frame,
  objects: objects.map((object) => ({ class: "thing", confidence: 0.9, ...object })),
});

/** Two rectangles, 12 by 10 and 20 by 8 pixels. */
export const twoRectangles = (): Promise<Buffer> => {
  const svg =
    '<svg width="64" height="48"><rect width="64" height="48" fill="#000"/>' +
    '<rect x="4" y="4" width="12" height="10" fill="#f00"/>' +
    '<rect x="30" y="30" width="20" height="8" fill="#0f0"/></svg>';
  return sharp(Buffer.from(svg)).png().toBuffer();
};
