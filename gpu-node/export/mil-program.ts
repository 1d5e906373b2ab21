// The operations of an ML program being written (MIL, Core ML's language of models), with the
// constants that they take. Every optional input is written, as the format's own tools do.

import { create } from "@bufbuild/protobuf";
import { BlobWriter } from "./coreml-blobs.ts";
import {
  type CoremlMessage,
  MIL_TYPES,
  type MilType,
  Operation,
  Value,
  WEIGHTS_REFERENCE,
} from "./coreml-schema.ts";
import { halvesOf } from "./half.ts";

/** Constants of so many floats or more lie in the file of weights. */
const BLOB_VALUES_MIN = 10;

/** What an operation gives. */
export interface MilValue {
  name: string;
  shape: readonly number[];
}

/** A constant's name, or one or several values. */
export type MilInput = string | MilValue | readonly MilValue[];

export type MilFloat = Extract<MilType, "float16" | "float32">;

interface ConstantKind {
  type: MilType;
  shape: readonly number[];
}

/** A type as operations, inputs and constants are declared by. */
export const milType = (type: MilType, shape: readonly number[]) => ({
  tensorType: {
    dataType: MIL_TYPES[type],
    rank: BigInt(shape.length),
    dimensions: shape.map((size) => ({ constant: { size: BigInt(size) } })),
  },
});

const said = (text: string) => ({
  type: milType("string", []),
  immediateValue: { tensor: { strings: { values: [text] } } },
});

/** What a program is written with. */
export class ProgramWriter {
  readonly operations: CoremlMessage<"Operation">[] = [];
  readonly blobs = new BlobWriter();
  /** Precision that operations compute in unless they say otherwise. */
  readonly float: MilFloat;
  readonly #names: Set<string>;
  readonly #constants = new Map<string, string>();

  constructor(float: MilFloat, input: string) {
    this.float = float;
    this.#names = new Set([input]);
  }

  /** Adds an operation of one output. */
  operation(
    type: string,
    inputs: Readonly<Record<string, MilInput>>,
    { name, shape }: MilValue,
    of: MilFloat = this.float,
  ): MilValue {
    const [value] = this.#add(type, inputs, [{ name, shape }], of);
    return value as MilValue;
  }

  /** Parts of a value along an axis, as many as there are outputs. */
  split(x: MilValue, axis: number, outputs: readonly MilValue[]): MilValue[] {
    const sizes = outputs.map(({ shape }) => shape[axis] ?? 0);
    const inputs = { x, split_sizes: this.ints(sizes), axis: this.int(axis) };
    return this.#add("split", inputs, outputs, this.float);
  }

  reshape(x: MilValue, { name, shape }: MilValue, of: MilFloat = this.float): MilValue {
    return this.operation("reshape", { x, shape: this.ints(shape) }, { name, shape }, of);
  }

  /** The same numbers in another precision. */
  cast(x: MilValue, to: MilFloat, name: string): MilValue {
    const dtype = this.text(to === "float16" ? "fp16" : "fp32");
    return this.operation("cast", { x, dtype }, { name, shape: x.shape }, to);
  }

  ints(values: readonly number[]): string {
    const tensor = { ints: { values: [...values] } };
    const kind = { type: "int32", shape: [values.length] } as const;
    return this.#constant(`ints_${values.join("_")}`, kind, () => ({ tensor }));
  }

  int(value: number): string {
    const tensor = { ints: { values: [value] } };
    return this.#constant(`int_${value}`, { type: "int32", shape: [] }, () => ({ tensor }));
  }

  text(value: string): string {
    const tensor = { strings: { values: [value] } };
    return this.#constant(`text_${value}`, { type: "string", shape: [] }, () => ({ tensor }));
  }

  bool(value: boolean): string {
    const tensor = { bools: { values: [value] } };
    return this.#constant(`is_${value}`, { type: "bool", shape: [] }, () => ({ tensor }));
  }

  bools(values: readonly boolean[]): string {
    const tensor = { bools: { values: [...values] } };
    const kind = { type: "bool", shape: [values.length] } as const;
    return this.#constant(`are_${values.map(Number).join("")}`, kind, () => ({ tensor }));
  }

  /** A number. */
  scalar(name: string, value: number, type: MilFloat = this.float): string {
    return this.floats(name, [], Float32Array.of(value), type);
  }

  /** Floats of a shape, once a name; many of them go to the file of weights. */
  floats(
    name: string,
    shape: readonly number[],
    values: Float32Array,
    type: MilFloat = this.float,
  ): string {
    const kind = { type, shape };
    return this.#constant(name, kind, () => {
      const stored = type === "float16" ? halvesOf(values) : values;
      if (values.length >= BLOB_VALUES_MIN) return { offset: this.blobs.add(stored) };
      if (stored instanceof Float32Array) return { tensor: { floats: { values: [...stored] } } };
      const bytes = new Uint8Array(stored.buffer, stored.byteOffset, stored.byteLength);
      return { tensor: { bytes: { values: bytes } } };
    });
  }

  #constant(key: string, { type, shape }: ConstantKind, content: () => ConstantContent): string {
    const known = this.#constants.get(key);
    if (known !== undefined) return known;
    const name = this.#nameFor(key);
    const given = content();
    const own = milType(type, shape);
    const value = create(
      Value,
      "offset" in given
        ? {
            type: own,
            blobFileValue: { fileName: WEIGHTS_REFERENCE, offset: BigInt(given.offset) },
          }
        : { type: own, immediateValue: { tensor: given.tensor } },
    );
    this.operations.push(
      create(Operation, {
        type: "const",
        outputs: [{ name, type: own }],
        attributes: [
          { key: "name", value: said(name) },
          { key: "val", value },
        ],
      }),
    );
    this.#constants.set(key, name);
    return name;
  }

  #add(
    type: string,
    inputs: Readonly<Record<string, MilInput>>,
    outputs: readonly MilValue[],
    of: MilFloat,
  ): MilValue[] {
    const own = outputs.map(({ name, shape }) => ({ name: this.#nameFor(name), shape }));
    this.operations.push(
      create(Operation, {
        type,
        inputs: Object.entries(inputs).map(([key, input]) => ({
          key,
          value: { arguments: namesOf(input).map((name) => ({ name })) },
        })),
        outputs: own.map(({ name, shape }) => ({ name, type: milType(of, shape) })),
        attributes: [{ key: "name", value: said(own[0]?.name ?? "") }],
      }),
    );
    return own;
  }

  /** Letters, digits and underscores alone, as the format has it, and each name once. */
  #nameFor(wanted: string): string {
    const base = wanted.replace(/[^A-Za-z0-9_]/g, "_").replace(/^(?=\d)/, "_");
    let name = base;
    for (let count = 1; this.#names.has(name); count++) name = `${base}_${count}`;
    this.#names.add(name);
    return name;
  }
}

/** Values of a constant as they lie in the program, or where they lie in the file of weights. */
type ConstantContent = { offset: number } | { tensor: ImmediateTensor };
type ImmediateTensor =
  | { floats: { values: number[] } }
  | { ints: { values: number[] } }
  | { bools: { values: boolean[] } }
  | { strings: { values: string[] } }
  | { bytes: { values: Uint8Array } };

function namesOf(input: MilInput): string[] {
  if (typeof input === "string") return [input];
  return [input].flat().map(({ name }) => name);
}
