// The life of a labeling job, as a table.

import type { Job } from "../../../../shared/wire/labeling.ts";
import type { MoveRule } from "../../auth/logged-moves.ts";

export type JobState = Job["status"];

/** From where each move may be made, and to where it leads. */
export const MOVES = {
  /** A node took the first task. */
  begin: { from: ["queued"], to: "running" },
  /** Every task ended well. */
  complete: { from: ["queued", "running"], to: "completed" },
  /** Every task ended, and one of them badly; or an administrator said so. */
  fail: { from: ["queued", "running"], to: "failed" },
  /** Somebody asked for it, and every task ended. */
  stop: { from: ["queued", "running"], to: "stopped" },
  /** The frames that are not labeled yet. */
  resume: { from: ["stopped", "failed"], to: "queued" },
  /** One class more, over all frames. */
  extend: { from: ["completed"], to: "queued" },
} as const satisfies Record<string, MoveRule<JobState>>;

export type Move = keyof typeof MOVES;
