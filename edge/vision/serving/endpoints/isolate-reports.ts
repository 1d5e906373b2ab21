// What isolates told a meter of themselves: which of their reports came already, and what they have
// under way.

import { MINUTE } from "../../../../shared/time.ts";
import type { MeterReport } from "./meter.ts";

/** Requests of an isolate that was not heard of for so long have no answer any more. */
const SILENT_MS_MAX = 5 * MINUTE;
/** How long a report is known, so that a second one of its number counts nothing. */
const KNOWN_MS = MINUTE;

/** What an isolate told last. */
interface Isolate {
  number: number;
  running: number;
  at: number;
}

/** The isolates that a meter heard of of late. */
export class IsolateReports {
  readonly #isolates = new Map<string, Isolate>();
  /** When each report came that is known, in this order. */
  readonly #known = new Map<string, number>();

  /** Takes a report; false where it came before. */
  take({ isolate, number, running }: MeterReport, now: number): boolean {
    const name = `${isolate} ${number}`;
    if (this.#known.has(name)) return false;
    for (const [known, at] of this.#known) {
      if (at >= now - KNOWN_MS) break;
      this.#known.delete(known);
    }
    this.#known.set(name, now);
    // A report that was overtaken knows less of what is under way.
    const before = this.#isolates.get(isolate);
    if (!before || before.number < number)
      this.#isolates.set(isolate, { number, running, at: now });
    return true;
  }

  /** Requests that are under way. */
  get running(): number {
    return [...this.#isolates.values()].reduce((sum, { running }) => sum + running, 0);
  }

  /** Lets go of isolates that fell silent: the requests of each, and when it was last heard of. */
  lost(now: number): { running: number; at: number }[] {
    const silent = [...this.#isolates].filter(([, { at }]) => at < now - SILENT_MS_MAX);
    for (const [isolate] of silent) this.#isolates.delete(isolate);
    return silent.map(([, { running, at }]) => ({ running, at }));
  }
}
