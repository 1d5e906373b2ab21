// Errors outside every test, such as a worker's crash, which vitest's JSON report leaves out: a
// line of JSON each in the file that `TEST_UNHANDLED` names.

import { appendFileSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";

/** Writes down what failed outside a test. */
export default class UnhandledErrorsReporter implements Reporter {
  onTestRunEnd(_modules: readonly TestModule[], errors: readonly SerializedError[]) {
    const path = process.env.TEST_UNHANDLED;
    if (!path) return;
    for (const { message, stack } of errors)
      appendFileSync(path, `${JSON.stringify(`outside a test: ${message}\n${stack ?? ""}`)}\n`);
  }
}
