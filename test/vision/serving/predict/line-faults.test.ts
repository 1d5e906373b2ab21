// Faults of direct lines with requests on them, by nodes whose ends the test holds. Goal: each
// request is answered once, by another node; what comes late fits nothing; and a slow node costs
// those beside it nothing.

import type { Socket } from "node:net";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { LINE_STATUS } from "../../../../shared/tasks/line.ts";
import {
  answering,
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
} from "../../../support/endpoint-world.ts";
import { type LineEnd, lineNode, openLineEnd } from "../../../support/line-end.ts";
import { form, png } from "../../../support/media.ts";
import { CAPABILITIES } from "../../../support/nodes.ts";

const MIB = 1024 * 1024;

let w: EndpointWorld;
let ends: LineEnd[];

beforeAll(async () => {
  w = await createEndpointWorld({ uploadBytesMax: 16 * MIB });
});
beforeEach(async () => {
  ends = [];
  await w.fresh();
});
afterEach(() => {
  w.cutNodes();
  for (const { socket } of ends) socket.terminate();
});

const image = (bytes = 0) => {
  const file = png(64, 48);
  const content = new Uint8Array(Math.max(bytes, file.length));
  content.set(file);
  return form({ content });
};
const predict = (slug: string, bytes?: number) => w.predict(slug, "", w.admin, image(bytes));
const servedBy = (response: Response) => [response.status, response.headers.get("X-Served-By")];
/** A node that has the model open, and does what the test says. */
async function held(name = "held"): Promise<LineEnd> {
  const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
  const node = await lineNode(w.world, w.admin, { name, capabilities });
  const end = await openLineEnd(w.world, node, { loaded: [w.one.model_id] });
  ends.push(end);
  return end;
}
/** A node that is asked where those that have the model open cannot. */
const beside = () => w.opened({ loaded: [] });
/** The package has no name for the socket below its own. */
const below = ({ socket }: LineEnd) => (socket as unknown as { _socket: Socket })._socket;

it("an object that is evicted with requests on it costs none of them its one answer", async () => {
  const [end, other] = [await held(), await beside()];
  const { slug } = await w.make();
  const answers = [predict(slug), predict(slug), predict(slug)];
  const former = end.life();
  const ids = [await end.request(1), await end.request(2), await end.request(3)];
  // Whether its memory goes at once or when they are answered is the platform's: here it waits.
  const evicted = w.world.evict("NodeLine", end.node.nodeId);
  for (const id of ids) end.answer(id, FOUND);
  const names = new Set<string | null>();
  for (const answer of answers) {
    const response = await answer;
    names.add(response.headers.get("X-Served-By"));
    expect([response.status, await response.json()]).toEqual([200, FOUND.predictions]);
  }
  expect(names.size).toBe(1);
  expect(other.asked).toHaveLength(names.has("node/line") ? 3 : 0);
  await evicted;
  const next = predict(slug);
  const id = await end.request(4);
  expect(end.life()).not.toBe(former);
  expect(ids).toContain(id);
  // What the node still says of a request of that number in the former life fits nothing.
  const payload = Buffer.from(JSON.stringify({ ...FOUND, predictions: [] }));
  end.send({ kind: "answer", last: true, life: former, id, value: LINE_STATUS.done, payload });
  end.answer(id, FOUND);
  const answer = await next;
  expect(servedBy(answer)).toEqual([200, "node/held"]);
  expect(await answer.json()).toEqual(FOUND.predictions);
  const hour = await w.counted(slug, 4);
  expect(hour).toMatchObject({ answered: 4, errors: {} });
});

it("a half-sent request is another node's once the line is cut in a frame", async () => {
  const [end, other] = [await held(), await beside()];
  const { slug } = await w.make();
  const answer = predict(slug, 7 * MIB);
  const asks = () => end.frames.filter(({ kind }) => kind === "ask");
  // No more than four mebibytes go before the node has read some.
  await expect.poll(() => asks().length).toBeGreaterThanOrEqual(3);
  below(end).pause();
  end.send({ kind: "read", value: 2 * MIB });
  below(end).destroy();
  expect(servedBy(await answer)).toEqual([200, "node/line"]);
  expect(asks().some(({ last }) => last)).toBe(false);
  expect(other.asked).toHaveLength(1);
  expect(await w.counted(slug, 1)).toMatchObject({ answered: 1, errors: {} });
});

it("a half-sent answer is none: another node's is told", async () => {
  const [end, other] = [await held(), await beside()];
  const { slug } = await w.make();
  const answer = predict(slug);
  await end.request(1);
  // A binary message of 1,000 bytes, by its head, of which ten come.
  const head = Buffer.from([0x82, 0x80 | 126, 1_000 >> 8, 1_000 & 255, 0, 0, 0, 0]);
  below(end).end(Buffer.concat([head, Buffer.alloc(10)]));
  expect(servedBy(await answer)).toEqual([200, "node/line"]);
  expect(other.asked).toHaveLength(1);
  expect(await w.counted(slug, 1)).toMatchObject({ answered: 1, errors: {} });
});

it("a slow node beside a fast one gets the smaller part, and no request fails", async () => {
  let asked = 0;
  // However fast the machine is: the other one answers so many meanwhile, or nobody asks any more.
  const later = async () => {
    const until = fast.asked.length + 16;
    while (fast.asked.length < until && asked < 120) {
      await new Promise<void>((done) => setTimeout(done, 5));
    }
  };
  const slow = await w.opened({
    name: "slow",
    capacity: 4,
    answer: async () => {
      await later();
      return answering();
    },
  });
  const fast = await w.opened({ name: "fast" });
  const { slug } = await w.make();
  const ask = async () => {
    while (asked < 120) {
      asked += 1;
      const response = await predict(slug);
      await response.arrayBuffer();
      expect(response.status).toBe(200);
    }
  };
  await Promise.all(Array.from({ length: 8 }, ask));
  expect(slow.asked.length + fast.asked.length).toBe(120);
  expect(fast.asked.length).toBeGreaterThan(2 * slow.asked.length);
  expect(await w.counted(slug, 120)).toMatchObject({ answered: 120, errors: {} });
});
