// What the supervisor knows while it works: its slots, what runs in them, how it stands.

import type { HeldTask } from "./held-task.ts";
import type { SlotRole } from "./lanes.ts";
import type { ProgressReports } from "./progress-reports.ts";
import type { Slot } from "./slot.ts";

/** A slot by its role. */
export interface RoleSlot {
  role: SlotRole;
  slot: Slot;
}

/** A task that runs here, and what the supervisor needs to act on it. */
export interface RunningTask {
  held: HeldTask;
  slot: Slot;
  reports: ProgressReports;
  /** Aborts when nobody waits for the outcome any more. */
  abandoned: AbortController;
}

/** What the supervisor knows of itself and of the service. */
export interface WorkerState {
  /** `draining`: it claims no more, and leaves once nothing runs. */
  phase: "working" | "draining";
  /** Whether the service's socket is open, on which it says that there is work. */
  socketOpen: boolean;
  /** Whether the direct line is open, and whether a request of it is worked on in a drain. */
  line: { open: boolean; ending: boolean };
  /** Whether a claim waits for its answer. */
  claiming: boolean;
  /** Epoch milliseconds of the newest heartbeat that was answered. */
  lastHeartbeatAt: number | null;
  /** Why it had to stop; null while it need not. */
  stopReason: string | null;
  /** How many tasks ended here, by outcome; `abandoned` are those that nobody waited for. */
  outcomes: Record<string, number>;
}
