// The Doorbell object: holds the nodes' sockets, hibernating, and the calls that wait for a ring.
// It keeps nothing: whoever misses a ring polls.

import { DurableObject } from "cloudflare:workers";
import type { DoorbellRpc } from "./bell.ts";

const WORK = JSON.stringify({ type: "work" });
const SOCKETS_MAX = 4_096;

export class Doorbell extends DurableObject implements DoorbellRpc {
  #waiting = new Set<() => void>();

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the bell has no use for.
    super(context, environment as never);
    context.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
  }

  async ring(): Promise<void> {
    for (const wake of this.#waiting) wake();
    for (const socket of this.ctx.getWebSockets()) {
      try {
        socket.send(WORK);
      } catch {
        // The socket is closing; its node polls until it holds another.
      }
    }
  }

  async nextRing(milliseconds: number): Promise<void> {
    await new Promise<void>((done) => {
      const wake = () => {
        clearTimeout(timer);
        this.#waiting.delete(wake);
        done();
      };
      const timer = setTimeout(wake, milliseconds);
      this.#waiting.add(wake);
    });
  }

  async hangUp(nodeId: string): Promise<void> {
    for (const socket of this.ctx.getWebSockets(nodeId)) socket.close(1008, "the node was revoked");
  }

  /** Takes a node's socket; the route has checked who it is. */
  override async fetch(request: Request): Promise<Response> {
    if (this.ctx.getWebSockets().length >= SOCKETS_MAX) return new Response(null, { status: 503 });
    const nodeId = request.headers.get("X-Node-Id") ?? "";
    const [client, server] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    this.ctx.acceptWebSocket(server, [nodeId]);
    return new Response(null, { status: 101, webSocket: client });
  }

  override webSocketMessage(): void {}

  override webSocketClose(socket: WebSocket, code: number, reason: string): void {
    socket.close(code === 1005 || code === 1006 ? 1000 : code, reason);
  }

  override webSocketError(socket: WebSocket): void {
    socket.close(1011, "socket failed");
  }
}
