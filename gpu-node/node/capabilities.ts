// What this node is and can do, and what it lacks, said so that an operator can act on it.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";
import { promisify } from "node:util";
import {
  type Capabilities,
  type InstalledWeights,
  NODE_PROTOCOL,
} from "../../shared/tasks/node-protocol.ts";
import { TASK_KIND_NAMES, TASK_KINDS, type TaskNeed } from "../../shared/tasks/tasks.ts";
import { findTrtexec } from "../export/trtexec.ts";
import type { Tools } from "../media/ffmpeg.ts";
import type { SegmenterInfo } from "../segmenters/segmenter.ts";
import type { EngineDescription } from "../training/engine-probe.ts";
import type { OfferedModels } from "./offer.ts";

type Engine = Extract<EngineDescription, { engine: unknown }>["engine"];

const MIB = 1024 ** 2;
/** One part of so many of the memory is for open detectors: segmenters and trainings take more. */
const MODELS_PART = 4;

interface Gpu {
  name: string;
  count: number;
  memoryBytes: number;
}

/** The NVIDIA GPUs that the driver shows, or null. */
async function findGpus(environment: Readonly<Record<string, string>>): Promise<Gpu | null> {
  const query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"];
  try {
    const { stdout } = await promisify(execFile)("nvidia-smi", query, {
      timeout: 10_000,
      env: environment,
    });
    const rows = stdout.trim().split("\n").filter(Boolean);
    const [name = "", memory = ""] = (rows[0] ?? "").split(",").map((cell) => cell.trim());
    if (!name) return null;
    return { name, count: rows.length, memoryBytes: Number(memory) * MIB || 0 };
  } catch {
    return null;
  }
}

/** The machine's memory, or what its container may use of it. */
function memoryBytes(): number {
  try {
    const limit = Number(readFileSync("/sys/fs/cgroup/memory.max", "utf8"));
    return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
  } catch {
    return totalmem();
  }
}

/** What was found out about this machine before the node began. */
export interface Machinery {
  version: string;
  tools: Tools | null;
  segmenters: readonly SegmenterInfo[];
  /** First weights of trainings. */
  weights: readonly InstalledWeights[];
  /** Why segmenters could not be listed; null where they were. */
  segmenterProblem: string | null;
  slots: number;
  /** As it was configured; null is a quarter of the memory. */
  modelsBytesMax: number | null;
  environment: Readonly<Record<string, string>>;
  /** Why the runtime of the models uses no GPU; null where it would. */
  cudaProblem: string | null;
  engine: EngineDescription;
}

/** The capability report of the node protocol. */
export async function describeNode(machinery: Machinery): Promise<Capabilities> {
  const { version, tools, segmenters, slots } = machinery;
  const gpus = await findGpus(machinery.environment);
  const trtexec = await findTrtexec(machinery.environment);
  const has: Readonly<Record<TaskNeed, boolean>> = {
    ffmpeg: tools !== null,
    segmenter: segmenters.length > 0,
    engine: "engine" in machinery.engine,
    trtexec: trtexec !== null,
  };
  const memory = gpus?.memoryBytes || memoryBytes();
  // Where models are kept.
  const modelMemory = machinery.cudaProblem === null ? memory : memoryBytes();
  const kinds = TASK_KIND_NAMES.filter((kind) => TASK_KINDS[kind].needs.every((need) => has[need]));
  return {
    version,
    protocol: NODE_PROTOCOL,
    kinds,
    device: gpus
      ? { kind: "cuda", name: gpus.name, count: gpus.count }
      : { kind: "cpu", name: cpus()[0]?.model.trim() || "CPU", count: 1 },
    memory_bytes: memory,
    models_bytes_max: machinery.modelsBytesMax ?? Math.floor(modelMemory / MODELS_PART),
    cores: availableParallelism(),
    ffmpeg: tools?.version ?? null,
    ...offeredModels(segmenters, machinery.weights),
    ...(trtexec && { trtexec: { version: trtexec.version, gpu: trtexec.gpu } }),
    ...("engine" in machinery.engine && {
      engine: engineReport(machinery.engine.engine, { hasGpu: gpus !== null, slots }),
    }),
    slots,
    missing: missing(machinery, { hasGpu: gpus !== null, hasTrtexec: trtexec !== null }),
  };
}

/** What lies in a node's folder of models, as the node protocol has it. */
export const offeredModels = (
  segmenters: readonly SegmenterInfo[],
  weights: readonly InstalledWeights[],
): OfferedModels => ({
  segmenters: segmenters.map((info) => ({
    name: info.name,
    title: info.title,
    text: info.text,
    vocabulary: [...info.vocabulary],
    meanings: info.meanings,
    exemplar: info.exemplar,
    licence: info.licence,
  })),
  weights: [...weights],
});

/** Cores of one of a node's slots, at least one. */
export const coresOfSlot = (cores: number, slots: number): number =>
  Math.max(1, Math.floor(cores / slots));

/** Which torch trains here, on what, in which precision and why. */
function engineReport(
  { torch, torchSource: source, gpus, bf16, cpuBf16 }: Engine,
  { hasGpu, slots }: { hasGpu: boolean; slots: number },
): NonNullable<Capabilities["engine"]> {
  if (hasGpu && gpus.length > 0) {
    const reason = bf16 ? "the GPU computes in bf16" : "the GPU does not compute in bf16";
    return { torch, source, precision: bf16 ? "bf16" : "fp32", reason, devices: 1 };
  }
  const devices = coresOfSlot(availableParallelism(), slots);
  if (!cpuBf16) {
    return { torch, source, precision: "fp32", reason: "training runs on the CPU", devices };
  }
  const reason = "the CPU has instructions for bf16, and a run takes it where it is faster";
  return { torch, source, precision: "measured", reason, devices };
}

/** What the node lacks and what to install, one sentence each. */
function missing(
  machinery: Machinery,
  { hasGpu, hasTrtexec }: { hasGpu: boolean; hasTrtexec: boolean },
): string[] {
  const { tools, segmenters, segmenterProblem, engine } = machinery;
  const sentences: string[] = [];
  if (!tools) {
    sentences.push(
      "No task can be done without ffmpeg 5.1 or newer: install it (apt-get install ffmpeg).",
    );
  } else if (!tools.wrap.some((word) => word.endsWith("/unshare"))) {
    sentences.push(
      "Videos are decoded within the machine's network, since this user may not leave it " +
        "(unshare --net); only files are opened all the same.",
    );
  }
  if (segmenterProblem) sentences.push(`Segmenters cannot be listed: ${segmenterProblem}`);
  else if (segmenters.length === 0) {
    sentences.push("Nothing can be labeled without a segmenter: npm run models -- install.");
  }
  if ("missing" in engine) sentences.push(`Nothing can be trained: ${engine.missing}.`);
  else if (hasGpu && engine.engine.gpus.length === 0) {
    sentences.push(
      "Training runs on the CPU: the engine was built without CUDA; npm run engine -- install " +
        "--cuda brings all that it needs, and native/build/build-cuda.log says what failed before.",
    );
  } else if (hasGpu && !engine.engine.cudaKernels) {
    sentences.push(
      "Training prepares pictures on the CPU: the engine was built without nvcc; npm run engine " +
        "-- install --cuda brings it.",
    );
  }
  if (hasGpu && machinery.cudaProblem !== null) {
    sentences.push(
      "Labeling and predictions run on the CPU, since the GPU is not used for models: " +
        `${machinery.cudaProblem}; npm run engine -- install --cuda brings all but NVIDIA's driver.`,
    );
  }
  if (hasGpu && !hasTrtexec) {
    sentences.push("No TensorRT engine can be built without trtexec: install TensorRT.");
  }
  return sentences;
}
