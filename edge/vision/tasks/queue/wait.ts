// Work that somebody waits for: a task of one attempt, claimed before all others, and its result.

import { Failure } from "../../../../shared/errors.ts";
import type { TaskKind, TaskResult } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { ring } from "../nodes/bell.ts";
import { offeringNodes } from "../nodes/nodes.ts";
import { requestCancel } from "./interventions.ts";
import { enqueue, findTask, type NewTask, type Task, taskOutcome } from "./queue.ts";

const TIMEOUT_MS = 60_000;
const POLL_MS = 20;
const POLL_MS_MAX = 250;

type WaitParts = Pick<Parts, "database" | "doorbell" | "log" | "clock">;

/** Enqueues tasks and wakes the nodes. */
export async function submit(
  parts: Pick<Parts, "database" | "doorbell" | "log">,
  tasks: readonly NewTask[],
): Promise<{ taskId: string; created: boolean }[]> {
  const enqueued = await enqueue(parts.database, tasks);
  const created = tasks.filter((_, index) => enqueued[index]?.created);
  if (created.length > 0) await ring(parts, created);
  return enqueued;
}

/** How long is waited for a task, in milliseconds. */
interface Patience {
  /** For its end. */
  timeoutMs?: number;
  /** For a node that takes it; as long as for its end when omitted. */
  takenMs?: number | undefined;
}

/**
 * Has a node do a task now and returns its result. Fails with `no_node` when no live node offers
 * the kind or none took it in time, and with `task_failed` in the node's own words.
 */
export async function runNow<Kind extends TaskKind>(
  parts: WaitParts,
  task: Extract<NewTask, { kind: Kind }>,
  { timeoutMs = TIMEOUT_MS, takenMs = timeoutMs }: Patience = {},
): Promise<TaskResult<Kind>> {
  if ((await offeringNodes(parts.database, task)) === 0) {
    throw new Failure("no_node", `no GPU node that does ${task.kind} is there`);
  }
  const once = { attemptsMax: 1, ...task };
  const [enqueued] = await submit(parts, [once as NewTask]);
  const taskId = enqueued?.taskId as string;
  const began = parts.clock();
  let ended = await waitFor(parts, taskId, began + Math.min(takenMs, timeoutMs));
  if (!ended && takenMs < timeoutMs) {
    const { attempt } = (await findTask(parts.database, taskId)) as Task;
    if (attempt === 0) return giveUp(parts, taskId, { takenMs });
    ended = await waitFor(parts, taskId, began + timeoutMs);
  }
  if (!ended) return giveUp(parts, taskId, { timeoutMs });
  return resultOf<Kind>(ended);
}

/** Waits until a task ended, or until an instant; null then. */
export function waitFor(
  { database, clock }: WaitParts,
  taskId: string,
  until: number,
): Promise<Task | null> {
  return answerOf(() => taskOutcome(database, taskId), { clock, until });
}

/**
 * Asks ever more seldom until there is an answer, or until an instant; null then. `pauseMsMax` is
 * the longest pause between two questions.
 */
export async function answerOf<Answer>(
  ask: () => Promise<Answer | null>,
  {
    clock,
    until,
    pauseMsMax = POLL_MS_MAX,
  }: Pick<Parts, "clock"> & { until: number; pauseMsMax?: number },
): Promise<Answer | null> {
  for (let pause = POLL_MS; ; pause = Math.min(pause * 1.5, pauseMsMax)) {
    const answer = await ask();
    if (answer !== null || clock() >= until) return answer;
    await new Promise<void>((done) => setTimeout(done, pause));
  }
}

/** Nobody waits any longer: a queued task is dropped, a running one told to stop. */
async function giveUp<Kind extends TaskKind>(
  { database }: WaitParts,
  taskId: string,
  waited: { timeoutMs: number } | { takenMs: number },
): Promise<TaskResult<Kind>> {
  const [task] = await requestCancel(database, { taskIds: [taskId] });
  // It ended between the last look and the cancel.
  if (!task) return resultOf<Kind>((await taskOutcome(database, taskId)) as Task);
  const isLate = "takenMs" in waited;
  const within = `within ${(isLate ? waited.takenMs : waited.timeoutMs) / 1000} s`;
  if (isLate || task.attempt === 0) {
    throw new Failure("no_node", `no GPU node took the task ${within}`);
  }
  throw new Failure("task_failed", `the GPU node did not finish ${within}`);
}

/** What a task that ended came to; fails with `task_failed` in the node's own words. */
export function resultOf<Kind extends TaskKind>(task: Task): TaskResult<Kind> {
  if (task.state === "finished") return task.result as TaskResult<Kind>;
  const last = task.errors.at(-1);
  throw new Failure("task_failed", last?.detail ?? `the task was ${task.state}`, {
    data: { task_id: task.taskId, ...(last ? { node_code: last.code } : {}) },
  });
}
