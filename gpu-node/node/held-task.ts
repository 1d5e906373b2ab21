// A task that this node holds, from its claim to the answer to its report, and what is to be done
// with it. Pure: each move gives the next state and the actions that it takes.

import type {
  ClaimedTask,
  Outcome,
  TaskProgress,
  Verdict,
} from "../../shared/tasks/node-protocol.ts";

/** Names a task at a claim; each write carries the claim's fence. */
export interface Lease {
  taskId: string;
  fence: number;
}

/** What is wanted of a task: by the service, or `snooze` by this node, which drains. */
export type Demand = Verdict | "snooze";

/** From the weakest: only a stronger demand replaces one before it. */
const DEMANDS: readonly Demand[] = ["go_on", "cancel", "snooze", "revoke", "lost"];

/** Whether a demand is stronger than another. */
const isStronger = (one: Demand, other: Demand): boolean =>
  DEMANDS.indexOf(one) > DEMANDS.indexOf(other);

/** Whether what is demanded is that the task's process is gone. */
export const demandsExit = (demand: Demand): boolean => isStronger(demand, "cancel");

/** How a task left its slot. `ended`: its process was told to end and is gone. */
export type AttemptEnd = { how: "outcome"; outcome: Outcome } | { how: "ended" };

export interface HeldTask {
  readonly task: ClaimedTask;
  /** Epoch milliseconds of its claim. */
  readonly since: number;
  /** `reporting`: it ended here, and the service is not known to have its outcome yet. */
  phase: "working" | "reporting";
  /** The strongest demand so far. */
  demand: Demand;
  /** Epoch milliseconds of its newest progress, or of its claim. */
  lastSignAt: number;
  /** It was ended because it showed no sign of life. */
  stalled: boolean;
  progress: TaskProgress | null;
}

/** A task as it was claimed. */
export const claimedTask = (task: ClaimedTask, now: number): HeldTask => ({
  task,
  since: now,
  phase: "working",
  demand: "go_on",
  lastSignAt: now,
  stalled: false,
  progress: null,
});

/**
 * What a demand makes the supervisor do: ask the task to stop, end its process (which gets a moment
 * to clean up), kill it, or let nobody wait for the task's outcome any longer.
 */
export type Action = "cancel" | "end" | "kill" | "abandon";

const ACTIONS: Readonly<Record<Demand, readonly Action[]>> = {
  go_on: [],
  cancel: ["cancel"],
  snooze: ["end"],
  revoke: ["end"],
  lost: ["abandon", "kill"],
};

/** Takes in a demand; gives the actions that it takes now. */
export function demandOf(held: HeldTask, demand: Demand): readonly Action[] {
  if (held.phase === "reporting") {
    // A task that was reported is lost, too, to whoever claimed it since.
    return demand === "lost" ? ["abandon"] : [];
  }
  if (!isStronger(demand, held.demand)) return [];
  held.demand = demand;
  return ACTIONS[demand];
}

/** Whether a task showed no sign of life for too long; a second time it is not. */
export const isStalled = (held: HeldTask, now: number, stallMs: number): boolean =>
  held.phase === "working" && !held.stalled && now - held.lastSignAt >= stallMs;

const STALLED: Outcome = {
  outcome: "failed",
  code: "node_stalled",
  detail: "the task showed no sign of life for too long and was ended",
  retryable: true,
};

/** What is reported of a task that left its slot; null is nothing. */
export function reportOf(
  { stalled, demand }: Pick<HeldTask, "stalled" | "demand">,
  end: AttemptEnd,
): Outcome | null {
  return stalled && end.how === "ended" ? STALLED : outcomeOf(end, demand);
}

/** What a task came to, by how it left its slot and what was wanted of it; null is nothing. */
export function outcomeOf(end: AttemptEnd, demand: Demand): Outcome | null {
  if (demand === "lost") return null;
  if (demand === "revoke") return { outcome: "revoked", exited: true };
  if (end.how === "outcome") return end.outcome;
  // Its process was ended for the sake of another task in it, or because the node drains.
  if (demand !== "cancel") return { outcome: "snoozed", seconds: 0 };
  return { outcome: "cancelled", result: null };
}

/** What names the task's attempt at the service. */
export const leaseOf = ({ task }: Pick<HeldTask, "task">): Lease => ({
  taskId: task.task_id,
  fence: task.fence,
});
