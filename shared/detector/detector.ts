// The detector family, defined once: a graph of plain operations that the trainer executes and the
// exporters walk. A node's index in the list is its number; it only names nodes before it. Figures
// are those of the family's description (per-layer parameters are checked by tests).

export const VARIANTS = {
  det26n: { depth: 0.5, width: 0.25, channelsMax: 1024, nested: false },
  det26s: { depth: 0.5, width: 0.5, channelsMax: 1024, nested: false },
  det26m: { depth: 0.5, width: 1, channelsMax: 512, nested: true },
  det26l: { depth: 1, width: 1, channelsMax: 512, nested: true },
  det26x: { depth: 1, width: 1.5, channelsMax: 512, nested: true },
} as const;

export type Variant = keyof typeof VARIANTS;
export const VARIANT_NAMES = Object.keys(VARIANTS) as [Variant, ...Variant[]];
export type DetectorTask = "detection" | "segmentation";

/** Pixels of the input to one cell of each level, finest first. */
export const LEVEL_STRIDES = [8, 16, 32] as const;
/** Image sides are multiples of it. */
export const STRIDE_MAX = 32;
/** Prototype maps, of which a mask is a weighted sum. */
export const PROTOTYPES = 32;

interface NodeOutput {
  /** Index in the family's layer table, 0 to 23. */
  layer: number;
  /** Channels of its output. */
  channels: number;
  /** Pixels of the input to one cell of its output. */
  stride: number;
}

/** One operation on maps of shape [batch, channels, height, width]. */
export type GraphNode = NodeOutput &
  (
    | { op: "input" }
    /**
     * Padding is kernel / 2. Normalized: no bias, then batch norm (eps 1e-3, momentum 0.03);
     * otherwise a bias.
     */
    | {
        op: "conv";
        name: string;
        input: number;
        kernel: number;
        step: number;
        groups: number;
        normalized: boolean;
        silu: boolean;
      }
    /** Twice the size: kernel 2, step 2, with a bias. */
    | { op: "conv_transpose"; name: string; input: number }
    | { op: "add"; inputs: [number, number] }
    | { op: "concat"; inputs: number[] }
    /** Channels from `from` to `to`, exclusive. */
    | { op: "slice"; input: number; from: number; to: number }
    /** Same size: step 1, padding kernel / 2. */
    | { op: "max_pool"; input: number; kernel: number }
    /** Nearest, `factor` times the size. */
    | { op: "upsample"; input: number; factor: number }
    /**
     * The input's channels are, for each head in turn, `key` of the query, `key` of the key and
     * `value` of the value. Gives v · softmax(qᵀk · key^-½)ᵀ of the heads in turn, as a map.
     */
    | { op: "attention"; input: number; heads: number; key: number; value: number }
    /** The same input's values of the heads in turn, as a map. */
    | { op: "values"; input: number; heads: number; key: number; value: number }
    /** No gradient passes. */
    | { op: "detach"; input: number }
  );

/**
 * The heads of a trained graph. The one-to-one head gives an object one box; the one-to-many head
 * gives it several, of which suppression leaves the surest.
 */
export const HEADS = ["one_to_one", "one_to_many"] as const;
export type Head = (typeof HEADS)[number];

/** Nodes of a branch's maps, by level. */
export interface HeadBranch {
  /** Four channels: distances left, top, right, bottom of the cell's centre, in cells. */
  box: number[];
  /** A logit a class. */
  cls: number[];
  /** Segmentation: weights of the prototypes. */
  mask?: number[];
}

export interface DetectorGraph {
  variant: Variant;
  task: DetectorTask;
  classes: number;
  nodes: GraphNode[];
  /** Learns from many anchors an object; training only. */
  o2m?: HeadBranch;
  /** Learns from one anchor an object, on detached features; what is deployed. */
  o2o: HeadBranch;
  /** Segmentation: [batch, PROTOTYPES, height / 4, width / 4]. */
  prototypes?: number;
  /** Segmentation, training only: a logit a class at stride 8. */
  semantic?: number;
}

export type ConvNode = Extract<GraphNode, { op: "conv" }>;

/** The channels of a variant for `base` of the largest: a multiple of eight. */
export function scaledChannels(variant: Variant, base: number): number {
  const { width, channelsMax } = VARIANTS[variant];
  return Math.ceil((Math.min(base, channelsMax) * width) / 8) * 8;
}

const repeats = (variant: Variant, count: number) =>
  count > 1 ? Math.max(Math.round(count * VARIANTS[variant].depth), 1) : count;

interface ConvShape {
  kernel?: number;
  step?: number;
  groups?: number;
  normalized?: boolean;
  silu?: boolean;
}

/** Lays nodes; every method returns the number of the node whose output is its result. */
class Builder {
  readonly nodes: GraphNode[] = [{ op: "input", layer: 0, channels: 3, stride: 1 }];
  layer = 0;

  at(node: number): GraphNode {
    return this.nodes[node] as GraphNode;
  }

  conv(name: string, input: number, channels: number, shape: ConvShape = {}): number {
    const { kernel = 1, step = 1, groups = 1, normalized = true, silu = true } = shape;
    const stride = this.at(input).stride * step;
    const node = { op: "conv", name, input, kernel, step, groups, normalized, silu } as const;
    return this.#lay({ ...node, layer: this.layer, channels, stride });
  }

  /** A plain 1×1 with a bias: the last of a branch. */
  plain = (name: string, input: number, channels: number) =>
    this.conv(name, input, channels, { normalized: false, silu: false });

  depthwise(name: string, input: number, shape: ConvShape = {}): number {
    const { channels } = this.at(input);
    return this.conv(name, input, channels, { kernel: 3, groups: channels, ...shape });
  }

  convTranspose(name: string, input: number): number {
    const { channels, stride } = this.at(input);
    const node = { op: "conv_transpose", name, input } as const;
    return this.#lay({ ...node, layer: this.layer, channels, stride: stride / 2 });
  }

  add = (one: number, other: number) => this.#like(one, { op: "add", inputs: [one, other] });

  concat(inputs: number[]): number {
    const channels = inputs.reduce((sum, input) => sum + this.at(input).channels, 0);
    const { stride } = this.at(inputs[0] as number);
    return this.#lay({ op: "concat", inputs, layer: this.layer, channels, stride });
  }

  slice(input: number, from: number, to: number): number {
    const { stride } = this.at(input);
    return this.#lay({
      op: "slice",
      input,
      from,
      to,
      layer: this.layer,
      channels: to - from,
      stride,
    });
  }

  maxPool = (input: number, kernel: number) => this.#like(input, { op: "max_pool", input, kernel });

  upsample(input: number, factor = 2): number {
    const { channels, stride } = this.at(input);
    const shape = { layer: this.layer, channels, stride: stride / factor };
    return this.#lay({ op: "upsample", input, factor, ...shape });
  }

  detach = (input: number) => this.#like(input, { op: "detach", input });

  /** Two 3×3 and the input added. */
  bottleneck(name: string, input: number, share: number): number {
    const { channels } = this.at(input);
    const inner = this.conv(`${name}.first`, input, Math.floor(channels * share), { kernel: 3 });
    return this.add(input, this.conv(`${name}.second`, inner, channels, { kernel: 3 }));
  }

  /** Known as C3k: two bottlenecks beside a shortcut of half the channels. */
  nested(name: string, input: number): number {
    const { channels } = this.at(input);
    let main = this.conv(`${name}.main`, input, channels / 2);
    for (const at of [0, 1]) main = this.bottleneck(`${name}.blocks.${at}`, main, 1);
    const side = this.conv(`${name}.side`, input, channels / 2);
    return this.conv(`${name}.join`, this.concat([main, side]), channels);
  }

  /** Known as C3k2: each block takes the newest part and appends its result. */
  stack(name: string, input: number, channels: number, shape: StackShape): number {
    const part = Math.floor(channels * (shape.share ?? 0.5));
    const both = this.conv(`${name}.split`, input, 2 * part);
    const parts = [this.slice(both, 0, part), this.slice(both, part, 2 * part)];
    for (let at = 0; at < shape.blocks; at++) {
      const newest = parts.at(-1) as number;
      const block = `${name}.blocks.${at}`;
      if (shape.attention) {
        parts.push(this.attend(block, this.bottleneck(`${block}.convs`, newest, 0.5)));
      } else if (shape.nested) parts.push(this.nested(block, newest));
      else parts.push(this.bottleneck(block, newest, 0.5));
    }
    return this.conv(`${name}.join`, this.concat(parts), channels);
  }

  /** Known as SPPF: three poolings in series beside their input, and the layer's input added. */
  pyramid(name: string, input: number): number {
    const { channels } = this.at(input);
    const parts = [this.conv(`${name}.reduce`, input, channels / 2, { silu: false })];
    for (let times = 0; times < 3; times++) parts.push(this.maxPool(parts.at(-1) as number, 5));
    return this.add(input, this.conv(`${name}.join`, this.concat(parts), channels));
  }

  /** Known as PSABlock: attention and a feed-forward part, each added to its input. */
  attend(name: string, input: number): number {
    const { channels, stride } = this.at(input);
    const heads = Math.max(Math.floor(channels / 64), 1);
    const value = channels / heads;
    const key = Math.floor(value / 2);
    const bare = { silu: false };
    const shape = { heads, key, value, layer: this.layer, channels, stride };
    const qkv = this.conv(`${name}.qkv`, input, channels + 2 * heads * key, bare);
    const seen = this.#lay({ op: "attention", input: qkv, ...shape });
    const values = this.#lay({ op: "values", input: qkv, ...shape });
    const placed = this.add(seen, this.depthwise(`${name}.position`, values, bare));
    const attended = this.add(input, this.conv(`${name}.project`, placed, channels, bare));
    const wide = this.conv(`${name}.widen`, attended, 2 * channels);
    return this.add(attended, this.conv(`${name}.narrow`, wide, channels, bare));
  }

  /** Known as C2PSA: attention blocks on one half. */
  attentionStack(name: string, input: number, blocks: number): number {
    const { channels } = this.at(input);
    const half = channels / 2;
    const both = this.conv(`${name}.split`, input, channels);
    const kept = this.slice(both, 0, half);
    let worked = this.slice(both, half, channels);
    for (let at = 0; at < blocks; at++) worked = this.attend(`${name}.blocks.${at}`, worked);
    return this.conv(`${name}.join`, this.concat([kept, worked]), channels);
  }

  #like(input: number, node: Operation): number {
    const { channels, stride } = this.at(input);
    return this.#lay({ ...node, layer: this.layer, channels, stride } as GraphNode);
  }

  #lay(node: GraphNode): number {
    return this.nodes.push(node) - 1;
  }
}

type Operation = GraphNode extends infer Node
  ? Node extends NodeOutput
    ? Omit<Node, keyof NodeOutput>
    : never
  : never;

interface StackShape {
  blocks: number;
  nested: boolean;
  /** Channels of a part, of those of the output. Default 0.5. */
  share?: number;
  attention?: boolean;
}

/** The layer that finds objects; those before it are the backbone and the neck. */
export const HEAD_LAYER = 23;

/** A variant's graph with both branches, as it is trained. */
export function detectorGraph(
  variant: Variant,
  classes: number,
  task: DetectorTask = "detection",
): DetectorGraph {
  const build = new Builder();
  const levels = features(build, variant);
  build.layer = HEAD_LAYER;
  const name = "layers.23";
  const branch = (which: string, inputs: number[]): HeadBranch =>
    headBranch(build, `${name}.${which}`, { inputs, classes, task });
  const o2m = branch("o2m", levels);
  const graph = { variant, task, classes, nodes: build.nodes, o2m };
  const detached = levels.map((level) => build.detach(level));
  const o2o = branch("o2o", detached);
  if (task === "detection") return { ...graph, o2o };
  return { ...graph, o2o, ...masks(build, `${name}`, { levels, classes, variant }) };
}

/**
 * A variant's backbone and neck under plain projections, to be taught another network's features:
 * the one-to-many branch's class maps are `channels` features of each cell.
 */
export function featureGraph(variant: Variant, channels: number): DetectorGraph {
  const build = new Builder();
  const levels = features(build, variant);
  build.layer = HEAD_LAYER;
  const branch = (which: string, inputs: number[]): HeadBranch => {
    const each = (part: string, count: number) =>
      inputs.map((input, level) => build.plain(`features.${which}.${part}.${level}`, input, count));
    return { box: each("box", 4), cls: each("cls", channels) };
  };
  const o2m = branch("o2m", levels);
  // A graph deploys this branch; nothing of it learns here.
  const o2o = branch(
    "o2o",
    levels.map((level) => build.detach(level)),
  );
  return { variant, task: "detection", classes: channels, nodes: build.nodes, o2m, o2o };
}

/** Backbone and neck; returns the maps of the three levels. */
function features(build: Builder, variant: Variant): number[] {
  const ch = (base: number) => scaledChannels(variant, base);
  const { nested: always } = VARIANTS[variant];
  const outputs: number[] = [];
  const lay = (make: (name: string, previous: number) => number) => {
    build.layer = outputs.length;
    outputs.push(make(`layers.${outputs.length}`, outputs.at(-1) ?? 0));
  };
  const down = (base: number) =>
    lay((name, input) => build.conv(name, input, ch(base), { kernel: 3, step: 2 }));
  const stack = (base: number, nested: boolean, more: Partial<StackShape> = {}) =>
    lay((name, input) => {
      const blocks = repeats(variant, 2);
      return build.stack(name, input, ch(base), { blocks, nested: nested || always, ...more });
    });
  const join = (layer: number) =>
    lay((_, input) => build.concat([input, outputs[layer] as number]));
  const up = () => lay((_, input) => build.upsample(input));
  down(64);
  down(128);
  stack(256, false, { share: 0.25 });
  down(256);
  stack(512, false, { share: 0.25 });
  down(512);
  stack(512, true);
  down(1024);
  stack(1024, true);
  lay((name, input) => build.pyramid(name, input));
  lay((name, input) => build.attentionStack(name, input, repeats(variant, 2)));
  up();
  join(6);
  stack(512, true);
  up();
  join(4);
  stack(256, true);
  down(256);
  join(13);
  stack(512, true);
  down(512);
  join(10);
  stack(1024, true, { blocks: 1, attention: true });
  return [16, 19, 22].map((layer) => outputs[layer] as number);
}

interface HeadShape {
  inputs: number[];
  classes: number;
  task: DetectorTask;
}

function headBranch(
  build: Builder,
  name: string,
  { inputs, classes, task }: HeadShape,
): HeadBranch {
  const finest = build.at(inputs[0] as number).channels;
  const boxChannels = Math.max(16, Math.floor(finest / 4), 4);
  const classChannels = Math.max(finest, Math.min(classes, 100));
  const maskChannels = Math.max(Math.floor(finest / 4), PROTOTYPES);
  const twice = (path: string, input: number, channels: number, last: number) => {
    const first = build.conv(`${path}.0`, input, channels, { kernel: 3 });
    const second = build.conv(`${path}.1`, first, channels, { kernel: 3 });
    return build.plain(`${path}.2`, second, last);
  };
  const classify = (path: string, input: number) => {
    const first = build.conv(`${path}.1`, build.depthwise(`${path}.0`, input), classChannels);
    const second = build.conv(`${path}.3`, build.depthwise(`${path}.2`, first), classChannels);
    return build.plain(`${path}.4`, second, classes);
  };
  const each = (part: string, make: (path: string, input: number) => number) =>
    inputs.map((input, level) => make(`${name}.${part}.${level}`, input));
  const box = each("box", (path, input) => twice(path, input, boxChannels, 4));
  const cls = each("cls", classify);
  if (task === "detection") return { box, cls };
  return {
    box,
    cls,
    mask: each("mask", (path, input) => twice(path, input, maskChannels, PROTOTYPES)),
  };
}

interface MaskShape {
  levels: number[];
  classes: number;
  variant: Variant;
}

/** The prototype net, and the branch that only training has. */
function masks(build: Builder, path: string, { levels, classes, variant }: MaskShape) {
  const name = `${path}.prototypes`;
  const [fine, ...coarse] = levels as [number, number, number];
  const { channels } = build.at(fine);
  const sum = coarse.reduce((total, level, at) => {
    const reduced = build.conv(`${name}.levels.${at}`, level, channels);
    return build.add(total, build.upsample(reduced, 2 ** (at + 1)));
  }, fine);
  const inner = scaledChannels(variant, 256);
  const first = build.conv(`${name}.0`, sum, inner, { kernel: 3 });
  const second = build.conv(`${name}.1`, first, inner, { kernel: 3 });
  const wide = build.convTranspose(`${name}.2`, second);
  const third = build.conv(`${name}.3`, wide, inner, { kernel: 3 });
  const prototypes = build.conv(`${name}.4`, third, PROTOTYPES);
  const semantic = `${path}.semantic`;
  const seen = build.conv(`${semantic}.0`, sum, inner, { kernel: 3 });
  const again = build.conv(`${semantic}.1`, seen, inner, { kernel: 3 });
  return { prototypes, semantic: build.plain(`${semantic}.2`, again, classes) };
}

/** A tensor of the graph's state. */
export interface StateTensor {
  name: string;
  shape: number[];
  /** The layer that it is of. */
  layer: number;
  /** Learned by the optimiser; the others are statistics of batch norm. */
  learned: boolean;
}

/** Every tensor of a graph's state, in the order of its nodes. */
export function stateTensors({ nodes }: Pick<DetectorGraph, "nodes">): StateTensor[] {
  return nodes.flatMap((node) => {
    if (node.op !== "conv" && node.op !== "conv_transpose") return [];
    const { name, layer, channels } = node;
    const tensor = (part: string, shape: number[], learned = true) => ({
      name: `${name}.${part}`,
      shape,
      layer,
      learned,
    });
    const inputs = (nodes[node.input] as GraphNode).channels;
    if (node.op === "conv_transpose") {
      return [tensor("weight", [inputs, channels, 2, 2]), tensor("bias", [channels])];
    }
    const { kernel, groups, normalized } = node;
    const weight = tensor("weight", [channels, inputs / groups, kernel, kernel]);
    if (!normalized) return [weight, tensor("bias", [channels])];
    return [
      weight,
      tensor("norm.weight", [channels]),
      tensor("norm.bias", [channels]),
      tensor("norm.mean", [channels], false),
      tensor("norm.variance", [channels], false),
      // How many batches the statistics are of; a scalar.
      tensor("norm.batches", [], false),
    ];
  });
}

/** Learned values. */
export const parameterCount = (graph: Pick<DetectorGraph, "nodes">): number =>
  stateTensors(graph)
    .filter(({ learned }) => learned)
    .reduce((sum, { shape }) => sum + shape.reduce((product, side) => product * side, 1), 0);

/** Floating-point operations of the convolutions for one square image: two a multiply-add. */
export function flops({ nodes }: Pick<DetectorGraph, "nodes">, imageSize: number): number {
  return nodes.reduce((sum, node) => {
    if (node.op !== "conv" && node.op !== "conv_transpose") return sum;
    const { channels: inputs } = nodes[node.input] as GraphNode;
    const cells = (imageSize / node.stride) ** 2;
    const taps = node.op === "conv" ? node.kernel ** 2 / node.groups : 1;
    return sum + 2 * cells * node.channels * inputs * taps;
  }, 0);
}
