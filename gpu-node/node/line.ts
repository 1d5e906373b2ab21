// The node's end of the direct line: takes requests from the service's object, gives each one
// answer or its place back, and opens the line again whenever it closes. A request whose line ended
// is nobody's: the service asked another node.

import { WebSocket } from "ws";
import type { Secret } from "../../shared/secret.ts";
import {
  decodeFrame,
  encodeFrame,
  type Frame,
  joined,
  LINE_KINDS,
  LINE_PING_MS,
  LINE_SILENCE_MS,
  LINE_STATUS,
  type LineKind,
  lineKindOf,
  PAYLOAD_BYTES_MAX,
} from "../../shared/tasks/line.ts";
import type { Log } from "../base/log.ts";
import { tally } from "../base/tally.ts";
import { pause } from "../objects/transfer.ts";
import type { EncodedReply } from "../serving/direct.ts";
import { backoffMs } from "./backoff.ts";

export interface LineOptions {
  /** The service's address. */
  url: string;
  token: Secret;
  log: Log;
  /** What the node answers; it is granted no requests of other kinds. */
  kinds: readonly LineKind[];
  /** Works on a request until the signal ends it; null where there is no answer. */
  answer(request: LineRequest, signal: AbortSignal): Promise<EncodedReply | null>;
  /** The line opened or closed. */
  onOpen(open: boolean): void;
}

/** A whole request. */
export interface LineRequest {
  kind: LineKind;
  body: Uint8Array;
  /** Milliseconds that are left for it. */
  ms: number;
}

const HANDSHAKE_MS = 30_000;
/** Bytes after which the service hears that they were read. */
const READ_BYTES = 1024 * 1024;
/** How many requests of a kind a node takes at once. */
export interface CapacityBounds {
  /** Before it is known what one costs. */
  first: number;
  min: number;
  max: number;
  /** What waits at the node is answered within about so long. */
  waitMs: number;
}

/** A segmenter looks for seconds, also in a workflow: who asks waits longer, and fewer do. */
export const CAPACITIES: Readonly<Record<LineKind, CapacityBounds>> = {
  predict: { first: 16, min: 1, max: 64, waitMs: 4_000 },
  sam: { first: 4, min: 1, max: 16, waitMs: 15_000 },
  workflow: { first: 8, min: 1, max: 64, waitMs: 10_000 },
};
/** Weight of the newest request in the mean of what one costs. */
const NEWEST_WEIGHT = 0.1;

interface Job {
  kind: LineKind;
  parts: Uint8Array[];
  /** All of it is here, and it is worked on. */
  whole: boolean;
  abort: AbortController;
}

/** How many requests of a kind a node takes at once, by what one costs it. */
export class Capacity {
  readonly #bounds: CapacityBounds;
  #costMs: number | null = null;
  #lastAt = 0;

  constructor(bounds: CapacityBounds) {
    this.#bounds = bounds;
  }

  /** A request that began at one instant was answered at another, both in milliseconds. */
  note(beganAt: number, endedAt: number): void {
    // Requests that wait together cost what lies between their ends.
    const cost = endedAt - Math.max(beganAt, this.#lastAt);
    this.#lastAt = endedAt;
    this.#costMs =
      this.#costMs === null ? cost : this.#costMs + NEWEST_WEIGHT * (cost - this.#costMs);
  }

  /** As many as are answered while somebody is ready to wait. */
  get count(): number {
    const { first, min, max, waitMs } = this.#bounds;
    if (this.#costMs === null) return first;
    const fit = Math.floor(waitMs / Math.max(this.#costMs, 1));
    return Math.min(max, Math.max(min, fit));
  }
}

const STATUS_NAMES = new Map<number, string>(
  Object.entries(LINE_STATUS).map(([name, status]) => [status, name]),
);

/** Counts what came of a request; one without an answer is nobody's any more. */
function countRequest(reply: EncodedReply | null, milliseconds: number): void {
  const status = reply ? (STATUS_NAMES.get(reply.status) ?? "other") : "released";
  tally.count("vantage_node_line_requests_total", { status });
  if (!reply) return;
  tally.observe("vantage_node_line_request_duration_seconds", {}, milliseconds / 1_000);
}

/** Keeps the line until it is closed. */
export class Line {
  readonly #options: LineOptions;
  readonly #capacities: Record<LineKind, Capacity> = {
    predict: new Capacity(CAPACITIES.predict),
    sam: new Capacity(CAPACITIES.sam),
    workflow: new Capacity(CAPACITIES.workflow),
  };
  readonly #end = new AbortController();
  readonly #jobs = new Map<number, Job>();
  #socket: WebSocket | null = null;
  #life = 0;
  #readBytes = 0;
  /** What the service was told last, of each kind. */
  readonly #granted = new Map<LineKind, number>();
  #draining = false;
  #open = false;
  #onIdle: (() => void) | null = null;

  constructor(options: LineOptions) {
    this.#options = options;
    // It ends only by the abort that closing is.
    this.#keep().catch(() => {});
  }

  /** Takes no more; resolves when nothing is worked on. */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#grant();
    if (this.#jobs.size === 0) return;
    await new Promise<void>((done) => {
      this.#onIdle = done;
    });
  }

  close(): void {
    this.#end.abort();
    this.#socket?.close(1000);
    this.#drop();
  }

  async #keep() {
    const { url, token, log } = this.#options;
    const address = `${url}/api/v1/node/line`.replace(/^http/, "ws");
    for (let attempt = 0; !this.#end.signal.aborted; attempt++) {
      const socket = new WebSocket(address, {
        headers: { authorization: `Bearer ${token.reveal()}` },
        handshakeTimeout: HANDSHAKE_MS,
        maxPayload: 2 * PAYLOAD_BYTES_MAX,
        // Images do not get smaller, and deflating costs several times what all the rest does.
        perMessageDeflate: false,
        followRedirects: false,
      });
      // From before it opens, so that closing ends the dialling too.
      this.#socket = socket;
      const opened = await this.#untilClosed(socket);
      this.#drop();
      this.#tellOpen(false);
      if (opened) attempt = 0;
      else if (attempt % 10 === 0) log.info("line_unavailable", { attempt });
      await pause(backoffMs(attempt + 1, null), this.#end.signal);
    }
  }

  /** Resolves when the socket is gone, with whether it had been open. */
  #untilClosed(socket: WebSocket): Promise<boolean> {
    return new Promise((resolve) => {
      let opened = false;
      let heardAt = performance.now();
      const ping = setInterval(() => {
        // A peer that went away without a word answers no ping.
        if (performance.now() - heardAt > LINE_SILENCE_MS) socket.terminate();
        else if (opened) socket.send("ping");
      }, LINE_PING_MS);
      socket.on("open", () => {
        opened = true;
      });
      socket.on("message", (data: Buffer, binary) => {
        heardAt = performance.now();
        const frame = binary ? decodeFrame(data) : null;
        if (frame) this.#heard(frame);
      });
      socket.on("error", () => {});
      socket.on("close", () => {
        clearInterval(ping);
        if (this.#socket === socket) this.#socket = null;
        resolve(opened);
      });
    });
  }

  #heard(frame: Frame) {
    if (frame.kind === "hello") {
      this.#drop();
      this.#life = frame.life;
      this.#readBytes = 0;
      this.#granted.clear();
      this.#grant();
      this.#tellOpen(true);
      return;
    }
    if (frame.life !== this.#life) return;
    if (frame.kind === "cancel") this.#cancel(frame.id);
    const kind = lineKindOf(frame.kind, "ask");
    if (kind) this.#take(frame, kind);
  }

  #take(frame: Frame, kind: LineKind) {
    this.#readBytes += frame.payload.length;
    if (this.#readBytes >= READ_BYTES) {
      this.#send({ kind: "read", value: this.#readBytes });
      this.#readBytes = 0;
    }
    let job = this.#jobs.get(frame.id);
    if (!job) {
      // The rest of a request that was canceled.
      if (frame.index > 0) return;
      job = { kind, parts: [], whole: false, abort: new AbortController() };
      this.#jobs.set(frame.id, job);
    }
    if (frame.index !== job.parts.length) {
      this.#options.log.error("line_broken", { wanted: job.parts.length, got: frame.index });
      this.#socket?.terminate();
      return;
    }
    job.parts.push(frame.payload);
    job.whole = frame.last;
    if (frame.last) void this.#work(frame.id, job, frame.value);
  }

  async #work(id: number, job: Job, ms: number) {
    const { answer, log } = this.#options;
    const life = this.#life;
    const beganAt = performance.now();
    const { kind, parts, abort } = job;
    const request = { kind, body: joined(parts), ms };
    const reply = await answer(request, abort.signal).catch((error: unknown) => {
      log.error("line_request_failed", { error });
      return null;
    });
    countRequest(reply, performance.now() - beganAt);
    if (life !== this.#life || this.#jobs.get(id) !== job) return;
    this.#jobs.delete(id);
    if (reply) {
      // What had to be opened first says nothing of what a request costs.
      if (!reply.cold) this.#capacities[kind].note(beganAt, performance.now());
      this.#answer(id, reply);
    } else this.#send({ kind: "released", life, id });
    this.#grant();
    this.#tellIdle();
  }

  #answer(id: number, { status, body }: EncodedReply) {
    for (let from = 0, index = 0; ; from += PAYLOAD_BYTES_MAX, index++) {
      const payload = body.subarray(from, from + PAYLOAD_BYTES_MAX);
      const last = from + PAYLOAD_BYTES_MAX >= body.length;
      this.#send({ kind: "answer", last, index, life: this.#life, id, value: status, payload });
      if (last) return;
    }
  }

  #cancel(id: number) {
    const job = this.#jobs.get(id);
    job?.abort.abort();
    // What is worked on gives its place back when it has really ended.
    if (job?.whole) return;
    this.#jobs.delete(id);
    this.#send({ kind: "released", life: this.#life, id });
    this.#tellIdle();
  }

  /** Says how many requests the node takes, where that is no more what it said before. */
  #grant() {
    if (!this.#socket) return;
    for (const kind of this.#options.kinds) {
      const capacity = this.#draining ? 0 : this.#capacities[kind].count;
      if (capacity === this.#granted.get(kind)) continue;
      this.#granted.set(kind, capacity);
      this.#send({ kind: LINE_KINDS[kind].grant, value: capacity });
    }
  }

  /** Lets go of every request: nobody waits for them any more. */
  #drop() {
    for (const { abort } of this.#jobs.values()) abort.abort();
    this.#jobs.clear();
    this.#tellIdle();
  }

  #tellOpen(open: boolean) {
    if (open === this.#open) return;
    this.#open = open;
    this.#options.onOpen(open);
  }

  #tellIdle() {
    if (this.#jobs.size === 0) this.#onIdle?.();
  }

  #send(frame: Parameters<typeof encodeFrame>[0]) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(encodeFrame(frame));
  }
}
