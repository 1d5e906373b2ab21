// How the claiming hears that there may be something to claim, and how who called hears what the
// claim came to.

import type { WorkAnswer } from "../../shared/tasks/node-protocol.ts";
import { pause } from "../objects/transfer.ts";

export type CallOutcome = WorkAnswer["outcome"];

/** Who waits for what a claim comes to, for a task of a kind. */
interface Caller {
  kind: string;
  resolve: (outcome: CallOutcome) => void;
}

/** Says that something happened for which the claiming waits. */
export class Wakeup {
  readonly #end: AbortSignal;
  #resolve = () => {};
  /** Whom the next claim answers, and whom the present one does. */
  #callers: Caller[] = [];
  #answering: Caller[] = [];

  /** No rest goes on once `end` is aborted. */
  constructor(end: AbortSignal) {
    this.#end = end;
  }

  /** Begins a claim; resolves at the next wake. One promise at a time. */
  next(): Promise<void> {
    this.#answering.push(...this.#callers.splice(0));
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#resolve = resolve;
    return promise;
  }

  wake() {
    this.#resolve();
  }

  /** Wakes, and resolves with what the claim that follows came to for a task of the kind. */
  call(kind: string): Promise<CallOutcome> {
    return new Promise((resolve) => {
      this.#callers.push({ kind, resolve });
      this.wake();
    });
  }

  /** Tells who called before the present claim what it came to for their kind. */
  answer(outcomeOf: (kind: string) => CallOutcome) {
    for (const { kind, resolve } of this.#answering.splice(0)) resolve(outcomeOf(kind));
  }

  /** Resolves after so long, or earlier at a wake or at the end. */
  async rest(woken: Promise<void>, milliseconds: number): Promise<void> {
    const stop = new AbortController();
    const over = pause(milliseconds, AbortSignal.any([stop.signal, this.#end]));
    await Promise.race([woken, over.catch(() => {})]).finally(() => stop.abort());
  }
}
