// What any task gets to work with: the store by way of the cache, its progress, the signals that
// end it, and the service's answers. Rooms to the right add what only their tasks need.

import type { TargetType, TaskProgress } from "../../shared/node-protocol.ts";
import type { ObjectSource, ObjectTarget } from "../../shared/tasks.ts";
import type { Log } from "../base/log.ts";
import type { Cache } from "./cache.ts";

export interface TaskContext {
  cache: Cache;
  /**
   * Reports how far the task is. Reports that come too often are left out, but never the last
   * one (`done` equals `total`), nor one that is `must`.
   */
  progress(progress: TaskProgress, must?: boolean): void;
  /** Aborts when the task has to stop soon and keep what is done. */
  cancel: AbortSignal;
  /**
   * Aborts when the task has to put its work aside for another attempt: it fails with `TaskPause`.
   */
  pause: AbortSignal;
  /** Where the task writes an object for which its payload has no target; a new key each time. */
  target(name: string, contentType: TargetType): Promise<ObjectTarget>;
  /** An object of the payload under a new address: the first one runs out after 12 hours. */
  source(key: string): Promise<ObjectSource>;
  machine: Machine;
  log: Log;
}

/** What a task that trains or predicts computes with. */
export interface Machine {
  device: "cpu" | "cuda";
  cpuThreads: number;
  /** Folder of what trainings keep on this node. */
  trainingDir: string;
}

/** The work was put aside, and what another attempt needs to go on was handed in. */
export class TaskPause extends Error {
  override readonly name = "TaskPause";
}
