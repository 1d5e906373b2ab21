// What any task gets to work with: the store by way of the cache, its progress, the signals that
// end it, and the service's answers. Rooms to the right add what only their tasks need.

import type { TaskReport } from "../../shared/tasks/node-protocol.ts";
import type { Log } from "../base/log.ts";
import type { Cache } from "./cache.ts";
import type { AddressBook } from "./transfer.ts";

export interface TaskContext {
  cache: Cache;
  /**
   * Reports how far the task is. Reports that come too often are left out, but never the last
   * one (`done` equals `total`), nor one that is `must`.
   */
  progress(progress: TaskReport, must?: boolean): void;
  /** Aborts when the task has to stop soon and keep what is done. */
  cancel: AbortSignal;
  /**
   * Aborts when the task has to put its work aside for another attempt: it fails with `TaskPause`.
   */
  pause: AbortSignal;
  /** Where the task writes its objects; see `upload` and `uploadFile`. */
  address: AddressBook;
  machine: Machine;
  log: Log;
}

/** What a task that trains or predicts computes with. */
export interface Machine {
  device: "cpu" | "cuda";
  /** What models are opened on, where that is another. */
  modelDevice?: "cpu" | "cuda";
  cpuThreads: number;
  /** Folder of what trainings keep on this node. */
  trainingDir: string;
  /** Where bundles are installed. */
  modelsDir?: string;
}

/** The work was put aside, and what another attempt needs to go on was handed in. */
export class TaskPause extends Error {
  override readonly name = "TaskPause";
}
