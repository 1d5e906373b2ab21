// Finds what looks like given examples, with the embedded models: peaks whose features look like
// an example's are prompted to the mask model, and each mask is judged by how alike it is in
// features, colour and size. It knows no absolute likeness: within one camera or domain it is good,
// across scenes it is weak.

import { iou } from "../../shared/detector/tracks.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { clip, suppress } from "../media/geometry.ts";
import type { RgbImage } from "../media/image.ts";
import { resize } from "../media/image.ts";
import type { CenterNet } from "./centernet.ts";
import {
  type Correlator,
  channelMeans,
  cutPatch,
  dot,
  type FeatureMap,
  findPeaks,
  normalise,
  type Patch,
  type Peak,
  pool,
} from "./feature-maps.ts";
import {
  boxPrompt,
  GRID,
  LOW,
  type Sam,
  type SamEmbedding,
  type SamMasks,
  SIDE,
  STRIDE,
  TOKENS,
} from "./sam.ts";

/** What part of the likeness comes from each map, when peaks are searched. */
const SEARCH_WEIGHTS = { sam: 0.35, net: 0.65 };
const SEARCH_LIKENESS_MIN = 0.15;
const SEARCH_SAME_IOU = 0.5;
const PEAKS_MAX = 40;
/** What surrounds the object in its box says a little about it. */
const SURROUNDINGS_WEIGHT = 0.3;
/** Working pixels; anything smaller is a speck. */
const AREA_MIN = 64;
/** Working pixels a mask's cell, and cells of a mask in a cell of the features. */
const LOW_STRIDE = SIDE / LOW;
const LOW_PER_CELL = STRIDE / LOW_STRIDE;

/** All that the search reads of one image. */
export interface ImageFeatures {
  embedding: SamEmbedding;
  sam: FeatureMap;
  net: FeatureMap;
  /** The image at a mask's resolution. */
  small: RgbImage;
}

interface Colour {
  mean: readonly number[];
  deviation: readonly number[];
}

/** A mask as the search sees it. Working pixels. */
interface Shape {
  bbox: Bbox;
  area: number;
  /** Share of each feature cell that is on the object. */
  coverage: Float32Array;
  /** How little the mask depends on where it is cut, 0 to 1. */
  stability: number;
}

export interface PreparedExample {
  means: { sam: Float32Array; net: Float32Array };
  patches: { sam: Patch; net: Patch };
  vectors: { sam: Float32Array; net: Float32Array };
  colour: Colour;
  area: number;
}

/** A peak, one of its masks, and how alike it is by each measure. */
export interface Candidate {
  peak: Peak;
  masks: SamMasks;
  token: number;
  /** Pixels of the image. */
  bbox: Bbox;
  measures: Measures;
  confidence: number;
}

export interface Measures {
  likeness: number;
  features: number;
  colour: number;
  /** Natural logarithm of the areas' ratio. */
  size: number;
  iou: number;
  stability: number;
}

/** The models that the search by examples needs, opened. */
export interface Models {
  sam: Sam;
  net: CenterNet;
  correlator: Correlator;
}

/** The features of an image that SAM has encoded: its own map and the detector's, on one grid. */
export async function lookFor(
  models: Models,
  image: RgbImage,
  embedding: SamEmbedding,
): Promise<ImageFeatures> {
  const columns = Math.min(GRID, Math.ceil(embedding.width / STRIDE));
  const rows = Math.min(GRID, Math.ceil(embedding.height / STRIDE));
  const samValues = embedding.tensor.data as Float32Array;
  const netValues = await models.net.features(image, SIDE);
  const map = (values: Float32Array) => ({
    values,
    channels: values.length / (GRID * GRID),
    columns,
    rows,
  });
  const small = await resize(image, {
    width: Math.max(1, Math.round(embedding.width / LOW_STRIDE)),
    height: Math.max(1, Math.round(embedding.height / LOW_STRIDE)),
  });
  return { embedding, sam: map(samValues), net: map(netValues), small };
}

/** Learns an example from its image; the box is in the image's pixels. */
export async function prepareExample(
  models: Models,
  looked: ImageFeatures,
  bbox: Bbox,
): Promise<PreparedExample> {
  const { embedding } = looked;
  const box = bbox.map((value) => value * embedding.scale) as Bbox;
  const prompts = [boxPrompt(bbox), [centre(bbox), ...boxPrompt(bbox)]];
  const answers = await models.sam.decode(embedding, prompts);
  let best: { shape: Shape; masks: SamMasks; token: number; fit: number } | null = null;
  for (const masks of answers)
    for (let token = 0; token < TOKENS; token++) {
      const shape = shapeOf(masks, token, looked);
      const fit = shape ? iou(shape.bbox, box) * (masks.scores[token] ?? 0) : 0;
      if (shape && (!best || fit > best.fit)) best = { shape, masks, token, fit };
    }
  const shape = best?.shape ?? boxShape(box);
  const means = { sam: channelMeans(looked.sam), net: channelMeans(looked.net) };
  const sam = normalise(looked.sam, means.sam);
  const net = normalise(looked.net, means.net);
  const weight = (x: number, y: number) => {
    const cell = Math.min(GRID - 1, (y / STRIDE) | 0) * GRID + Math.min(GRID - 1, (x / STRIDE) | 0);
    return (shape.coverage[cell] as number) > 0.5 ? 1 : SURROUNDINGS_WEIGHT;
  };
  return {
    means,
    patches: { sam: cutPatch(sam, box, weight), net: cutPatch(net, box, weight) },
    vectors: { sam: pool(sam, shape.coverage), net: pool(net, shape.coverage) },
    colour: colourOf(looked.small, shape.coverage),
    area: shape.area,
  };
}

/** Everything in the image that may be like the examples, most alike first. */
export async function findAlike(
  models: Models,
  looked: ImageFeatures,
  examples: readonly PreparedExample[],
): Promise<Candidate[]> {
  const { embedding } = looked;
  const maps = examples.map(({ means }) => ({
    sam: normalise(looked.sam, means.sam),
    net: normalise(looked.net, means.net),
  }));
  const peaks: (Peak & { confidence: number })[] = [];
  for (const [index, example] of examples.entries()) {
    const { sam, net } = maps[index] as (typeof maps)[number];
    const bySam = await models.correlator.slide(sam, example.patches.sam);
    const byNet = await models.correlator.slide(net, example.patches.net);
    const likeness = bySam.map(
      (value, cell) => value * SEARCH_WEIGHTS.sam + (byNet[cell] as number) * SEARCH_WEIGHTS.net,
    );
    for (const peak of findPeaks(likeness, sam, example.patches.sam, SEARCH_LIKENESS_MIN))
      peaks.push({ ...peak, confidence: peak.likeness });
  }
  const picked = suppress(peaks, { iou: SEARCH_SAME_IOU }).slice(0, PEAKS_MAX);
  const candidates: Candidate[] = [];
  for (const peak of picked) {
    const within = clip(peak.bbox, embedding);
    if (!within) continue;
    const bbox = within.map((value) => value / embedding.scale) as Bbox;
    const [masks] = await models.sam.decode(embedding, [[centre(bbox), ...boxPrompt(bbox)]]);
    const best = masks && bestMask(masks, { peak, looked, examples, maps });
    if (best) candidates.push(best);
  }
  return candidates.sort((a, b) => b.confidence - a.confidence);
}

function bestMask(
  masks: SamMasks,
  search: {
    peak: Peak;
    looked: ImageFeatures;
    examples: readonly PreparedExample[];
    maps: readonly { sam: FeatureMap; net: FeatureMap }[];
  },
): Candidate | null {
  const { peak, looked, examples, maps } = search;
  let best: Candidate | null = null;
  for (let token = 0; token < TOKENS; token++) {
    const shape = shapeOf(masks, token, looked);
    if (!shape) continue;
    const colour = colourOf(looked.small, shape.coverage);
    const measures: Measures = {
      likeness: peak.likeness,
      features: 0,
      colour: 0,
      size: Number.POSITIVE_INFINITY,
      iou: masks.scores[token] ?? 0,
      stability: shape.stability,
    };
    for (const [index, example] of examples.entries()) {
      const { sam, net } = maps[index] as (typeof maps)[number];
      const features =
        0.5 * Math.max(0, dot(example.vectors.sam, pool(sam, shape.coverage))) +
        0.5 * Math.max(0, dot(example.vectors.net, pool(net, shape.coverage)));
      const size = Math.log(shape.area / example.area);
      measures.features = Math.max(measures.features, features);
      measures.colour = Math.max(measures.colour, colourLikeness(example.colour, colour));
      if (Math.abs(size) < Math.abs(measures.size)) measures.size = size;
    }
    const confidence = judge(measures);
    if (!best || confidence > best.confidence) {
      const bbox = shape.bbox.map((value) => value / looked.embedding.scale) as Bbox;
      best = { peak, masks, token, bbox, measures, confidence };
    }
  }
  return best;
}

/**
 * From the measures to one number, tuned on the training half of BCCD (see the README): the best
 * cut lies near 0.5 there.
 */
export function judge({ likeness, features, colour, size, iou, stability }: Measures): number {
  const alike = 0.3 * features + 0.3 * colour + 0.4 * Math.max(0, likeness);
  const sized = Math.exp(-(size ** 2) / (2 * SIZE_SPREAD ** 2));
  return alike * sized * Math.sqrt(iou) * Math.min(1, stability / STABLE) ** 2;
}

/** Standard deviation of the area ratio's logarithm; and from where on a mask counts as stable. */
const SIZE_SPREAD = 0.8;
const STABLE = 0.9;

const centre = ([x1, y1, x2, y2]: Bbox) => [(x1 + x2) / 2, (y1 + y2) / 2, 1] as const;

function shapeOf(masks: SamMasks, token: number, { small }: ImageFeatures): Shape | null {
  const logits = masks.logits.subarray(token * LOW * LOW, (token + 1) * LOW * LOW);
  const coverage = new Float32Array(GRID * GRID);
  let [x1, y1, x2, y2] = [LOW, LOW, 0, 0];
  let [cells, sure, possible] = [0, 0, 0];
  for (let y = 0; y < small.height; y++)
    for (let x = 0; x < small.width; x++) {
      const logit = logits[y * LOW + x] as number;
      if (logit > -1) possible++;
      if (logit <= 0) continue;
      if (logit > 1) sure++;
      cells++;
      const cell = Math.floor(y / LOW_PER_CELL) * GRID + Math.floor(x / LOW_PER_CELL);
      coverage[cell] = (coverage[cell] as number) + 1 / LOW_PER_CELL ** 2;
      if (x < x1) x1 = x;
      if (x >= x2) x2 = x + 1;
      if (y < y1) y1 = y;
      if (y >= y2) y2 = y + 1;
    }
  const area = cells * LOW_STRIDE ** 2;
  if (area < AREA_MIN) return null;
  const bbox = [x1, y1, x2, y2].map((value) => value * LOW_STRIDE) as Bbox;
  return { bbox, area, coverage, stability: sure / possible };
}

/** A whole box as a shape, for an example that the mask model sees nothing in. */
function boxShape(bbox: Bbox): Shape {
  const coverage = new Float32Array(GRID * GRID);
  const last = GRID - 1;
  const cell = (value: number) => Math.min(last, Math.max(0, Math.floor(value / STRIDE)));
  for (let y = cell(bbox[1]); y <= cell(bbox[3]); y++)
    for (let x = cell(bbox[0]); x <= cell(bbox[2]); x++) coverage[y * GRID + x] = 1;
  const area = Math.max(AREA_MIN, (bbox[2] - bbox[0]) * (bbox[3] - bbox[1]));
  return { bbox, area, coverage, stability: 0 };
}

function colourOf({ data, width, height }: RgbImage, coverage: Float32Array): Colour {
  const sums = [0, 0, 0];
  const squares = [0, 0, 0];
  let weights = 0;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const cell = Math.floor(y / LOW_PER_CELL) * GRID + Math.floor(x / LOW_PER_CELL);
      const share = coverage[cell] as number;
      if (share === 0) continue;
      weights += share;
      for (let c = 0; c < 3; c++) {
        const value = data[(y * width + x) * 3 + c] as number;
        sums[c] = (sums[c] as number) + share * value;
        squares[c] = (squares[c] as number) + share * value * value;
      }
    }
  const mean = sums.map((sum) => sum / Math.max(weights, 1e-9));
  const deviation = squares.map((square, c) =>
    Math.sqrt(Math.max(0, square / Math.max(weights, 1e-9) - (mean[c] as number) ** 2)),
  );
  return { mean, deviation };
}

const COLOUR_SPREAD = 40;

function colourLikeness(a: Colour, b: Colour): number {
  const difference = (one: readonly number[], other: readonly number[]) =>
    one.reduce((sum, value, c) => sum + (value - (other[c] as number)) ** 2, 0) / 3;
  const distance = difference(a.mean, b.mean) + difference(a.deviation, b.deviation);
  return Math.exp(-distance / (2 * COLOUR_SPREAD ** 2));
}
