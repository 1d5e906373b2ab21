// How an experiment ends by itself.

import { DAY, parseInstant } from "../../../../shared/time.ts";
import type { ExperimentRow } from "./experiments.ts";
import type { ExperimentReason, ExperimentResults } from "./records.ts";

/** Frames that an experiment looks at: each counts by itself, in its order. */
export const FRAMES_MAX = 10_000;

/** Whether an experiment has had all its days. */
export const isOver = (
  { rules, createdAt }: Pick<ExperimentRow, "rules" | "createdAt">,
  now: number,
): boolean => now - (parseInstant(createdAt) ?? now) >= rules.budget.days * DAY;

/** How an experiment ends by what a look found; null where it goes on. */
export function endOf(
  row: Pick<ExperimentRow, "jobId" | "rules" | "createdAt">,
  results: ExperimentResults,
  now: number,
): { move: "stop" | "complete"; reason: ExperimentReason } | null {
  const { guard_rails, budget, stop_when_decided } = row.rules;
  if (guard_rails.action === "stop" && results.guard_rails.some(({ broken }) => broken)) {
    return { move: "stop", reason: "guard_rail" };
  }
  if (stop_when_decided && results.verdict !== "undecided") {
    return { move: "complete", reason: "decided" };
  }
  const samplesMax = row.jobId === null ? budget.samples : (budget.samples ?? FRAMES_MAX);
  const isSpent = samplesMax !== null && results.samples >= samplesMax;
  return isSpent || isOver(row, now) ? { move: "complete", reason: "budget" } : null;
}
