// The bell that wakes waiting nodes. It only saves them time: a bell that is lost, or not there,
// costs at most one poll's pause.

import type { Parts } from "../../base/parts.ts";

/** Tasks of one kind that were enqueued. */
export interface EnqueuedTasks {
  kind: string;
  workspaceId: string;
  count: number;
}

/** What a node takes: tasks of some kinds, of one workspace or, with null, of all. */
export interface NodeInterest {
  workspaceId: string | null;
  kinds: readonly string[];
}

/** The header in which the Doorbell object is told, as JSON, what a socket's node takes. */
export const INTEREST_HEADER = "X-NodeInterest";

/** What the Doorbell object answers to. */
export interface DoorbellRpc {
  /** Wakes as many nodes as there are tasks, and further ones where those do not take them. */
  ring(enqueued: readonly EnqueuedTasks[]): Promise<void>;
  /** Resolves at a ring for what is waited for, or after a while. */
  nextRing(milliseconds: number, interest: NodeInterest): Promise<void>;
  /** Closes a node's sockets. */
  hangUp(nodeId: string): Promise<void>;
  fetch(request: Request): Promise<Response>;
}

/** What the object of a node's direct line answers to, beside requests. */
export interface NodeLineRpc {
  /** Closes the node's socket, for good. */
  hangUp(): Promise<void>;
  fetch(request: Request): Promise<Response>;
}

/** The object of a node's direct line. */
export const lineOf = ({ lines }: Pick<Parts, "lines">, nodeId: string): NodeLineRpc =>
  // The namespace does not know the class of its objects.
  lines.get(lines.idFromName(nodeId)) as unknown as NodeLineRpc;

export type BellParts = Pick<Parts, "doorbell" | "log">;

/** One bell for all workspaces: most nodes take tasks of any. */
export const doorbellOf = ({ doorbell }: BellParts): DoorbellRpc =>
  // The namespace does not know the class of its objects.
  doorbell.get(doorbell.idFromName("doorbell")) as unknown as DoorbellRpc;

/** Wakes nodes for tasks. Call it after an enqueue; it never fails its caller. */
export async function ring(
  parts: BellParts,
  tasks: readonly Pick<EnqueuedTasks, "kind" | "workspaceId">[],
): Promise<void> {
  const alike = Map.groupBy(tasks, ({ kind, workspaceId }) => `${kind} ${workspaceId}`);
  const enqueued = [...alike.values()].flatMap((same) =>
    same.slice(0, 1).map(({ kind, workspaceId }) => ({ kind, workspaceId, count: same.length })),
  );
  await doorbellOf(parts)
    .ring(enqueued)
    .catch((error: unknown) => parts.log.warning("doorbell", { error }));
}

/** Waits for a ring for what a node takes, at most this long, with or without a bell. */
export async function nextRing(
  parts: BellParts,
  milliseconds: number,
  interest: NodeInterest,
): Promise<void> {
  const waited = new Promise<void>((done) => setTimeout(done, milliseconds));
  const rang = doorbellOf(parts)
    .nextRing(milliseconds, interest)
    .catch(() => waited);
  await Promise.race([waited, rang]);
}
