// Graphs that cost less: a few plain convolutions, whose numbers hardly grow on their way, so that
// what is left between engine and reference is the losses' and the optimisers' own rounding; and a
// family member with half its channels.

import {
  type DetectorGraph,
  type GraphNode,
  type HeadBranch,
  PROTOTYPES,
} from "../../../shared/detector/detector.ts";

/** Both branches on three levels; with `normalized`, batch norm in the trunk. */
export function smallGraph(
  classes: number,
  { normalized = false, masks = false } = {},
): DetectorGraph {
  const nodes: GraphNode[] = [{ op: "input", layer: 0, channels: 3, stride: 1 }];
  const conv = (name: string, input: number, channels: number, shape: Partial<Shape> = {}) => {
    const { stride, layer } = nodes[input] as GraphNode;
    const { kernel = 1, step = 1, groups = 1, silu = true, norm = false } = shape;
    const output = { layer: shape.layer ?? layer, channels, stride: stride * step };
    const node = { op: "conv", name, input, kernel, step, groups, normalized: norm, silu } as const;
    return nodes.push({ ...node, ...output }) - 1;
  };
  let newest = 0;
  const trunk = [8, 12, 16, 16, 24].map((channels, layer) => {
    const shape = { kernel: 3, step: 2, norm: normalized, layer };
    newest = conv(`layers.${layer}`, newest, channels, shape);
    return newest;
  });
  const detach = (input: number) =>
    nodes.push({ ...(nodes[input] as GraphNode), op: "detach", input } as GraphNode) - 1;
  const branch = (which: string, levels: number[]): HeadBranch => ({
    box: levels.map((level, index) => {
      const name = `layers.23.${which}.box.${index}`;
      const first = conv(`${name}.0`, level, 8, { kernel: 3, layer: 23 });
      return conv(`${name}.1`, first, 4, { silu: false });
    }),
    cls: levels.map((level, index) => {
      const name = `layers.23.${which}.cls.${index}`;
      const { channels } = nodes[level] as GraphNode;
      const first = conv(`${name}.0`, level, channels, { kernel: 3, groups: channels, layer: 23 });
      return conv(`${name}.1`, first, classes, { silu: false });
    }),
    ...(masks && {
      mask: levels.map((level, index) =>
        conv(`layers.23.${which}.mask.${index}`, level, PROTOTYPES, { silu: false, layer: 23 }),
      ),
    }),
  });
  const levels = trunk.slice(2);
  const o2m = branch("o2m", levels);
  const o2o = branch("o2o", levels.map(detach));
  const graph = { variant: "det26n", classes, nodes, o2m, o2o } as const;
  if (!masks) return { ...graph, task: "detection" };
  const finest = levels[0] as number;
  const output = { layer: 23, channels: 8, stride: 4 };
  const name = "layers.23.prototypes.0";
  const wide = nodes.push({ op: "conv_transpose", name, input: finest, ...output }) - 1;
  const prototypes = conv("layers.23.prototypes.1", wide, PROTOTYPES);
  const semantic = conv("layers.23.semantic.0", finest, classes, { silu: false });
  return { ...graph, task: "segmentation", prototypes, semantic };
}

interface Shape {
  kernel: number;
  step: number;
  groups: number;
  silu: boolean;
  norm: boolean;
  layer: number;
}

/** The same graph with half the channels everywhere but where it begins and ends. */
export function halved(graph: DetectorGraph): DetectorGraph {
  const ends = [graph.prototypes, graph.semantic].filter((node) => node !== undefined);
  for (const branch of [graph.o2m, graph.o2o]) {
    if (branch) ends.push(...branch.box, ...branch.cls, ...(branch.mask ?? []));
  }
  const half = (count: number) => count / 2;
  const nodes = graph.nodes.map((node, index): GraphNode => {
    if (node.op === "input" || ends.includes(index)) return node;
    const channels = half(node.channels);
    if (node.op === "slice") return { ...node, channels, from: half(node.from), to: half(node.to) };
    if (node.op === "conv") {
      return { ...node, channels, groups: node.groups > 1 ? half(node.groups) : 1 };
    }
    if (node.op !== "attention" && node.op !== "values") return { ...node, channels };
    return { ...node, channels, key: half(node.key), value: half(node.value) };
  });
  return { ...graph, nodes };
}
