// The Doorbell object: holds the nodes' sockets, hibernating, and the claims that wait for a ring.
// Of a large fleet it wakes a few nodes for what was enqueued, and more where those have no room or
// do not answer. It keeps nothing: whoever misses a ring polls.

import { DurableObject } from "cloudflare:workers";
import { WorkAnswer } from "../../../../shared/tasks/node-protocol.ts";
import { systemClock } from "../../../../shared/time.ts";
import {
  type DoorbellRpc,
  type EnqueuedTasks,
  INTEREST_HEADER,
  type NodeInterest,
} from "./bell.ts";

const SOCKETS_MAX = 4_096;
/** Where a node that was woken has not answered for so long, another one is woken. */
const ANSWER_MS_MAX = 1_000;
const ANSWER_CHARACTERS_MAX = 200;

/** Whose socket it is, and what its node takes. */
interface Listener extends NodeInterest {
  id: string;
}

/** Tasks that were enqueued, until enough nodes took one or none is left to wake. */
interface Call {
  enqueued: EnqueuedTasks;
  /** Ids of all listeners that were woken for it, and of those that have not answered. */
  woken: Set<string>;
  unanswered: Set<string>;
  /** How many of them had no room. */
  busy: number;
  /** Tasks that nobody is known to have taken. */
  left: number;
  timer?: ReturnType<typeof setTimeout>;
}

const takes = ({ workspaceId, kinds }: NodeInterest, enqueued: EnqueuedTasks): boolean =>
  (workspaceId === null || workspaceId === enqueued.workspaceId) && kinds.includes(enqueued.kind);

export class Doorbell extends DurableObject implements DoorbellRpc {
  #waiting = new Set<NodeInterest & { wake: () => void }>();
  #calls = new Map<number, Call>();
  /** No call of an earlier life has a number of this one. */
  #lastCall = systemClock();
  /** In which order listeners were woken last; one that was not yet comes first. */
  #wokenLast = new Map<string, number>();
  #wakes = 0;
  #listeners = new WeakMap<WebSocket, Listener>();

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the bell has no use for.
    super(context, environment as never);
    context.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
  }

  async ring(enqueued: readonly EnqueuedTasks[]): Promise<void> {
    for (const one of enqueued) {
      const id = ++this.#lastCall;
      const nobody = { woken: new Set<string>(), unanswered: new Set<string>(), busy: 0 };
      this.#calls.set(id, { enqueued: one, ...nobody, left: one.count });
      this.#wake(id, one.count);
    }
  }

  /** Wakes so many further listeners for a call; it ends where there is none. */
  #wake(id: number, count: number): void {
    const call = this.#calls.get(id);
    if (!call) return;
    clearTimeout(call.timer);
    const message = JSON.stringify({ type: "work", call: id, kind: call.enqueued.kind });
    let woken = 0;
    for (const { socket, listener } of this.#toWake(call)) {
      if (woken === count) break;
      call.woken.add(listener.id);
      try {
        socket.send(message);
      } catch {
        // The socket is closing; its node polls until it holds another.
        continue;
      }
      this.#wokenLast.set(listener.id, ++this.#wakes);
      call.unanswered.add(listener.id);
      woken += 1;
    }
    if (woken === 0) {
      this.#calls.delete(id);
      // They look again within a second all the same, and answer nothing.
      const waiting = [...this.#waiting].filter((one) => takes(one, call.enqueued));
      for (const one of waiting.slice(0, call.left)) one.wake();
      return;
    }
    call.timer = setTimeout(() => this.#wake(id, call.unanswered.size), ANSWER_MS_MAX);
  }

  /** Listeners that take a call's tasks and were not woken for it, the longest left alone first. */
  #toWake({ enqueued, woken }: Call): { socket: WebSocket; listener: Listener }[] {
    const last = ({ id }: Listener) => this.#wokenLast.get(id) ?? 0;
    return this.ctx
      .getWebSockets()
      .map((socket) => ({ socket, listener: this.#listenerOf(socket) }))
      .filter(({ listener }) => takes(listener, enqueued) && !woken.has(listener.id))
      .sort((one, other) => last(one.listener) - last(other.listener));
  }

  #listenerOf(socket: WebSocket): Listener {
    const known = this.#listeners.get(socket);
    if (known) return known;
    const listener = socket.deserializeAttachment() as Listener;
    this.#listeners.set(socket, listener);
    return listener;
  }

  override webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): void {
    const answer = typeof message === "string" ? answerOf(message) : null;
    if (answer) this.#answered(this.#listenerOf(socket).id, answer);
  }

  #answered(listener: string, { call: id, outcome }: WorkAnswer): void {
    const call = this.#calls.get(id);
    if (!call?.unanswered.delete(listener)) return;
    if (outcome === "taken") call.left -= 1;
    if (outcome === "busy") call.busy += 1;
    // Where a node that takes such tasks finds none, none is left.
    if (outcome === "none" || call.left <= 0) {
      clearTimeout(call.timer);
      this.#calls.delete(id);
    }
    // Ever more at once: a fleet in which few have room is through soon.
    else if (call.unanswered.size === 0) this.#wake(id, Math.max(call.busy, call.left));
  }

  async nextRing(milliseconds: number, interest: NodeInterest): Promise<void> {
    await new Promise<void>((done) => {
      const own = {
        ...interest,
        wake: () => {
          clearTimeout(timer);
          this.#waiting.delete(own);
          done();
        },
      };
      const timer = setTimeout(own.wake, milliseconds);
      this.#waiting.add(own);
    });
  }

  async hangUp(nodeId: string): Promise<void> {
    for (const socket of this.ctx.getWebSockets(nodeId)) socket.close(1008, "the node was revoked");
  }

  /** Takes a node's socket; the route has checked who it is and what it takes. */
  override async fetch(request: Request): Promise<Response> {
    if (this.ctx.getWebSockets().length >= SOCKETS_MAX) return new Response(null, { status: 503 });
    const nodeId = request.headers.get("X-Node-Id") ?? "";
    const interest = JSON.parse(request.headers.get(INTEREST_HEADER) ?? "") as NodeInterest;
    const [client, server] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    // A connection that broke without a close frame would still be sent calls.
    for (const former of this.ctx.getWebSockets(nodeId)) former.close(1000, "another is open");
    this.ctx.acceptWebSocket(server, [nodeId]);
    server.serializeAttachment({ id: crypto.randomUUID(), ...interest } satisfies Listener);
    return new Response(null, { status: 101, webSocket: client });
  }

  override webSocketClose(socket: WebSocket, code: number, reason: string): void {
    this.#left(socket);
    socket.close(code === 1005 || code === 1006 ? 1000 : code, reason);
  }

  override webSocketError(socket: WebSocket): void {
    this.#left(socket);
    socket.close(1011, "socket failed");
  }

  /** Who went away without an answer has no room. */
  #left(socket: WebSocket): void {
    const { id } = this.#listenerOf(socket);
    this.#wokenLast.delete(id);
    for (const call of this.#calls.keys())
      this.#answered(id, { type: "answer", call, outcome: "busy" });
  }
}

function answerOf(message: string): WorkAnswer | null {
  if (message.length > ANSWER_CHARACTERS_MAX) return null;
  try {
    return WorkAnswer.parse(JSON.parse(message));
  } catch {
    return null;
  }
}
