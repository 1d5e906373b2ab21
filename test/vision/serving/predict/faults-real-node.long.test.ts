// A real node that falls over, or is told to serve another model, with requests in its hands. Goal:
// each request is answered once, by another node or by an error, and the endpoint's status accounts
// for all of them; a model is replaced under load without a failed request.

import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { toolsOrSay } from "../../../support/clips.ts";
import { type Cuttable, cuttable } from "../../../support/cuttable.ts";
import { createEndpointWorld, type EndpointWorld } from "../../../support/endpoint-world.ts";
import { startNode } from "../../../support/gpu-node.ts";
import { form, png } from "../../../support/media.ts";
import { noiseImage } from "../../../support/noise.ts";

const found = toolsOrSay();
const IN_FLIGHT = 32;
/** So many together tell a node what one of them costs, and so how many more it may take. */
const TOGETHER = 16;
const ROUNDS = 4;

const MIB = 1024 * 1024;

let w: EndpointWorld;
let content: Uint8Array<ArrayBuffer>;
let way: Cuttable;

beforeAll(async () => {
  // Within it a real node opens a model, and who asks a line that was cut waits for it.
  w = await createEndpointWorld({ uploadBytesMax: 16 * MIB, imageSecondsMax: 30 });
  content = new Uint8Array(await noiseImage(96, 54).png().toBuffer());
});
beforeEach(() => w.forgetNodes());
afterEach(async () => {
  w.cutNodes();
  await way?.close();
});

const predict = (slug: string, file = content) =>
  w.predict(slug, "", w.admin, form({ content: file }));
const servedBy = (response: Response) => [response.status, response.headers.get("X-Served-By")];
const many = <Result>(count: number, work: () => Promise<Result>): Promise<Result>[] =>
  Array.from({ length: count }, work);
const warmNodes = async (slug: string) => (await w.status(slug)).nodes.warm;

/** A real node behind a way that tells how many bytes it was sent. */
async function realNode() {
  const told = { bytes: 0, onBytes: () => {} };
  const port = Number(new URL(w.world.urls.vision).port);
  way = await cuttable(port, undefined, ({ length }) => {
    told.bytes += length;
    told.onBytes();
  });
  const { code } = await w.admin.ok<{ code: string }>("POST", "/admin/nodes/codes", {});
  const node = startNode({
    VANTAGE_URL: `http://127.0.0.1:${way.port}`,
    VANTAGE_NODE_CODE: code,
  });
  const lines = async () => {
    const nodes = await w.admin.ok<{ capabilities: { line?: boolean }; revoked_at: unknown }[]>(
      "GET",
      "/admin/nodes",
    );
    return nodes.some(({ capabilities, revoked_at }) => capabilities.line && !revoked_at);
  };
  await expect.poll(lines).toBe(true);
  return { node, told };
}

/** Has the node open the endpoint's model, and learn what an image costs; counts the requests. */
async function warmedUp(slug: string): Promise<number> {
  expect((await predict(slug)).status).toBe(200);
  await expect.poll(() => warmNodes(slug)).toBe(1);
  for (let round = 0; round < ROUNDS; round++) {
    for (const answer of many(TOGETHER, () => predict(slug)))
      expect((await answer).status).toBe(200);
  }
  return 1 + ROUNDS * TOGETHER;
}

/** A node that is asked where those that have the model open cannot. */
const beside = () => w.opened({ loaded: [] });

/** A real node with so many requests in its hands, on which it does nothing. */
async function withRequestsInHands(slug: string) {
  const { node, told } = await realNode();
  const before = await warmedUp(slug);
  const other = await beside();
  for (const pid of node.below()) process.kill(pid, "SIGSTOP");
  const sent = told.bytes;
  const answers = many(IN_FLIGHT, () => predict(slug));
  await expect.poll(() => told.bytes - sent).toBeGreaterThan(IN_FLIGHT * content.length);
  expect(other.asked).toEqual([]);
  const kill = () => {
    for (const pid of [...node.below(), node.pid]) process.kill(pid, "SIGKILL");
  };
  return { before, answers, other, kill };
}

it.skipIf(!found)("that is killed leaves 32 requests to another, each once", async () => {
  const { slug } = await w.make();
  const { before, answers, other, kill } = await withRequestsInHands(slug);
  kill();
  for (const answer of answers) expect(servedBy(await answer)).toEqual([200, "node/line"]);
  expect(other.asked).toHaveLength(IN_FLIGHT);
  const hour = await w.counted(slug, before + IN_FLIGHT);
  expect(hour).toMatchObject({ answered: before + IN_FLIGHT, errors: {} });
  expect((await w.status(slug)).in_flight).toBe(0);
});

it.skipIf(!found)("that is killed while none is beside it tells all of them at once", async () => {
  const { slug } = await w.make();
  const { before, answers, other, kill } = await withRequestsInHands(slug);
  other.cut();
  kill();
  for (const answer of answers) {
    const response = await answer;
    const { code } = (await response.json()) as { code: string };
    expect([response.status, code, response.headers.get("Retry-After") !== null]).toEqual([
      ...[503, "no_node"],
      true,
    ]);
  }
  const hour = await w.counted(slug, before + IN_FLIGHT);
  expect(hour).toMatchObject({ answered: before, errors: { no_node: IN_FLIGHT } });
  expect((await w.status(slug)).in_flight).toBe(0);
});

it.skipIf(!found)("whose line is cut in a frame leaves the request, and comes back", async () => {
  const { told } = await realNode();
  const { slug } = await w.make();
  const before = await warmedUp(slug);
  const other = await beside();
  const large = new Uint8Array(6 * MIB);
  large.set(png(64, 48));
  const sent = told.bytes;
  // Frames are of a mebibyte: some of the third one are through.
  told.onBytes = () => {
    if (told.bytes - sent > 2.3 * MIB) way.cut();
  };
  expect(servedBy(await predict(slug, large))).toEqual([200, "node/line"]);
  expect(told.bytes - sent).toBeLessThan(large.length);
  expect(other.asked).toHaveLength(1);
  told.onBytes = () => {};
  other.cut();
  way.mend();
  await expect
    .poll(async () => servedBy(await predict(slug)), { interval: 200 })
    .toEqual([200, expect.not.stringContaining("line")]);
  const { requests, answered } = (await w.status(slug)).windows["1h"];
  expect(answered).toBeGreaterThanOrEqual(before + 1);
  expect(requests).toBeGreaterThanOrEqual(answered);
});

it.skipIf(!found)(
  "serves another model, and the one before, without a failed request",
  async () => {
    await realNode();
    const { one, two, admin } = w;
    const activate = ({ model_id }: { model_id: string }) =>
      admin.ok("POST", `/models/${model_id}/activate`);
    await activate(one);
    const { slug } = await w.make({ models: [{ alias: "active" }] });
    const before = await warmedUp(slug);
    const statuses: number[] = [];
    let modelId: string | null = null;
    let isOver = false;
    const asking = many(8, async () => {
      while (!isOver) {
        const response = await predict(slug);
        await response.arrayBuffer();
        statuses.push(response.status);
        modelId = response.headers.get("X-Model-Id");
      }
    });
    try {
      await activate(two);
      await expect.poll(() => modelId).toBe(two.model_id);
      await admin.ok("POST", "/models/rollback", { name: "active" });
      await expect.poll(() => modelId).toBe(one.model_id);
    } finally {
      isOver = true;
      await Promise.all(asking);
    }
    expect(new Set(statuses)).toEqual(new Set([200]));
    const hour = await w.counted(slug, before + statuses.length);
    expect(hour).toMatchObject({ answered: before + statuses.length, errors: {} });
    expect(hour.models.map(({ model_id }) => model_id).toSorted()).toEqual(
      [one.model_id, two.model_id].toSorted(),
    );
  },
);
