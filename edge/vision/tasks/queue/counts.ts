// What the queue's verbs count, for `/metrics`: each where its statement changed rows, so that
// whoever calls it is counted.

import { isTaskKind, type TaskKind } from "../../../../shared/tasks/tasks.ts";
import { tally } from "../../base/tally.ts";
import { hasEnded, type OutcomeName, type TaskState } from "./states.ts";

/** What is counted of a task. */
interface CountedTask {
  kind: string;
  state: TaskState;
}

/** Kinds of other releases are one. */
const kindOf = ({ kind }: { kind: string }): TaskKind | "other" =>
  isTaskKind(kind) ? kind : "other";

/** Counts tasks that were put on the queue. */
export function countEnqueued(tasks: readonly { kind: string }[]): void {
  for (const task of tasks) {
    tally.count("vantage_vision_tasks_enqueued_total", { kind: kindOf(task) });
  }
}

/** Counts a claim that got a task. */
export const countClaimed = (task: { kind: string }): void =>
  tally.count("vantage_vision_tasks_claimed_total", { kind: kindOf(task) });

/** Counts tasks of these that are over. */
export function countEnded(tasks: readonly CountedTask[]): void {
  for (const task of tasks) {
    if (!hasEnded(task.state)) continue;
    const labels = { kind: kindOf(task), state: task.state };
    tally.count("vantage_vision_tasks_ended_total", labels);
  }
}

/** Counts what an attempt came to, by the task after it. */
export function countAttempt(task: CountedTask, came: OutcomeName | "lease_lost"): void {
  const kind = kindOf(task);
  if (came === "lease_lost") tally.count("vantage_vision_leases_lost_total", { kind });
  if (hasEnded(task.state)) countEnded([task]);
  else tally.count("vantage_vision_tasks_requeued_total", { kind, reason: came });
}
