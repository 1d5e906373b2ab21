// Which state of an experiment may follow which. An experiment that ended stays as it ended.

import type { MoveRule } from "../../auth/logged-moves.ts";
import type { ExperimentState } from "./records.ts";

/** Where each move may begin, and where it leads. */
export const MOVES = {
  pause: { from: ["running"], to: "paused" },
  resume: { from: ["paused"], to: "running" },
  complete: { from: ["running", "paused"], to: "completed" },
  stop: { from: ["running", "paused"], to: "stopped" },
} as const satisfies Record<string, MoveRule<ExperimentState>>;
export type ExperimentMove = keyof typeof MOVES;

/** Whether a state is an end. */
export const hasEnded = (state: ExperimentState): boolean =>
  state === "completed" || state === "stopped";
