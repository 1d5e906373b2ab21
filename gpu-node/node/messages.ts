// What the supervisor and its child processes say to each other.

import type { Series } from "../../shared/tally.ts";
import type { Outcome, TaskReport, WriteAddress } from "../../shared/tasks/node-protocol.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import type { Tools } from "../media/ffmpeg.ts";
import type { ObjectName } from "../objects/transfer.ts";
import type { EncodedReply } from "../serving/direct.ts";
import type { OpenModels } from "../serving/predictors.ts";

/** Everything a child needs; it reads no environment of its own. */
export interface ChildSettings {
  cacheDir: string;
  cacheBytesMax: number;
  modelsDir: string;
  /** What open models may take of the process's memory, or of the GPU's. */
  modelsBytesMax: number;
  /** Folder of what trainings keep: datasets as pixels, and a folder for each run. */
  trainingDir: string;
  cpuThreads: number;
  /** What trainings run on. */
  device: "cpu" | "cuda";
  /** What models are opened on: onnxruntime may lack what it needs for the GPU. */
  modelDevice: "cpu" | "cuda";
  tools: Tools | null;
}

export type ToChild =
  | { type: "settings"; settings: ChildSettings }
  | { type: "task"; taskId: string; kind: string; payload: Record<string, unknown> }
  /** Stop soon and keep what is done. */
  | { type: "cancel"; taskId: string }
  /** Put the work aside, so that another attempt goes on with it: the node drains. */
  | { type: "pause"; taskId: string }
  | { type: "reply"; id: number; reply: ObjectReply }
  /** A request of the direct line, with the milliseconds that are left for it. */
  | { type: "ask"; id: number; body: Uint8Array; ms: number }
  /** Nobody waits for that request's answer any more. */
  | { type: "drop"; id: number };

/** What a task asks of the service while it works: where to write an object, or to read one. */
export type ObjectRequest =
  | { what: "target"; written: ObjectName; bytes: number; md5: string }
  | { what: "source"; key: string };

/** `problem`: why there is no object, in words for people. */
export type ObjectReply = { object: WriteAddress | ObjectSource } | { problem: string };

export type FromChild =
  | { type: "ready" }
  /** What is open in it now, its models with their sizes, and what they take, estimated. */
  | { type: "loaded"; models: string[]; sizes: OpenModels["sizes"]; bytes: number }
  | { type: "progress"; taskId: string; progress: TaskReport }
  | { type: "request"; taskId: string; id: number; request: ObjectRequest }
  | { type: "outcome"; taskId: string; outcome: Outcome }
  | { type: "answer"; id: number; answer: EncodedReply | null }
  /** What it counted since it last said so. */
  | { type: "counts"; series: Series[] };
