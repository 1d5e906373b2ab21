// Inference sessions: how they are opened, on what, and how one call looks. The one file that
// knows the runtime.

import ort from "onnxruntime-node";
import { cudaInstalled } from "./cuda.ts";

export type Device = "cpu" | "cuda";
export type Log = (
  level: "info" | "warning",
  event: string,
  fields?: Record<string, unknown>,
) => void;
export type Session = ort.InferenceSession;
export type Tensor = ort.Tensor;

/** The runtime by its package and version. */
export const runtimeName = (): string =>
  `onnxruntime-node ${ort.env.versions.node ?? ort.env.versions.common}`;

/** What one graph takes or gives, as the file says it. */
export interface TensorShape {
  name: string;
  type: string;
  shape: readonly (number | string)[];
}

/** The device that will be used when this one is asked for. */
export function usableDevice(asked: Device | undefined, log: Log): Device {
  if (asked !== "cuda" || cudaInstalled()) return asked ?? "cpu";
  log("warning", "segmenter_cuda_missing", {
    advice:
      "onnxruntime-node was installed without its CUDA libraries: install it again with " +
      "ONNXRUNTIME_NODE_INSTALL=cuda12. Running on the CPU.",
  });
  return "cpu";
}

/** How a model is opened. */
export interface SessionOptions {
  cpuThreads: number;
  device: Device;
  /** `basic` keeps every operation of the graph apart, so that any value can be an output. */
  fusing?: "all" | "basic";
  /**
   * Whether a thread that waits for another one's part of a run keeps its processor meanwhile, as
   * the runtime has it. It gains a millisecond where nothing else runs, and takes as much again as
   * the model from whatever does.
   */
  spinning?: boolean;
}

/** Opens a model's file or bytes. */
export function openSession(model: string | Uint8Array, options: SessionOptions): Promise<Session> {
  const settings: ort.InferenceSession.SessionOptions = {
    intraOpNumThreads: options.cpuThreads,
    interOpNumThreads: 1,
    graphOptimizationLevel: options.fusing ?? "all",
    executionProviders: options.device === "cuda" ? ["cuda", "cpu"] : ["cpu"],
    logSeverityLevel: 3,
    ...(options.spinning === false && {
      extra: { session: { intra_op: { allow_spinning: "0" } } },
    }),
  };
  return typeof model === "string"
    ? ort.InferenceSession.create(model, settings)
    : ort.InferenceSession.create(model, settings);
}

/** Floats of either precision, as the graph's input wants them. */
export const float = (data: Float32Array, dims: readonly number[], type = "float32"): Tensor =>
  type === "float16"
    ? asBits(new ort.Tensor("float16", bitsOf(Float16Array.from(data)), dims))
    : new ort.Tensor("float32", data, dims);

const bitsOf = ({ buffer, byteOffset, length }: Float16Array | Uint16Array): Uint16Array =>
  new Uint16Array(buffer, byteOffset, length);

/**
 * Shows the runtime a half-precision tensor's bits: its binding takes no Float16Array, which its
 * own JavaScript makes wherever the language has one.
 */
const asBits = (tensor: Tensor): Tensor =>
  Object.defineProperty(tensor, "cpuData", { value: bitsOf(tensor.data as Uint16Array) });

/** Runs a model once. What it gives may be fed to another model. */
export async function run(
  session: Session,
  feeds: Readonly<Record<string, Tensor>>,
): Promise<Record<string, Tensor>> {
  const outputs = await session.run(feeds);
  for (const tensor of Object.values(outputs)) if (tensor.type === "float16") asBits(tensor);
  return outputs;
}

/** Whole numbers or floats, as the graph's input wants them. */
export function numbers(values: readonly number[], dims: readonly number[], type: string): Tensor {
  if (type === "int64")
    return new ort.Tensor("int64", BigInt64Array.from(values.map(BigInt)), dims);
  if (type === "int32") return new ort.Tensor("int32", Int32Array.from(values), dims);
  return float(Float32Array.from(values), dims, type);
}

/** The values of a float output; a missing or otherwise typed one is a fault of the file. */
export function floats(outputs: Record<string, Tensor>, name: string): Float32Array {
  const output = outputs[name];
  if (output?.type === "float16") {
    const { buffer, byteOffset, length } = output.data as Uint16Array;
    return Float32Array.from(new Float16Array(buffer, byteOffset, length));
  }
  if (!(output?.data instanceof Float32Array))
    throw new Error(`the model gave no floats as "${name}"`);
  return output.data;
}

/** Inputs or outputs of a session by name. */
export function shapes(metadata: readonly ort.InferenceSession.ValueMetadata[]) {
  return new Map<string, TensorShape>(
    metadata.flatMap((value) =>
      value.isTensor
        ? [[value.name, { name: value.name, type: value.type, shape: value.shape }] as const]
        : [],
    ),
  );
}
