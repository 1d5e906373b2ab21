// News of tasks for the rooms that asked for them. An outcome is handed over at once, and again by
// the minute cron until its room took it; so a handler may be called twice and must not mind.

import { sql } from "drizzle-orm";
import { nodeCode } from "../../../../db/vision/schema.ts";
import type { TaskProgress } from "../../../../shared/tasks/node-protocol.ts";
import type { TaskKind } from "../../../../shared/tasks/tasks.ts";
import type { Parts } from "../../base/parts.ts";
import { keep } from "../../base/retention.ts";
import { listUntaken, markTaken, rescue, type Task, type TaskHead } from "./queue.ts";
import { hasEnded } from "./states.ts";

/** What a room does with news of one kind of task. */
export interface TaskHandlers {
  /**
   * Checks a result, which has the kind's shape, against its task, and seals what the node wrote
   * for it; says what is wrong, in words for people, or null. Called while the task is still the
   * node's: a result that is refused fails the attempt. `partial` is what a canceled task did, or
   * what one that runs did since its last report; the latter, refused, fails nothing.
   */
  seal?(
    parts: Parts,
    task: Task,
    { result, partial }: { result: Record<string, unknown>; partial: boolean },
  ): Promise<string | null>;
  /**
   * Stores a part of a running task's result, which `seal` took. The whole result says it again,
   * and so may the next attempt's parts: what is stored stays as it is.
   */
  partDone?(parts: Parts, task: Task, part: Record<string, unknown>): Promise<void>;
  /** The task ended, however: see its `state`. Must be idempotent. */
  ended?(parts: Parts, task: Task): Promise<void>;
  /** The task came further. What it throws is logged and forgotten. */
  progressed?(parts: Parts, task: TaskHead, progress: TaskProgress): Promise<void>;
}

/** The outcome of a kind without handlers counts as taken when it ends. */
export type HandlersByKind = Partial<Record<TaskKind, TaskHandlers>>;

/** An outcome that was not taken so long after its task's end is handed over by the cron. */
const TAKE_AFTER_SECONDS = 30;
const TAKE_MAX = 200;
/** Days that a large result stays for whoever asks about its task; the room has taken its own. */
const RESULT_DAYS = 1;
/** A result is large from so many characters; what a room leaves of one is smaller, and stays. */
const LARGE_RESULT_CHARACTERS = 2_000;
/** Codes with which nodes introduce themselves are kept for a week after they expired. */
export const KEPT_CODES = keep(nodeCode, "expiresAt", { days: 7 });

/** Hands ended tasks to their rooms; what a room refuses is left for the cron. */
export async function deliverEnded(
  parts: Parts,
  handlers: HandlersByKind,
  tasks: readonly Task[],
): Promise<void> {
  const taken: string[] = [];
  for (const task of tasks.filter(({ state }) => hasEnded(state))) {
    try {
      await handlers[task.kind]?.ended?.(parts, task);
      taken.push(task.taskId);
    } catch (error) {
      parts.log.error("task_not_settled", { task_id: task.taskId, kind: task.kind, error });
    }
  }
  if (taken.length > 0) await markTaken(parts.database, taken);
}

/** Tells a task's room how far it is. Progress is for show, so its failures are logged only. */
export async function tellProgress(
  parts: Parts,
  handlers: HandlersByKind,
  task: TaskHead,
  progress: TaskProgress,
): Promise<void> {
  try {
    await handlers[task.kind]?.progressed?.(parts, task, progress);
  } catch (error) {
    parts.log.warning("progress_not_told", { task_id: task.taskId, kind: task.kind, error });
  }
}

/** The minute's duties: rescue, hand over what was left, and sweep what is past its time. */
export async function minuteTasks(parts: Parts, handlers: HandlersByKind): Promise<void> {
  const rescued = await rescue(parts.database);
  if (rescued.length > 0) {
    const states = rescued.map(({ taskId, state }) => ({ task_id: taskId, state }));
    parts.log.warning("tasks_rescued", { count: rescued.length, tasks: states.slice(0, 20) });
  }
  await deliverEnded(parts, handlers, rescued);
  const left = { olderThanSeconds: TAKE_AFTER_SECONDS, limit: TAKE_MAX };
  await deliverEnded(parts, handlers, await listUntaken(parts.database, left));
  await sweep(parts);
}

async function sweep({ database }: Parts): Promise<void> {
  await database.execute(sql`
    UPDATE task SET result = NULL WHERE id IN (
      SELECT id FROM task WHERE settled_at < now() - ${RESULT_DAYS}::int * interval '1 day' AND result IS NOT NULL
         AND length(result::text) > ${LARGE_RESULT_CHARACTERS}::int
       ORDER BY settled_at LIMIT 500)`);
}
