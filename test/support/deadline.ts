// Ends a run of vitest at the instant that `TEST_UNTIL` names, in milliseconds of the epoch. What
// runs then is given up and skipped, and no other file begins; the file that `TEST_CUT` names is
// told each file that did not run to its end, a line each.

import { appendFileSync } from "node:fs";
import type { Reporter, TestModule, Vitest } from "vitest/node";

/** A longer timer ends at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Cuts a run off, and writes down what was cut. */
export default class DeadlineReporter implements Reporter {
  /** Ended before the deadline. */
  private readonly ended = new Set<string>();
  private isOver = false;

  private vitest: Vitest | undefined;
  private timer: NodeJS.Timeout | undefined;

  onInit(vitest: Vitest) {
    this.vitest = vitest;
  }

  // Not before: what is canceled before the run begins is forgotten.
  onTestRunStart() {
    const until = Number(process.env.TEST_UNTIL);
    if (!until) return;
    const ms = Math.min(Math.max(until - Date.now(), 1), TIMER_MS_MAX);
    this.timer = setTimeout(() => this.cut(), ms).unref();
  }

  private cut() {
    this.isOver = true;
    void this.vitest?.cancelCurrentRun("test-failure");
  }

  onTestModuleEnd({ moduleId }: TestModule) {
    if (!this.isOver) this.ended.add(moduleId);
  }

  onTestRunEnd(modules: readonly TestModule[]) {
    clearTimeout(this.timer);
    const path = process.env.TEST_CUT;
    if (!path || !this.isOver) return;
    for (const { moduleId } of modules)
      if (!this.ended.has(moduleId)) appendFileSync(path, `${moduleId}\n`);
  }
}
