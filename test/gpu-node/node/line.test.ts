// The node's end of the direct line, with a service whose end the test holds. Goal: each request
// gets one answer or its place back, what nobody waits for costs nothing, a drain loses nothing.

import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { type WebSocket, WebSocketServer } from "ws";
import { createLog } from "../../../gpu-node/base/log.ts";
import { CAPACITIES, Capacity, Line, type LineOptions } from "../../../gpu-node/node/line.ts";
import { Secret } from "../../../shared/secret.ts";
import {
  decodeFrame,
  encodeFrame,
  type Frame,
  LINE_KIND_NAMES,
  LINE_STATUS,
  type LineKind,
} from "../../../shared/tasks/line.ts";

const LIFE = 77;

/** A request that the node works on, and how it ends. */
interface Work {
  kind: LineKind;
  text: string;
  ms: number;
  signal: AbortSignal;
  end(reply: Awaited<ReturnType<LineOptions["answer"]>>): void;
}

let server: WebSocketServer;
let socket: WebSocket;
let frames: Frame[];
let works: Work[];
let opens: boolean[];
let line: Line;

beforeEach(async () => {
  [frames, works, opens] = [[], [], []];
  server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  server.on("connection", (opened, request) => {
    expect(request.headers.authorization).toBe("Bearer vnt_secret");
    expect(request.url).toBe("/api/v1/node/line");
    socket = opened;
    opened.on("message", (data: Buffer, binary) => {
      const frame = binary ? decodeFrame(data) : null;
      if (frame) frames.push(frame);
    });
    send({ kind: "hello", life: LIFE });
  });
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const heard = opens;
  line = new Line({
    url: `http://127.0.0.1:${port}`,
    token: new Secret("vnt_secret"),
    log: createLog(() => {}),
    kinds: LINE_KIND_NAMES,
    onOpen: (open) => heard.push(open),
    answer: ({ kind, body, ms }, signal) =>
      new Promise((end) => {
        works.push({ kind, text: Buffer.from(body).toString(), ms, signal, end });
      }),
  });
  await expect.poll(() => of("grant")).toHaveLength(1);
});
afterEach(() => {
  line.close();
  for (const client of server.clients) client.terminate();
  server.close();
});

const of = (kind: Frame["kind"]) => frames.filter((frame) => frame.kind === kind);
const send = (frame: Parameters<typeof encodeFrame>[0]) => socket.send(encodeFrame(frame));
const ask = (id: number, text: string, more: Partial<Frame> = {}) =>
  send({
    kind: "ask",
    last: true,
    life: LIFE,
    id,
    value: 900,
    payload: Buffer.from(text),
    ...more,
  });
const json = (body: object) => Buffer.from(JSON.stringify(body));
const FOUND = {
  status: LINE_STATUS.done,
  body: json({ predictions: [], width: 4, height: 3 }),
};

describe("a request", () => {
  it("comes in frames and is answered once, with the time that is left", async () => {
    expect(of("grant")[0]?.value).toBe(16);
    ask(5, "one ", { last: false });
    ask(5, "two", { index: 1 });
    await expect.poll(() => works.length).toBe(1);
    expect(works[0]).toMatchObject({ text: "one two", ms: 900 });
    works[0]?.end(FOUND);
    await expect.poll(() => of("answer").length).toBe(1);
    const [answer] = of("answer");
    expect(answer).toMatchObject({ life: LIFE, id: 5, last: true, value: 200 });
    expect(JSON.parse(Buffer.from(answer?.payload ?? []).toString())).toEqual(
      JSON.parse(FOUND.body.toString()),
    );
  });

  it("says what it read, a megabyte at a time", async () => {
    const half = "x".repeat(600_000);
    ask(1, half, { last: false });
    ask(1, half, { index: 1 });
    await expect.poll(() => of("read").map(({ value }) => value)).toEqual([1_200_000]);
  });

  it("that is canceled gives its place back: at once, or when its work has ended", async () => {
    ask(1, "half of it", { last: false });
    ask(2, "all of it");
    await expect.poll(() => works.length).toBe(1);
    for (const id of [1, 2]) send({ kind: "cancel", life: LIFE, id });
    await expect.poll(() => of("released").map(({ id }) => id)).toEqual([1]);
    // The rest of the first is of no request.
    ask(1, "the rest", { index: 1 });
    expect(works[0]?.signal.aborted).toBe(true);
    works[0]?.end(null);
    await expect.poll(() => of("released").map(({ id }) => id)).toEqual([1, 2]);
    expect(works).toHaveLength(1);
  });

  it("of a former life of the service's object is dropped, and is never answered", async () => {
    ask(1, "old");
    await expect.poll(() => works.length).toBe(1);
    send({ kind: "hello", life: LIFE + 1 });
    await expect.poll(() => of("grant")).toHaveLength(2);
    expect(works[0]?.signal.aborted).toBe(true);
    works[0]?.end(FOUND);
    ask(1, "new", { life: LIFE + 1 });
    await expect.poll(() => works.length).toBe(2);
    works[1]?.end(FOUND);
    await expect.poll(() => of("answer")).toMatchObject([{ life: LIFE + 1, id: 1 }]);
  });
});

describe("requests of two kinds", () => {
  it("have places of their own: a slow segmenter takes none of the detector's", async () => {
    expect([of("grant"), of("sam_grant")].map(([frame]) => frame?.value)).toEqual([16, 4]);
    ask(1, "a head and an image", { kind: "sam_ask" });
    ask(2, "another", {});
    await expect.poll(() => works.map(({ kind }) => kind)).toEqual(["sam", "predict"]);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 20_000);
    works[0]?.end(FOUND);
    await expect.poll(() => of("answer").map(({ id }) => id)).toEqual([1]);
    await expect.poll(() => of("sam_grant").map(({ value }) => value)).toEqual([4, 1]);
    expect(of("grant").map(({ value }) => value)).toEqual([16]);
    vi.restoreAllMocks();
  });
});

describe("the line", () => {
  it("is opened again when it was cut or a frame is missing, and drops what it had", async () => {
    ask(1, "one");
    await expect.poll(() => works.length).toBe(1);
    socket.terminate();
    await expect.poll(() => of("grant").length).toBe(2);
    expect(works[0]?.signal.aborted).toBe(true);
    ask(2, "first", { last: false });
    ask(2, "third", { index: 2 });
    await expect.poll(() => of("grant").length).toBe(3);
    expect(opens).toEqual([true, false, true, false, true]);
    expect(works).toHaveLength(1);
  });

  it("drains: it takes no more, and every answer under way is given", async () => {
    ask(1, "one");
    ask(2, "two");
    await expect.poll(() => works.length).toBe(2);
    let drained = false;
    const draining = line.drain().then(() => {
      drained = true;
    });
    const granted = () => [of("grant"), of("sam_grant")].map((frames) => frames.at(-1)?.value);
    await expect.poll(granted).toEqual([0, 0]);
    works[0]?.end(FOUND);
    await expect.poll(() => of("answer").length).toBe(1);
    expect(drained).toBe(false);
    works[1]?.end(FOUND);
    await draining;
    line.close();
    await expect.poll(() => of("answer").length).toBe(2);
    expect(of("grant").at(-1)?.value).toBe(0);
  });

  it("ends for good when it is closed", async () => {
    line.close();
    await expect.poll(() => server.clients.size).toBe(0);
    await new Promise((done) => setTimeout(done, 600));
    expect(server.clients.size).toBe(0);
  });
});

it("is dialled no longer once it is closed", async () => {
  const silent = createServer().listen(0, "127.0.0.1");
  const dialled = once(silent, "connection") as Promise<[Socket]>;
  await once(silent, "listening");
  const { port } = silent.address() as { port: number };
  const dialling = new Line({
    url: `http://127.0.0.1:${port}`,
    token: new Secret("vnt_secret"),
    log: createLog(() => {}),
    kinds: ["predict"],
    onOpen: () => {},
    answer: async () => null,
  });
  const [end] = await dialled;
  const gone = once(end.on("error", () => {}).resume(), "close");
  dialling.close();
  await gone;
  silent.close();
});

describe("what had to be opened first", () => {
  it("says nothing of how many requests a node takes", async () => {
    ask(1, "a head and an image", { kind: "sam_ask" });
    await expect.poll(() => works.length).toBe(1);
    vi.spyOn(performance, "now").mockReturnValue(performance.now() + 20_000);
    works[0]?.end({ ...FOUND, cold: true });
    await expect.poll(() => of("answer").map(({ id }) => id)).toEqual([1]);
    vi.restoreAllMocks();
    ask(2, "another", { kind: "sam_ask" });
    await expect.poll(() => works.length).toBe(2);
    works[1]?.end(FOUND);
    await expect.poll(() => of("answer").map(({ id }) => id)).toEqual([1, 2]);
    expect(of("sam_grant").map(({ value }) => value)).not.toContain(1);
  });
});

describe("the capacity of a node", () => {
  it("are as many as it answers within four seconds, by what each costs", () => {
    const slow = new Capacity(CAPACITIES.predict);
    expect(slow.count).toBe(16);
    // Eight that wait together, answered one each half second.
    for (let one = 1; one <= 8; one++) slow.note(0, one * 500);
    expect(slow.count).toBe(8);
    const fast = new Capacity(CAPACITIES.predict);
    for (let one = 1; one <= 100; one++) fast.note(one * 10, one * 10 + 10);
    expect(fast.count).toBe(64);
    const slowest = new Capacity(CAPACITIES.predict);
    slowest.note(0, 30_000);
    expect(slowest.count).toBe(1);
  });

  it("are fewer of a segmenter's requests, which wait longer", () => {
    const segmenter = new Capacity(CAPACITIES.sam);
    expect(segmenter.count).toBe(4);
    segmenter.note(0, 2_000);
    expect(segmenter.count).toBe(7);
  });
});
