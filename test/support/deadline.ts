// Ends a run of vitest at the instant that `TEST_UNTIL` names, in milliseconds of the epoch. What
// runs then is given up and skipped, and no other file begins; the file that `TEST_CUT` names is
// told each file that did not run to its end, a line each.

import { appendFileSync } from "node:fs";
import type { Reporter, TestModule, Vitest } from "vitest/node";

/** Cuts a run off, and writes down what was cut. */
export default class DeadlineReporter implements Reporter {
  /** Ended before the deadline. */
  private readonly ended = new Set<string>();
  private isOver = false;

  onInit(vitest: Vitest) {
    const until = Number(process.env.TEST_UNTIL);
    if (!until) return;
    const cut = () => {
      this.isOver = true;
      void vitest.cancelCurrentRun("test-failure");
    };
    setTimeout(cut, Math.max(until - Date.now(), 0)).unref();
  }

  onTestModuleEnd({ moduleId }: TestModule) {
    if (!this.isOver) this.ended.add(moduleId);
  }

  onTestRunEnd(modules: readonly TestModule[]) {
    const path = process.env.TEST_CUT;
    if (!path || !this.isOver) return;
    for (const { moduleId } of modules)
      if (!this.ended.has(moduleId)) appendFileSync(path, `${moduleId}\n`);
  }
}
