// A TensorFlow Lite file being written: tensors, constants and operators of its one subgraph. The
// order of a table's fields is the schema's (tensorflow/lite/schema/schema.fbs); nothing is
// generated from it.

import { Builder, type Offset } from "flatbuffers";
import {
  type TableField,
  writeAlignedBytes,
  writeFloat32s,
  writeInt32s,
  writeInt64s,
  writeOffsets,
  writeTable,
} from "./flatbuffer-tables.ts";
import {
  IDENTIFIER,
  type Operator,
  SCHEMA_VERSION,
  TENSOR_TYPES,
  type TensorType,
} from "./tflite-schema.ts";

/** By this key a reader finds inputs and outputs by their names. */
const SIGNATURE = "serving_default";

/** How int8 stand for numbers: one scale for all, or one for each index along an axis. */
export interface TensorQuantization {
  scales: readonly number[];
  zeros: readonly number[];
  axis: number;
}

interface Tensor {
  name: string;
  shape: readonly number[];
  type: TensorType;
  /** Index of its constant values; 0 for none. */
  buffer: number;
  quantization: TensorQuantization | undefined;
}

interface Step {
  operator: Operator;
  inputs: readonly number[];
  outputs: readonly number[];
}

export type ConstantValues = Float32Array | Int32Array | Int8Array | Uint16Array;

/** The type of a constant; 16-bit numbers are the bits of half-precision floats. */
function typeOf(values: ConstantValues): TensorType {
  if (values instanceof Float32Array) return "float32";
  if (values instanceof Int32Array) return "int32";
  return values instanceof Int8Array ? "int8" : "float16";
}

/** What a file is written with. Tensors are known by their indices. */
export class TfliteFile {
  readonly #tensors: Tensor[] = [];
  readonly #steps: Step[] = [];
  /** The first is empty by rule, and that of every tensor without constant values. */
  readonly #buffers: Uint8Array[] = [new Uint8Array()];
  readonly #constants = new Map<string, number>();

  /** Adds a tensor that an operator fills, or an input. */
  tensor(
    name: string,
    shape: readonly number[],
    type: TensorType,
    quantization?: TensorQuantization,
  ): number {
    return this.#tensors.push({ name, shape, type, buffer: 0, quantization }) - 1;
  }

  /** Adds a tensor of constant values, once a name. */
  constant(
    name: string,
    shape: readonly number[],
    values: ConstantValues,
    quantization?: TensorQuantization,
  ): number {
    const known = this.#constants.get(name);
    if (known !== undefined) return known;
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
    const buffer = this.#buffers.push(bytes) - 1;
    const tensor = { name, shape, type: typeOf(values), buffer, quantization };
    const index = this.#tensors.push(tensor) - 1;
    this.#constants.set(name, index);
    return index;
  }

  /** A list of whole numbers as a constant. */
  numbers(values: readonly number[]): number {
    return this.constant(`numbers.${values.join(".")}`, [values.length], Int32Array.from(values));
  }

  /** Adds an operator; returns its output. */
  apply(operator: Operator, inputs: readonly number[], output: number): number {
    this.#steps.push({ operator, inputs, outputs: [output] });
    return output;
  }

  shapeOf(tensor: number): readonly number[] {
    return (this.#tensors[tensor] as Tensor).shape;
  }

  /** The file's bytes. */
  encode(inputs: readonly number[], outputs: readonly number[], description: string): Uint8Array {
    const bytes = this.#buffers.reduce((sum, { length }) => sum + length + 64, 2 ** 20);
    const builder = new Builder(bytes);
    const buffers = this.#buffers.map((data) =>
      writeTable(builder, [data.length > 0 ? { offset: writeAlignedBytes(builder, data) } : null]),
    );
    const codes = this.#operatorCodes();
    const opcodes = codes.map(({ code, version }) =>
      // The first field is the code of old readers, a byte.
      writeTable(builder, [
        { int8: Math.min(code, 127) },
        null,
        { int32: version },
        { int32: code },
      ]),
    );
    const subgraph = this.#subgraph(builder, codes, { inputs, outputs });
    const fields = [
      writeOffsets(builder, opcodes),
      writeOffsets(builder, [subgraph]),
      builder.createString(description),
      writeOffsets(builder, buffers),
    ].map((offset) => ({ offset }));
    const signatures = writeOffsets(builder, [this.#signature(builder, { inputs, outputs })]);
    const model = writeTable(builder, [
      { int32: SCHEMA_VERSION },
      ...fields,
      null,
      null,
      { offset: signatures },
    ]);
    builder.finish(model, IDENTIFIER);
    return builder.asUint8Array();
  }

  /** Each operator that is used, once a version, in the order of first use. */
  #operatorCodes(): Operator[] {
    const codes = new Map(this.#steps.map(({ operator }) => [keyOf(operator), operator]));
    return [...codes.values()];
  }

  #subgraph(builder: Builder, codes: readonly Operator[], ends: Ends): Offset {
    const indices = new Map(codes.map((operator, index) => [keyOf(operator), index]));
    const tensors = this.#tensors.map((tensor) => writeTensor(builder, tensor));
    const steps = this.#steps.map(({ operator, inputs, outputs }) => {
      const { options, fields } = operator;
      const table = options > 0 ? writeOptions(builder, fields) : null;
      return writeTable(builder, [
        { int32: indices.get(keyOf(operator)) ?? 0 },
        { offset: writeInt32s(builder, inputs) },
        { offset: writeInt32s(builder, outputs) },
        // A union takes two fields: which member it is, then the member.
        table === null ? null : { int8: options },
        table === null ? null : { offset: table },
      ]);
    });
    return writeTable(builder, [
      { offset: writeOffsets(builder, tensors) },
      { offset: writeInt32s(builder, ends.inputs) },
      { offset: writeInt32s(builder, ends.outputs) },
      { offset: writeOffsets(builder, steps) },
      { offset: builder.createString("main") },
    ]);
  }

  #signature(builder: Builder, { inputs, outputs }: Ends): Offset {
    const names = (tensors: readonly number[]) => {
      const tables = tensors.map((index) => {
        const offset = builder.createString((this.#tensors[index] as Tensor).name);
        return writeTable(builder, [{ offset }, { int32: index }]);
      });
      return { offset: writeOffsets(builder, tables) };
    };
    const [from, to] = [names(inputs), names(outputs)];
    const key = { offset: builder.createString(SIGNATURE) };
    return writeTable(builder, [from, to, key, null, { int32: 0 }]);
  }
}

interface Ends {
  inputs: readonly number[];
  outputs: readonly number[];
}

const keyOf = ({ code, version }: Operator) => `${code}/${version}`;

function writeTensor(
  builder: Builder,
  { name, shape, type, buffer, quantization }: Tensor,
): Offset {
  const fields: (TableField | null)[] = [
    { offset: writeInt32s(builder, shape) },
    { int8: TENSOR_TYPES[type] },
    { int32: buffer },
    { offset: builder.createString(name) },
  ];
  if (quantization) {
    const { scales, zeros, axis } = quantization;
    const scale = { offset: writeFloat32s(builder, scales) };
    const zero = { offset: writeInt64s(builder, zeros) };
    // Least and greatest value come first, details (a union) before the axis: all left out.
    const table = writeTable(builder, [null, null, scale, zero, null, null, { int32: axis }]);
    fields.push({ offset: table });
  }
  return writeTable(builder, fields);
}

function writeOptions(builder: Builder, fields: Operator["fields"]): Offset {
  // Lists are written before the table that refers to them.
  const written = fields.map((field) =>
    "int32s" in field ? { offset: writeInt32s(builder, field.int32s) } : field,
  );
  return writeTable(builder, written);
}
