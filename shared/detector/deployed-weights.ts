// The weights of a detector as it is deployed: batch norm folded into each convolution, in double
// precision, and checked tensor by tensor against the graph. Every writer of a format starts here.

import type { ModelSource } from "../tasks/tasks.ts";
import { byHead, deployed } from "./deployed-detector.ts";
import {
  type ConvNode,
  type DetectorGraph,
  detectorGraph,
  type GraphNode,
  type Head,
  stateTensors,
} from "./detector.ts";
import { floatsOf, type TensorFile } from "./safetensors.ts";
import { type Suppression, SuppressionError, suppressionOf } from "./suppression.ts";

export const NORM_EPSILON = 1e-3;

/** A convolution's: `weight` is [out, in / groups, kernel, kernel], row by row. */
export interface ConvWeights {
  weight: Float32Array;
  bias: Float32Array;
}

/** A graph that predicts, and what its convolutions weigh, by name. */
export interface DeployedModel {
  graph: DetectorGraph;
  weights: ReadonlyMap<string, ConvWeights>;
  /** The head of the trained graph that predicts. */
  head: Head;
  /** Boxes of a class that overlap by more are suppressed; null: none are. */
  nmsIou: number | null;
}

/** The file's tensors are not those of the model; the message says how. */
export class WeightsError extends Error {
  override readonly name = "WeightsError";
}

/**
 * What is deployed of a registry model. Fails with WeightsError where the file's tensors are not
 * those of the graph, or hold what is no number, or where the file says what cannot be served, and
 * with SafetensorsError for what is no floats.
 */
export function foldWeights(
  { variant, classes, task }: Pick<ModelSource, "variant" | "classes" | "task">,
  file: TensorFile,
): DeployedModel {
  const trained = detectorGraph(variant, classes.length, task);
  const { head, nmsIou } = servingOf(file) ?? { head: "one_to_one", nmsIou: null };
  const graph = deployed(byHead(trained, head));
  const kept = new Set(graph.nodes.flatMap((node) => ("name" in node ? [node.name] : [])));
  const shapes = new Map(stateTensors(trained).map(({ name, shape }) => [name, shape]));
  const tensor = (name: string): Float32Array => {
    const found = file.tensors.get(name);
    if (!found) throw new WeightsError(`the weights lack ${name}`);
    const shape = shapes.get(name) ?? [];
    if (found.shape.join() !== shape.join()) {
      const said = `${name} has the shape [${found.shape}] where the model has [${shape}]`;
      throw new WeightsError(`the weights are of another model: ${said}`);
    }
    return floatsOf(found, name);
  };
  const weights = new Map<string, ConvWeights>();
  for (const node of trained.nodes) {
    if (!isWeighted(node) || !kept.has(node.name)) continue;
    const folded =
      node.op === "conv" && node.normalized
        ? foldNorm(node, tensor)
        : { weight: tensor(`${node.name}.weight`), bias: tensor(`${node.name}.bias`) };
    if (!allNumbers(folded.weight) || !allNumbers(folded.bias)) {
      throw new WeightsError(`the weights of ${node.name} are not all numbers`);
    }
    weights.set(node.name, folded);
  }
  return { graph, weights, head, nmsIou };
}

function servingOf({ metadata }: TensorFile): Suppression | null {
  try {
    return suppressionOf(metadata);
  } catch (thrown) {
    if (!(thrown instanceof SuppressionError)) throw thrown;
    throw new WeightsError(thrown.message, { cause: thrown });
  }
}

type WeightedNode = Extract<GraphNode, { op: "conv" | "conv_transpose" }>;
const isWeighted = (node: GraphNode): node is WeightedNode =>
  node.op === "conv" || node.op === "conv_transpose";

/** s = γ / √(variance + ε); the weight times s a channel, and β − mean · s as the bias. */
export function foldNorm(
  { name, channels }: Pick<ConvNode, "name" | "channels">,
  tensor: (name: string) => Float32Array,
): ConvWeights {
  const weight = tensor(`${name}.weight`).slice();
  const [gamma, beta, mean, variance] = ["weight", "bias", "mean", "variance"].map((part) =>
    tensor(`${name}.norm.${part}`),
  ) as [Float32Array, Float32Array, Float32Array, Float32Array];
  const bias = new Float32Array(channels);
  const each = weight.length / channels;
  for (let channel = 0; channel < channels; channel++) {
    const at = (values: Float32Array) => values[channel] as number;
    const scale = at(gamma) / Math.sqrt(at(variance) + NORM_EPSILON);
    for (let tap = channel * each; tap < (channel + 1) * each; tap++) {
      weight[tap] = (weight[tap] as number) * scale;
    }
    bias[channel] = at(beta) - at(mean) * scale;
  }
  return { weight, bias };
}

const allNumbers = (values: Float32Array) => values.every((value) => Number.isFinite(value));
