// Runs by hand in tests that go by the real clock, whose newest partition may not be published yet.

import type { TestContext } from "vitest";
import type { Operator } from "../../edge/local/operator.ts";
import type { Run } from "../../shared/wire/markets.ts";

const POLL_MS = 200;

/** Launches a run and follows it to its end, or until it waits: then it is canceled. */
export async function attemptRun(operator: Operator, job: string): Promise<Run> {
  const runId = await operator.launch(job);
  for (;;) {
    const run = await operator.run(runId);
    if (run.state === "waiting") await operator.cancelRun(runId);
    if (run.state !== "queued" && run.state !== "running") return run;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** The same, but a test whose run would have to wait is skipped: its hour is not the provider's. */
export async function launchOrSkip(
  operator: Operator,
  job: string,
  { skip }: TestContext,
): Promise<Run> {
  const run = await attemptRun(operator, job);
  if (run.state === "waiting") skip(run.error_detail ?? undefined);
  return run;
}
