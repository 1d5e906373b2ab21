// The life of a training run, as a table.

import type { TrainingRun } from "../../../../shared/wire/training.ts";
import type { MoveRule } from "../../auth/logged-moves.ts";

export type RunState = TrainingRun["status"];

/** From where each move may be made, and to where it leads. */
export const MOVES = {
  /** A node took the run's task. */
  begin: { from: ["queued"], to: "running" },
  /** The training finished, and its model is in the registry. */
  complete: { from: ["running"], to: "completed" },
  /** It could not be done; or an administrator said so. */
  fail: { from: ["queued", "running"], to: "failed" },
  /** Somebody asked for it; what was trained until then is in the registry. */
  stop: { from: ["queued", "running"], to: "stopped" },
  /** From its last checkpoint, or from the beginning where there is none. */
  resume: { from: ["stopped", "failed"], to: "queued" },
} as const satisfies Record<string, MoveRule<RunState>>;

export type Move = keyof typeof MOVES;

/** Whether a run of this state is over: no task of it waits or runs. */
export const hasEnded = (state: RunState): boolean => state !== "queued" && state !== "running";
