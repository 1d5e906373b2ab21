// Requests of this isolate that are at nodes now. A request that the platform canceled says nothing
// of its end, so each counts until it is answered, its asker is gone or its time is over, whatever
// comes first.

import type { LineKind } from "../../../../shared/tasks/line.ts";
import type { Clock } from "../../../../shared/time.ts";

/** A request that goes to a node. */
export interface NodeAsk {
  nodeId: string;
  kind: LineKind;
  /** Milliseconds by which it is answered, or nobody waits. */
  ms: number;
  /** Aborts when whoever asked has gone. */
  signal: AbortSignal;
  /** Whether somebody waits for its answer. */
  isWaitedFor: boolean;
}

interface OpenAsk extends Pick<NodeAsk, "nodeId" | "kind" | "isWaitedFor"> {
  /** Epoch milliseconds. */
  until: number;
}

/** All of them; they are few, and each is there for a request of a client's. */
const open = new Set<OpenAsk>();

function openAt(now: number): ReadonlySet<OpenAsk> {
  for (const ask of open) if (ask.until <= now) open.delete(ask);
  return open;
}

/** Counts a request from now on; returns the way to end that, again is of no account. */
export function openAsk({ ms, signal, ...ask }: NodeAsk, clock: Clock): () => void {
  const one: OpenAsk = { ...ask, until: clock() + ms };
  const close = () => {
    open.delete(one);
    signal.removeEventListener("abort", close);
  };
  open.add(one);
  signal.addEventListener("abort", close);
  if (signal.aborted) close();
  return close;
}

/** How many requests which somebody waits for are at nodes now. */
export function requestsAtNodes(clock: Clock): number {
  let count = 0;
  for (const { isWaitedFor } of openAt(clock())) if (isWaitedFor) count += 1;
  return count;
}

/** How many requests of a kind are at each node now, by its id. */
export function asksByNode(kind: LineKind, clock: Clock): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const ask of openAt(clock())) {
    if (ask.kind === kind) counts.set(ask.nodeId, (counts.get(ask.nodeId) ?? 0) + 1);
  }
  return counts;
}
