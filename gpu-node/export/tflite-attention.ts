// Attention in a TensorFlow Lite file, in floats: the likeness of all cells to all cells loses too
// much as int8.

import type { GraphNode } from "../../shared/detector/detector.ts";
import type { MapShape, MapWriter, TfliteMap } from "./tflite-maps.ts";
import * as operators from "./tflite-schema.ts";
import { reshaped, transposed } from "./tflite-shapes.ts";

type AttentionNode = Extract<GraphNode, { op: "attention" | "values" }>;

/** Tensors [batch, heads, cells, key or value]. */
interface HeadParts {
  query: number;
  key: number;
  value: number;
}

/** Writes the attention of a graph; a map's query, key and value are parted once. */
export class AttentionWriter {
  readonly #maps: MapWriter;
  readonly #parts = new Map<TfliteMap, HeadParts>();

  constructor(maps: MapWriter) {
    this.#maps = maps;
  }

  /** v · softmax(qᵀk · key^-½)ᵀ of the heads in turn, as a map. */
  attention(name: string, node: AttentionNode, input: TfliteMap): TfliteMap {
    const { file } = this.#maps;
    const { query, key, value } = this.#split(node, input);
    const [batch = 0, heads = 0, cells = 0] = file.shapeOf(query);
    const floats = (part: string, shape: readonly number[]) =>
      file.tensor(`${name}/${part}`, shape, "float32");
    const factor = Float32Array.of(1 / Math.sqrt(node.key));
    const scaled = file.apply(
      operators.multiply(false),
      [query, file.constant(`factor.${node.key}`, [], factor)],
      floats("scaled", [batch, heads, cells, node.key]),
    );
    const likeness = file.apply(
      operators.matmul({ transposeSecond: true }),
      [scaled, key],
      floats("likeness", [batch, heads, cells, cells]),
    );
    const shares = file.apply(
      operators.softmax(),
      [likeness],
      floats("shares", [batch, heads, cells, cells]),
    );
    const mixed = file.apply(
      operators.matmul({ transposeSecond: false }),
      [shares, value],
      floats("mixed", [batch, heads, cells, node.value]),
    );
    return this.#asMap(name, input.shape, mixed);
  }

  /** The values of the heads in turn, as a map. */
  values(name: string, node: AttentionNode, input: TfliteMap): TfliteMap {
    return this.#asMap(name, input.shape, this.#split(node, input).value);
  }

  /** Query, key and value by slices: XNNPACK has no split into unequal parts. */
  #split({ heads, key, value }: AttentionNode, input: TfliteMap): HeadParts {
    const known = this.#parts.get(input);
    if (known) return known;
    const { file } = this.#maps;
    const [batch, rows, columns] = input.shape;
    const [cells, width] = [rows * columns, 2 * key + value];
    const name = `${input.name}/heads`;
    const laid = reshaped(file, this.#maps.floatsOf(input), {
      name: `${name}/laid`,
      shape: [batch, cells, heads, width],
    });
    const turned = this.#turned(`${name}/turned`, [batch, heads, cells, width], laid);
    const part = (which: string, from: number, channels: number) => {
      const shape = [batch, heads, cells, channels];
      const bounds = [file.numbers([0, 0, 0, from]), file.numbers(shape)];
      const out = file.tensor(`${name}/${which}`, shape, "float32");
      return file.apply(operators.slice(false), [turned, ...bounds], out);
    };
    const parts = {
      query: part("query", 0, key),
      key: part("key", key, key),
      value: part("value", 2 * key, value),
    };
    this.#parts.set(input, parts);
    return parts;
  }

  /** [batch, heads, cells, value] as a map of the input's rows and columns. */
  #asMap(name: string, [batch, rows, columns]: MapShape, tensor: number): TfliteMap {
    const { file } = this.#maps;
    const [, heads = 0, cells = 0, value = 0] = file.shapeOf(tensor);
    const turned = this.#turned(`${name}/turned`, [batch, cells, heads, value], tensor);
    const shape = [batch, rows, columns, heads * value] as const;
    return this.#maps.computed(name, shape, reshaped(file, turned, { name, shape }));
  }

  /** The second and third side for one another; `shape` is what comes out. */
  #turned = (name: string, shape: readonly number[], tensor: number) =>
    transposed(this.#maps.file, tensor, { name, shape, order: [0, 2, 1, 3] });
}
