// What the supervisor works with, and what it knows: its slots, what runs in them, how it stands.

import type { Clock } from "../../shared/time.ts";
import type { Log } from "../base/log.ts";
import type { HeldTask } from "./held-task.ts";
import type { SlotRole } from "./lanes.ts";
import type { Offer } from "./offer.ts";
import type { ProgressReports } from "./progress-reports.ts";
import type { Service } from "./service.ts";
import type { Slot, SlotOptions } from "./slot.ts";

/** What the supervisor works with. */
export interface WorkerOptions {
  service: Service;
  offer: Offer;
  slot: Omit<SlotOptions, "log" | "onLoaded">;
  log: Log;
  clock: Clock;
  /** For tests; the protocol's own otherwise. */
  heartbeatMs?: number;
  /** A task that shows no sign of life for so long is ended, to be tried again. */
  stallMs?: number;
  /**
   * Pause between claims while the socket is open, on which the service says that there is work.
   */
  idleMs?: number;
}

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
  /** Whether the service's socket is open, on which it says that there is work; null at first. */
  socketOpen: boolean | null;
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
