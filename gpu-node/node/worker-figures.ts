// What the supervisor counts of its tasks, and how it and its processes stand, for `/metrics`.

import { isTaskKind } from "../../shared/tasks/tasks.ts";
import { tally } from "../base/tally.ts";
import type { SlotRole } from "./lanes.ts";

/** Kinds of other releases are one. */
const countedKind = (kind: string): string => (isTaskKind(kind) ? kind : "other");

/** Counts a task that the service gave. */
export const countClaim = (kind: string): void =>
  tally.count("vantage_node_tasks_claimed_total", { kind: countedKind(kind) });

/** Counts a task that turned out to be another's. */
export const countLost = (kind: string): void =>
  tally.count("vantage_node_leases_lost_total", { kind: countedKind(kind) });

/** Counts a task that left the node. */
export function countEnd(task: { kind: string; outcome: string; seconds: number }): void {
  const kind = countedKind(task.kind);
  tally.count("vantage_node_tasks_ended_total", { kind, outcome: task.outcome });
  tally.observe("vantage_node_task_duration_seconds", { kind }, task.seconds);
}

/** How a supervisor and its processes stand now. */
export interface WorkerGauges {
  /** Epoch milliseconds. */
  since: number;
  lastHeartbeatAt: number | null;
  draining: boolean;
  socketOpen: boolean | null;
  lineOpen: boolean;
  /** Models that are open in its processes, a model in two of them twice. */
  modelsResident: number;
  /** What they take, estimated. */
  modelsResidentBytes: number;
  /** Tasks that run here, by kind. */
  running: ReadonlyMap<string, number>;
  /** Living child processes. */
  children: readonly { role: SlotRole; pid: number }[];
}

/** The gauges of a supervisor's own state, its slots and the kinds of what runs in them. */
export function gaugesOf(
  state: {
    phase: "working" | "draining";
    socketOpen: boolean | null;
    line: { open: boolean };
    lastHeartbeatAt: number | null;
  },
  {
    since,
    slots,
    kinds,
  }: {
    since: number;
    slots: readonly {
      role: SlotRole;
      slot: { pid: number | null; loaded: readonly string[]; loadedBytes: number };
    }[];
    kinds: readonly string[];
  },
): WorkerGauges {
  const byKind = Map.groupBy(kinds, countedKind);
  return {
    since,
    lastHeartbeatAt: state.lastHeartbeatAt,
    draining: state.phase === "draining",
    socketOpen: state.socketOpen,
    lineOpen: state.line.open,
    modelsResident: slots.reduce((sum, { slot }) => sum + slot.loaded.length, 0),
    modelsResidentBytes: slots.reduce((sum, { slot }) => sum + slot.loadedBytes, 0),
    running: new Map([...byKind].map(([kind, tasks]) => [kind, tasks.length])),
    children: slots.flatMap(({ role, slot }) =>
      slot.pid === null ? [] : [{ role, pid: slot.pid }],
    ),
  };
}
