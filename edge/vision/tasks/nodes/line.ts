// The object of one node's direct line: admits a request while the node has a place for one of its
// kind, sends it no faster than the node reads, and gives each request one answer, by its deadline.
// What it knows beside its socket is lost with its memory, and may be: the node drops what a former
// life of the object asked for. Recipe and figures: DESIGN 10.

import { DurableObject } from "cloudflare:workers";
import {
  ANSWER_BYTES_MAX,
  ASK_BYTES_MAX,
  decodeFrame,
  encodeFrame,
  type Frame,
  joined,
  LINE_KIND_NAMES,
  LINE_KINDS,
  LINE_SILENCE_MS,
  LINE_STATUS,
  type LineKind,
  lineKindOf,
  PAYLOAD_BYTES_MAX,
} from "../../../../shared/tasks/line.ts";
import { systemClock } from "../../../../shared/time.ts";

/** Bytes sent to the node that it has not read yet: the platform tells of none that wait to go. */
const UNREAD_BYTES_MAX = 4 * 1024 * 1024;
const CAPACITY_MAX = 1_024;
const REPLACED = 4_001;
const SILENT = 4_002;
const REVOKED = 1_008;

interface Answer {
  status: number;
  body: Uint8Array;
}

/** A request that has a place at the node: until the node gives it back, or is gone. */
interface Pending {
  kind: LineKind;
  answered: boolean;
  answer(answer: Answer): void;
  parts: Uint8Array[];
  bytes: number;
}

/** How many requests of each kind the node takes at once. */
type Capacities = Readonly<Record<LineKind, number>>;
const NO_CAPACITY: Capacities = { predict: 0, sam: 0, workflow: 0 };

/** What is kept with the socket while the object sleeps. */
interface Attachment {
  capacities: Capacities;
}

const empty = (status: number): Answer => ({ status, body: new Uint8Array(0) });

/** An open socket to the node, and the requests on it. */
class Line {
  readonly socket: WebSocket;
  readonly pending = new Map<number, Pending>();
  capacities: Capacities;
  heardAt = systemClock();
  closed = false;
  #unread = 0;
  #waiting: (() => void)[] = [];

  constructor(socket: WebSocket, capacities: Capacities) {
    this.socket = socket;
    this.capacities = capacities;
  }

  /** Whether the node has a place for another request of the kind. */
  hasPlace(kind: LineKind, isBatch: boolean): boolean {
    const taken = [...this.pending.values()].filter((one) => one.kind === kind);
    // What nobody waits for leaves half of the places to those who do, and the only one.
    const countMax = isBatch ? Math.floor(this.capacities[kind] / 2) : this.capacities[kind];
    return taken.length < countMax;
  }

  read(bytes: number): void {
    this.#unread = Math.max(0, this.#unread - bytes);
    this.wake();
  }

  wake(): void {
    for (const resume of this.#waiting.splice(0)) resume();
  }

  close(): void {
    this.closed = true;
    for (const one of this.pending.values()) one.answer(empty(LINE_STATUS.nodeGone));
    this.pending.clear();
    this.wake();
  }

  /** Resolves when so many bytes of a request may go, with whether they still should. */
  async room(bytes: number, one: Pending): Promise<boolean> {
    const over = () => this.closed || one.answered;
    while (this.#unread >= UNREAD_BYTES_MAX && !over()) {
      await new Promise<void>((resume) => this.#waiting.push(resume));
    }
    if (over()) return false;
    // Counted before another that waited looks.
    this.#unread += bytes;
    return true;
  }
}

const isOpen = ({ closed, socket }: Line) =>
  !closed && socket.readyState === WebSocket.READY_STATE_OPEN;

/** The runtime's reader that waits for so many bytes, or the end. */
interface ByteReader {
  readAtLeast(
    bytes: number,
    into: Uint8Array<ArrayBuffer>,
  ): Promise<{ done: boolean; value?: Uint8Array }>;
  cancel(): Promise<void>;
}

export class NodeLine extends DurableObject {
  readonly #life = crypto.getRandomValues(new Uint32Array(1))[0] as number;
  #line: Line | null = null;
  #requests = 0;

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that the line has no use for.
    super(context, environment as never);
    context.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
    const socket = context
      .getWebSockets()
      .find(({ readyState }) => readyState === WebSocket.READY_STATE_OPEN);
    if (!socket) return;
    const kept = socket.deserializeAttachment() as Attachment | null;
    this.#line = new Line(socket, { ...NO_CAPACITY, ...kept?.capacities });
    this.#greet(socket);
  }

  /** Closes the line of a node whose token ended. */
  async hangUp(): Promise<void> {
    this.#end(this.#line, REVOKED, "the node was revoked");
  }

  /** Takes the node's socket, or a request; the routes have checked who it is. */
  override async fetch(request: Request): Promise<Response> {
    if (request.headers.get("Upgrade") === "websocket") return this.#open();
    const url = new URL(request.url);
    const [ms, bytes] = [Number(url.searchParams.get("ms")), Number(url.searchParams.get("bytes"))];
    const isBatch = url.searchParams.get("lane") === "batch";
    const kind = LINE_KIND_NAMES.find((name) => name === url.searchParams.get("kind")) ?? "predict";
    const { status, body } = await this.#ask(request, { kind, ms, bytes, isBatch });
    return new Response(body as BodyInit, { status });
  }

  #open(): Response {
    this.#end(this.#line, REPLACED, "another socket of the node took its place");
    const [client, server] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    this.ctx.acceptWebSocket(server);
    this.#line = new Line(server, NO_CAPACITY);
    this.#greet(server);
    return new Response(null, { status: 101, webSocket: client });
  }

  /** The node drops what it has of a former life, and grants its capacity anew. */
  #greet(socket: WebSocket): void {
    socket.send(encodeFrame({ kind: "hello", life: this.#life }));
  }

  #end(line: Line | null, code: number, reason: string): void {
    if (!line) return;
    line.close();
    if (this.#line === line) this.#line = null;
    line.socket.close(code, reason);
  }

  /** The line, unless its node stopped without a word. */
  #liveLine(): Line | null {
    const line = this.#line;
    if (!line) return null;
    const pinged = this.ctx.getWebSocketAutoResponseTimestamp(line.socket)?.getTime() ?? 0;
    if (systemClock() - Math.max(line.heardAt, pinged) <= LINE_SILENCE_MS) return line;
    this.#end(line, SILENT, "the node was not heard of");
    return null;
  }

  async #ask(
    { body, signal }: Request,
    { kind, ms, bytes, isBatch }: { kind: LineKind; ms: number; bytes: number; isBatch: boolean },
  ): Promise<Answer> {
    const line = this.#liveLine();
    if (!line || !body || !(bytes > 0) || bytes > ASK_BYTES_MAX) return empty(LINE_STATUS.noLine);
    if (!line.hasPlace(kind, isBatch)) return empty(LINE_STATUS.full);
    this.#requests = (this.#requests + 1) >>> 0;
    const id = this.#requests;
    const until = systemClock() + ms;
    const { promise, resolve } = Promise.withResolvers<Answer>();
    const one: Pending = {
      kind,
      answered: false,
      answer: (answer) => {
        one.answered = true;
        resolve(answer);
      },
      parts: [],
      bytes: 0,
    };
    line.pending.set(id, one);
    // Its place stays taken until the node says that it has let go of it.
    const giveUp = (status: number) => {
      if (one.answered) return;
      one.answer(empty(status));
      if (isOpen(line)) line.socket.send(encodeFrame({ kind: "cancel", life: this.#life, id }));
      line.wake();
    };
    const timer = setTimeout(() => giveUp(LINE_STATUS.late), ms);
    const left = () => giveUp(LINE_STATUS.left);
    signal.addEventListener("abort", left);
    if (signal.aborted) left();
    try {
      // A body that ends early is that of somebody who has gone.
      this.#send(line, { id, one, until, bytes }, body).catch(left);
      return await promise;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", left);
    }
  }

  async #send(
    line: Line,
    { id, one, until, bytes }: { id: number; one: Pending; until: number; bytes: number },
    body: ReadableStream<Uint8Array>,
  ): Promise<void> {
    // Left to itself a body comes in pieces of 4 KB. The platform's types lack its own reader.
    const reader = body.getReader({ mode: "byob" }) as unknown as ByteReader;
    for (let sent = 0, index = 0; sent < bytes; index++) {
      const wanted = Math.min(PAYLOAD_BYTES_MAX, bytes - sent);
      const { value } = await reader.readAtLeast(wanted, new Uint8Array(wanted));
      if (!value || value.length < wanted) throw new Error("the body ended early");
      sent += wanted;
      const goes = await line.room(wanted, one);
      // The end of a socket that closes may be heard of only later.
      if (goes && !isOpen(line)) one.answer(empty(LINE_STATUS.nodeGone));
      if (!goes || one.answered) {
        await reader.cancel();
        return;
      }
      const frame: Frame = {
        kind: LINE_KINDS[one.kind].ask,
        last: sent === bytes,
        index,
        life: this.#life,
        id,
        value: Math.max(1, until - systemClock()),
        payload: value,
      };
      line.socket.send(encodeFrame(frame));
    }
  }

  override webSocketMessage(socket: WebSocket, data: string | ArrayBuffer): void {
    const line = this.#line;
    const frame = typeof data === "string" ? null : decodeFrame(data);
    if (!line || line.socket !== socket || !frame) return;
    line.heardAt = systemClock();
    const granted = lineKindOf(frame.kind, "grant");
    if (granted) {
      const capacity = Math.min(frame.value, CAPACITY_MAX);
      line.capacities = { ...line.capacities, [granted]: capacity };
      socket.serializeAttachment({ capacities: line.capacities } satisfies Attachment);
    } else if (frame.kind === "read") {
      line.read(frame.value);
    } else if (frame.life === this.#life) {
      this.#heard(line, frame);
    }
  }

  #heard(line: Line, frame: Frame): void {
    const one = line.pending.get(frame.id);
    if (!one) return;
    if (frame.kind === "released") {
      line.pending.delete(frame.id);
      one.answer(empty(LINE_STATUS.nodeGone));
    }
    if (frame.kind !== "answer") return;
    one.parts.push(frame.payload);
    one.bytes += frame.payload.length;
    const tooLarge = one.bytes > ANSWER_BYTES_MAX;
    if (!frame.last && !tooLarge) return;
    line.pending.delete(frame.id);
    one.answer(
      tooLarge ? empty(LINE_STATUS.failed) : { status: frame.value, body: joined(one.parts) },
    );
  }

  #drop(socket: WebSocket): void {
    if (this.#line?.socket !== socket) return;
    this.#line.close();
    this.#line = null;
  }

  override webSocketClose(socket: WebSocket, code: number, reason: string): void {
    this.#drop(socket);
    socket.close(code === 1005 || code === 1006 ? 1000 : code, reason);
  }

  override webSocketError(socket: WebSocket): void {
    this.#drop(socket);
  }
}
