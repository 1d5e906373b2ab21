// A detector as an ONNX graph, for whoever writes files. Input `images`: float32 [batch, 3, height,
// width], RGB in 0 to 1, letterboxed. Output `output0`: [batch, 300, 6], rows x1, y1, x2, y2 in
// pixels of the input, score, class, by falling score; no suppression is needed after it: a model
// that is served with it has it inside, and what it suppresses is a row of score 0. Or, for
// runtimes without top-k, everything before it: `boxes` [batch, anchors, 4] and `scores` [batch,
// anchors, classes]. A segmentation model adds 32 coefficients a row and the prototypes.

import type { DeployedModel } from "./deployed-weights.ts";
import { type GraphNode, LEVEL_STRIDES, PROTOTYPES, STRIDE_MAX } from "./detector.ts";

/** Together with IR version 8 what most runtimes read. */
export const OPSET = 17;
export const DETECTIONS_MAX = 300;
export const INPUT = "images";

/** What a graph is drawn with: a file's writer. Names are the caller's. */
export interface OnnxGraph {
  /** Adds an operation and returns its first output's name. */
  node(
    operation: string,
    inputs: readonly string[],
    outputs: string | readonly string[],
    attributes?: Record<string, number | string | readonly number[]>,
  ): string;
  /** Adds a constant, once a name; returns the name. */
  initializer(name: string, dims: readonly number[], values: Float32Array | BigInt64Array): string;
}

/** A graph's float input or output; a text is a dimension known only when it runs. */
export interface OnnxValue {
  name: string;
  dims: readonly (number | string)[];
}

/** Height and width in pixels, multiples of 32. */
export type OnnxSize = readonly [height: number, width: number];

/** What of a model is drawn. */
export interface DetectorForm {
  /** `raw` stops before the two top-k steps, which are then the host's. */
  output: "detections" | "raw";
  /** Null is any such, known only when it runs. */
  size: OnnxSize | null;
  /** Images of one run; null is any number. */
  batch: number | null;
}

/** What a file says of the graph that was drawn. */
export interface GraphHeader {
  name: string;
  input: OnnxValue;
  outputs: OnnxValue[];
}

/** Draws a deployed model; the same model and form give the same operations in the same order. */
export function drawDetector(
  writer: OnnxGraph,
  model: DeployedModel,
  { output, size, batch }: DetectorForm,
): GraphHeader {
  for (const side of size ?? []) {
    if (side < STRIDE_MAX || side % STRIDE_MAX) throw new Error(`a side of ${side} pixels`);
  }
  const walk = new Walk(writer, { model, size });
  const { graph } = model;
  const images = batch ?? "batch";
  const [height, width] = size ?? ["height", "width"];
  const rows = size ? rowsOf(size) : "rows";
  const anchors = size ? anchorsOf(size) : "anchors";
  const masks = graph.o2o.mask ? PROTOTYPES : 0;
  const outputs: OnnxValue[] =
    output === "detections"
      ? [{ name: walk.detections("output0"), dims: [images, rows, 6 + masks] }]
      : [
          { name: walk.boxes("boxes"), dims: [images, anchors, 4] },
          { name: walk.scores("scores"), dims: [images, anchors, graph.classes] },
          ...(masks ? [{ name: walk.masks("masks"), dims: [images, anchors, masks] }] : []),
        ];
  if (graph.prototypes !== undefined) {
    const cells = size ? size.map((side) => side / 4) : ["rows4", "columns4"];
    outputs.push({ name: walk.prototypes("output1"), dims: [images, PROTOTYPES, ...cells] });
  }
  const input = { name: INPUT, dims: [images, 3, height, width] };
  return { name: `${graph.variant}-${graph.task}`, input, outputs };
}

/** Cells of all levels. */
export const anchorsOf = ([height, width]: readonly [number, number]): number =>
  LEVEL_STRIDES.reduce((sum, stride) => sum + (height / stride) * (width / stride), 0);

/** Rows of the output: fewer than 300 only for a tiny input. */
const rowsOf = (size: readonly [number, number]) => Math.min(DETECTIONS_MAX, anchorsOf(size));

/** Left and top are subtracted from a cell's centre, right and bottom added, in pixels. */
const OUTWARD = [-1, -1, 1, 1];

class Walk {
  readonly writer: OnnxGraph;
  readonly #model: DeployedModel;
  readonly #size: OnnxSize | null;
  /** Names of the nodes' outputs, by the node's index. */
  readonly #values: string[] = [];
  /** Query, key and value of a map, by its node's index. */
  readonly #heads = new Map<number, { query: string; key: string; value: string }>();
  /** Maps of which rows and columns were asked. */
  readonly #measured = new Set<string>();

  constructor(writer: OnnxGraph, { model, size }: { model: DeployedModel; size: OnnxSize | null }) {
    this.writer = writer;
    this.#model = model;
    this.#size = size;
    for (const [at, node] of model.graph.nodes.entries()) this.#values.push(this.#emit(node, at));
  }

  #emit(node: GraphNode, at: number): string {
    const { writer } = this;
    const name = "name" in node ? node.name : `layers.${node.layer}/${node.op}.${at}`;
    const value = (index: number) => this.#values[index] as string;
    switch (node.op) {
      case "input":
        return INPUT;
      case "conv":
        return this.#conv(node, value(node.input));
      case "conv_transpose": {
        const { channels } = this.#model.graph.nodes[node.input] as GraphNode;
        const inputs = this.#weighted(name, [channels, node.channels, 2, 2]);
        const shape = { kernel_shape: [2, 2], strides: [2, 2] };
        return writer.node("ConvTranspose", [value(node.input), ...inputs], name, shape);
      }
      case "add":
        return writer.node("Add", node.inputs.map(value), name);
      case "concat":
        return writer.node("Concat", node.inputs.map(value), name, { axis: 1 });
      case "slice": {
        const bounds = [this.#whole(node.from), this.#whole(node.to), this.#whole(1)];
        return writer.node("Slice", [value(node.input), ...bounds], name);
      }
      case "max_pool": {
        const half = Math.floor(node.kernel / 2);
        return writer.node("MaxPool", [value(node.input)], name, {
          kernel_shape: [node.kernel, node.kernel],
          pads: [half, half, half, half],
          strides: [1, 1],
        });
      }
      case "upsample": {
        const scales = Float32Array.of(1, 1, node.factor, node.factor);
        const times = writer.initializer(`times.${node.factor}`, [4], scales);
        return writer.node("Resize", [value(node.input), "", times], name, {
          mode: "nearest",
          coordinate_transformation_mode: "asymmetric",
          nearest_mode: "floor",
        });
      }
      case "attention":
        return this.#attention(node, name);
      case "values":
        return this.#asMap(this.#split(node).value, node, name);
      case "detach":
        return value(node.input);
    }
  }

  #conv(node: Extract<GraphNode, { op: "conv" }>, input: string): string {
    const { name, kernel, step, groups, channels, silu } = node;
    const { channels: inputs } = this.#model.graph.nodes[node.input] as GraphNode;
    const weighted = this.#weighted(name, [channels, inputs / groups, kernel, kernel]);
    const half = Math.floor(kernel / 2);
    const linear = silu ? `${name}/linear` : name;
    this.writer.node("Conv", [input, ...weighted], linear, {
      kernel_shape: [kernel, kernel],
      strides: [step, step],
      pads: [half, half, half, half],
      group: groups,
    });
    if (!silu) return linear;
    const gate = this.writer.node("Sigmoid", [linear], `${name}/gate`);
    return this.writer.node("Mul", [linear, gate], name);
  }

  #weighted(name: string, dims: readonly number[]): [string, string] {
    const folded = this.#model.weights.get(name);
    if (!folded) throw new Error(`the model has no weights of ${name}`);
    return [
      this.writer.initializer(`${name}.weight`, dims, folded.weight),
      this.writer.initializer(`${name}.bias`, [folded.bias.length], folded.bias),
    ];
  }

  /** Query, key and value of each head: [batch, heads, key or value, cells]. */
  #split(node: Extract<GraphNode, { op: "attention" | "values" }>) {
    const known = this.#heads.get(node.input);
    if (known) return known;
    const { heads, key, value } = node;
    const from = this.#values[node.input] as string;
    const shape = this.#numbers([0, heads, 2 * key + value, -1]);
    const viewed = this.writer.node("Reshape", [from, shape], `${from}/heads`);
    const [one, two, three] = [`${from}/query`, `${from}/key`, `${from}/value`];
    const sizes = this.#numbers([key, key, value]);
    this.writer.node("Split", [viewed, sizes], [one, two, three], { axis: 2 });
    const split = { query: one, key: two, value: three };
    this.#heads.set(node.input, split);
    return split;
  }

  #attention(node: Extract<GraphNode, { op: "attention" }>, name: string): string {
    const { writer } = this;
    const { query, key, value } = this.#split(node);
    const turned = { perm: [0, 1, 3, 2] };
    const queries = writer.node("Transpose", [query], `${name}/queries`, turned);
    const factor = writer.initializer(
      `${name}/factor`,
      [],
      Float32Array.of(1 / Math.sqrt(node.key)),
    );
    const scaled = writer.node("Mul", [queries, factor], `${name}/scaled`);
    const likeness = writer.node("MatMul", [scaled, key], `${name}/likeness`);
    const shares = writer.node("Softmax", [likeness], `${name}/shares`, { axis: -1 });
    const values = writer.node("Transpose", [value], `${name}/values`, turned);
    const mixed = writer.node("MatMul", [shares, values], `${name}/mixed`);
    const back = writer.node("Transpose", [mixed], `${name}/back`, turned);
    return this.#asMap(back, node, name);
  }

  /** [batch, heads, value, cells] as a map of the node's size. */
  #asMap(
    from: string,
    node: Extract<GraphNode, { op: "attention" | "values" }>,
    name: string,
  ): string {
    const { writer } = this;
    const { channels, stride } = node;
    if (this.#size) {
      const shape = this.#numbers([0, channels, ...this.#size.map((side) => side / stride)]);
      return writer.node("Reshape", [from, shape], name);
    }
    const source = this.#values[node.input] as string;
    const [rows, columns] = this.#sidesOf(source);
    const parts = [this.#whole(0), this.#whole(channels), rows, columns];
    const shape = writer.node("Concat", parts, `${name}/shape`, { axis: 0 });
    return writer.node("Reshape", [from, shape], name);
  }

  /** Rows and columns of a map, where they are known only when it runs. */
  #sidesOf(map: string): [string, string] {
    const { writer } = this;
    const shape = `${map}/sizes`;
    if (!this.#measured.has(map)) {
      this.#measured.add(map);
      writer.node("Shape", [map], shape);
      writer.node("Slice", [shape, this.#whole(2), this.#whole(3)], `${map}/rows`);
      writer.node("Slice", [shape, this.#whole(3), this.#whole(4)], `${map}/columns`);
    }
    return [`${map}/rows`, `${map}/columns`];
  }

  /** [batch, anchors, 4]: corners in pixels of the input. */
  boxes(name: string): string {
    const levels = this.#model.graph.o2o.box.map((index, level) => {
      const { writer } = this;
      const distances = this.#values[index] as string;
      const stride = LEVEL_STRIDES[level] as number;
      const outward = Float32Array.from(OUTWARD, (sign) => sign * stride);
      const reach = writer.initializer(`outward.${stride}`, [1, 4, 1, 1], outward);
      const scaled = writer.node("Mul", [distances, reach], `${name}.${level}/reach`);
      const centres = this.#centres(distances, stride);
      const corners = writer.node("Add", [centres, scaled], `${name}.${level}/corners`);
      return { map: corners, channels: 4 };
    });
    return this.#perAnchor(levels, name);
  }

  /** The cells' centres as corners of no size: [1, 4, rows, columns], x, y, x, y in pixels. */
  #centres(map: string, stride: number): string {
    const { writer } = this;
    const name = `centres.${stride}`;
    if (this.#size) {
      const [rows, columns] = this.#size.map((side) => side / stride) as [number, number];
      const plane = rows * columns;
      const values = new Float32Array(4 * plane);
      for (let cell = 0; cell < plane; cell++) {
        const x = ((cell % columns) + 0.5) * stride;
        const y = (Math.floor(cell / columns) + 0.5) * stride;
        for (const [channel, at] of [x, y, x, y].entries()) values[channel * plane + cell] = at;
      }
      return writer.initializer(name, [1, 4, rows, columns], values);
    }
    const sides = this.#sidesOf(map);
    const extent = writer.node("Concat", sides, `${name}/extent`, { axis: 0 });
    const along = (which: "rows" | "columns", side: string, shape: number[]) => {
      const part = `${name}/${which}`;
      const count = writer.node("Squeeze", [side], `${part}/count`);
      const zero = writer.initializer("whole.zero", [], BigInt64Array.of(0n));
      const one = writer.initializer("whole.one", [], BigInt64Array.of(1n));
      const indices = writer.node("Range", [zero, count, one], `${part}/places`);
      const floats = writer.node("Cast", [indices], `${part}/floats`, { to: 1 });
      const half = writer.initializer("half", [], Float32Array.of(0.5));
      const middle = writer.node("Add", [floats, half], `${part}/middle`);
      const pixels = writer.initializer(`pixels.${stride}`, [], Float32Array.of(stride));
      const scaled = writer.node("Mul", [middle, pixels], `${part}/pixels`);
      const laid = writer.node("Reshape", [scaled, this.#numbers(shape)], `${part}/laid`);
      const ones = this.#numbers([1, 1]);
      const full = writer.node("Concat", [ones, extent], `${part}/full`, { axis: 0 });
      return writer.node("Expand", [laid, full], `${part}/spread`);
    };
    const x = along("columns", sides[1], [1, 1, 1, -1]);
    const y = along("rows", sides[0], [1, 1, -1, 1]);
    return writer.node("Concat", [x, y, x, y], name, { axis: 1 });
  }

  /** Maps of all levels, finest first, as [batch, anchors, channels]. */
  #perAnchor(levels: readonly { map: string; channels: number }[], name: string): string {
    const { writer } = this;
    const flat = levels.map(({ map, channels }, level) => {
      const shape = this.#numbers([0, channels, -1]);
      return writer.node("Reshape", [map, shape], `${name}.${level}/flat`);
    });
    const all = writer.node("Concat", flat, `${name}/all`, { axis: 2 });
    return writer.node("Transpose", [all], name, { perm: [0, 2, 1] });
  }

  #branch(nodes: readonly number[], channels: number, name: string): string {
    const levels = nodes.map((index) => ({ map: this.#values[index] as string, channels }));
    return this.#perAnchor(levels, name);
  }

  #logits = (name: string) =>
    this.#branch(this.#model.graph.o2o.cls, this.#model.graph.classes, name);
  masks = (name: string) => this.#branch(this.#model.graph.o2o.mask ?? [], PROTOTYPES, name);
  scores = (name: string) => this.writer.node("Sigmoid", [this.#logits(`${name}/logits`)], name);
  prototypes = (name: string) =>
    this.writer.node(
      "Identity",
      [this.#values[this.#model.graph.prototypes as number] as string],
      [name],
    );

  /**
   * The best 300 of all anchors by their best class, then the best 300 of those anchors' scores:
   * an anchor may come with more than one class. Order is that of the logits, which the sigmoid
   * keeps; only what is left goes through it.
   */
  detections(name: string): string {
    const { writer } = this;
    const { classes, o2o } = this.#model.graph;
    const boxes = this.boxes("boxes");
    const logits = this.#logits("logits");
    const best = writer.node("ReduceMax", [logits], "best", { axes: [2], keepdims: 0 });
    const count = this.#countOf(best);
    const first = this.#best(best, count, "anchors");
    const ofAnchors = (from: string, to: string) =>
      writer.node("GatherND", [from, first], to, { batch_dims: 1 });
    const taken = ofAnchors(logits, "taken/logits");
    const flat = writer.node("Reshape", [taken, this.#numbers([0, -1])], "taken/flat");
    const second = this.#best(flat, count, "rows");
    const many = writer.initializer("classes", [], BigInt64Array.of(BigInt(classes)));
    const anchor = writer.node("Div", [second, many], "rows/anchor");
    const classIndex = writer.node("Mod", [second, many], "rows/class");
    const ofRows = (from: string, to: string) =>
      writer.node("GatherND", [from, anchor], to, { batch_dims: 1 });
    const parts = [
      ofRows(ofAnchors(boxes, "taken/boxes"), "rows/boxes"),
      writer.node(
        "Unsqueeze",
        [writer.node("Sigmoid", ["rows/values"], "rows/score"), this.#whole(2)],
        "rows/scores",
      ),
      writer.node("Cast", [classIndex], "rows/classes", { to: 1 }),
    ];
    if (o2o.mask) parts.push(ofRows(ofAnchors(this.masks("masks"), "taken/masks"), "rows/masks"));
    const { nmsIou } = this.#model;
    if (nmsIou === null) return writer.node("Concat", parts, name, { axis: 2 });
    const rows = writer.node("Concat", parts, "all/rows", { axis: 2 });
    return this.#suppressed(rows, { classIndex, count, iou: nmsIou }, name);
  }

  /**
   * The rows in which boxes of a class that overlap by more than the IoU of a surer one have a
   * score of 0, by falling score.
   */
  #suppressed(
    rows: string,
    { classIndex, count, iou }: { classIndex: string; count: string; iou: number },
    name: string,
  ): string {
    const { writer } = this;
    const [boxes, scores, rest] = ["all/boxes", "all/scores", "all/rest"];
    const part = (from: number, to: number, output: string) =>
      writer.node("Slice", [rows, this.#whole(from), this.#whole(to), this.#whole(2)], output);
    part(0, 4, boxes);
    part(4, 5, scores);
    part(5, 6 + PROTOTYPES, rest);
    // Suppression is by class: a row counts in the list of its own class alone.
    const { classes } = this.#model.graph;
    const every = writer.initializer(
      "classes.every",
      [1, 1, classes],
      BigInt64Array.from({ length: classes }, (_, index) => BigInt(index)),
    );
    const isOwn = writer.node("Equal", [classIndex, every], "all/own");
    const none = writer.initializer("score.none", [], Float32Array.of(0));
    const byClass = writer.node("Where", [isOwn, scores, none], "all/by_class");
    const lists = writer.node("Transpose", [byClass], "all/lists", { perm: [0, 2, 1] });
    const limits = [
      this.#whole(DETECTIONS_MAX),
      writer.initializer("nms.iou", [1], Float32Array.of(iou)),
      writer.initializer("nms.score", [1], Float32Array.of(0)),
    ];
    // Image, class and row of each that stays.
    const stays = writer.node("NonMaxSuppression", [boxes, lists, ...limits], "all/stays");
    const positions = writer.node("Gather", [stays, this.#numbers([0, 2])], "all/positions", {
      axis: 1,
    });
    const flat = writer.node("Squeeze", [scores, this.#whole(2)], "all/scores/flat");
    const zeros = writer.node("Mul", [flat, none], "all/zeros");
    const values = writer.node("GatherND", [flat, positions], "all/kept");
    const left = writer.node("ScatterND", [zeros, positions, values], "all/left");
    const order = this.#best(left, count, "last");
    const inOrder = (from: string, to: string) =>
      writer.node("GatherND", [from, order], to, { batch_dims: 1 });
    const score = writer.node("Unsqueeze", ["last/values", this.#whole(2)], "last/scores");
    const parts = [inOrder(boxes, "last/boxes"), score, inOrder(rest, "last/rest")];
    return writer.node("Concat", parts, name, { axis: 2 });
  }

  /** Places of the greatest along the second dimension: [batch, count, 1]; `/values` beside it. */
  #best(of: string, count: string, name: string): string {
    const { writer } = this;
    writer.node("TopK", [of, count], [`${name}/values`, `${name}/places`], { axis: 1 });
    return writer.node("Unsqueeze", [`${name}/places`, this.#whole(2)], `${name}/at`);
  }

  /** 300, or all there are. A constant wherever the size is, as compilers want it. */
  #countOf(best: string): string {
    const { writer } = this;
    if (this.#size) return this.#whole(rowsOf(this.#size));
    const shape = writer.node("Shape", [best], `${best}/shape`);
    const all = writer.node("Slice", [shape, this.#whole(1), this.#whole(2)], `${best}/all`);
    return writer.node("Min", [this.#whole(DETECTIONS_MAX), all], `${best}/count`);
  }

  #numbers(values: readonly number[]): string {
    const whole = BigInt64Array.from(values.map(BigInt));
    return this.writer.initializer(`whole.${values.join(".")}`, [values.length], whole);
  }

  #whole = (value: number) => this.#numbers([value]);
}
