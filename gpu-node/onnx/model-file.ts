// A small writer and reader of ONNX files: enough to convert the embedded models and to write our
// detectors, and to refuse a file that reaches outside itself.

import onnxProto from "onnx-proto";

const { onnx } = onnxProto;
export type OnnxModel = InstanceType<typeof onnx.ModelProto>;
type Attribute = InstanceType<typeof onnx.AttributeProto>;
type Initializer = InstanceType<typeof onnx.TensorProto>;
type ValueInfo = InstanceType<typeof onnx.ValueInfoProto>;
type OnnxNode = InstanceType<typeof onnx.NodeProto>;

const TYPES = { float32: 1, int32: 6, int64: 7, bool: 9, float16: 10 } as const;
export type ElementType = keyof typeof TYPES;
const { FLOAT, INT, STRING, INTS } = onnx.AttributeProto.AttributeType;

export type AttributeValue = number | string | readonly number[] | { float: number };

/** One graph being written. Names are the caller's; a repeated initializer is written once. */
export class GraphWriter {
  readonly nodes: OnnxNode[] = [];
  readonly initializers = new Map<string, Initializer>();

  /** Adds an operation and returns its first output's name. */
  node(
    opType: string,
    inputs: readonly string[],
    outputs: string | readonly string[],
    attributes: Record<string, AttributeValue> = {},
  ): string {
    const output = typeof outputs === "string" ? [outputs] : [...outputs];
    this.nodes.push(
      onnx.NodeProto.create({
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
      const tensor = onnx.TensorProto.create({ name, dims: [...dims], dataType, rawData });
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
    const graph = onnx.GraphProto.create({
      name,
      node: this.nodes,
      initializer: [...this.initializers.values()],
      input: inputs,
      output: outputs,
    });
    return encodeModel(
      onnx.ModelProto.create({
        irVersion: 8,
        producerName: "vantage",
        opsetImport: [{ domain: "", version: opset }],
        metadataProps: Object.entries(metadata).map(([key, value]) => ({ key, value })),
        graph,
      }),
    );
  }
}

function attribute(name: string, value: AttributeValue): Attribute {
  if (typeof value === "number") return onnx.AttributeProto.create({ name, type: INT, i: value });
  if (typeof value === "string")
    return onnx.AttributeProto.create({ name, type: STRING, s: new TextEncoder().encode(value) });
  if ("float" in value) return onnx.AttributeProto.create({ name, type: FLOAT, f: value.float });
  return onnx.AttributeProto.create({ name, type: INTS, ints: [...value] });
}

/** A graph's input or output; a text is a dimension known only when it runs. */
export function tensorInfo(
  name: string,
  dims: readonly (number | string)[],
  type: ElementType = "float32",
): ValueInfo {
  const dim = dims.map((size) =>
    typeof size === "string" ? { dimParam: size } : { dimValue: size },
  );
  return onnx.ValueInfoProto.create({
    name,
    type: { tensorType: { elemType: TYPES[type], shape: { dim } } },
  });
}

export const decodeModel = (bytes: Uint8Array): OnnxModel => onnx.ModelProto.decode(bytes);
export const encodeModel = (model: OnnxModel): Uint8Array => onnx.ModelProto.encode(model).finish();

/** Keeps what leads to the named outputs, and declares them. */
export function keepOutputs(model: OnnxModel, outputs: readonly ValueInfo[]): void {
  const { graph } = model;
  if (!graph?.node) throw new Error("the model has no graph");
  const producer = new Map(
    graph.node.flatMap((node) => (node.output ?? []).map((name) => [name, node] as const)),
  );
  const kept = new Set<unknown>();
  const wanted = outputs.map(({ name }) => name);
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    const node = producer.get(name);
    if (!node || kept.has(node)) continue;
    kept.add(node);
    wanted.push(...(node.input ?? []).filter((input) => input !== ""));
  }
  graph.node = graph.node.filter((node) => kept.has(node));
  const used = new Set(graph.node.flatMap((node) => node.input ?? []));
  graph.initializer = (graph.initializer ?? []).filter(({ name }) => used.has(name ?? ""));
  graph.input = (graph.input ?? []).filter(({ name }) => used.has(name ?? ""));
  graph.valueInfo = [];
  graph.output = [...outputs];
}
