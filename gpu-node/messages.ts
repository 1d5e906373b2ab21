// What the supervisor and its child processes say to each other.

import type { Outcome, TaskProgress } from "../shared/tasks.ts";
import type { Tools } from "./ffmpeg.ts";

/** Everything a child needs; it reads no environment of its own. */
export interface ChildSettings {
  cacheDir: string;
  cacheBytesMax: number;
  modelsDir: string;
  cpuThreads: number;
  device: "cpu" | "cuda";
  tools: Tools | null;
}

export type ToChild =
  | { type: "settings"; settings: ChildSettings }
  | { type: "task"; taskId: string; kind: string; payload: Record<string, unknown> }
  /** Stop soon and keep what is done. */
  | { type: "cancel" };

export type FromChild =
  | { type: "ready" }
  | { type: "progress"; taskId: string; progress: TaskProgress }
  | { type: "outcome"; taskId: string; outcome: Outcome };
