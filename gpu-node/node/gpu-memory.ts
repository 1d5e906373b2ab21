// What the GPUs' memory is taken up with, as the driver tells it.

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const MIB = 1024 ** 2;
const TIMEOUT_MS = 3_000;

/** A GPU's memory, by all processes that use it. */
export interface GpuMemory {
  /** As the driver numbers it. */
  index: string;
  usedBytes: number;
  totalBytes: number;
}

/** The memory of every GPU; empty where the driver does not tell. */
export async function readGpuMemory(
  environment: Readonly<Record<string, string>>,
): Promise<GpuMemory[]> {
  const query = ["--query-gpu=index,memory.used,memory.total", "--format=csv,noheader,nounits"];
  try {
    const { stdout } = await promisify(execFile)("nvidia-smi", query, {
      timeout: TIMEOUT_MS,
      env: environment,
    });
    return parseGpuMemory(stdout);
  } catch {
    return [];
  }
}

/** The rows that `nvidia-smi` prints, in MiB; those that name no numbers are left out. */
export const parseGpuMemory = (text: string): GpuMemory[] =>
  text.split("\n").flatMap((row) => {
    const [, index = "", used = "", total = ""] = /^(\d+), *(\d+), *(\d+) *$/.exec(row) ?? [];
    if (index === "") return [];
    return [{ index, usedBytes: Number(used) * MIB, totalBytes: Number(total) * MIB }];
  });
