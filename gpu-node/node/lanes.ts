// Which of a node's slots takes a task. Pure: a slot is its role and the kinds of what it works on.
// Work that somebody waits for never stands behind a long task, and training holds up nothing.

import { type TaskKind, type TaskLane, taskKind } from "../../shared/tasks/tasks.ts";

/**
 * `general` slots are as many as the node's configuration says and take whatever is not training;
 * the `interactive` slot keeps its segmenter and frames warm for whoever waits: for clicks and
 * previews, and for the direct line's requests beside them; the `serving` slot answers predictions,
 * which would stand still in a process whose segmenter looks at an image; the `short` slot is the
 * share of uploads and datasets, which go on while batch work has all general slots; the `build`
 * slot makes models' files, which are calibrated, verified and built for up to an hour; the
 * `training` slot has one training at a time, which takes days.
 */
export type SlotRole = "general" | "interactive" | "serving" | "short" | "build" | "training";

export interface SlotLoad {
  role: SlotRole;
  /** Kinds of the tasks in it. */
  kinds: readonly string[];
}

/** Tasks of the serving slot: as many images as a model takes at once on any machine. */
const SERVED_MAX = 16;
/** Seconds that a claim waits at the service while no socket would say that there is work. */
const CLAIM_WAIT_SECONDS = 10;
/** The same while all general slots work: they may get free, and would wait for its answer. */
const BUSY_CLAIM_WAIT_SECONDS = 1;

/** A kind that this build does not know is batch work: its runner says that it is unknown. */
const laneOf = (kind: string): TaskLane => taskKind(kind)?.lane ?? "batch";

/** The role of the slots that are there for a kind, and for requests of the direct line of it. */
export function roleOf(kind: string): SlotRole {
  if (taskKind(kind)?.shared) return "serving";
  const lane = laneOf(kind);
  return lane === "batch" ? "general" : lane;
}

/** Whether a task may be told to put its work aside for another attempt. */
export const isPausable = (kind: string): boolean => laneOf(kind) === "training";

/** The roles of a node's slots, in the order in which they are asked. */
export function rolesOf(slots: number, kinds: readonly string[]): SlotRole[] {
  const roles = Array.from({ length: slots }, (): SlotRole => "general");
  const wanted = new Set(kinds.map(roleOf));
  if (wanted.has("interactive")) roles.push("interactive");
  if (wanted.has("serving")) roles.push("serving");
  // Nothing else would keep short tasks out of the general slots.
  const isLong = wanted.has("general") || wanted.has("build");
  if (wanted.has("short") && isLong) roles.push("short");
  if (wanted.has("build") && wanted.size > 1) roles.push("build");
  if (wanted.has("training")) roles.push("training");
  return roles;
}

/**
 * Whether a slot has room for a task of the kind. In the serving slot tasks go beside each other,
 * so that one model looks at all their images at once.
 */
export function hasRoom({ role, kinds }: SlotLoad, kind: string): boolean {
  const own = roleOf(kind);
  if (role === "general") return own !== "training" && kinds.length === 0;
  return own === role && kinds.length < (role === "serving" ? SERVED_MAX : 1);
}

/** The kinds, of those that the node offers, for which some slot has room. */
export const claimableKinds = (slots: readonly SlotLoad[], kinds: readonly string[]): string[] =>
  kinds.filter((kind) => slots.some((slot) => hasRoom(slot, kind)));

const BATCH_KIND: TaskKind = "label";

/** How long a claim waits at the service, in seconds. */
export function claimWaitSeconds(
  slots: readonly SlotLoad[],
  { socketOpen }: { socketOpen: boolean },
): number {
  if (socketOpen) return 0;
  const canWait = slots.some((slot) => hasRoom(slot, BATCH_KIND));
  return canWait ? CLAIM_WAIT_SECONDS : BUSY_CLAIM_WAIT_SECONDS;
}

/** The slot for a task: its role's own where that has room, else the first that has; or null. */
export function slotFor<Slot extends SlotLoad>(slots: readonly Slot[], kind: string): Slot | null {
  const fit = slots.filter((slot) => hasRoom(slot, kind));
  return fit.find(({ role }) => role === roleOf(kind)) ?? fit[0] ?? null;
}
