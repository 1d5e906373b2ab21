// Live topics of the service over a WebSocket: events in order, without gaps across connections.

import type { ProgressEvent, Ticket } from "../../../shared/wire/progress.ts";
import { ApiError, call } from "./api.ts";

const PING_MS = 25_000;
const PAUSE_MS = 500;
const PAUSE_MS_MAX = 15_000;

/** A topic that is listened to. */
export interface Listening {
  stop(): void;
}

interface TopicOptions {
  /** The route that gives a ticket. */
  ticketPath: string;
  onEvent: (event: ProgressEvent) => void;
  /** Whether the connection stands. */
  onConnected?: (isConnected: boolean) => void;
}

/** Listens to a topic until it ends or is stopped; connects again by itself. */
export function listen({ ticketPath, onEvent, onConnected = () => {} }: TopicOptions): Listening {
  let socket: WebSocket | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isOver = false;
  let after: number | undefined;
  let lost = 0;
  const later = () => {
    if (isOver) return;
    onConnected(false);
    timer = setTimeout(connect, Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** lost++));
  };
  const connect = () => {
    call<Ticket>(ticketPath, { method: "POST" }).then(open, (thrown: unknown) => {
      const { status } = thrown instanceof ApiError ? thrown : { status: 0 };
      // What may not be listened to, or is gone, is not asked for again.
      if (status === 403 || status === 404) {
        isOver = true;
        onConnected(false);
      } else later();
    });
  };
  const open = ({ url }: Ticket) => {
    if (isOver) return;
    const address = new URL(url, location.origin);
    address.protocol = address.protocol.replace("http", "ws");
    if (after !== undefined) address.searchParams.set("after", String(after));
    const opened = new WebSocket(address);
    socket = opened;
    let hasAnswered = true;
    const ping = setInterval(() => {
      // A connection that died without a word answers no ping.
      if (!hasAnswered) opened.close();
      else if (opened.readyState === 1) opened.send("ping");
      hasAnswered = false;
    }, PING_MS);
    opened.onmessage = ({ data }) => {
      hasAnswered = true;
      if (data === "pong") return;
      lost = 0;
      onConnected(true);
      const event = JSON.parse(String(data)) as ProgressEvent; // The topic's own shape.
      after = event.seq;
      if (event.type === "end") isOver = true;
      onEvent(event);
    };
    opened.onclose = () => {
      clearInterval(ping);
      later();
    };
  };
  connect();
  return {
    stop: () => {
      isOver = true;
      clearTimeout(timer);
      socket?.close();
    },
  };
}
