// What the processes of a stack hold at a moment and how large its logs are; how that went on.

import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** A moment of the stack. */
export interface Sample {
  /** Since the start. */
  minute: number;
  /** Frames labeled so far. */
  frames: number;
  /** MB held by each kind of process. */
  memory: Record<string, number>;
  /** Bytes of each log with those set aside. */
  logs: Record<string, number>;
}

/** Looks at the processes below one, and at a folder of logs. */
export function sampleOf(
  pid: number,
  logsDir: string,
  { minute, frames }: Pick<Sample, "minute" | "frames">,
): Sample {
  const memory: Record<string, number> = {};
  for (const one of descendants(pid)) {
    const name = nameOf(one);
    if (name) memory[name] = Math.round((memory[name] ?? 0) + megabytes(one));
  }
  const logs: Record<string, number> = {};
  for (const file of readdirSync(logsDir)) {
    const name = file.replace(/\.\d+$/, "");
    logs[name] = (logs[name] ?? 0) + statSync(join(logsDir, file)).size;
  }
  return { minute: Math.round(minute * 100) / 100, frames, memory, logs };
}

/** Processes of a kind below one. */
export const processesOf = (pid: number, name: string): number[] =>
  descendants(pid).filter((one) => nameOf(one) === name);

export function descendants(pid: number): number[] {
  const below = read(`/proc/${pid}/task/${pid}/children`).trim().split(" ").filter(Boolean);
  // A process of many threads starts its children from any of them.
  const threads = list(`/proc/${pid}/task`).filter((thread) => thread !== String(pid));
  const more = threads.flatMap((thread) =>
    read(`/proc/${pid}/task/${thread}/children`).trim().split(" ").filter(Boolean),
  );
  return [pid, ...[...below, ...more].flatMap((child) => descendants(Number(child)))];
}

const NAMES: readonly [RegExp, string][] = [
  [/workerd serve/, "workerd"],
  [/postgres/, "Postgres, all"],
  [/esbuild/, "esbuild"],
  [/ffmpeg|ffprobe/, "ffmpeg"],
  [/child-main/, "node's children"],
  [/gpu-node\/main/, "node"],
  [/bootstrap/, "bootstrap"],
  [/start\.ts/, "stack"],
];

export function nameOf(pid: number): string {
  const command = read(`/proc/${pid}/cmdline`).replaceAll("\0", " ");
  return NAMES.find(([pattern]) => pattern.test(command))?.[1] ?? command.slice(0, 60);
}

/** Proportional, so that what Postgres's processes share counts once. */
function megabytes(pid: number): number {
  const kilobytes = /^Pss: +(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1];
  return Number(kilobytes ?? 0) / 1024;
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // It has ended since.
    return "";
  }
}

function list(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/** By how much a value grows a minute: the line of least squares. */
function slope(points: readonly { x: number; y: number }[]): number {
  const mean = (of: "x" | "y") => points.reduce((sum, point) => sum + point[of], 0) / points.length;
  const [x, y] = [mean("x"), mean("y")];
  const above = points.reduce((sum, point) => sum + (point.x - x) * (point.y - y), 0);
  const below = points.reduce((sum, point) => sum + (point.x - x) ** 2, 0);
  return below === 0 ? 0 : above / below;
}

/** What a run has to tell. */
interface Run {
  say: (line: string) => void;
  minutes: number;
  /** Milliseconds that each thing took, by its name. */
  waits: ReadonlyMap<string, readonly number[]>;
  samples: readonly Sample[];
}

/** Tells how long each thing took, what memory and logs grew by, and how the labeling went on. */
export function printReport({ say, minutes, waits, samples }: Run): void {
  const row = (...cells: (string | number)[]) => say(`| ${cells.join(" | ")} |`);
  const at = (sorted: readonly number[], share: number) =>
    ((sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0) / 1_000).toFixed(
      2,
    );
  say("\n| What | Times | p50, s | p95, s | longest, s |\n|---|---|---|---|---|");
  for (const [name, of] of [...waits].sort()) {
    const sorted = of.toSorted((a, b) => a - b);
    row(name, sorted.length, at(sorted, 0.5), at(sorted, 0.95), at(sorted, 1));
  }
  const near = (minute: number) =>
    samples.toSorted((a, b) => Math.abs(a.minute - minute) - Math.abs(b.minute - minute))[0];
  const moments = [minutes / 6, minutes / 2, minutes].map(near);
  const late = samples.filter(({ minute }) => minute >= minutes / 3);
  /** What is there at those moments, and how it grows in the last two thirds. */
  function told(of: "memory" | "logs", unit: number) {
    for (const name of [...new Set(samples.flatMap((one) => Object.keys(one[of])))].sort()) {
      const cells = moments.map((one) => ((one?.[of][name] ?? 0) / unit).toFixed(0));
      const points = late.map((one) => ({ x: one.minute, y: (one[of][name] ?? 0) / unit }));
      row(name, ...cells, slope(points).toFixed(2));
    }
  }
  const heads = moments.map((one) => `minute ${one?.minute.toFixed(0)}`);
  row("Memory, MB; logs, kB", ...heads, "a minute");
  row("---", ...heads.map(() => "---"), "---");
  told("memory", 1);
  told("logs", 1_000);
  row("frames labeled", ...moments.map((one) => one?.frames ?? 0), "");
  const idle = samples.slice(1).filter((one, index) => one.frames === samples[index]?.frames);
  say(
    `\nHalf minutes without a labeled frame: ${idle.map(({ minute }) => minute).join(", ") || "none"}`,
  );
}
