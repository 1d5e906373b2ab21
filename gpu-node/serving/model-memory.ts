// What an open model takes of memory, told before it is opened: its weights, as the runtime keeps
// them, and the maps that are there at once while it looks at its largest batch.

import {
  type DetectorGraph,
  detectorGraph,
  type GraphNode,
} from "../../shared/detector/detector.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import type { Device } from "../onnx/runtime.ts";

/** Images of one run. On a CPU more gain nothing, and who comes next waits for all of them. */
export const BATCH_MAX: Readonly<Record<Device, number>> = { cpu: 2, cuda: 16 };

// What resident memory grew by on a CPU, MiB, and what is told here: det26n at 32 pixels 52 and 68,
// at 320 88 and 111, at 640 228 and 254; det26s at 640 461 and 505, det26m 883 and 963. On a GPU it
// was not measured.

/** A thread with an engine of its own, however small the model is. */
const THREAD_BYTES = 48 * 1024 ** 2;
/** What is read of the file, and the kernels' own layout of it. */
const WEIGHT_COPIES = 2;
/** The runtime takes memory in pieces that double, and keeps maps in several layouts. */
const MAP_COPIES = 7;
const FLOAT_BYTES = 4;

/**
 * Bytes that a model takes while it is open, estimated: above rather than below what is
 * measured.
 */
export function estimatedBytes(model: ModelSource, device: Device): number {
  const { variant, classes, task, image_size: side, weights } = model;
  const graph = detectorGraph(variant, classes.length, task);
  const maps = peakValues(graph) * side ** 2 * FLOAT_BYTES * BATCH_MAX[device];
  return Math.ceil(THREAD_BYTES + WEIGHT_COPIES * weights.bytes + MAP_COPIES * maps);
}

/** The most values that are needed at once while the graph is walked, a pixel of the input. */
function peakValues({ nodes }: DetectorGraph): number {
  const lastUse = nodes.map((_, index) => index);
  for (const [index, node] of nodes.entries()) {
    for (const input of inputsOf(node)) lastUse[input] = index;
  }
  const valuesOf = ({ channels, stride }: GraphNode) => channels / stride ** 2;
  let [held, peak] = [0, 0];
  for (const [index, node] of nodes.entries()) {
    held += valuesOf(node);
    peak = Math.max(peak, held);
    for (const before of new Set([...inputsOf(node), index])) {
      if (lastUse[before] === index) held -= valuesOf(nodes[before] as GraphNode);
    }
  }
  return peak;
}

const inputsOf = (node: GraphNode): readonly number[] => {
  if ("inputs" in node) return node.inputs;
  return "input" in node ? [node.input] : [];
};
