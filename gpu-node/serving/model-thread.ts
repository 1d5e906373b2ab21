// A model's session in a thread of its own, as the rest of the process speaks to it.

import { Worker } from "node:worker_threads";
import type { Device } from "../onnx/runtime.ts";
import type { MaskJob, ToldMasks } from "./prototype-masks.ts";

export interface Opening {
  onnx: Uint8Array;
  cpuThreads: number;
  device: Device;
}

export type ToThread =
  | ({ type: "run"; id: number; pixels: Float32Array<ArrayBuffer> } & RunOptions)
  | { type: "masks"; id: number; job: MaskJob }
  | { type: "close" };

export type FromThread =
  | { type: "open" }
  | { type: "refused"; problem: string }
  | ({ type: "rows"; id: number } & Rows)
  | { type: "masks"; id: number; told: ToldMasks }
  | { type: "failed"; id: number; problem: string };

interface RunOptions {
  shape: readonly number[];
  /** Places in the batch of images whose prototypes are wanted: megabytes each. */
  prototypesOf: readonly number[];
}

/** The first output of a run, and the second one's parts that were asked for, in that order. */
export interface Rows {
  /** What was looked at, for the next run to be written into. */
  pixels: Float32Array<ArrayBuffer>;
  values: Float32Array;
  dims: number[];
  prototypes: Float32Array[];
}

type Answer = Exclude<FromThread, { type: "open" } | { type: "refused" }>;

interface Waiter {
  resolve(answer: Answer): void;
  reject(reason: Error): void;
}

export class Session {
  readonly #thread: Worker;
  readonly #waiting = new Map<number, Waiter>();
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

  /** Runs the model once; the pixels' memory goes over to the thread, and comes with the rows. */
  async run(pixels: Float32Array<ArrayBuffer>, options: RunOptions): Promise<Rows> {
    const answer = await this.#ask(
      (id) => ({ type: "run", id, pixels, ...options }),
      [pixels.buffer],
    );
    if (answer.type !== "rows") throw new Error("the model's thread gave no rows");
    return answer;
  }

  /** Has masks drawn beside the model; its next image waits until they are. */
  async masks(job: MaskJob): Promise<ToldMasks> {
    const answer = await this.#ask((id) => ({ type: "masks", id, job }), []);
    if (answer.type !== "masks") throw new Error("the model's thread gave no masks");
    return answer.told;
  }

  #ask(messageOf: (id: number) => ToThread, transfer: ArrayBuffer[]): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.ended) return reject(new Error("the model is closed"));
      const id = ++this.#runs;
      this.#waiting.set(id, { resolve, reject });
      this.#thread.postMessage(messageOf(id), transfer);
    });
  }

  /** Lets the runs under way end, then frees everything. */
  async close(): Promise<void> {
    if (!this.ended) this.#thread.postMessage({ type: "close" } satisfies ToThread);
    await this.#gone;
  }

  #heard(message: FromThread) {
    if (message.type === "open" || message.type === "refused") return;
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.type === "failed") waiting?.reject(new Error(message.problem));
    else waiting?.resolve(message);
  }

  #end(reason: Error) {
    this.ended = true;
    for (const { reject } of this.#waiting.values()) reject(reason);
    this.#waiting.clear();
  }
}
