// How large the numbers of a detector's maps become: what int8 has to know of it. Maps are named as
// the graph is drawn (`shared/detector/detector-onnx.ts`), so that every writer finds its own.

import type { ConvNode, DetectorGraph, GraphNode } from "../../shared/detector/detector.ts";
import { INPUT } from "../../shared/detector/detector-onnx.ts";

/** Smallest and greatest value of a map. */
export type MapRange = readonly [low: number, high: number];

/** By the name of a map; `${name}/linear` is what a convolution gives before its SiLU. */
export type MapRanges = ReadonlyMap<string, MapRange>;

/** Below it a SiLU gives nearly nothing: steps of int8 are not spent there. */
export const SILU_FLOOR = -8;

/** What a node's map is called where the graph is drawn. */
export function mapNameOf(node: GraphNode, index: number): string {
  if (node.op === "input") return INPUT;
  return "name" in node ? node.name : `layers.${node.layer}/${node.op}.${index}`;
}

/** What a convolution gives before its SiLU. */
export const linearNameOf = (name: string) => `${name}/linear`;

/** Whether a convolution is the last of a branch: in whole steps boxes would be off by pixels. */
export const isHead = ({ name, silu }: Pick<ConvNode, "name" | "silu">): boolean =>
  !silu && /\.o2[om]\./.test(name);

/** The maps whose ranges are those of the map that they are made of. */
export const keepsRange = (
  node: GraphNode,
): node is Extract<GraphNode, { op: "slice" | "max_pool" | "upsample" }> =>
  node.op === "slice" || node.op === "max_pool" || node.op === "upsample";

/** A map that is measured, and how many numbers it holds for each pixel of the input. */
export interface MeasuredMap {
  name: string;
  share: number;
}

/** The maps that have a range of their own, in the graph's order. */
export const measuredMaps = ({ nodes }: DetectorGraph): MeasuredMap[] =>
  nodes.flatMap((node, index) => {
    if (node.op === "input" || keepsRange(node)) return [];
    const [name, share] = [mapNameOf(node, index), node.channels / node.stride ** 2];
    const own = { name, share };
    return node.op === "conv" && node.silu ? [{ name: linearNameOf(name), share }, own] : [own];
  });

const MANTISSA_STEPS = 2 ** 7;

/**
 * A number moved away from zero onto 8 bits of mantissa. Sums differ in their last bits by the
 * number of threads and by processor; what is made of ranges must not.
 */
export function outward(value: number): number {
  if (value === 0 || !Number.isFinite(value)) return value;
  const size = Math.abs(value);
  // The logarithm may fall short of a power of two by its last bit.
  let exponent = Math.floor(Math.log2(size));
  if (2 ** (exponent + 1) <= size) exponent += 1;
  const step = 2 ** exponent / MANTISSA_STEPS;
  return Math.sign(value) * Math.ceil(size / step) * step;
}
