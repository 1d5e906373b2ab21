// An ONNX file written for the runtime beside it: the weights go into it as they are, copied once,
// since an isolate has no memory for the messages between. Field numbers are those of onnx.proto;
// the bytes are those that the node's writer gives, which a test compares.

import type { GraphHeader, OnnxGraph, OnnxValue } from "../../shared/detector/detector-onnx.ts";
import { OPSET } from "../../shared/detector/detector-onnx.ts";
import { joined } from "../../shared/tasks/line.ts";

/** Numbers of TensorProto.DataType. */
const TYPES = { float32: 1, int64: 7 } as const;
/** Numbers of AttributeProto.AttributeType. */
const [INT, STRING, INTS] = [2, 3, 7];
const IR_VERSION = 8;
const PRODUCER = "vantage";

/** Ways in which a field's value is written. */
const [VARINT, DELIMITED] = [0, 2];

const text = new TextEncoder();

/** A protobuf message as pieces of its bytes, fields in the order in which they are added. */
class Message {
  readonly pieces: Uint8Array[] = [];
  bytes = 0;

  #put(piece: Uint8Array): this {
    this.pieces.push(piece);
    this.bytes += piece.length;
    return this;
  }

  #tag = (field: number, form: number) => this.#put(varint((field << 3) | form));

  number(field: number, value: number): this {
    return this.#tag(field, VARINT).#put(varint(value));
  }

  raw(field: number, value: Uint8Array): this {
    return this.#tag(field, DELIMITED).#put(varint(value.length)).#put(value);
  }

  text = (field: number, value: string) => this.raw(field, text.encode(value));

  /** Repeated numbers; none are no field. */
  packed(field: number, values: readonly number[]): this {
    return values.length === 0 ? this : this.raw(field, joined(values.map(varint)));
  }

  message(field: number, { pieces, bytes }: Message): this {
    this.#tag(field, DELIMITED).#put(varint(bytes));
    for (const piece of pieces) this.#put(piece);
    return this;
  }
}

/** A whole number in groups of seven bits, lowest first; a negative one as 64 bits of its kind. */
function varint(value: number): Uint8Array {
  const groups: number[] = [];
  let left = BigInt.asUintN(64, BigInt(value));
  for (; left > 127n; left >>= 7n) groups.push(Number(left & 127n) | 128);
  groups.push(Number(left));
  return Uint8Array.from(groups);
}

/** The file of one graph. */
export class OnnxFile implements OnnxGraph {
  readonly #nodes: Message[] = [];
  readonly #initializers = new Map<string, Message>();

  node(
    operation: string,
    inputs: readonly string[],
    outputs: string | readonly string[],
    attributes: Record<string, number | string | readonly number[]> = {},
  ): string {
    const names = typeof outputs === "string" ? [outputs] : outputs;
    const node = new Message();
    for (const name of inputs) node.text(1, name);
    for (const name of names) node.text(2, name);
    node.text(3, `${names[0]}/${operation}`).text(4, operation);
    for (const [name, value] of Object.entries(attributes)) {
      node.message(5, attributeOf(name, value));
    }
    this.#nodes.push(node);
    return names[0] ?? "";
  }

  initializer(name: string, dims: readonly number[], values: Float32Array | BigInt64Array): string {
    if (!this.#initializers.has(name)) {
      const type = values instanceof Float32Array ? TYPES.float32 : TYPES.int64;
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      const tensor = new Message().packed(1, dims).number(2, type).text(8, name).raw(9, bytes);
      this.#initializers.set(name, tensor);
    }
    return name;
  }

  /** The file's bytes. */
  encode({ name, input, outputs }: GraphHeader): Uint8Array {
    const graph = new Message();
    for (const node of this.#nodes) graph.message(1, node);
    graph.text(2, name);
    for (const tensor of this.#initializers.values()) graph.message(5, tensor);
    graph.message(11, infoOf(input));
    for (const output of outputs) graph.message(12, infoOf(output));
    const opset = new Message().text(1, "").number(2, OPSET);
    const model = new Message().number(1, IR_VERSION).text(2, PRODUCER);
    return joined(model.message(7, graph).message(8, opset).pieces);
  }
}

function attributeOf(name: string, value: number | string | readonly number[]): Message {
  const attribute = new Message().text(1, name);
  if (typeof value === "number") return attribute.number(3, value).number(20, INT);
  if (typeof value === "string") return attribute.text(4, value).number(20, STRING);
  return attribute.packed(8, value).number(20, INTS);
}

function infoOf({ name, dims }: OnnxValue): Message {
  const shape = new Message();
  for (const dim of dims) {
    const one = new Message();
    shape.message(1, typeof dim === "number" ? one.number(1, dim) : one.text(2, dim));
  }
  const tensor = new Message().number(1, TYPES.float32).message(2, shape);
  return new Message().text(1, name).message(2, new Message().message(1, tensor));
}
