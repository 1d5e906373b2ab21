// The ProgressTopic object: one topic's events, numbered without gaps, kept in a bounded ring, and
// sent to whoever listens. It shows what the database decided and decides nothing; all it needs
// survives in its own SQLite, so it may be evicted at any moment.

import { DurableObject } from "cloudflare:workers";
import { z } from "zod";
import { assert } from "../../../../shared/errors.ts";
import { DAY, iso, systemClock } from "../../../../shared/time.ts";
import type { PresenceEvent } from "../../../../shared/wire/edits.ts";
import type { ProgressEvent } from "../../../../shared/wire/progress.ts";
import { databaseUrl, parseEnvironment } from "../../../http/config.ts";
import { type Database, openDatabase } from "../../../http/database.ts";
import { createLog } from "../../../http/log.ts";
import { type Guest, stillWelcome } from "../../auth/guests.ts";
import {
  LISTENERS_EACH_MAX,
  listenerOf,
  type NewEvent,
  type PublishReply,
  type TopicRpc,
} from "./progress.ts";

const EVENTS_MAX = 1_000;
const RING_BYTES_MAX = 1024 * 1024;
const EVENT_BYTES_MAX = 128 * 1024;
/** `batch` events are laid together so that no more than four a second go out. */
const BATCH_MS = 250;
/** A reader that acknowledges gets no `batch` while it is this many events behind. */
const BEHIND_MAX = 200;
/** The ring of an ended topic is let go; its snapshot and end stay. */
const RING_KEPT_MS = 7 * DAY;

/** How often it is asked whether those who listen still may. */
const REVIEW_MS = 30_000;

/** Topics whose listeners see each other, and which never end. */
const SHARED_TOPIC = /^edits:/;
/** Between two words of one socket on where it is; of those in between the last one counts. */
const PRESENCE_MS = 200;
/** What a listener sends to say where it is. */
const Presence = z.strictObject({
  presence: z.strictObject({ frame_id: z.string().max(100).nullable() }),
});
const PRESENCE_CHARACTERS_MAX = 300;

type Data = Record<string, unknown>;

/** What a topic reads of the service's configuration. */
const Environment = z.object({
  DATABASE_URL: databaseUrl(),
  LISTENERS: z.custom<DurableObjectNamespace>(),
});

/** What a socket carries through hibernation. */
interface Reader extends Guest {
  /** The last event it said it has seen; null for a reader that never says. */
  acked: number | null;
  topic: string;
  /** Its ticket's id, by which the others know the socket. */
  id: string;
  /** The frame that it said it looks at; null: at none. Absent where it never said. */
  frame?: string | null;
}

interface Head {
  topic: string;
  seq: number;
  /** All events' data laid over each other, logs and edits left out. */
  state: Data;
  bytes: number;
  ended: boolean;
}

export class ProgressTopic extends DurableObject implements TopicRpc {
  readonly #sql: SqlStorage;
  readonly #database: Database;
  readonly #listeners: DurableObjectNamespace;
  /** Tickets with which somebody is being let in. */
  readonly #opening = new Set<string>();
  /** The batch that waits for its turn. Lost with an eviction: the next one says more. */
  #batch: Data | null = null;
  #batchTimer: ReturnType<typeof setTimeout> | null = null;
  #batchSentAt = -Infinity;
  /** Sockets that said of late where they are, each with the turn of what it says next. */
  readonly #told = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(context: DurableObjectState, environment: object) {
    // The base class types its environment by bindings that a topic has no use for.
    super(context, environment as never);
    this.#sql = context.storage.sql;
    const { DATABASE_URL, LISTENERS } = parseEnvironment(Environment, environment);
    this.#database = openDatabase(DATABASE_URL);
    this.#listeners = LISTENERS;
    this.#sql.exec(`
      CREATE TABLE IF NOT EXISTS event (
        seq INTEGER PRIMARY KEY, ts TEXT NOT NULL, type TEXT NOT NULL, data TEXT NOT NULL);
      CREATE TABLE IF NOT EXISTS head (
        id INTEGER PRIMARY KEY CHECK (id = 1), topic TEXT NOT NULL, seq INTEGER NOT NULL,
        state TEXT NOT NULL, bytes INTEGER NOT NULL, ended INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS ticket (id TEXT PRIMARY KEY, expires INTEGER NOT NULL);`);
    context.setWebSocketAutoResponse(new WebSocketRequestResponsePair("ping", "pong"));
  }

  /**
   * Appends events in order, all or none. Nothing follows an `end`: what comes after it is refused.
   */
  async publish(topic: string, events: readonly NewEvent[]): Promise<PublishReply> {
    const longest = Math.max(0, ...events.map(({ data }) => JSON.stringify(data).length));
    assert(longest <= EVENT_BYTES_MAX, `an event has at most ${EVENT_BYTES_MAX} bytes`);
    const head = this.#head(topic);
    let accepted = 0;
    for (const { type, data } of events) {
      if (head.ended) break;
      if (type === "batch") this.#offerBatch(head, data);
      else {
        // What waits is older: laid over the event, it would take its numbers back.
        if (type !== "log") this.#flushBatch(head);
        this.#append(head, type, data);
      }
      accepted++;
    }
    this.#save(head);
    if (head.ended && accepted > 0) await this.#endSockets();
    if (SHARED_TOPIC.test(topic)) await this.#alarmIn(RING_KEPT_MS);
    return { seq: head.seq, accepted, refused: events.length - accepted };
  }

  /** The topic's whole state, as a listener without `after` gets it. */
  async snapshot(topic: string): Promise<ProgressEvent> {
    return this.#snapshotOf(this.#head(topic));
  }

  async listOpen(ids: readonly string[]): Promise<string[]> {
    const isOpen = (id: string) =>
      this.ctx.getWebSockets(id).some(({ readyState }) => readyState === WebSocket.OPEN);
    return ids.filter((id) => this.#opening.has(id) || isOpen(id));
  }

  /** Takes a listener; the route has checked its ticket, but for whether it was used before. */
  override async fetch(request: Request): Promise<Response> {
    const [id, topic, accountId] = ["X-Ticket", "X-Topic", "X-Account"].map(
      (name) => request.headers.get(name) ?? "",
    ) as [string, string, string];
    // A ticket is for one socket, also while that opens.
    if (this.#opening.has(id)) return new Response(null, { status: 401 });
    this.#opening.add(id);
    try {
      // An ended topic says what it has to say, and holds no socket.
      const { ended } = this.#head(topic);
      const asked = () =>
        listenerOf(this.#listeners, accountId)
          .enter(topic, id)
          .catch(() => null);
      const enters = ended || (await asked());
      if (enters === null) return new Response(null, { status: 503 });
      if (!enters) return new Response(null, { status: 429, headers: { "X-Limit": "person" } });
      return await this.#take(request.headers, { topic, accountId });
    } finally {
      this.#opening.delete(id);
    }
  }

  /** Opens a socket, unless the topic has too many, or the ticket was used before. */
  async #take(
    headers: Headers,
    { topic, accountId }: { topic: string; accountId: string },
  ): Promise<Response> {
    const own = this.ctx.getWebSockets(accountId).length;
    if (own >= LISTENERS_EACH_MAX) return new Response(null, { status: 429 });
    const listenersMax = Number(headers.get("X-Listeners-Max"));
    if (this.ctx.getWebSockets().length >= listenersMax) return new Response(null, { status: 503 });
    // Last: who is refused for another reason may come again with it.
    if (!this.#takeTicket(headers)) return new Response(null, { status: 401 });
    const head = this.#head(topic);
    const after = headers.get("X-After");
    const [client, server] = Object.values(new WebSocketPair()) as [WebSocket, WebSocket];
    if (head.ended) server.accept();
    else {
      this.ctx.acceptWebSocket(server, [accountId, headers.get("X-Ticket") ?? ""]);
      const session = headers.get("X-Session") ?? "";
      const workspaceId = headers.get("X-Workspace") ?? "";
      const id = headers.get("X-Ticket") ?? "";
      const guest = { accountId, session, workspaceId };
      const reader: Reader = { ...guest, topic, acked: null, id };
      server.serializeAttachment(reader);
    }
    for (const event of this.#missed(head, after === null ? null : Number(after))) {
      server.send(JSON.stringify(event));
    }
    for (const socket of this.#open()) {
      const other = socket.deserializeAttachment() as Reader;
      if (other.frame === undefined) continue;
      server.send(JSON.stringify(this.#presenceOf(other, { left: false })));
    }
    if (head.ended) server.close(1000, "ended");
    else await this.#alarmIn(REVIEW_MS);
    return new Response(null, { status: 101, webSocket: client });
  }

  /**
   * `{"ack": seq}`: the reader has seen everything up to there. `{"presence": …}`: where it is.
   * Anything else means nothing.
   */
  override webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): void {
    const [, seq] =
      /^\{"ack": ?(\d{1,15})\}$/.exec(typeof message === "string" ? message : "") ?? [];
    if (seq === undefined) {
      if (typeof message === "string") this.#hearPresence(socket, message);
      return;
    }
    const reader = socket.deserializeAttachment() as Reader;
    const acked = Math.max(reader.acked ?? 0, Number(seq));
    socket.serializeAttachment({ ...reader, acked } satisfies Reader);
  }

  override webSocketClose(socket: WebSocket, code: number, reason: string): void {
    this.#tellLeft(socket);
    socket.close(code === 1005 || code === 1006 ? 1000 : code, reason);
  }

  override webSocketError(socket: WebSocket): void {
    this.#tellLeft(socket);
    socket.close(1011, "socket failed");
  }

  #open(): WebSocket[] {
    return this.ctx.getWebSockets().filter(({ readyState }) => readyState === WebSocket.OPEN);
  }

  #hearPresence(socket: WebSocket, message: string): void {
    const reader = socket.deserializeAttachment() as Reader;
    if (message.length > PRESENCE_CHARACTERS_MAX || !SHARED_TOPIC.test(reader.topic)) return;
    const parsed = Presence.safeParse(parsedJson(message));
    if (!parsed.success) return;
    const frame = parsed.data.presence.frame_id;
    if (reader.frame === frame) return;
    socket.serializeAttachment({ ...reader, frame } satisfies Reader);
    if (!this.#told.has(reader.id)) this.#tellPresence(socket);
  }

  /** Tells the others where a socket's listener is; what it says soon after, in its turn. */
  #tellPresence(socket: WebSocket): void {
    const reader = socket.deserializeAttachment() as Reader;
    this.#sendOthers(socket, this.#presenceOf(reader, { left: false }));
    const turn = setTimeout(() => {
      this.#told.delete(reader.id);
      const { frame } = socket.deserializeAttachment() as Reader;
      if (frame !== undefined && frame !== reader.frame) this.#tellPresence(socket);
    }, PRESENCE_MS);
    this.#told.set(reader.id, turn);
  }

  /** Tells the others that a socket is closed whose listener had said where it is. */
  #tellLeft(socket: WebSocket): void {
    const { frame, ...reader } = socket.deserializeAttachment() as Reader;
    clearTimeout(this.#told.get(reader.id));
    this.#told.delete(reader.id);
    if (frame === undefined) return;
    socket.serializeAttachment(reader satisfies Reader);
    this.#sendOthers(socket, this.#presenceOf({ ...reader, frame: null }, { left: true }));
  }

  #presenceOf(
    { topic, id, accountId, frame = null }: Reader,
    { left }: { left: boolean },
  ): ProgressEvent {
    const data: PresenceEvent = {
      listener_id: id,
      actor_id: accountId,
      frame_id: frame,
      left,
    };
    const { seq } = this.#head(topic);
    return { v: 1, topic, seq, ts: iso(systemClock()), type: "presence", data };
  }

  #sendOthers(socket: WebSocket, event: ProgressEvent): void {
    const text = JSON.stringify(event);
    for (const other of this.#open()) {
      if (other !== socket) sendTo(other, text);
    }
  }

  override async alarm(): Promise<void> {
    if (this.#head("").ended) {
      this.#sql.exec("DELETE FROM event WHERE type <> 'end'");
      return;
    }
    await this.#closeUnwelcome();
    const { ended, topic } = this.#head("");
    if (!ended && this.ctx.getWebSockets().length > 0) await this.#alarmIn(REVIEW_MS);
    else if (SHARED_TOPIC.test(topic)) await this.#forgetOld();
  }

  /** Wakes the topic within a time, or earlier where it was to be woken anyway. */
  async #alarmIn(milliseconds: number): Promise<void> {
    const at = systemClock() + milliseconds;
    const set = await this.ctx.storage.getAlarm();
    if (set === null || set > at) await this.ctx.storage.setAlarm(at);
  }

  /** Lets go of what happened long ago at a topic that has no end. */
  async #forgetOld(): Promise<void> {
    this.#sql.exec("DELETE FROM event WHERE ts < ?", iso(systemClock() - RING_KEPT_MS));
    const { left } = this.#sql.exec("SELECT count(*) AS left FROM event").one();
    if (Number(left) > 0) await this.#alarmIn(RING_KEPT_MS);
  }

  /** Closes the sockets of those who were logged out or are of the workspace no more. */
  async #closeUnwelcome(): Promise<void> {
    const sockets = this.ctx.getWebSockets();
    const readers = sockets.map((socket) => socket.deserializeAttachment() as Reader);
    const guests = new Map(readers.map((reader) => [nameOf(reader), guestOf(reader)]));
    try {
      const welcome = new Set(
        (await stillWelcome(this.#database, [...guests.values()])).map(nameOf),
      );
      for (const [index, reader] of readers.entries()) {
        const socket = sockets[index];
        if (!socket || welcome.has(nameOf(reader))) continue;
        this.#tellLeft(socket);
        socket.close(1008, "you may not listen any more");
      }
    } catch (error) {
      // A database that is away let nobody go: the next review asks it again.
      createLog("vision").warning("listeners_not_reviewed", { count: sockets.length, error });
    }
  }

  /** Whether a ticket is used for the first time; those that ran out are forgotten. */
  #takeTicket(headers: Headers): boolean {
    const [id, expires] = [headers.get("X-Ticket"), Number(headers.get("X-Ticket-Expires"))];
    this.#sql.exec("DELETE FROM ticket WHERE expires < ?", systemClock() / 1_000);
    const insert = "INSERT OR IGNORE INTO ticket (id, expires) VALUES (?, ?) RETURNING id";
    return this.#sql.exec(insert, id, expires).toArray().length > 0;
  }

  #head(topic: string): Head {
    const [row] = this.#sql.exec("SELECT topic, seq, state, bytes, ended FROM head").toArray();
    if (!row) return { topic, seq: 0, state: {}, bytes: 0, ended: false };
    return {
      topic: String(row.topic),
      seq: Number(row.seq),
      state: JSON.parse(String(row.state)) as Data,
      bytes: Number(row.bytes),
      ended: row.ended === 1,
    };
  }

  #save({ topic, seq, state, bytes, ended }: Head): void {
    this.#sql.exec(
      "INSERT OR REPLACE INTO head (id, topic, seq, state, bytes, ended) VALUES (1, ?, ?, ?, ?, ?)",
      ...[topic, seq, JSON.stringify(state), bytes, Number(ended)],
    );
  }

  /** Numbers, keeps and sends one event. */
  #append(head: Head, type: NewEvent["type"], data: Data): void {
    const text = JSON.stringify(data);
    head.seq++;
    if (type !== "log" && type !== "edit") Object.assign(head.state, data);
    if (type === "end") head.ended = true;
    head.bytes += text.length;
    const ts = iso(systemClock());
    this.#sql.exec("INSERT INTO event VALUES (?, ?, ?, ?)", head.seq, ts, type, text);
    this.#trim(head);
    this.#send({ v: 1, topic: head.topic, seq: head.seq, ts, type, data });
  }

  #trim(head: Head): void {
    this.#sql.exec("DELETE FROM event WHERE seq <= ?", head.seq - EVENTS_MAX);
    if (head.bytes <= RING_BYTES_MAX) return;
    // The newest half stays, so this is rare.
    this.#sql.exec(
      `DELETE FROM event WHERE seq < ? AND seq IN (SELECT seq FROM
        (SELECT seq, sum(length(data)) OVER (ORDER BY seq DESC) AS total FROM event)
        WHERE total > ?)`,
      ...[head.seq, RING_BYTES_MAX / 2],
    );
    head.bytes = Number(this.#sql.exec("SELECT sum(length(data)) AS bytes FROM event").one().bytes);
  }

  #offerBatch(head: Head, data: Data): void {
    this.#batch = { ...this.#batch, ...data };
    const wait = this.#batchSentAt + BATCH_MS - systemClock();
    if (wait <= 0) this.#flushBatch(head);
    else this.#batchTimer ??= setTimeout(() => this.#batchTurn(), wait);
  }

  #batchTurn(): void {
    const head = this.#head("");
    if (!head.ended) this.#flushBatch(head);
    this.#save(head);
  }

  #flushBatch(head: Head): void {
    if (this.#batchTimer) clearTimeout(this.#batchTimer);
    this.#batchTimer = null;
    const batch = this.#batch;
    this.#batch = null;
    if (!batch) return;
    this.#batchSentAt = systemClock();
    this.#append(head, "batch", batch);
  }

  #send(event: ProgressEvent): void {
    const text = JSON.stringify(event);
    for (const socket of this.ctx.getWebSockets()) {
      if (event.type === "batch" && isBehind(socket, event.seq)) continue;
      sendTo(socket, text);
    }
  }

  /** What a new listener has to be told: the events after what it saw, or the whole state. */
  #missed(head: Head, after: number | null): ProgressEvent[] {
    const kept = this.#sql.exec("SELECT min(seq) AS oldest FROM event").one().oldest;
    const oldest = kept === null ? head.seq + 1 : Number(kept);
    if (after !== null && after >= oldest - 1 && after <= head.seq) return this.#since(head, after);
    const snapshot = this.#snapshotOf(head);
    return [snapshot, ...this.#since(head, snapshot.seq)];
  }

  #since(head: Head, after: number): ProgressEvent[] {
    return this.#sql
      .exec("SELECT seq, ts, type, data FROM event WHERE seq > ? ORDER BY seq", after)
      .toArray()
      .map((row) => ({
        v: 1,
        topic: head.topic,
        seq: Number(row.seq),
        ts: String(row.ts),
        type: row.type as ProgressEvent["type"],
        data: JSON.parse(String(row.data)) as Data,
      }));
  }

  /** Stands for every event up to its `seq`; of an ended topic the `end` still follows. */
  #snapshotOf({ topic, seq, state, ended }: Head): ProgressEvent {
    const upTo = ended ? seq - 1 : seq;
    return { v: 1, topic, seq: upTo, ts: iso(systemClock()), type: "snapshot", data: state };
  }

  async #endSockets(): Promise<void> {
    for (const socket of this.ctx.getWebSockets()) socket.close(1000, "ended");
    await this.ctx.storage.setAlarm(systemClock() + RING_KEPT_MS);
  }
}

const guestOf = ({ accountId, session, workspaceId }: Guest): Guest => ({
  accountId,
  session,
  workspaceId,
});
const nameOf = ({ accountId, session, workspaceId }: Guest) =>
  `${accountId} ${session} ${workspaceId}`;

function sendTo(socket: WebSocket, text: string): void {
  try {
    socket.send(text);
  } catch {
    // The socket is closing; its reader comes back with `after`.
  }
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isBehind(socket: WebSocket, seq: number): boolean {
  const { acked } = socket.deserializeAttachment() as Reader;
  return acked !== null && seq - acked > BEHIND_MAX;
}
