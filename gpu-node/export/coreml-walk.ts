// A detector as the operations of an ML program: the graph's nodes in turn, then what the file
// gives. Maps are [1, channels, rows, columns] in the program's precision; from the maps that the
// branches end in on, everything is single precision, since halves are half a pixel apart from 512
// on.

import type { ConvWeights, DeployedModel } from "../../shared/detector/deployed-weights.ts";
import { type ConvNode, type GraphNode, PROTOTYPES } from "../../shared/detector/detector.ts";
import { INPUT, type OnnxSize } from "../../shared/detector/detector-onnx.ts";
import { anchorCells } from "./anchor-cells.ts";
import { type MilFloat, type MilValue, ProgramWriter } from "./mil-program.ts";
import { mapNameOf } from "./ranges.ts";

type AttentionNode = Extract<GraphNode, { op: "attention" | "values" }>;

/** Writes a graph; the outputs are added when they are asked for. */
export class CoremlWalk {
  readonly program: ProgramWriter;
  readonly #model: DeployedModel;
  readonly #size: OnnxSize;
  readonly #values: MilValue[] = [];
  /** Query, key and value of a map: [1, heads, key or value, cells] each. */
  readonly #parts = new Map<MilValue, readonly [MilValue, MilValue, MilValue]>();

  constructor(model: DeployedModel, size: OnnxSize, float: MilFloat) {
    this.program = new ProgramWriter(float, INPUT);
    this.#model = model;
    this.#size = size;
    for (const [index, node] of model.graph.nodes.entries()) {
      this.#values.push(this.#value(node, mapNameOf(node, index)));
    }
  }

  /** [1, anchors, 4]: corners in pixels of the input. */
  boxes(name: string): MilValue {
    const { program } = this;
    const distances = this.#perAnchor(this.#model.graph.o2o.box, 4, "distances");
    const { shape } = distances;
    const cells = anchorCells(this.#size);
    // A number an anchor, and the sides' signs: four numbers each would be a fiftieth of a file.
    const anchors = [1, shape[1] ?? 0, 1];
    const strides = cells.reach.filter((_, index) => index % 4 === 3);
    const reach = program.floats("reach", anchors, strides, "float32");
    const signs = program.floats("outward", [1, 1, 4], Float32Array.of(-1, -1, 1, 1), "float32");
    const centres = program.floats("centres", shape, cells.centres, "float32");
    const times = (x: MilValue, y: string, to: string) =>
      program.operation("mul", { x, y }, { name: to, shape }, "float32");
    const x = times(times(distances, reach, "boxes_reach"), signs, "boxes_outward");
    return program.operation("add", { x, y: centres }, { name, shape }, "float32");
  }

  /** [1, anchors, classes]. */
  scores(name: string): MilValue {
    const { o2o, classes } = this.#model.graph;
    const x = this.#perAnchor(o2o.cls, classes, "logits");
    return this.program.operation("sigmoid", { x }, { name, shape: x.shape }, "float32");
  }

  /** [1, anchors, 32], of a segmentation model. */
  masks(name: string): MilValue[] {
    const { mask } = this.#model.graph.o2o;
    return mask ? [this.#perAnchor(mask, PROTOTYPES, name)] : [];
  }

  /** [1, 32, height / 4, width / 4], of a segmentation model. */
  prototypes(name: string): MilValue[] {
    const { prototypes } = this.#model.graph;
    if (prototypes === undefined) return [];
    const x = this.#single(this.#values[prototypes] as MilValue);
    return [this.program.operation("identity", { x }, { name, shape: x.shape }, "float32")];
  }

  #value(node: GraphNode, name: string): MilValue {
    const { program } = this;
    const [height, width] = this.#size;
    const shape = [1, node.channels, height / node.stride, width / node.stride];
    const of = (index: number) => this.#values[index] as MilValue;
    switch (node.op) {
      case "input":
        return this.#image({ name: INPUT, shape });
      case "conv":
        return this.#conv(node, of(node.input), shape);
      case "conv_transpose":
        return this.#convTranspose(name, of(node.input), shape);
      case "add": {
        const [x, y] = [of(node.inputs[0]), of(node.inputs[1])];
        return program.operation("add", { x, y }, { name, shape });
      }
      case "concat": {
        const values = node.inputs.map(of);
        const inputs = { values, axis: program.int(1), interleave: program.bool(false) };
        return program.operation("concat", inputs, { name, shape });
      }
      case "slice":
        return this.#slice(node, of(node.input), { name, shape });
      case "max_pool":
        return this.#maxPool(node.kernel, of(node.input), name);
      case "upsample": {
        // The format takes whole factors as floats.
        const factor = program.scalar(`times_${node.factor}`, node.factor, "float32");
        const factors = { scale_factor_height: factor, scale_factor_width: factor };
        const inputs = { x: of(node.input), ...factors };
        return program.operation("upsample_nearest_neighbor", inputs, { name, shape });
      }
      case "attention":
        return this.#attention(node, of(node.input), { name, shape });
      case "values":
        return program.reshape(this.#split(node, of(node.input))[2], { name, shape });
      case "detach":
        return of(node.input);
    }
  }

  /** An image's numbers are 0 to 255; the format's own scaling is not for this kind of program. */
  #image(image: MilValue): MilValue {
    const { program } = this;
    const x = program.float === "float16" ? program.cast(image, "float16", "images_half") : image;
    const y = program.scalar("unit", 1 / 255);
    return program.operation("mul", { x, y }, { name: "images_unit", shape: image.shape });
  }

  #conv(
    { name, kernel, step, groups, channels, silu }: ConvNode,
    x: MilValue,
    shape: readonly number[],
  ): MilValue {
    const { program } = this;
    const { weight, bias } = this.#weightsOf(name);
    const half = Math.floor(kernel / 2);
    const taps = [channels, (x.shape[1] ?? 0) / groups, kernel, kernel];
    const inputs = {
      x,
      weight: program.floats(`${name}.weight`, taps, weight),
      bias: program.floats(`${name}.bias`, [channels], bias),
      strides: program.ints([step, step]),
      pad_type: program.text("custom"),
      pad: program.ints([half, half, half, half]),
      dilations: program.ints([1, 1]),
      groups: program.int(groups),
    };
    const linear = { name: silu ? `${name}.linear` : name, shape };
    const sum = program.operation("conv", inputs, linear);
    return silu ? program.operation("silu", { x: sum }, { name, shape }) : sum;
  }

  #convTranspose(name: string, x: MilValue, shape: readonly number[]): MilValue {
    const { program } = this;
    const { weight, bias } = this.#weightsOf(name);
    const channels = shape[1] ?? 0;
    const taps = [x.shape[1] ?? 0, channels, 2, 2];
    const inputs = {
      x,
      weight: program.floats(`${name}.weight`, taps, weight),
      bias: program.floats(`${name}.bias`, [channels], bias),
      strides: program.ints([2, 2]),
      pad_type: program.text("valid"),
      pad: program.ints([0, 0, 0, 0]),
      dilations: program.ints([1, 1]),
      groups: program.int(1),
    };
    return program.operation("conv_transpose", inputs, { name, shape });
  }

  #slice({ from, to }: { from: number; to: number }, x: MilValue, out: MilValue): MilValue {
    const { program } = this;
    const [, , rows = 0, columns = 0] = x.shape;
    const wholeSides = program.bools([true, false, true, true]);
    const inputs = {
      x,
      begin: program.ints([0, from, 0, 0]),
      end: program.ints([1, to, rows, columns]),
      stride: program.ints([1, 1, 1, 1]),
      begin_mask: wholeSides,
      end_mask: wholeSides,
      squeeze_mask: program.bools([false, false, false, false]),
    };
    return program.operation("slice_by_index", inputs, out);
  }

  #maxPool(kernel: number, x: MilValue, name: string): MilValue {
    const { program } = this;
    const half = Math.floor(kernel / 2);
    const inputs = {
      x,
      kernel_sizes: program.ints([kernel, kernel]),
      strides: program.ints([1, 1]),
      pad_type: program.text("custom"),
      pad: program.ints([half, half, half, half]),
      ceil_mode: program.bool(false),
    };
    return program.operation("max_pool", inputs, { name, shape: x.shape });
  }

  #split({ heads, key, value }: AttentionNode, x: MilValue) {
    const known = this.#parts.get(x);
    if (known) return known;
    const cells = cellsOf(x);
    const viewed = this.program.reshape(x, {
      name: `${x.name}_heads`,
      shape: [1, heads, 2 * key + value, cells],
    });
    const part = (which: string, size: number) => ({
      name: `${x.name}_${which}`,
      shape: [1, heads, size, cells],
    });
    const outputs = [part("query", key), part("key", key), part("value", value)];
    const [queries, keys, values] = this.program.split(viewed, 2, outputs);
    const parts = [queries as MilValue, keys as MilValue, values as MilValue] as const;
    this.#parts.set(x, parts);
    return parts;
  }

  /** v · softmax(qᵀk · key^-½)ᵀ of the heads in turn, as a map. */
  #attention(node: AttentionNode, x: MilValue, out: MilValue): MilValue {
    const { program } = this;
    const [query, keys, values] = this.#split(node, x);
    const cells = cellsOf(x);
    const square = [1, node.heads, cells, cells];
    const product = (one: MilValue, other: MilValue, turned: "x" | "y", to: MilValue) => {
      const inputs = {
        x: one,
        y: other,
        transpose_x: program.bool(turned === "x"),
        transpose_y: program.bool(turned === "y"),
      };
      return program.operation("matmul", inputs, to);
    };
    const factor = program.scalar(`factor_${node.key}`, 1 / Math.sqrt(node.key));
    const scaled = { name: `${out.name}.scaled`, shape: query.shape };
    const queries = program.operation("mul", { x: query, y: factor }, scaled);
    const likeness = product(queries, keys, "x", { name: `${out.name}.likeness`, shape: square });
    const inputs = { x: likeness, axis: program.int(-1) };
    const shares = program.operation("softmax", inputs, {
      name: `${out.name}.shares`,
      shape: square,
    });
    const mixed = { name: `${out.name}.mixed`, shape: values.shape };
    return program.reshape(product(values, shares, "y", mixed), out);
  }

  /** Maps of all levels, finest first, as [1, anchors, channels]. */
  #perAnchor(nodes: readonly number[], channels: number, name: string): MilValue {
    const { program } = this;
    const levels = nodes.map((node, level) => {
      const map = this.#single(this.#values[node] as MilValue);
      const flat = { name: `${name}_${level}`, shape: [1, channels, cellsOf(map)] };
      return program.reshape(map, flat, "float32");
    });
    const anchors = levels.reduce((sum, { shape }) => sum + (shape[2] ?? 0), 0);
    const inputs = { values: levels, axis: program.int(2), interleave: program.bool(false) };
    const all = { name: `${name}_all`, shape: [1, channels, anchors] };
    const x = program.operation("concat", inputs, all, "float32");
    const out = { name, shape: [1, anchors, channels] };
    return program.operation("transpose", { x, perm: program.ints([0, 2, 1]) }, out, "float32");
  }

  /** A map in single precision. */
  #single = (x: MilValue): MilValue =>
    this.program.float === "float16" ? this.program.cast(x, "float32", `${x.name}_single`) : x;

  #weightsOf(name: string): ConvWeights {
    const folded = this.#model.weights.get(name);
    if (!folded) throw new Error(`the model has no weights of ${name}`);
    return folded;
  }
}

const cellsOf = ({ shape: [, , rows = 0, columns = 0] }: MilValue) => rows * columns;
