// The task queue as a list in memory: the same verbs as `edge/vision/tasks/queue/queue.ts`, written
// from its tables of moves, with none of its SQL.

import {
  BACKOFF,
  type Circumstance,
  choose,
  destination,
  hasEnded,
  isRepeated,
  type Move,
  OUTCOME_MOVES,
  type OutcomeName,
  RESCUE_MOVES,
  REVOKE_GRACE_SECONDS,
  type TaskState,
} from "../../edge/vision/tasks/queue/states.ts";
import { LEASE_SECONDS } from "../../shared/tasks/node-protocol.ts";

/** What can be seen of a task; times in epoch milliseconds. */
export interface Row {
  id: string;
  kind: string;
  priority: number;
  state: TaskState;
  attempt: number;
  attemptsMax: number;
  fence: number;
  nodeId: string | null;
  leaseUntil: number | null;
  availableAt: number;
  cancelRequested: boolean;
  revokeRequested: boolean;
  failedFences: number[];
}

export interface Report {
  nodeId: string;
  taskId: string;
  fence: number;
}

export interface Attempt {
  outcome: OutcomeName;
  retryable: boolean;
  seconds: number;
}

/** The verbs, as the model and the database both answer them. */
export interface Verbs {
  claim(nodeId: string, kinds: string[], now: number): Awaitable<Claim | null>;
  heartbeat(held: Report, now: number): Awaitable<string>;
  progress(held: Report, now: number): Awaitable<string>;
  /** The new state, `repeated`, or the code of the failure. */
  finish(held: Report, attempt: Attempt, now: number): Awaitable<string>;
  /** States of the tasks that had not ended, by id. */
  cancel(taskId: string, now: number): Awaitable<string[]>;
  revoke(taskId: string, now: number): Awaitable<string[]>;
  rescue(now: number): Awaitable<string[]>;
  purge(kind: string, now: number): Awaitable<string[]>;
  /** Every task, by id. */
  rows(): Awaitable<Row[]>;
}
type Awaitable<Value> = Value | Promise<Value>;

export interface Claim {
  taskId: string;
  fence: number;
  attempt: number;
}

export const byId = (left: { id: string }, right: { id: string }) => (left.id < right.id ? -1 : 1);
export const shown = ({ id, state }: { id: string; state: string }) => `${id} ${state}`;

export interface Model extends Verbs {
  rows(): Row[];
  /** How often each task has ended. */
  ends: Map<string, number>;
}

/** A queue of tasks, given in the order in which they were enqueued. */
export function createModel(tasks: readonly Row[]): Model {
  const inOrder = tasks.map((row) => ({ ...row, failedFences: [...row.failedFences] }));
  const rows = inOrder.toSorted(byId);
  const ends = new Map(rows.map(({ id }) => [id, 0]));
  const find = (id: string) => rows.find((row) => row.id === id) as Row;

  function move(row: Row, name: Move) {
    const next = destination(row.state, name);
    if (next === null) throw new Error(`${name} from ${row.state} is not allowed`);
    if (hasEnded(row.state)) throw new Error("an ended task was moved");
    row.state = next;
    if (next !== "running") row.leaseUntil = null;
    if (hasEnded(next)) ends.set(row.id, (ends.get(row.id) ?? 0) + 1);
  }
  const holds = (row: Row, retryable: boolean) => (circumstance: Circumstance) =>
    ({
      always: true,
      revoke_requested: row.revokeRequested,
      cancel_requested: row.cancelRequested,
      attempts_used: row.attempt >= row.attemptsMax,
      not_retryable: !retryable,
    })[circumstance];
  const backOff = (row: Row, now: number) => {
    const { seconds, factor, secondsMax } = BACKOFF;
    row.availableAt = now + Math.min(seconds * factor ** (row.attempt - 1), secondsMax) * 1_000;
  };
  const isHeld = (row: Row, { nodeId, fence }: Report) =>
    row.state === "running" && row.nodeId === nodeId && row.fence === fence;

  return {
    ends,
    rows: () => rows,
    claim: (nodeId, kinds, now) => {
      const [row] = inOrder
        .filter((one) => one.state === "queued" && kinds.includes(one.kind))
        .filter((one) => one.availableAt <= now)
        .sort(
          (left, right) => right.priority - left.priority || left.availableAt - right.availableAt,
        );
      if (!row) return null;
      move(row, "claim");
      row.attempt++;
      row.fence++;
      row.nodeId = nodeId;
      row.leaseUntil = now + LEASE_SECONDS * 1_000;
      return { taskId: row.id, fence: row.fence, attempt: row.attempt };
    },
    heartbeat: (held, now) => {
      const row = find(held.taskId);
      const fence = held.fence + Number(row.revokeRequested);
      if (!isHeld(row, { ...held, fence })) return "lost";
      move(row, "renew");
      row.leaseUntil = now + LEASE_SECONDS * 1_000;
      if (row.revokeRequested) return "revoke";
      return row.cancelRequested ? "cancel" : "go_on";
    },
    progress: (held) => {
      const row = find(held.taskId);
      if (!isHeld(row, held)) return "lease_stale";
      return row.cancelRequested ? "cancel" : "go_on";
    },
    finish: (held, { outcome, retryable, seconds }, now) => {
      const row = find(held.taskId);
      const fence = held.fence + Number(outcome === "revoked");
      const choice = OUTCOME_MOVES[outcome];
      const chosen = choose(choice, holds(row, outcome !== "failed" || retryable));
      if (isHeld(row, { ...held, fence }) && chosen !== null) {
        move(row, chosen);
        if (outcome === "failed") row.failedFences.push(held.fence);
        if (chosen === "retry") backOff(row, now);
        if (chosen === "snooze") {
          row.attempt--;
          row.availableAt = now + seconds * 1_000;
        }
        return row.state;
      }
      if (isRepeated(row, { ...held, outcome })) return "repeated";
      return isHeld(row, held) ? "state_conflict" : "lease_stale";
    },
    cancel: (taskId) => {
      const row = find(taskId);
      if (hasEnded(row.state)) return [];
      row.cancelRequested = true;
      move(row, "cancel");
      return [shown(row)];
    },
    revoke: (taskId) => {
      const row = find(taskId);
      if (hasEnded(row.state)) return [];
      if (!row.revokeRequested) row.fence++;
      row.revokeRequested = true;
      move(row, "revoke");
      return [shown(row)];
    },
    rescue: (now) =>
      rows.flatMap((row) => {
        const grace = row.revokeRequested ? REVOKE_GRACE_SECONDS * 1_000 : 0;
        if (row.state !== "running" || (row.leaseUntil ?? 0) >= now - grace) return [];
        const chosen = choose(RESCUE_MOVES, holds(row, true)) as Move;
        move(row, chosen);
        row.failedFences.push(row.fence);
        row.fence++;
        if (chosen === "retry") backOff(row, now);
        return [shown(row)];
      }),
    purge: (kind) =>
      rows.flatMap((row) => {
        if (row.state !== "queued" || row.kind !== kind) return [];
        row.cancelRequested = true;
        move(row, "purge");
        return [shown(row)];
      }),
  };
}
