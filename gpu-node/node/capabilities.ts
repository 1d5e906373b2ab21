// What this node is and can do, and what it lacks, said so that an operator can act on it.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, cpus, totalmem } from "node:os";
import { promisify } from "node:util";
import { type Capabilities, TASK_KINDS, type TaskKind } from "../../shared/tasks.ts";
import type { Tools } from "../media/ffmpeg.ts";
import type { SegmenterInfo } from "../segmenters/segmenter.ts";
import type { EngineAnswer } from "../training/engine-probe.ts";

const MIB = 1024 ** 2;

/** Kinds that cannot be done without decoding videos or without a segmenter. */
const NEEDS_FFMPEG: readonly TaskKind[] = [
  "probe",
  "label",
  "preview",
  "segment",
  "frames",
  "export",
  "train",
  "warm",
  "predict",
];
const NEEDS_SEGMENTER: readonly TaskKind[] = ["label", "preview", "segment"];

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

export interface Found {
  version: string;
  tools: Tools | null;
  segmenters: readonly SegmenterInfo[];
  /** Why segmenters could not be listed. */
  problem: string | null;
  slots: number;
  environment: Readonly<Record<string, string>>;
  /** Whether the runtime of the models could use a GPU. */
  cuda: boolean;
  engine: EngineAnswer;
}

/** The capability report of the node protocol. */
export async function describeNode(found: Found): Promise<Capabilities> {
  const { version, tools, segmenters, slots } = found;
  const gpus = await findGpus(found.environment);
  const kinds = (Object.keys(TASK_KINDS) as TaskKind[]).filter(
    (kind) =>
      (tools !== null || !NEEDS_FFMPEG.includes(kind)) &&
      (segmenters.length > 0 || !NEEDS_SEGMENTER.includes(kind)) &&
      (kind !== "train" || "engine" in found.engine),
  );
  return {
    version,
    kinds,
    device: gpus
      ? { kind: "cuda", name: gpus.name, count: gpus.count }
      : { kind: "cpu", name: cpus()[0]?.model.trim() || "CPU", count: 1 },
    memory_bytes: gpus?.memoryBytes || memoryBytes(),
    cores: availableParallelism(),
    ffmpeg: tools?.version ?? null,
    segmenters: segmenters.map((info) => ({
      name: info.name,
      title: info.title,
      text: info.text,
      vocabulary: [...info.vocabulary],
      exemplar: info.exemplar,
      licence: info.licence,
    })),
    slots,
    missing: missing(found, gpus !== null),
  };
}

function missing(found: Found, hasGpu: boolean): string[] {
  const { tools, segmenters, problem, engine } = found;
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
  if (problem) sentences.push(`Segmenters cannot be listed: ${problem}`);
  else if (segmenters.length === 0) {
    sentences.push("Nothing can be labeled without a segmenter: npm run models -- install.");
  }
  if ("missing" in engine) sentences.push(`Nothing can be trained: ${engine.missing}.`);
  else if (hasGpu && engine.engine.gpus.length === 0) {
    sentences.push(
      "Training runs on the CPU: the engine was built with a torch without CUDA; install one " +
        "(pip install torch), delete native/build and run npm run gpu-node again.",
    );
  } else if (hasGpu && !engine.engine.cudaKernels) {
    sentences.push(
      "Training prepares pictures on the CPU: the engine was built without nvcc; install CUDA's " +
        "toolkit, delete native/build and run npm run gpu-node again.",
    );
  }
  if (hasGpu && !found.cuda) {
    sentences.push(
      "The GPU is not used for labeling: install onnxruntime's CUDA libraries " +
        "(ONNXRUNTIME_NODE_INSTALL=cuda12 npm rebuild onnxruntime-node).",
    );
  }
  return sentences;
}
