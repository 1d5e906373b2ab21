// What the blocks do that draw over an image. Every position is mapped to the image that is drawn
// on; texts of users are escaped, as SVG is the only way that they are drawn.

import type { z } from "zod";
import { BlockFailure, type RunBlock } from "../../shared/workflow/block.ts";
import {
  type DrawBoxesParameters,
  type DrawLabelsParameters,
  type DrawLinesParameters,
  type DrawMasksParameters,
  type DrawTracksParameters,
  type DrawZonesParameters,
  TrailState,
} from "../../shared/workflow/blocks/drawing.ts";
import { readState, remembered } from "../../shared/workflow/step-state.ts";
import {
  type Detections,
  type ImageFrame,
  type LineValue,
  type PointValue,
  rootPoint,
  type WorkflowObject,
  type ZoneValue,
} from "../../shared/workflow/values.ts";
import { clip } from "../media/geometry.ts";
import { COLOURS, drawingSizes, TAG_HEIGHT, tagOf } from "../media/overlay.ts";
import { under } from "../media/stills.ts";
import { decodeRle } from "../segmenters/masks.ts";
import {
  blockRun,
  boxOn,
  boxOnRoot,
  checkRoots,
  type NodeImage,
  pointOn,
  repainted,
} from "./node-image.ts";
import { PixelWork } from "./pixel-work.ts";

interface Objects {
  image: NodeImage;
  detections: Detections;
}

/** Tracks that are remembered at once. */
const TRAILS_MAX = 1_000;
/** Pixels of an image that a mask is over: what a run is given has no more. */
const MASK_PIXELS_MAX = 40_000_000;
const LETTERS_MAX = 120;
const rounded = (value: number) => value.toFixed(1);
const tenths = (value: number) => Math.round(value * 10) / 10;

/** The image under shapes of SVG; itself where there are none. */
async function draw(image: NodeImage, shapes: readonly string[]): Promise<NodeImage> {
  if (shapes.length === 0) return image;
  const { width, height } = image.frame;
  const open = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">`;
  return repainted(image, await under(image.pixels, `${open}${shapes.join("")}</svg>`));
}

interface ColourRule {
  colour?: string | undefined;
  colour_by: "class" | "track" | "index";
}

/** A colour for what a number stands for; any number has one. */
const colourAt = (index: number) => COLOURS[index % COLOURS.length] as string;

/** Any text's own colour, the same on every image. */
function colourOfText(text: string): string {
  let hash = 0;
  for (const letter of text) hash = (Math.imul(hash, 31) + (letter.codePointAt(0) ?? 0)) >>> 0;
  return colourAt(hash);
}

function colourOf(object: WorkflowObject, index: number, rule: ColourRule): string {
  if (rule.colour) return rule.colour;
  if (rule.colour_by === "index") return colourAt(index);
  if (rule.colour_by === "track" && object.track_id !== undefined) return colourAt(object.track_id);
  return colourOfText(object.class);
}

/** The objects with their boxes on the image, and their colours. */
const placedOn = ({ image, detections }: Objects, rule: ColourRule) =>
  detections.objects.map((object, index) => ({
    object,
    bbox: boxOn(image.frame, detections.frame, object.bbox),
    colour: colourOf(object, index, rule),
  }));

const drawBoxes = blockRun<Objects, z.output<typeof DrawBoxesParameters>>(
  async ({ inputs, parameters }) => {
    const { thickness = drawingSizes(inputs.image.frame).stroke } = parameters;
    const shapes = placedOn(inputs, parameters).map(
      ({ bbox: [x1, y1, x2, y2], colour }) =>
        `<rect x="${rounded(x1)}" y="${rounded(y1)}" width="${rounded(x2 - x1)}" ` +
        `height="${rounded(y2 - y1)}" fill="none" stroke="${colour}" ` +
        `stroke-width="${rounded(thickness)}"/>`,
    );
    return { outputs: { image: await draw(inputs.image, shapes) } };
  },
);

const drawLabels = blockRun<Objects, z.output<typeof DrawLabelsParameters>>(
  async ({ inputs, parameters }) => {
    const { size } = drawingSizes(inputs.image.frame);
    const shapes = placedOn(inputs, parameters).flatMap(({ object, bbox, colour }) => {
      const label = labelOf(object, parameters);
      const top = Math.max(0, bbox[1] - size * TAG_HEIGHT);
      const style = { colour, size, width: inputs.image.frame.width };
      return label === "" ? [] : [tagOf(label, style, [bbox[0], top])];
    });
    return { outputs: { image: await draw(inputs.image, shapes) } };
  },
);

function labelOf(
  object: WorkflowObject,
  { parts, field }: z.output<typeof DrawLabelsParameters>,
): string {
  const words = parts.map((part) => {
    if (part === "class") return object.class;
    if (part === "confidence") return object.confidence.toFixed(2);
    return object.track_id === undefined ? "" : `#${object.track_id}`;
  });
  const data = object.data ?? {};
  const told = field !== undefined && Object.hasOwn(data, field) ? data[field] : "";
  const value = typeof told === "number" ? String(Math.round(told * 100) / 100) : String(told);
  return [...words, value].filter(Boolean).join(" ").slice(0, LETTERS_MAX);
}

const drawMasks = blockRun<
  { image: NodeImage; masks: Detections },
  z.output<typeof DrawMasksParameters>
>(async ({ inputs: { image, masks }, parameters, signal }) => {
  const { width, height } = image.frame;
  const data = new Uint8Array(image.pixels.data);
  const work = new PixelWork(signal);
  for (const { object, bbox, colour } of placedOn({ image, detections: masks }, parameters)) {
    const inside = object.mask && clip(bbox, image.frame);
    if (!object.mask || !inside) continue;
    await work.on((inside[2] - inside[0]) * (inside[3] - inside[1]));
    const isOn = maskLookup(object.mask, masks.frame);
    const rgb = [1, 3, 5].map((from) => Number.parseInt(colour.slice(from, from + 2), 16));
    const [left, top] = [Math.floor(inside[0]), Math.floor(inside[1])];
    for (let y = top; y < Math.min(height, Math.ceil(inside[3])); y++) {
      for (let x = left; x < Math.min(width, Math.ceil(inside[2])); x++) {
        if (!isOn(pointOn(masks.frame, rootPoint(image.frame, [x + 0.5, y + 0.5])))) continue;
        for (const [channel, value] of rgb.entries()) {
          const index = (y * width + x) * 3 + channel;
          const before = data[index] as number;
          data[index] = Math.round(before + (value - before) * parameters.opacity);
        }
      }
    }
  }
  return { outputs: { image: repainted(image, { data, width, height }) } };
});

/** A mask's pixels; a user's own may be none. */
function decoded(mask: NonNullable<WorkflowObject["mask"]>): Uint8Array {
  try {
    return decodeRle(mask);
  } catch (cause) {
    throw new BlockFailure("the run lengths of a mask do not fill its image", { cause });
  }
}

/** Whether a point of the image that a mask was found on lies on the object. */
function maskLookup(mask: NonNullable<WorkflowObject["mask"]>, frame: ImageFrame) {
  const [height, width] = mask.size;
  if (height !== frame.height || width !== frame.width) {
    throw new BlockFailure("a mask is not as large as the image that it was found on");
  }
  if (width * height > MASK_PIXELS_MAX)
    throw new BlockFailure(`a mask is over ${MASK_PIXELS_MAX / 1e6} million pixels`);
  const pixels = decoded(mask);
  return ([x, y]: PointValue) => {
    const [column, row] = [Math.floor(x), Math.floor(y)];
    if (column < 0 || row < 0 || column >= width || row >= height) return false;
    return pixels[row * width + column] === 1;
  };
}

const pointsOn = (frame: ImageFrame, points: readonly PointValue[]) =>
  points.map((point) => pointOn(frame, point));
const svgPoints = (points: readonly PointValue[]) =>
  points.map(([x, y]) => `${rounded(x)},${rounded(y)}`).join(" ");

/** A text whose tag stands at a point, within the image. */
function labelAt(image: NodeImage, text: string, [x, y]: PointValue, colour: string): string {
  const { size } = drawingSizes(image.frame);
  const top = Math.max(0, Math.min(y, image.frame.height - size * TAG_HEIGHT));
  return tagOf(text.slice(0, LETTERS_MAX), { colour, size, width: image.frame.width }, [x, top]);
}

const drawZones = blockRun<
  { image: NodeImage; zone?: ZoneValue; zones?: ZoneValue[]; label?: string },
  z.output<typeof DrawZonesParameters>
>(async ({ inputs: { image, zone, zones = [], label }, parameters }) => {
  const { thickness = drawingSizes(image.frame).stroke, opacity } = parameters;
  const all = [...(zone ? [zone] : []), ...zones];
  const shapes = all.map((corners, index) => {
    const colour = parameters.colour ?? colourAt(index);
    return (
      `<polygon points="${svgPoints(pointsOn(image.frame, corners))}" fill="${colour}" ` +
      `fill-opacity="${opacity}" stroke="${colour}" stroke-width="${rounded(thickness)}"/>`
    );
  });
  const [first] = all;
  if (label && first) {
    const corner = first.reduce((top, one) => (one[1] < top[1] ? one : top));
    const colour = parameters.colour ?? colourAt(0);
    shapes.push(labelAt(image, label, pointOn(image.frame, corner), colour));
  }
  return { outputs: { image: await draw(image, shapes) } };
});

const drawLines = blockRun<
  { image: NodeImage; line?: LineValue; lines?: LineValue[]; label?: string },
  z.output<typeof DrawLinesParameters>
>(async ({ inputs: { image, line, lines = [], label }, parameters }) => {
  const { thickness = drawingSizes(image.frame).stroke } = parameters;
  const all = [...(line ? [line] : []), ...lines];
  const shapes = all.map((ends, index) => {
    const colour = parameters.colour ?? colourAt(index);
    const points = pointsOn(image.frame, ends);
    const [x, y] = points[0] as PointValue;
    return (
      `<polyline points="${svgPoints(points)}" fill="none" stroke="${colour}" ` +
      `stroke-width="${rounded(thickness)}"/>` +
      `<circle cx="${rounded(x)}" cy="${rounded(y)}" r="${rounded(2 * thickness)}" ` +
      `fill="${colour}"/>`
    );
  });
  const [first] = all;
  if (label && first) {
    const colour = parameters.colour ?? colourAt(0);
    shapes.push(labelAt(image, label, pointOn(image.frame, first[0]), colour));
  }
  return { outputs: { image: await draw(image, shapes) } };
});

const drawTracks = blockRun<
  { image: NodeImage; tracks: Detections },
  z.output<typeof DrawTracksParameters>
>(async ({ inputs: { image, tracks }, parameters, state }) => {
  checkRoots(image.frame, tracks.frame);
  const { thickness = drawingSizes(image.frame).stroke, length } = parameters;
  const { state: known, warnings } = readState(TrailState, state, { frame: 0, trails: [] });
  const frame = known.frame + 1;
  const trails = new Map(known.trails.map((trail) => [trail.id, trail]));
  const shapes: string[] = [];
  for (const { track_id, bbox } of tracks.objects) {
    if (track_id === undefined) continue;
    const [x1, y1, x2, y2] = boxOnRoot(tracks.frame, bbox);
    const past = trails.get(track_id)?.points ?? [];
    const middle: [number, number] = [tenths((x1 + x2) / 2), tenths((y1 + y2) / 2)];
    const points = [...past, middle].slice(-length);
    trails.set(track_id, { id: track_id, seen: frame, points });
    const colour = parameters.colour ?? colourAt(track_id);
    const drawn = pointsOn(image.frame, points);
    const [x, y] = drawn.at(-1) as PointValue;
    shapes.push(
      `<polyline points="${svgPoints(drawn)}" fill="none" stroke="${colour}" ` +
        `stroke-width="${rounded(thickness)}"/><circle cx="${rounded(x)}" cy="${rounded(y)}" ` +
        `r="${rounded(1.5 * thickness)}" fill="${colour}"/>`,
    );
  }
  const fresh = [...trails.values()].filter(({ seen }) => frame - seen < length);
  const kept = fresh.sort((a, b) => b.seen - a.seen).slice(0, TRAILS_MAX);
  return {
    outputs: { image: await draw(image, shapes) },
    state: { frame, trails: remembered(kept) },
    warnings,
  };
});

/** By block. */
export const DRAWING_RUNS: ReadonlyMap<string, RunBlock> = new Map([
  ["draw_boxes@1", drawBoxes],
  ["draw_labels@1", drawLabels],
  ["draw_masks@1", drawMasks],
  ["draw_zones@1", drawZones],
  ["draw_lines@1", drawLines],
  ["draw_tracks@1", drawTracks],
]);
