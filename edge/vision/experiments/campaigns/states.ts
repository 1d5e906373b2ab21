// Which state of an experiment may follow which. An experiment that ended stays as it ended.

import type { ExperimentState } from "./records.ts";

/** Where each move may begin, and where it leads. */
export const MOVES = {
  pause: { from: ["running"], to: "paused" },
  resume: { from: ["paused"], to: "running" },
  complete: { from: ["running", "paused"], to: "completed" },
  stop: { from: ["running", "paused"], to: "stopped" },
} as const satisfies Record<string, { from: readonly ExperimentState[]; to: ExperimentState }>;
export type ExperimentMove = keyof typeof MOVES;

/** Whether a move may begin in a state. */
export const mayMove = (move: ExperimentMove, state: ExperimentState): boolean =>
  MOVES[move].from.some((from) => from === state);

/** Whether a state is an end. */
export const hasEnded = (state: ExperimentState): boolean =>
  state === "completed" || state === "stopped";
