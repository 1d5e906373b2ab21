// Inference sessions: how they are opened, on what, and how one call looks. The one file that
// knows the runtime.

import ort from "onnxruntime-node";
import { DRIVER, NO_PROVIDER, providerLibrary, resolveLibraries } from "./cuda.ts";
import { GraphWriter, tensorInfo } from "./model-file.ts";

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

/** Why this process opens no model on the GPU; null where it can; unset while nobody asked. */
let cudaProblem: string | null | undefined;
let trial: Promise<string | null> | undefined;

/**
 * The device that models are opened on when this one is asked for. Whether the GPU can be used is
 * tried once in a process; where it cannot, one line of log says so.
 */
export async function usableDevice(asked: Device | undefined, log: Log): Promise<Device> {
  if (asked !== "cuda") return "cpu";
  trial ??= tryCuda().then((problem) => {
    cudaProblem = problem;
    if (problem !== null) {
      const advice = `Models run on the CPU. ${PROVIDER_ADVICE}.`;
      log("warning", "cuda_provider_unusable", { reason: problem, advice });
    }
    return problem;
  });
  return (await trial) === null ? "cuda" : "cpu";
}

/** The same without trying: what is known by now. */
export const presumedDevice = (asked: Device): Device =>
  asked === "cuda" && (cudaProblem === undefined ? providerLibrary() : cudaProblem === null)
    ? "cuda"
    : "cpu";

/** What an operator does who wants the GPU to be used. */
const PROVIDER_ADVICE = "npm run engine -- install --cuda brings all but NVIDIA's driver";

/**
 * Runs a convolution and a product of matrices on the GPU, by cuDNN and cuBLAS; returns why that
 * does not work, or null.
 */
async function tryCuda(): Promise<string | null> {
  const provider = providerLibrary();
  if (!provider) return NO_PROVIDER;
  const { missing } = resolveLibraries(provider, { all: false });
  if (missing.includes(DRIVER)) return `NVIDIA's driver (${DRIVER}) is not found`;
  // Not tried then: the runtime would print lines of its own.
  if (missing.length > 0)
    return `its provider does not load, since ${missing.join(", ")} is missing or broken`;
  try {
    await runTrial("cuda");
    return null;
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    const failure = /CUDA failure \d+: [^;]+/.exec(message)?.[0] ?? message.split("\n")[0] ?? "";
    return `its provider does not work: ${failure.trim().slice(0, REASON_CHARACTERS)}`;
  }
}

const REASON_CHARACTERS = 200;

/** A model of two operations on a device. */
export async function runTrial(device: Device): Promise<void> {
  const graph = new GraphWriter();
  graph.initializer("kernel", [1, 1, 3, 3], new Float32Array(9).fill(1));
  graph.node("Conv", ["x", "kernel"], "sums", { pads: [1, 1, 1, 1] });
  graph.node("MatMul", ["sums", "sums"], "y");
  const shape = [1, 1, 4, 4];
  const file = graph.encode("trial", [tensorInfo("x", shape)], [tensorInfo("y", shape)]);
  const session = await ort.InferenceSession.create(file, {
    executionProviders: [device],
    logSeverityLevel: 3,
    // What the GPU does not take would be the CPU's otherwise, unsaid.
    ...(device === "cuda" && { extra: { session: { disable_cpu_ep_fallback: "1" } } }),
  });
  try {
    const { y } = await session.run({ x: float(new Float32Array(16).fill(1), shape) });
    if (y?.data[0] !== TRIAL_SUM) throw new Error(`a product is ${y?.data[0]}, not ${TRIAL_SUM}`);
  } finally {
    await session.release();
  }
}

/** The first row of the sums, 4 6 6 4, by their first column, which is the same. */
const TRIAL_SUM = 4 * 4 + 6 * 6 + 6 * 6 + 4 * 4;

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
