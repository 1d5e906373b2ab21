// A small writer and reader of ONNX files: enough to convert the embedded models and to write our
// detectors, and to refuse a file that reaches outside itself.

import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  AttributeProto,
  ModelProto,
  NodeProto,
  type OnnxMessage,
  TensorProto,
  ValueInfoProto,
} from "./schema.ts";

export type OnnxModel = OnnxMessage<"ModelProto">;
export type OnnxTensor = OnnxMessage<"TensorProto">;
type Attribute = OnnxMessage<"AttributeProto">;
type ValueInfo = OnnxMessage<"ValueInfoProto">;
type OnnxNode = OnnxMessage<"NodeProto">;

/** Numbers of TensorProto.DataType. */
const TYPES = { float32: 1, int32: 6, int64: 7, bool: 9, float16: 10 } as const;
export type ElementType = keyof typeof TYPES;
/** Numbers of AttributeProto.AttributeType. */
const [FLOAT, INT, STRING, INTS] = [1, 2, 3, 7];

export type AttributeValue = number | string | readonly number[] | { float: number };

/** One graph being written. Names are the caller's; a repeated initializer is written once. */
export class GraphWriter {
  readonly nodes: OnnxNode[] = [];
  readonly initializers = new Map<string, OnnxTensor>();

  /** Adds an operation and returns its first output's name. */
  node(
    opType: string,
    inputs: readonly string[],
    outputs: string | readonly string[],
    attributes: Record<string, AttributeValue> = {},
  ): string {
    const output = typeof outputs === "string" ? [outputs] : [...outputs];
    this.nodes.push(
      create(NodeProto, {
        opType,
        input: [...inputs],
        output,
        name: `${output[0]}/${opType}`,
        attribute: Object.entries(attributes).map(([name, value]) => attribute(name, value)),
      }),
    );
    return output[0] ?? "";
  }

  initializer(
    name: string,
    dims: readonly number[],
    values: Float32Array | Int32Array | BigInt64Array,
  ): string {
    const dataType =
      values instanceof Float32Array
        ? TYPES.float32
        : values instanceof Int32Array
          ? TYPES.int32
          : TYPES.int64;
    if (!this.initializers.has(name)) {
      const rawData = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      const tensor = create(TensorProto, { name, dims: dims.map(BigInt), dataType, rawData });
      this.initializers.set(name, tensor);
    }
    return name;
  }

  encode(
    name: string,
    inputs: ValueInfo[],
    outputs: ValueInfo[],
    { opset = 13, metadata = {} }: { opset?: number; metadata?: Record<string, string> } = {},
  ): Uint8Array {
    const graph = {
      name,
      node: this.nodes,
      initializer: [...this.initializers.values()],
      input: inputs,
      output: outputs,
    };
    return encodeModel(
      create(ModelProto, {
        irVersion: 8n,
        producerName: "vantage",
        opsetImport: [{ domain: "", version: BigInt(opset) }],
        metadataProps: Object.entries(metadata).map(([key, value]) => ({ key, value })),
        graph,
      }),
    );
  }
}

function attribute(name: string, value: AttributeValue): Attribute {
  if (typeof value === "number")
    return create(AttributeProto, { name, type: INT, i: BigInt(value) });
  if (typeof value === "string")
    return create(AttributeProto, { name, type: STRING, s: new TextEncoder().encode(value) });
  if ("float" in value) return create(AttributeProto, { name, type: FLOAT, f: value.float });
  return create(AttributeProto, { name, type: INTS, ints: value.map(BigInt) });
}

/** A graph's input or output; a text is a dimension known only when it runs. */
export function tensorInfo(
  name: string,
  dims: readonly (number | string)[],
  type: ElementType = "float32",
): ValueInfo {
  const dim = dims.map((size) =>
    typeof size === "string" ? { dimParam: size } : { dimValue: BigInt(size) },
  );
  return create(ValueInfoProto, {
    name,
    type: { tensorType: { elemType: TYPES[type], shape: { dim } } },
  });
}

/** Reads a model; fails where the bytes are no message of that form. */
export const decodeModel = (bytes: Uint8Array): OnnxModel => fromBinary(ModelProto, bytes);
/** The model's bytes, fields in the order of their numbers. */
export const encodeModel = (model: OnnxModel): Uint8Array => toBinary(ModelProto, model);

/** Leaves out whatever does not lead to the outputs, and declares these. */
export function keepOutputs(model: OnnxModel, outputs: readonly ValueInfo[]): void {
  const { graph } = model;
  if (!graph) throw new Error("the model has no graph");
  const producer = new Map(
    graph.node.flatMap((node) => node.output.map((name) => [name, node] as const)),
  );
  const needed = new Set<OnnxNode>();
  const wanted = outputs.map(({ name }) => name);
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    const node = producer.get(name);
    if (!node || needed.has(node)) continue;
    needed.add(node);
    wanted.push(...node.input.filter((input) => input !== ""));
  }
  graph.node = graph.node.filter((node) => needed.has(node));
  const inputs = new Set(graph.node.flatMap((node) => node.input));
  graph.initializer = graph.initializer.filter(({ name }) => inputs.has(name));
  graph.input = graph.input.filter(({ name }) => inputs.has(name));
  graph.valueInfo = [];
  graph.output = [...outputs];
}
