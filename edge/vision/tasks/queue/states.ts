// The life of a task as tables: which move leads from which state to which, and which move an
// outcome or an expired lease comes to. The SQL of `queue.ts` is built from these tables and the
// simulation walks them, so there is one truth of both.

export const TASK_STATES = [
  "queued",
  "running",
  "finished",
  "failed",
  "cancelled",
  "revoked",
] as const;
export type TaskState = (typeof TASK_STATES)[number];

/**
 * - `claim`: a node takes it. `renew`: the node is still at it.
 * - `finish`, `fail`, `retry`, `snooze`: how an attempt ended; the last two queue it again.
 * - `give_up`: no node that could do it was there for long.
 * - `cancel`, `revoke`, `purge`: what people ask for. A running task only gets a flag.
 * - `stop`: a running task ended because `cancel` was asked for.
 * - `exit`: a revoked task's process is gone, or its node has been silent for long.
 */
export const MOVES = {
  claim: { queued: "running" },
  renew: { running: "running" },
  finish: { running: "finished" },
  fail: { running: "failed" },
  retry: { running: "queued" },
  snooze: { running: "queued" },
  cancel: { queued: "cancelled", running: "running" },
  revoke: { queued: "revoked", running: "running" },
  purge: { queued: "cancelled" },
  give_up: { queued: "failed" },
  stop: { running: "cancelled" },
  exit: { running: "revoked" },
} as const satisfies Record<string, Partial<Record<TaskState, TaskState>>>;
export type Move = keyof typeof MOVES;

/** Where a move leads from a state, or null where the move is refused. */
export const destination = (state: TaskState, move: Move): TaskState | null =>
  (MOVES[move] as Partial<Record<TaskState, TaskState>>)[state] ?? null;

/** The one state that a move of a running task leads to. */
export const fromRunning = (move: Move): TaskState | null => destination("running", move);

/** Whether a task of this state is over: nothing moves it any more. */
export const hasEnded = (state: TaskState): boolean => state !== "queued" && state !== "running";

/** What a choice between moves looks at. */
export const CIRCUMSTANCES = [
  "always",
  "revoke_requested",
  "cancel_requested",
  "attempts_used",
  "not_retryable",
] as const;
export type Circumstance = (typeof CIRCUMSTANCES)[number];

/** The first circumstance that holds names the move; where none holds, the move is refused. */
export type Choice = readonly (readonly [Circumstance, Move])[];

/** The move that a node's outcome comes to. */
export const OUTCOME_MOVES = {
  finished: [["always", "finish"]],
  failed: [
    ["not_retryable", "fail"],
    ["cancel_requested", "stop"],
    ["attempts_used", "fail"],
    ["always", "retry"],
  ],
  cancelled: [["cancel_requested", "stop"]],
  revoked: [["revoke_requested", "exit"]],
  snoozed: [
    ["cancel_requested", "stop"],
    ["always", "snooze"],
  ],
} as const satisfies Record<string, Choice>;
export type OutcomeName = keyof typeof OUTCOME_MOVES;

/** The move that an expired lease comes to. */
export const RESCUE_MOVES: Choice = [
  ["revoke_requested", "exit"],
  ["cancel_requested", "stop"],
  ["attempts_used", "fail"],
  ["always", "retry"],
];

/** The first move of a choice whose circumstance holds, or null. */
export const choose = (
  choice: Choice,
  holds: (circumstance: Circumstance) => boolean,
): Move | null => choice.find(([circumstance]) => holds(circumstance))?.[1] ?? null;

/** A revoked task whose node fell silent counts as gone this long after its lease expired. */
export const REVOKE_GRACE_SECONDS = 60;

/** How long a task waits after an attempt failed or was lost: 10 s, 30 s, 90 s, 270 s, 300 s … */
export const BACKOFF = { seconds: 10, factor: 3, secondsMax: 300 };

/** What a finished attempt left on its row, for telling a repeated report from a late one. */
export interface Trace {
  state: TaskState;
  fence: number;
  nodeId: string | null;
  /** The fences of the attempts that failed. */
  failedFences: readonly number[];
}

/**
 * Whether an outcome that moved nothing was taken before: the same node reports the same outcome
 * under the same fence again.
 */
export function isRepeated(
  { state, fence, nodeId, failedFences }: Trace,
  report: { nodeId: string; fence: number; outcome: OutcomeName },
): boolean {
  // A revocation raised the fence after the node had got its own.
  const expected = report.outcome === "revoked" ? report.fence + 1 : report.fence;
  if (state === "running" || nodeId !== report.nodeId || fence !== expected) return false;
  const failed = failedFences.includes(report.fence);
  switch (report.outcome) {
    case "finished":
      return state === "finished";
    case "failed":
      return failed;
    case "cancelled":
      return state === "cancelled" && !failed;
    case "revoked":
      return state === "revoked";
    case "snoozed":
      return !failed && (state === "queued" || state === "cancelled");
  }
}
