// The detector as it predicts, made from the graph that is trained.

import type { DetectorGraph, GraphNode, Head } from "./detector.ts";

/** A trained graph that predicts by one of its heads: that one is its one-to-one branch. */
export function byHead({ o2m, ...graph }: DetectorGraph, head: Head): DetectorGraph {
  if (head === "one_to_one") return o2m ? { ...graph, o2m } : graph;
  if (!o2m) throw new Error("a graph that was deployed has no one-to-many head");
  return { ...graph, o2o: o2m };
}

/**
 * The graph that predicts: the one-to-one branch alone, batch norm folded into the convolutions. A
 * convolution keeps its name; its weight and bias are those that `foldNorm` makes.
 */
export function deployed(graph: DetectorGraph): DetectorGraph {
  const wanted = new Set<number>();
  const { box, cls, mask } = graph.o2o;
  const visit = (at: number) => {
    if (wanted.has(at)) return;
    wanted.add(at);
    for (const input of inputsOf(graph.nodes[at] as GraphNode)) visit(input);
  };
  for (const at of [...box, ...cls, ...(mask ?? [])]) visit(at);
  if (graph.prototypes !== undefined) visit(graph.prototypes);
  const indices = new Map<number, number>();
  const nodes: GraphNode[] = [];
  const indexOf = (at: number) => indices.get(at) as number;
  for (const [at, node] of graph.nodes.entries()) {
    if (!wanted.has(at)) continue;
    if (node.op === "detach") indices.set(at, indexOf(node.input));
    else indices.set(at, nodes.push(folded(rewired(node, indexOf))) - 1);
  }
  const { variant, task, classes, prototypes } = graph;
  return {
    variant,
    task,
    classes,
    nodes,
    o2o: { box: box.map(indexOf), cls: cls.map(indexOf), ...(mask && { mask: mask.map(indexOf) }) },
    ...(prototypes !== undefined && { prototypes: indexOf(prototypes) }),
  };
}

/** The nodes that a node reads. */
function inputsOf(node: GraphNode): readonly number[] {
  if ("inputs" in node) return node.inputs;
  return "input" in node ? [node.input] : [];
}

const folded = (node: GraphNode): GraphNode =>
  node.op === "conv" ? { ...node, normalized: false } : node;

function rewired(node: GraphNode, indexOf: (at: number) => number): GraphNode {
  if (node.op === "add") {
    const [one, other] = node.inputs;
    return { ...node, inputs: [indexOf(one), indexOf(other)] };
  }
  if (node.op === "concat") return { ...node, inputs: node.inputs.map(indexOf) };
  return "input" in node ? { ...node, input: indexOf(node.input) } : node;
}
