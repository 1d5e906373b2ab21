// Ends the process where a model neither answers nor fails. The runtime computes on the main thread
// and cannot be interrupted, so nothing else of the agent goes on meanwhile, signals included: a
// thread of its own waits, writes down which model it was, and kills. The next start reads that.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { z } from "zod";
import { Turns } from "../base/turns.ts";
import { readIfThere } from "./durable-file.ts";

const Hang = z.object({ version: z.string(), seconds: z.number() });
/** A model that gave no answer, and how long it was waited for. */
export type Hang = z.infer<typeof Hang>;

/** How many times as long opening a model may take as a look of it. */
const OPENING_FACTOR = 10;

/** What the two threads share. */
export interface WatchedMemory {
  /** Where the thread writes a `Hang`. */
  path: string;
  /** One number: how long what is inside may take. */
  seconds: Int32Array;
  /** One number that grows as the runtime is entered and left: odd while it is inside. */
  passages: Int32Array;
  /** Version of the model that is inside, which has 18 digits at most. */
  version: BigInt64Array;
}

/** Watches over everything that the runtime does for a device. */
export class Watchdog {
  readonly #memory: WatchedMemory;
  readonly #seconds: number;
  /** One passage at a time, so that it is known which model does not come back. */
  readonly #turns = new Turns(1);

  /** Looks may take so many seconds, opening a model ten times as long. */
  constructor(dir: string, seconds: number) {
    this.#seconds = seconds;
    this.#memory = {
      path: join(dir, "hang.json"),
      seconds: new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)),
      passages: new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)),
      version: new BigInt64Array(new SharedArrayBuffer(BigInt64Array.BYTES_PER_ELEMENT)),
    };
    const thread = new URL("./hang-watchdog-thread.ts", import.meta.url);
    new Worker(thread, { workerData: this.#memory }).unref();
  }

  /** Has a model look; takes that too long, the process is killed. */
  duringLook<Result>(version: string, work: () => Promise<Result>): Promise<Result> {
    return this.#during(version, this.#seconds, work);
  }

  /** Opens a model; takes that too long, the process is killed. */
  duringOpening<Result>(version: string, work: () => Promise<Result>): Promise<Result> {
    return this.#during(version, OPENING_FACTOR * this.#seconds, work);
  }

  #during<Result>(version: string, seconds: number, work: () => Promise<Result>): Promise<Result> {
    return this.#turns.take(async () => {
      this.#memory.version[0] = BigInt(version);
      this.#memory.seconds[0] = Math.ceil(seconds);
      this.#pass();
      try {
        return await work();
      } finally {
        this.#pass();
      }
    });
  }

  #pass() {
    Atomics.add(this.#memory.passages, 0, 1);
    Atomics.notify(this.#memory.passages, 0);
  }

  /** What a former process of this folder was killed for, until it is forgotten. */
  hang(): Hang | null {
    try {
      return Hang.parse(JSON.parse(readIfThere(this.#memory.path) ?? "null"));
    } catch {
      return null;
    }
  }

  forget(): void {
    rmSync(this.#memory.path, { force: true });
  }
}
