// Reads a Core ML package back from its bytes and says what it computes as an ONNX graph, so that
// what was written can be run where Apple's runtime is not. It trusts nothing that the writer knew:
// names, shapes, paddings and offsets are those of the file. Shapes that the program declares
// become those of the graph's outputs, so that the runtime checks them.

import { fromBinary } from "@bufbuild/protobuf";
import { z } from "zod";
import { GraphWriter, tensorInfo } from "../onnx/model-file.ts";
import { readBlob } from "./coreml-blobs.ts";
import {
  type CoremlMessage,
  MIL_TYPES,
  Model,
  WEIGHTS_FILE,
  WEIGHTS_REFERENCE,
} from "./coreml-schema.ts";
import { MIL_OPERATIONS, type MilConstant, type MilOperation } from "./mil-operations.ts";

/** Opset of the graph that is run; it never leaves this process. */
const OPSET = 17;
const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_@]*$/;

const Manifest = z.object({
  fileFormatVersion: z.literal("1.0.0"),
  rootModelIdentifier: z.string(),
  itemInfoEntries: z.record(
    z.string(),
    z.object({
      path: z.string(),
      name: z.string(),
      author: z.literal("com.apple.CoreML"),
      description: z.string(),
    }),
  ),
});

/** A package as an ONNX graph whose input is `images`, numbers of 0 to 255. */
export interface CoremlGraph {
  onnx: Uint8Array;
  /** Height and width of the image that the package asks for, pixels. */
  size: readonly [height: number, width: number];
  outputs: readonly string[];
}

/** A package's files by their paths. Fails where they are none that Core ML would take. */
export function readCoreml(files: ReadonlyMap<string, Uint8Array>): CoremlGraph {
  const file = (path: string): Uint8Array => {
    const found = files.get(path);
    if (!found) throw new Error(`the package lacks ${path}`);
    return found;
  };
  const { itemInfoEntries, rootModelIdentifier } = Manifest.parse(
    JSON.parse(new TextDecoder().decode(file("Manifest.json"))),
  );
  const root = itemInfoEntries[rootModelIdentifier];
  const weights = Object.values(itemInfoEntries).find(({ name }) => name === "weights");
  if (!root || !weights) throw new Error("the manifest names no model, or no weights");
  const model = fromBinary(Model, file(`Data/${root.path}`));
  const [input, ...others] = model.description?.input ?? [];
  const image = input?.type?.imageType;
  if (!input || !image || others.length > 0) throw new Error("the input is not one image");
  const size = [Number(image.height), Number(image.width)] as const;
  const block = mainBlock(model);
  const reader = new BlockReader(file(`Data/${weights.path}/${WEIGHTS_FILE}`), input.name);
  for (const operation of block.operations) reader.add(operation);
  const declared = model.description?.output.map(({ name }) => name) ?? [];
  if (declared.join() !== block.outputs.join()) {
    throw new Error("the program gives other outputs than the model declares");
  }
  const infos = block.outputs.map((name) => tensorInfo(name, reader.shapeOf(name)));
  const onnx = reader.writer.encode("package", [tensorInfo(input.name, [1, 3, ...size])], infos, {
    opset: OPSET,
  });
  return { onnx, size, outputs: block.outputs };
}

function mainBlock({ mlProgram }: CoremlMessage<"Model">): CoremlMessage<"Block"> {
  const main = mlProgram?.functions.find(({ key }) => key === "main")?.value;
  const block = main?.blockSpecializations.find(({ key }) => key === main.opset)?.value;
  if (!block) throw new Error("the model has no program called main of its own opset");
  return block;
}

/** Reads operations in turn; each may read only what came before it. */
class BlockReader {
  readonly writer = new GraphWriter();
  readonly #weights: Uint8Array;
  readonly #constants = new Map<string, MilConstant>();
  /** Shapes of the outputs of operations. */
  readonly #shapes = new Map<string, readonly number[]>();
  readonly #known: Set<string>;

  constructor(weights: Uint8Array, input: string) {
    this.#weights = weights;
    this.#known = new Set([input]);
  }

  shapeOf(name: string): readonly number[] {
    const shape = this.#shapes.get(name);
    if (!shape) throw new Error(`${name} is no operation's output`);
    return shape;
  }

  add(operation: CoremlMessage<"Operation">): void {
    const { type, inputs, outputs } = operation;
    for (const { key, value } of inputs) {
      const lacking = value?.arguments.find(({ name }) => !this.#known.has(name));
      if (lacking) throw new Error(`${type} reads ${key} = ${lacking.name} before it is written`);
    }
    for (const { name, type: own } of outputs) {
      if (this.#known.has(name)) throw new Error(`${name} is written twice`);
      if (!IDENTIFIER.test(name)) throw new Error(`${name} is no name`);
      this.#known.add(name);
      this.#shapes.set(name, sidesOf(own?.tensorType));
    }
    const [output] = outputs;
    if (!output) throw new Error(`${type} has no output`);
    if (type === "const") {
      this.#addConstant(operation, output.name);
      return;
    }
    const write = MIL_OPERATIONS[type];
    if (!write) throw new Error(`nothing is known of the operation ${type}`);
    write(this.writer, this.#operation(operation));
  }

  #operation({ type, inputs, outputs }: CoremlMessage<"Operation">): MilOperation {
    const names = (key: string) => {
      const found = inputs.find((input) => input.key === key)?.value?.arguments;
      if (!found?.length) throw new Error(`${type} lacks its input ${key}`);
      return found.map(({ name }) => name);
    };
    const name = (key: string) => names(key)[0] as string;
    const constant = (key: string) => {
      const found = this.#constants.get(name(key));
      if (!found) throw new Error(`${key} of ${type} is no constant`);
      return found;
    };
    return {
      names,
      name,
      numbers: (key) => [...constant(key).numbers].map(Number),
      text: (key) => constant(key).text,
      shapeOf: (key) => this.shapeOf(name(key)),
      outputs: outputs.map((one) => one.name),
    };
  }

  #addConstant({ attributes }: CoremlMessage<"Operation">, name: string): void {
    const value = attributes.find(({ key }) => key === "val")?.value;
    if (!value?.type?.tensorType) throw new Error(`the constant ${name} has no value`);
    const type = value.type.tensorType;
    const shape = sidesOf(type);
    const constant = constantOf(value, { type: type.dataType, shape, weights: this.#weights });
    this.#constants.set(name, constant);
    const isFloat = type.dataType === MIL_TYPES.float32 || type.dataType === MIL_TYPES.float16;
    if (isFloat) this.writer.initializer(name, shape, Float32Array.from(constant.numbers));
  }
}

function sidesOf(type: CoremlMessage<"TensorType"> | undefined): number[] {
  if (!type || Number(type.rank) !== type.dimensions.length) throw new Error("a rank is wrong");
  return type.dimensions.map(({ constant }) => Number(constant?.size ?? 0));
}

function constantOf(
  { blobFileValue, immediateValue }: CoremlMessage<"Value">,
  { type, shape, weights }: { type: number; shape: readonly number[]; weights: Uint8Array },
): MilConstant {
  const count = shape.reduce((product, side) => product * side, 1);
  const checked = (numbers: ArrayLike<number>): MilConstant => {
    if (numbers.length !== count) throw new Error(`${numbers.length} values where ${count} go`);
    return { numbers: Array.from(numbers), text: "" };
  };
  if (blobFileValue) {
    const { fileName, offset } = blobFileValue;
    if (fileName !== WEIGHTS_REFERENCE) throw new Error(`weights are in ${fileName}`);
    const kind = type === MIL_TYPES.float16 ? "float16" : "float32";
    const numbers = readBlob(weights, Number(offset), { type: kind, count });
    return { numbers, text: "" };
  }
  const { floats, ints, bools, strings, bytes } = immediateValue?.tensor ?? {};
  if (strings) return { numbers: [], text: strings.values.join() };
  if (bytes) {
    return checked(new Float16Array(Uint8Array.from(bytes.values).buffer));
  }
  return checked(floats?.values ?? ints?.values ?? bools?.values.map(Number) ?? []);
}
