// The bell that wakes waiting nodes. It only saves them time: a bell that is lost, or not there,
// costs at most one poll's pause.

import type { Parts } from "../base/parts.ts";

/** What the Doorbell object answers to. */
export interface DoorbellRpc {
  /** Wakes every node that waits or holds a socket. */
  ring(): Promise<void>;
  /** Resolves at the next ring, or after a while. */
  nextRing(milliseconds: number): Promise<void>;
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

/** One bell for all: few nodes wait, and each takes what it can do. */
export const doorbellOf = ({ doorbell }: BellParts): DoorbellRpc =>
  // The namespace does not know the class of its objects.
  doorbell.get(doorbell.idFromName("doorbell")) as unknown as DoorbellRpc;

/** Wakes the nodes. Call it after an enqueue; it never fails its caller. */
export async function ring(parts: BellParts): Promise<void> {
  await doorbellOf(parts)
    .ring()
    .catch((error: unknown) => parts.log.warning("doorbell", { error }));
}

/** Waits for a ring, at most this long, with or without a bell. */
export async function nextRing(parts: BellParts, milliseconds: number): Promise<void> {
  const waited = new Promise<void>((done) => setTimeout(done, milliseconds));
  const rang = doorbellOf(parts)
    .nextRing(milliseconds)
    .catch(() => waited);
  await Promise.race([waited, rang]);
}
