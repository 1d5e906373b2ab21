// Live progress in workerd: numbering, replay, snapshots, the end, tickets, slow readers, many
// readers, and an object that is evicted at any moment.

import { decodeJwt, SignJWT } from "jose";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { createLog } from "../../../edge/http/log.ts";
import { keyFor } from "../../../edge/vision/auth/tokens.ts";
import { API } from "../../../edge/vision/base/api.ts";
import { type NewEvent, publish, topicOf } from "../../../edge/vision/tasks/progress/progress.ts";
import { issueTicket } from "../../../edge/vision/tasks/progress/tickets.ts";
import { ErrorBody } from "../../../shared/errors.ts";
import { ProgressEvent } from "../../../shared/wire/progress.ts";
import { newGuest, tokenParts } from "../../support/nodes.ts";
import { newMember, newTenant, type Person, register } from "../../support/vision.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let parts: Parameters<typeof publish>[0];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  parts = { topics: world.objects("PROGRESS"), log: createLog("test") };
});

const newTopic = () => `label:${crypto.randomUUID()}`;
const ticketFor = async (topic: string) =>
  (await issueTicket(tokenParts, { topic, ...newGuest() })).ticket;
const tell = (topic: string, ...events: NewEvent[]) => publish(parts, topic, events);
const log = (line: number): NewEvent => ({ type: "log", data: { line } });
const state = (name: string): NewEvent => ({ type: "state", data: { state: name } });

interface Listener {
  socket: WebSocket;
  events: ProgressEvent[];
  /** Resolves when so many events came. */
  seen(count: number): Promise<ProgressEvent[]>;
  /** Resolves with the close code. */
  closed: Promise<number>;
}

async function listen(topic: string, after?: number): Promise<Listener> {
  const asked = { topic, ...newGuest() };
  return listenAt((await issueTicket(tokenParts, asked)).url, after);
}

async function listenAt(url: string, after?: number): Promise<Listener> {
  const path = after === undefined ? url : `${url}&after=${after}`;
  const socket = new WebSocket(new URL(path, world.urls.vision));
  const events: ProgressEvent[] = [];
  let wake = () => {};
  socket.on("message", (data) => {
    if (String(data) === "pong") return;
    events.push(ProgressEvent.parse(JSON.parse(String(data))));
    wake();
  });
  const closed = new Promise<number>((done) => socket.on("close", done));
  await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
  // As readers do. Until one sent something, workerd ends its closed socket only when the object
  // leaves the memory, ten seconds later.
  socket.send("ping");
  const seen = async (count: number) => {
    while (events.length < count) {
      await new Promise<void>((done) => {
        wake = done;
      });
    }
    return events;
  };
  return { socket, events, seen, closed };
}

const shown = (events: ProgressEvent[]) => events.map(({ seq, type }) => `${seq} ${type}`);
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);

describe("a topic", () => {
  it("numbers events without gaps and sends each to every listener once, in order", async () => {
    const topic = newTopic();
    const listeners = [await listen(topic), await listen(topic)];
    await tell(topic, state("running"), log(1));
    await Promise.all(range(2, 40).map((line) => tell(topic, log(line))));
    for (const listener of listeners) {
      const events = await listener.seen(42);
      expect(events.map(({ seq }) => seq)).toEqual(range(0, 41));
      expect(events[0]).toMatchObject({ v: 1, topic, type: "snapshot", data: {} });
      const lines = events.slice(2).map(({ data }) => Number(data.line));
      expect(lines.sort((left, right) => left - right)).toEqual(range(1, 40));
      listener.socket.close();
    }
  });

  it("replays what was missed, and gives a snapshot without `after` or from the future", async () => {
    const topic = newTopic();
    await tell(topic, state("queued"), log(1), { type: "eta", data: { seconds: 9 } });
    await tell(topic, state("running"), { type: "batch", data: { done: 1, total: 4 } });
    const missed = await (await listen(topic, 2)).seen(3);
    expect(shown(missed)).toEqual(["3 eta", "4 state", "5 batch"]);
    expect(shown(await (await listen(topic, 0)).seen(5))[0]).toBe("1 state");
    for (const [index, after] of [undefined, 99].entries()) {
      const listener = await listen(topic, after);
      const [snapshot] = await listener.seen(1);
      expect(snapshot).toMatchObject({
        seq: 5 + index,
        type: "snapshot",
        data: { state: "running", seconds: 9, done: 1, total: 4 },
      });
      await tell(topic, state("running"));
      expect(shown(await listener.seen(2))[1]).toBe(`${6 + index} state`);
    }
    const upToDate = await listen(topic, 7);
    await tell(topic, log(2));
    expect(shown(await upToDate.seen(1))).toEqual(["8 log"]);
  });

  it("keeps a bounded ring, by count and by bytes: older listeners get a snapshot", async () => {
    const topic = newTopic();
    await tell(topic, state("running"), ...range(1, 1_100).map(log));
    expect(shown(await (await listen(topic, 101)).seen(1_000))[0]).toBe("102 log");
    expect(shown(await (await listen(topic, 100)).seen(1))).toEqual(["1101 snapshot"]);
    const heavy = newTopic();
    const text = "x".repeat(100_000);
    for (const line of range(1, 12)) {
      await tell(heavy, { type: "log", data: { line, text } });
    }
    expect(shown(await (await listen(heavy, 1)).seen(1))).toEqual(["12 snapshot"]);
    expect(shown(await (await listen(heavy, 10)).seen(2))).toEqual(["11 log", "12 log"]);
    expect(await tell(heavy, { type: "log", data: { text: "x".repeat(200_000) } })).toBeNull();
    expect(shown(await (await listen(heavy, 11)).seen(1))).toEqual(["12 log"]);
  });

  it("ends once: `end` is last, closes with 1000, and nothing is taken after it", async () => {
    const topic = newTopic();
    const listener = await listen(topic);
    const end: NewEvent = { type: "end", data: { state: "completed" } };
    const reply = await tell(topic, { type: "batch", data: { done: 1 } }, end, log(1));
    expect(reply).toEqual({ seq: 2, accepted: 2, refused: 1 });
    expect(await listener.closed).toBe(1000);
    expect(shown(listener.events)).toEqual(["0 snapshot", "1 batch", "2 end"]);
    expect(await tell(topic, state("running"))).toMatchObject({ accepted: 0, refused: 1 });
    const late = await listen(topic);
    expect(await late.closed).toBe(1000);
    expect(shown(late.events)).toEqual(["1 snapshot", "2 end"]);
    expect(late.events[0]?.data).toEqual({ done: 1, state: "completed" });
    const resumed = await listen(topic, 2);
    expect(await resumed.closed).toBe(1000);
    expect(resumed.events).toEqual([]);
  });

  it("lays batches together to four a second, and sends the last before the end", async () => {
    const topic = newTopic();
    const listener = await listen(topic);
    const started = performance.now();
    let sent = 0;
    const batch = (): NewEvent => ({
      type: "batch",
      data: { done: ++sent, [`k${sent % 3}`]: sent },
    });
    while (sent < 20 || performance.now() - started < 900) await tell(topic, batch());
    // Told at once: but for the first perhaps, they wait when the end comes.
    await tell(topic, batch(), batch(), batch(), batch(), { type: "end", data: {} });
    const seconds = (performance.now() - started) / 1_000;
    await listener.closed;
    const batches = listener.events.filter(({ type }) => type === "batch");
    expect(batches.length).toBeGreaterThan(2);
    expect(batches.length).toBeLessThanOrEqual(Math.ceil(seconds * 4) + 1);
    expect(batches.at(-1)?.data.done).toBe(sent);
    expect(Object.keys(batches.at(-1)?.data ?? {}).length).toBe(4);
    expect(listener.events.map(({ seq }) => seq)).toEqual(range(0, batches.length + 1));
  });

  it("sends a batch that waits before what came after it", async () => {
    const topic = newTopic();
    const done = (count: number): NewEvent => ({ type: "batch", data: { done: count } });
    await tell(topic, done(1), done(2), { type: "state", data: { state: "stopped", done: 3 } });
    await tell(topic, { type: "end", data: {} });
    const { events, closed } = await listen(topic, 0);
    await closed;
    expect(shown(events)).toEqual(["1 batch", "2 batch", "3 state", "4 end"]);
    const late = await listen(topic);
    await late.closed;
    expect(late.events[0]?.data).toEqual({ state: "stopped", done: 3 });
  });

  it("takes all of what is told at once, or nothing", async () => {
    const topic = newTopic();
    const huge: NewEvent = { type: "log", data: { text: "x".repeat(200_000) } };
    expect(await tell(topic, log(1), huge)).toBeNull();
    expect(await tell(topic, log(2))).toMatchObject({ seq: 1, accepted: 1 });
    expect(shown(await (await listen(topic, 0)).seen(1))).toEqual(["1 log"]);
  });

  it("leaves out batches, and nothing else, for a reader that says it is far behind", async () => {
    const topic = newTopic();
    const [slow, quick] = [await listen(topic), await listen(topic)];
    slow.socket.send('{"ack":0}');
    quick.socket.send('{"ack":0}');
    quick.socket.send("nonsense");
    const pong = new Promise((done) => slow.socket.once("pong", done));
    slow.socket.ping();
    await pong;
    await tell(topic, ...range(1, 300).map(log));
    await quick.seen(301);
    quick.socket.send('{"ack":300}');
    const acked = new Promise((done) => quick.socket.once("pong", done));
    quick.socket.ping();
    await acked;
    await tell(topic, { type: "batch", data: { done: 1 } }, state("running"));
    expect(shown(await quick.seen(303)).slice(-2)).toEqual(["301 batch", "302 state"]);
    expect(shown(await slow.seen(302)).slice(-2)).toEqual(["300 log", "302 state"]);
  });
});

describe("an evicted object", () => {
  it("keeps its numbers, ring and state, and its hibernating listeners hear on", async () => {
    const topic = newTopic();
    const listener = await listen(topic);
    await tell(topic, state("running"), { type: "epoch", data: { epoch: 1 } });
    await listener.seen(3);
    await world.evict("ProgressTopic", topic);
    await tell(topic, { type: "epoch", data: { epoch: 2 } });
    expect(shown(await listener.seen(4))).toEqual(["0 snapshot", "1 state", "2 epoch", "3 epoch"]);
    await world.evict("ProgressTopic", topic);
    const [snapshot] = await (await listen(topic)).seen(1);
    expect(snapshot).toMatchObject({ seq: 3, data: { state: "running", epoch: 2 } });
    expect(await topicOf(parts, topic).snapshot(topic)).toMatchObject({ seq: 3 });
    await world.evict("ProgressTopic", topic);
    await tell(topic, { type: "end", data: {} });
    expect(await listener.closed).toBe(1000);
    await topicOf(parts, topic).snapshot(topic);
    await world.evict("ProgressTopic", topic);
    expect(await tell(topic, log(1))).toMatchObject({ accepted: 0, refused: 1 });
  });
});

describe("many listeners", () => {
  it("hear the same, all hundred of them, while some come and go", async () => {
    const topic = newTopic();
    const listeners = await Promise.all(range(1, 100).map(() => listen(topic)));
    for (const line of range(1, 20)) {
      await tell(topic, log(line));
      if (line % 4 === 0) listeners[line]?.socket.terminate();
    }
    await tell(topic, { type: "end", data: {} });
    await Promise.all(listeners.map(({ closed }) => closed));
    const whole = listeners.filter(({ events }) => events.at(-1)?.type === "end");
    expect(whole).toHaveLength(95);
    for (const { events } of whole) expect(events.map(({ seq }) => seq)).toEqual(range(0, 21));
  });
});

describe("a listener", () => {
  it("is sent away once logged out or out of the workspace, and no other is", async () => {
    const url = world.urls.vision;
    const admin = await register(url);
    const { workspaceId, member: stays } = await newTenant(url, admin, "admin");
    const topic = newTopic();
    const join = async (who: Person) => {
      const { sub = "", sid } = decodeJwt(who.tokens.access_token);
      const asked = { topic, accountId: sub, session: String(sid), workspaceId };
      return listenAt((await issueTicket(tokenParts, asked)).url);
    };
    const [leaves, demoted, loggedOut] = [
      await newMember(url, admin, workspaceId, "viewer"),
      await newMember(url, admin, workspaceId, "engineer"),
      await newMember(url, admin, workspaceId, "viewer"),
    ];
    const gone = [await join(leaves), await join(loggedOut)];
    const kept = [await join(stays), await join(demoted)];
    const setRole = (who: Person, role: string | null) =>
      admin.ask("PATCH", `/admin/users/${who.id}`, { workspace_id: workspaceId, role });
    expect((await setRole(leaves, null)).status).toBe(200);
    expect((await setRole(demoted, "viewer")).status).toBe(200);
    expect((await loggedOut.ask("POST", "/auth/logout")).status).toBe(204);
    // A review finds them, also after the object left the memory.
    await world.evict("ProgressTopic", topic);
    expect(await Promise.all(gone.map(({ closed }) => closed))).toEqual([1008, 1008]);
    await tell(topic, log(1), { type: "end", data: {} });
    expect(await Promise.all(kept.map(({ closed }) => closed))).toEqual([1000, 1000]);
    for (const { events } of kept) expect(shown(events)).toEqual(["0 snapshot", "1 log", "2 end"]);
    for (const { events } of gone) expect(shown(events)).toEqual(["0 snapshot"]);
  });
});

describe("publish", () => {
  it("never fails its caller", async () => {
    const broken = { idFromName: () => null, get: () => ({ publish: () => Promise.reject(1) }) };
    // A broken namespace has just what is called.
    expect(await publish({ ...parts, topics: broken as never }, "x", [log(1)])).toBeNull();
  });
});

describe("GET /progress", () => {
  const refusal = async (response: Response) => [
    response.status,
    ErrorBody.parse(await response.json()).code,
  ];
  const connect = (query: string) =>
    new Promise<number>((done, failed) => {
      const address = `${world.urls.vision}${API}/progress${query}`.replace("http", "ws");
      const socket = new WebSocket(address);
      socket.on("unexpected-response", (_, { statusCode }) => done(statusCode ?? 0));
      socket.on("open", () => failed(new Error("it let us in")));
      socket.on("error", () => {});
    });

  it("refuses a ticket that is missing, forged, expired, of another kind or key", async () => {
    const topic = newTopic();
    const past = { ...tokenParts, clock: () => Date.now() - 61_000 };
    const expired = await issueTicket(past, { topic, ...newGuest() });
    const key = await keyFor(tokenParts.tokenSecret, "ticket");
    const sign = (audience: string, typ: string, bytes: Uint8Array) =>
      new SignJWT({ topic })
        .setProtectedHeader({ alg: "HS256", typ })
        .setSubject(crypto.randomUUID())
        .setIssuer("vantage-vision")
        .setAudience(audience)
        .setIssuedAt()
        .setExpirationTime("1m")
        .sign(bytes);
    const person = await register(world.urls.vision);
    const good = await ticketFor(topic);
    const bad = [
      "x",
      expired.ticket,
      good.slice(0, -4),
      person.tokens.access_token,
      await sign("another", "ticket+jwt", key.bytes),
      await sign("vantage-vision-progress", "at+jwt", key.bytes),
      await sign("vantage-vision-progress", "ticket+jwt", new Uint8Array(32)),
    ];
    for (const ticket of bad) expect(await connect(`?ticket=${ticket}`)).toBe(401);
    expect(await connect("")).toBe(422);
    expect(await connect(`?ticket=${good}&after=-1`)).toBe(422);
    expect(await connect(`?ticket=${good}&after=x`)).toBe(422);
    expect(world.logs.join()).not.toContain(good);
    expect(world.logs.join()).not.toContain(expired.ticket);
  });

  it("takes a ticket once", async () => {
    const topic = newTopic();
    const asked = { topic, ...newGuest() };
    const { ticket, url } = await issueTicket(tokenParts, asked);
    const socket = new WebSocket(new URL(url, world.urls.vision));
    await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
    expect(await connect(`?ticket=${ticket}`)).toBe(401);
    socket.terminate();
  });

  /** Opens a socket of somebody's at a topic; gives it with the status of the answer. */
  async function open(topic: string, who: ReturnType<typeof newGuest>) {
    const asked = { topic, ...who };
    const { url } = await issueTicket(tokenParts, asked);
    const socket = new WebSocket(new URL(url, world.urls.vision));
    const status = await new Promise<number>((done) => {
      socket.on("open", () => done(101));
      socket.on("unexpected-response", (_, { statusCode }) => done(statusCode ?? 0));
      socket.on("error", () => {});
    });
    return { socket, status };
  }

  it("lets a person have sixteen sockets at a topic, and others theirs", async () => {
    const topic = newTopic();
    const one = newGuest();
    const opened = [];
    for (const _ of range(1, 16)) opened.push(await open(topic, one));
    expect(opened.every(({ status }) => status === 101)).toBe(true);
    expect((await open(topic, one)).status).toBe(503);
    const other = await open(topic, newGuest());
    expect(other.status).toBe(101);
    for (const { socket } of [...opened, other]) socket.terminate();
  });

  it("lets a person have sixty-four sockets in all, and another for each that is gone", async () => {
    const topics = range(1, 8).map(newTopic);
    const one = newGuest();
    const at = (index: number) => topics[index % topics.length] as string;
    const opened = await Promise.all(range(1, 64).map((index) => open(at(index), one)));
    expect(opened.filter(({ status }) => status === 101)).toHaveLength(64);
    // Its objects are asked anew, and know what they held.
    for (const topic of topics) await world.evict("ProgressTopic", topic);
    await world.evict("Listener", one.accountId);
    const more = async () => {
      const asked = await open(newTopic(), one);
      opened.push(asked);
      return asked.status;
    };
    // Many at once are let in no more than one is.
    expect(await Promise.all(range(1, 5).map(more))).toEqual([503, 503, 503, 503, 503]);
    const other = await open(at(0), newGuest());
    expect(other.status).toBe(101);
    for (const leave of ["close", "terminate"] as const) {
      opened.shift()?.socket[leave]();
      await expect.poll(more).toBe(101);
      expect(await more()).toBe(503);
    }
    // Those of an ended topic are closed by it.
    await tell(at(5), { type: "end", data: {} });
    await expect.poll(more).toBe(101);
    // What it had to say is told without a socket of the sixty-four.
    const rest = async () => ((await more()) === 503 ? "none" : "one more");
    await expect.poll(rest).toBe("none");
    expect((await open(at(5), one)).status).toBe(101);
    for (const { socket } of [...opened, other]) socket.terminate();
  });

  it("is a WebSocket only, and a ticket is no access token", async () => {
    const good = await ticketFor(newTopic());
    const plain = await fetch(`${world.urls.vision}${API}/progress?ticket=${good}`);
    expect(await refusal(plain)).toEqual([422, "invalid_request"]);
    const me = await fetch(`${world.urls.vision}${API}/auth/me`, {
      headers: { Authorization: `Bearer ${good}` },
    });
    expect(await refusal(me)).toEqual([401, "unauthorized"]);
  });
});
