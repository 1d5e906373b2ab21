// A detector's graph (shared/detector/detector.ts) run node by node, and the state that it runs on.

import {
  type DetectorGraph,
  type GraphNode,
  type HeadBranch,
  stateTensors,
} from "../../../shared/detector/detector.ts";
import { convolution, convolutionTransposed } from "./convolution.ts";
import { attention, batchNorm, concat, headValues, maxPool, slice, upsample } from "./layers.ts";
import { add, detach, silu, Tensor } from "./tensor.ts";

export type State = ReadonlyMap<string, Tensor>;

export interface BranchMaps {
  box: Tensor[];
  cls: Tensor[];
  mask?: Tensor[];
}

export interface DetectorMaps {
  o2m?: BranchMaps;
  o2o: BranchMaps;
  prototypes?: Tensor;
  semantic?: Tensor;
}

/** A graph's state from plain values by name. */
export function stateOf(graph: DetectorGraph, values: (name: string) => ArrayLike<number>): State {
  return new Map(
    stateTensors(graph).map(({ name, shape, learned }) => [
      name,
      new Tensor(shape, Float64Array.from(values(name)), { learns: learned }),
    ]),
  );
}

export const tensorOf = (state: State, name: string): Tensor => {
  const tensor = state.get(name);
  if (!tensor) throw new Error(`no tensor ${name}`);
  return tensor;
};

/** In training, batch norm uses the batch's statistics and moves the state's. */
export function forward(
  graph: DetectorGraph,
  state: State,
  images: Tensor,
  { training }: { training: boolean },
): DetectorMaps {
  const outputs: Tensor[] = [];
  const mapOf = (node: number) => outputs[node] as Tensor;
  for (const node of graph.nodes) outputs.push(run(node, mapOf, { state, images, training }));
  const branch = ({ box, cls, mask }: HeadBranch): BranchMaps => ({
    box: box.map(mapOf),
    cls: cls.map(mapOf),
    ...(mask && { mask: mask.map(mapOf) }),
  });
  return {
    ...(graph.o2m && { o2m: branch(graph.o2m) }),
    o2o: branch(graph.o2o),
    ...(graph.prototypes !== undefined && { prototypes: mapOf(graph.prototypes) }),
    ...(graph.semantic !== undefined && { semantic: mapOf(graph.semantic) }),
  };
}

interface Pass {
  state: State;
  images: Tensor;
  training: boolean;
}

function run(node: GraphNode, mapOf: (node: number) => Tensor, pass: Pass): Tensor {
  switch (node.op) {
    case "input":
      return pass.images;
    case "conv":
      return convolve(node, mapOf(node.input), pass);
    case "conv_transpose": {
      const part = (name: string) => tensorOf(pass.state, `${node.name}.${name}`);
      return convolutionTransposed(mapOf(node.input), part("weight"), part("bias"));
    }
    case "add":
      return add(mapOf(node.inputs[0]), mapOf(node.inputs[1]));
    case "concat":
      return concat(node.inputs.map(mapOf));
    case "slice":
      return slice(mapOf(node.input), node.from, node.to);
    case "max_pool":
      return maxPool(mapOf(node.input), node.kernel);
    case "upsample":
      return upsample(mapOf(node.input), node.factor);
    case "attention":
      return attention(mapOf(node.input), node);
    case "values":
      return headValues(mapOf(node.input), node);
    case "detach":
      return detach(mapOf(node.input));
  }
}

function convolve(
  { name, step, groups, normalized, silu: active }: Extract<GraphNode, { op: "conv" }>,
  x: Tensor,
  { state, training }: Pass,
): Tensor {
  const part = (of: string) => tensorOf(state, `${name}.${of}`);
  const bias = normalized ? undefined : part("bias");
  let out = convolution(x, part("weight"), bias, { step, groups });
  if (normalized) {
    const norm = {
      weight: part("norm.weight"),
      bias: part("norm.bias"),
      mean: part("norm.mean"),
      variance: part("norm.variance"),
    };
    out = batchNorm(out, norm, training);
    const { values: batches } = part("norm.batches");
    if (training) batches[0] = (batches[0] as number) + 1;
  }
  return active ? silu(out) : out;
}
