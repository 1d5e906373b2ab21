// Which process is which: a number with its start time names one for good, a number alone does not.

import { readdirSync, readFileSync } from "node:fs";

/** When a process started, in clock ticks since boot; null when there is none or it has ended. */
export function startedAt(pid: number): string | null {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ");
    // A process that ended and was not waited for yet is gone.
    return fields?.[0] === "Z" ? null : (fields?.[19] ?? null);
  } catch {
    return null;
  }
}

/** What a process holds in memory, bytes; 0 when there is none. */
export function residentBytes(pid: number): number {
  try {
    const [, kib] = /^VmRSS:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    return Number(kib ?? 0) * 1_024;
  } catch {
    return 0;
  }
}

/** `<pid>-<start>`, for names of files that belong to a process. */
export const ownName = (): string => `${process.pid}-${startedAt(process.pid) ?? "0"}`;

/** Whether the process of an own name lives. */
export function lives(name: string): boolean {
  const [, pid, started] = /^(\d+)-(\d+)$/.exec(name) ?? [];
  if (pid === undefined) return false;
  const now = startedAt(Number(pid));
  return now !== null && (started === "0" || now === started);
}

/** Whether any process of a group lives; one that only waits to be collected does not. */
export function groupLives(group: number): boolean {
  return readdirSync("/proc").some((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ");
      return fields?.[0] !== "Z" && Number(fields?.[2]) === group;
    } catch {
      return false;
    }
  });
}
