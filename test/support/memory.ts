// Memory of the workerd that this process started, as the kernel counts it.

import { readFileSync } from "node:fs";

const SAMPLE_MS = 25;

export function workerdPid(): string {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").trim();
  const found = children.split(" ").filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("workerd\0serve");
    } catch {
      return false;
    }
  });
  if (found.length !== 1) throw new Error(`${found.length} workerd processes, not one`);
  return found[0] as string;
}

/** Resident bytes of it now. */
export function workerdBytes(pid = workerdPid()): number {
  const [, kilobytes] = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}

/** By how many bytes it grew at most, from where it was before, while `work` ran. */
export async function peakGrowth(work: () => Promise<void>): Promise<number> {
  const pid = workerdPid();
  const idle = workerdBytes(pid);
  let peak = idle;
  const sampling = setInterval(() => {
    peak = Math.max(peak, workerdBytes(pid));
  }, SAMPLE_MS);
  try {
    await work();
  } finally {
    clearInterval(sampling);
  }
  return Math.max(peak, workerdBytes(pid)) - idle;
}
