// A model's session in a thread of its own, as the rest of the process speaks to it.

import { Worker } from "node:worker_threads";
import type { Device } from "../onnx/runtime.ts";

export interface Opening {
  onnx: Uint8Array;
  cpuThreads: number;
  device: Device;
}

export type ToThread =
  | { type: "run"; id: number; pixels: Float32Array<ArrayBuffer>; shape: readonly number[] }
  | { type: "close" };

export type FromThread =
  | { type: "open" }
  | { type: "refused"; problem: string }
  | { type: "rows"; id: number; values: Float32Array; dims: number[] }
  | { type: "failed"; id: number; problem: string };

/** The first output of a run. */
export interface Rows {
  values: Float32Array;
  dims: number[];
}

interface Waiting {
  resolve(rows: Rows): void;
  reject(reason: Error): void;
}

export class Session {
  readonly #thread: Worker;
  readonly #waiting = new Map<number, Waiting>();
  readonly #gone: Promise<unknown>;
  #runs = 0;
  /** The thread is no more: nothing runs here again. */
  ended = false;

  private constructor(thread: Worker) {
    this.#thread = thread;
    this.#gone = new Promise((resolve) => {
      thread.once("exit", resolve);
    });
    thread.on("message", (message: FromThread) => this.#heard(message));
    thread.once("error", (error) => this.#end(error));
    thread.once("exit", () => this.#end(new Error("the model's thread ended")));
  }

  /** Opens a model; fails with what the runtime says of it. */
  static open(opening: Opening): Promise<Session> {
    const thread = new Worker(new URL("./model-thread-main.ts", import.meta.url), {
      workerData: opening,
    });
    return new Promise((resolve, reject) => {
      thread.once("error", reject);
      thread.once("message", (message: FromThread) => {
        thread.off("error", reject);
        if (message.type === "refused") reject(new Error(message.problem));
        else resolve(new Session(thread));
      });
    });
  }

  /** Runs the model once; the pixels' memory goes over to the thread. */
  run(pixels: Float32Array<ArrayBuffer>, shape: readonly number[]): Promise<Rows> {
    return new Promise((resolve, reject) => {
      if (this.ended) return reject(new Error("the model is closed"));
      const id = ++this.#runs;
      this.#waiting.set(id, { resolve, reject });
      const message: ToThread = { type: "run", id, pixels, shape };
      this.#thread.postMessage(message, [pixels.buffer]);
    });
  }

  /** Lets the runs under way end, then frees everything. */
  async close(): Promise<void> {
    if (!this.ended) this.#thread.postMessage({ type: "close" } satisfies ToThread);
    await this.#gone;
  }

  #heard(message: FromThread) {
    if (message.type !== "rows" && message.type !== "failed") return;
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.type === "rows") waiting?.resolve({ values: message.values, dims: message.dims });
    else waiting?.reject(new Error(message.problem));
  }

  #end(reason: Error) {
    this.ended = true;
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}
