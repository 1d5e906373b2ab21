// The direct line, with nodes whose end the test holds. Goal: each request is answered once, by its
// deadline, whatever becomes of nodes, lines and the object between; what no line can do the queue
// does; and nothing that a node says is believed.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { HELD_BYTES_MAX } from "../../../../edge/vision/serving/predict/held-bytes.ts";
import {
  decodeAsk,
  joined,
  LINE_STATUS,
  type LineAnswer,
  type LineHeadOf,
  PAYLOAD_BYTES_MAX,
} from "../../../../shared/tasks/line.ts";
import { type LineEnd, lineNode, openLineEnd } from "../../../support/line-end.ts";
import { form, png } from "../../../support/media.ts";
import { CAPABILITIES, type TestNode } from "../../../support/nodes.ts";
import {
  activeModel,
  type RegisteredModel,
  registerModel,
} from "../../../support/registered-model.ts";
import { type Person, register, scriptedNode } from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

const FOUND: LineAnswer = {
  predictions: [{ class: "disc", confidence: 0.9, bbox: [1, 2, 30, 40] }],
  width: 64,
  height: 48,
  batch: 1,
  cold: false,
};

/** Of an image of 64 × 48 pixels, in more pieces than an answer's masks may have. */
const MANY_RUNS = [...Array<number>(300_000).fill(0), 64 * 48];

const PREDICTING = { ...CAPABILITIES, kinds: ["predict"] };

let world: World;
let admin: Person;
let workspaceId: string;
let first: RegisteredModel;
let model: RegisteredModel;
let ends: LineEnd[];

beforeAll(async () => {
  world = await createWorld({
    services: ["vision"],
    // Two tests wait for half of it, by when a node that has the model open answers.
    environment: { vision: { IMAGE_SECONDS_MAX: "20" } },
  });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  first = await registerModel(world, workspaceId, { classes: ["disc"] });
});
beforeEach(async () => {
  ends = [];
  await world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
  model = await activeModel(world, workspaceId, { classes: ["disc"], weightsOf: first });
});
afterEach(() => {
  for (const { socket } of ends) socket.terminate();
});

interface EndOptions {
  capacity?: number;
  warm?: boolean;
  /** The sizes that the model is open for; its own when omitted. */
  sizes?: number[];
}
const lineEnd = async (
  node: TestNode,
  { capacity, warm = true, sizes }: EndOptions = {},
): Promise<LineEnd> => {
  const loaded = warm ? [model.model_id] : [];
  const options = { loaded, sizes, ...(capacity ? { capacity } : {}) };
  const end = await openLineEnd(world, node, options);
  ends.push(end);
  return end;
};
const introduced = (name?: string) => lineNode(world, admin, { name, capabilities: PREDICTING });
const opened = async (options: EndOptions & { name?: string } = {}) =>
  lineEnd(await introduced(options.name), options);

function image(bytes = 0) {
  const file = png(64, 48);
  const content = new Uint8Array(Math.max(bytes, file.length));
  content.set(file);
  return form({ content });
}
const predict = (bytes?: number) => admin.send("POST", "/predict/image", image(bytes));
/** Reads and answers whatever comes, until it is stopped. */
function answerAll(end: LineEnd): () => void {
  const done = new Set<number>();
  const timer = setInterval(() => {
    end.send({ kind: "read", value: HELD_BYTES_MAX });
    for (const { kind, last, id } of end.frames) {
      if (kind !== "ask" || !last || done.has(id)) continue;
      done.add(id);
      end.answer(id, FOUND);
    }
  }, 20);
  return () => clearInterval(timer);
}
const codeOf = async (response: Response) => [
  response.status,
  ((await response.json()) as { code?: string }).code,
];

describe("a request", () => {
  it("goes to the node with its head and image, and its answer comes back", async () => {
    const end = await opened({ name: "Käfer 1" });
    const answer = predict();
    const id = await end.request(1);
    const asked = end.frames.filter(({ kind }) => kind === "ask");
    expect(asked[0]?.value).toBeGreaterThan(5_000);
    const { head, image: file } = decodeAsk(joined(asked.map(({ payload }) => payload)));
    expect(head).toMatchObject({
      kind: "predict",
      confidence: 0.25,
      model: { model_id: model.model_id },
    });
    const { weights } = (head as LineHeadOf<"predict">).model;
    expect(weights.url).toMatch(/^http.*X-Amz-Signature/);
    expect([...file]).toEqual([...png(64, 48)]);
    end.answer(id, FOUND);
    const response = await answer;
    expect(response.headers.get("X-Served-By")).toBe("node/K%C3%A4fer%201");
    expect(await response.json()).toEqual(FOUND.predictions);
  });

  it("is cut into frames, and goes no faster than the node reads", async () => {
    const end = await opened();
    const answer = predict(7 * 1024 * 1024);
    // What is unread is bounded; a frame may pass the bound.
    const unreadMax = 4 * 1024 * 1024 + PAYLOAD_BYTES_MAX;
    const sent = () => end.frames.reduce((sum, { payload }) => sum + payload.length, 0);
    await expect.poll(sent).toBeGreaterThan(4 * 1024 * 1024 - 1);
    await new Promise((done) => setTimeout(done, 200));
    expect(sent()).toBeLessThanOrEqual(unreadMax);
    end.send({ kind: "read", value: sent() });
    const id = await end.request(1);
    const asked = end.frames.filter(({ kind }) => kind === "ask");
    expect(asked.map(({ index }) => index)).toEqual(asked.map((_, index) => index));
    expect(decodeAsk(joined(asked.map(({ payload }) => payload))).image).toHaveLength(
      7 * 1024 * 1024,
    );
    end.answer(id, FOUND);
    expect((await answer).status).toBe(200);
  });

  it("takes the answers of many in any order, and an answer in pieces", async () => {
    const end = await opened();
    const answers = [0, 1, 2].map(() => predict());
    const ids = [await end.request(1), await end.request(2), await end.request(3)];
    const many = { ...FOUND, predictions: Array.from({ length: 300 }, () => FOUND.predictions[0]) };
    for (const id of ids.toReversed()) {
      const bytes = Buffer.from(JSON.stringify(many));
      const own = { kind: "answer" as const, life: end.life(), id, value: LINE_STATUS.done };
      end.send({ ...own, index: 0, payload: bytes.subarray(0, 1_000) });
      end.send({ ...own, index: 1, last: true, payload: bytes.subarray(1_000) });
    }
    for (const answer of answers) expect(await (await answer).json()).toHaveLength(300);
  });

  it("is refused where every node is full, and taken when a place is given back", async () => {
    const end = await opened({ capacity: 1 });
    const first = predict();
    const id = await end.request(1);
    const second = await predict();
    expect(second.headers.get("Retry-After")).toBe("1");
    expect(await codeOf(second)).toEqual([429, "overloaded"]);
    end.answer(id, FOUND);
    expect((await first).status).toBe(200);
    const third = predict();
    end.answer(await end.request(2), FOUND);
    expect((await third).status).toBe(200);
  });

  it("goes to nodes that have the model open, where one has", async () => {
    const cold = await opened({ warm: false });
    const warm = await opened();
    for (let count = 1; count <= 4; count++) {
      const answer = predict();
      warm.answer(await warm.request(count), FOUND);
      expect((await answer).status).toBe(200);
    }
    expect(cold.frames.filter(({ kind }) => kind === "ask")).toEqual([]);
  });

  it("goes to nodes that have the model open at its size, where they say", async () => {
    const other = await opened({ sizes: [model.image_size + 32] });
    const warm = await opened({ sizes: [model.image_size + 32, model.image_size] });
    for (let count = 1; count <= 4; count++) {
      const answer = predict();
      warm.answer(await warm.request(count), FOUND);
      expect((await answer).status).toBe(200);
    }
    expect(other.frames.filter(({ kind }) => kind === "ask")).toEqual([]);
  });

  it("goes to a node that has the model not open, where those that have are full", async () => {
    const cold = await opened({ warm: false });
    const warm = await opened({ capacity: 1 });
    const first = predict();
    const id = await warm.request(1);
    const second = predict();
    cold.answer(await cold.request(1), FOUND);
    expect((await second).status).toBe(200);
    warm.answer(id, FOUND);
    expect((await first).status).toBe(200);
  });

  it("goes to the one node that has room, however many are full", async () => {
    const ends = [await opened({ capacity: 1 }), await opened({ capacity: 1 })];
    // By chance two are looked at first: of so many requests both are full for some.
    const room = 18;
    ends.push(await opened({ capacity: room }));
    const answers = Array.from({ length: room + 2 }, () => predict());
    const asked = () =>
      ends.map(({ frames }) => frames.filter(({ kind, last }) => kind === "ask" && last));
    await expect.poll(() => asked().map(({ length }) => length)).toEqual([1, 1, room]);
    expect(await codeOf(await predict())).toEqual([429, "overloaded"]);
    for (const [index, frames] of asked().entries()) {
      for (const { id } of frames) ends[index]?.answer(id, FOUND);
    }
    for (const answer of answers) expect((await answer).status).toBe(200);
  });

  it("is refused where files of others fill the memory, and taken when they are answered", async () => {
    const end = await opened({ capacity: 64 });
    const bytes = 7 * 1024 * 1024;
    const fit = Math.floor(HELD_BYTES_MAX / (2 * bytes));
    const responses: Response[] = [];
    const asking = Array.from({ length: fit + 3 }, async () => {
      responses.push(await predict(bytes));
    });
    // Nothing is read yet: what is not held is refused.
    await expect.poll(() => responses.length).toBeGreaterThanOrEqual(3);
    const stop = answerAll(end);
    await Promise.all(asking);
    const refused = responses.filter(({ status }) => status !== 200);
    expect(refused.length).toBeLessThan(fit + 3);
    for (const one of refused) {
      expect([one.status, one.headers.get("Retry-After")]).toEqual([429, "1"]);
      expect(await one.json()).toMatchObject({ detail: expect.stringContaining("memory") });
    }
    // Whoever was refused left nothing behind, nor did whoever was answered.
    const again = await Promise.all(Array.from({ length: fit }, () => predict(bytes)));
    expect(again.map(({ status }) => status)).toEqual(Array(fit).fill(200));
    stop();
  });

  it.each([
    ["unsupported_media", [415, "unsupported_media"]],
    ["bad_weights", [502, "task_failed"]],
  ])("is refused with the node's words: %s", async (code, expected) => {
    const end = await opened();
    const answer = predict();
    end.answer(await end.request(1), { code, detail: "it is broken" }, LINE_STATUS.refused);
    const response = await answer;
    expect(await response.clone().json()).toMatchObject({ detail: "it is broken" });
    expect(await codeOf(response)).toEqual(expected);
  });

  it.each([
    ["a class that is not the model's", { predictions: [{ ...FOUND.predictions[0], class: "x" }] }],
    ["a box outside of the image", { width: 20 }],
    ["no predictions", { predictions: "none" }],
    ["a mask that nobody asked for", { predictions: [{ ...FOUND.predictions[0], mask: null }] }],
  ])("is not answered with %s", async (_, more) => {
    const end = await opened();
    const answer = predict();
    end.answer(await end.request(1), { ...FOUND, ...more });
    expect(await codeOf(await answer)).toEqual([502, "task_failed"]);
  });
});

describe("a request for masks", () => {
  /** On the image's first column, from the second to the eleventh pixel. */
  const runs = { size: [48, 64], counts: [1, 10, 64 * 48 - 11] };
  const [box] = FOUND.predictions;
  let outlining: RegisteredModel | undefined;
  beforeEach(async () => {
    const shape = { classes: ["disc"], task: "segmentation" as const, weightsOf: outlining };
    outlining = await registerModel(world, workspaceId, shape);
  });
  const outlines = (form: string) =>
    admin.send("POST", `/predict/image?mask=${form}&model_id=${outlining?.model_id}`, image());
  const answered = async (form: string, more: object) => {
    const end = await opened({ warm: false });
    const answer = outlines(form);
    const id = await end.request(1);
    const [asked] = end.frames.filter(({ kind }) => kind === "ask");
    expect(decodeAsk(asked?.payload as Uint8Array).head).toMatchObject({ mask: form });
    end.answer(id, { ...FOUND, ...more });
    return answer;
  };

  it.each([
    ["rle", { rle: runs }],
    ["polygon", { polygon: [0, 1, 1, 1, 1, 11, 0, 11] }],
    ["rle", null],
  ])("is answered with them, and with how many are left out: %s", async (form, mask) => {
    const predictions = [{ ...box, mask }];
    const response = await answered(form, { predictions, masks_left_out: mask ? 0 : 1 });
    expect(response.headers.get("X-Masks-Left-Out")).toBe(mask ? "0" : "1");
    expect(await response.json()).toEqual(predictions);
  });

  it.each([
    ["none", {}],
    ["another form", { mask: { polygon: [0, 1, 1, 1, 1, 11] } }],
    ["runs of another image", { mask: { rle: { ...runs, size: [64, 48] } } }],
    ["runs that do not fill it", { mask: { rle: { ...runs, counts: [1, 10] } } }],
    ["more numbers than are taken", { mask: { rle: { ...runs, counts: MANY_RUNS } } }],
  ])("is not answered with %s", async (_, more) => {
    const response = await answered("rle", { predictions: [{ ...box, ...more }] });
    expect(await codeOf(response)).toEqual([502, "task_failed"]);
  });

  it("is refused of a model that makes none, and in a form that is none", async () => {
    const refused = (query: string) => admin.refused("POST", `/predict/image?${query}`, image());
    expect(await refused("mask=rle")).toEqual([422, "invalid_request"]);
    const png = await refused(`mask=png&model_id=${outlining?.model_id}`);
    expect(png).toEqual([422, "invalid_request"]);
  });
});

describe("a fault", () => {
  it("of a node with requests in its hands leaves them to another, each answered once", async () => {
    const [one, other] = [await opened(), await opened()];
    const answers = Array.from({ length: 6 }, () => predict());
    const asked = ({ frames }: LineEnd) =>
      frames.filter(({ kind, last }) => kind === "ask" && last);
    await expect.poll(() => asked(one).length + asked(other).length).toBe(6);
    one.socket.terminate();
    await expect.poll(() => asked(other).length).toBe(6);
    for (const { id } of asked(other)) other.answer(id, FOUND);
    const done = await Promise.all(answers);
    expect(done.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200, 200]);
  });

  it("of the only node is told, with when to come again", async () => {
    const end = await opened();
    const answer = predict();
    await end.request(1);
    end.socket.terminate();
    const response = await answer;
    expect(response.headers.get("Retry-After")).not.toBeNull();
    expect(await codeOf(response)).toEqual([503, "no_node"]);
  });

  it("of a node that gives a place back sends the request to another", async () => {
    const [one, other] = [await opened(), await opened()];
    const answer = predict();
    const asked = ({ frames }: LineEnd) => frames.find(({ kind, last }) => kind === "ask" && last);
    await expect.poll(() => asked(one) ?? asked(other)).toBeDefined();
    const [first, second] = asked(one) ? [one, other] : [other, one];
    first.send({ kind: "released", life: first.life(), id: asked(first)?.id ?? 0 });
    second.answer(await second.request(1), FOUND);
    expect((await answer).status).toBe(200);
  });

  it("of the line mid-frame, or a frame that is none, harms no other request", async () => {
    const end = await opened();
    end.socket.send(Buffer.from([1, 2, 3]));
    end.socket.send("hello");
    end.send({ kind: "answer", last: true, life: end.life(), id: 4_000, value: 200 });
    end.send({ kind: "released", life: end.life(), id: 4_001 });
    const answer = predict();
    const id = await end.request(1);
    // A late answer to a former life of the object.
    end.send({ kind: "answer", last: true, life: (end.life() + 1) >>> 0, id, value: 500 });
    end.answer(id, FOUND);
    expect((await answer).status).toBe(200);
  });

  it("of the object's memory costs nothing: the socket stays, and its capacity", async () => {
    const end = await opened();
    const before = end.life();
    await world.evict("NodeLine", end.node.nodeId);
    const answer = predict();
    const id = await end.request(1);
    expect(end.frames.filter(({ kind }) => kind === "hello")).toHaveLength(2);
    expect(end.life()).not.toBe(before);
    end.answer(id, FOUND);
    expect((await answer).status).toBe(200);
  });

  it("of whoever asked is told to the node, which gives the place back", async () => {
    const end = await opened({ capacity: 1 });
    const leave = new AbortController();
    const headers = { Authorization: `Bearer ${admin.token}` };
    const address = `${world.urls.vision}/api/v1/predict/image`;
    const init = { method: "POST", headers, body: image(), signal: leave.signal };
    const left = fetch(address, init).catch(() => null);
    const id = await end.request(1);
    leave.abort();
    await left;
    const canceled = () => end.frames.some((frame) => frame.kind === "cancel" && frame.id === id);
    // A runtime that does not notice leaves it to the deadline.
    await expect.poll(canceled).toBe(true);
    expect(await codeOf(await predict())).toEqual([429, "overloaded"]);
    end.send({ kind: "released", life: end.life(), id });
    const answer = predict();
    end.answer(await end.request(2), FOUND);
    expect((await answer).status).toBe(200);
  });

  it("of a node that does not answer ends by the deadline, and its place stays taken", async () => {
    const end = await opened({ capacity: 1 });
    expect(await codeOf(await predict())).toEqual([503, "no_node"]);
    expect(end.frames.some(({ kind }) => kind === "cancel")).toBe(true);
    expect(await codeOf(await predict())).toEqual([429, "overloaded"]);
  });
});

describe("a line", () => {
  it("is the node's newest: an older one is closed", async () => {
    const first = await opened();
    const closed = new Promise<number>((done) => first.socket.on("close", done));
    const second = await lineEnd(first.node);
    expect(await closed).toBe(4_001);
    const answer = predict();
    second.answer(await second.request(1), FOUND);
    expect((await answer).status).toBe(200);
  });

  it("ends with the node's token", async () => {
    const end = await opened();
    const closed = new Promise<number>((done) => end.socket.on("close", done));
    await admin.ok("DELETE", `/admin/nodes/${end.node.nodeId}`);
    expect(await closed).toBe(1_008);
  });

  it("is opened by a node only, and only as a socket", async () => {
    const node = await introduced();
    const get = (headers: Record<string, string>) =>
      fetch(`${world.urls.vision}/api/v1/node/line`, { headers });
    expect(await codeOf(await get({}))).toEqual([401, "unauthorized"]);
    expect(await codeOf(await get(node.headers))).toEqual([422, "invalid_request"]);
  });

  it("leaves to the queue what it cannot do: no line, a line that went, a large image", async () => {
    const script = {
      predict: () => ({
        width: 64,
        height: 48,
        frames: [{ frame_index: 0, time: 0, predictions: FOUND.predictions }],
        seconds: 0.1,
        left_out: 0,
      }),
    };
    const node = await scriptedNode(world, admin, script, PREDICTING);
    const stop = node.start();
    const queued = async (bytes?: number) => {
      const response = await predict(bytes);
      return [response.status, response.headers.get("X-Served-By")];
    };
    expect(await queued()).toEqual([200, null]);
    const end = await opened();
    expect(await queued(9 * 1024 * 1024)).toEqual([200, null]);
    end.socket.terminate();
    expect(await queued()).toEqual([200, null]);
    await stop();
  });
});
