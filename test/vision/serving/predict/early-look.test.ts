// Looks at images that begin before the database has said which model looks. Goal: a node has the
// image meanwhile; a model's move holds for the very next request, and costs it nothing; and
// nobody's image goes where it might not have gone.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import type { LineHeadOf } from "../../../../shared/tasks/line.ts";
import {
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
  image,
  refusal,
} from "../../../support/endpoint-world.ts";
import { type LineEnd, lineNode, openLineEnd } from "../../../support/line-end.ts";
import { CAPABILITIES } from "../../../support/nodes.ts";
import { type Api, colleague } from "../../../support/scripted-node.ts";
import { beginTransaction, type Transaction } from "../../../support/transactions.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});
beforeEach(() => w.forgetNodes());
afterEach(async () => {
  w.cutNodes();
  await activate(w.one.model_id);
});

/** Statements after which another model is active, or none; at no time two are. */
const moves = (modelId: string | null) => [
  "UPDATE model SET active = false WHERE active",
  `UPDATE model SET active = true WHERE id::text = '${modelId}'`,
];
async function activate(modelId: string | null) {
  for (const move of moves(modelId)) await w.world.visionDatabase.execute(sql.raw(move));
}
const predict = (api: Api = w.admin) => api.send("POST", "/predict/image", image());
const answerOf = async (response: Promise<Response>) => [
  (await response).status,
  await (await response).json(),
];
/** What each model finds, so that an answer tells whose it is. */
const own = {
  one: FOUND.predictions.slice(0, 1),
  two: FOUND.predictions.slice(0, 2),
};
const nameOf = ({ model }: LineHeadOf<"predict">) =>
  model.model_id === w.one.model_id ? "one" : "two";
const answer = (head: LineHeadOf<"predict">) => ({
  body: { ...FOUND, predictions: own[nameOf(head)] },
});

/** A node's end of its line, which the test holds; it has both models open. */
async function heldNode(capacity = 8): Promise<LineEnd> {
  const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
  const node = await lineNode(w.world, w.admin, { capabilities });
  const loaded = [w.one.model_id, w.two.model_id];
  return openLineEnd(w.world, node, { capacity, loaded });
}

/** A node's end, after it answered a first request. */
async function answeredOnce(capacity = 8): Promise<LineEnd> {
  const end = await heldNode(capacity);
  const first = predict();
  end.answer(await end.request(1), FOUND);
  expect((await first).status).toBe(200);
  return end;
}

/** While nobody's statement about models gets on; what is changed then holds from its end on. */
async function whileLocked(
  changes: readonly string[],
  work: (others: Transaction) => Promise<void>,
): Promise<void> {
  const others = await beginTransaction(w.world.visionDatabase);
  try {
    await others.query("LOCK TABLE model");
    for (const change of changes) await others.query(change);
    await work(others);
  } finally {
    await others.commit();
  }
}

it("are with a node while the database is asked, whose word the answer waits for", async () => {
  const node = await w.opened({ answer });
  expect((await predict()).status).toBe(200);
  let isAnswered = false;
  let asked: Promise<Response> | undefined;
  // Of what the database tells only that counts which an answer depends on.
  await whileLocked(["UPDATE model SET name = name || '!'"], async (others) => {
    asked = predict().finally(() => {
      isAnswered = true;
    });
    await expect.poll(() => node.asked.length).toBe(2);
    await others.awaited();
    expect(isAnswered).toBe(false);
  });
  expect(await answerOf(asked as Promise<Response>)).toEqual([200, own.one]);
  expect(node.asked.map(nameOf)).toEqual(["one", "one"]);
  // No model has to leave a node for what may turn out to be for nothing.
  expect(node.asked.map(({ may_evict }) => may_evict)).toEqual([true, false]);
});

it("count for nothing where another model is active by now, and end", async () => {
  const end = await answeredOnce();
  let moved: Promise<Response> | undefined;
  let early = 0;
  await whileLocked(moves(w.two.model_id), async () => {
    moved = predict();
    early = await end.request(2);
  });
  const right = await end.request(3);
  const isCanceled = () => end.frames.some(({ kind, id }) => kind === "cancel" && id === early);
  await expect.poll(isCanceled).toBe(true);
  end.answer(right, { ...FOUND, predictions: own.two });
  expect(await answerOf(moved as Promise<Response>)).toEqual([200, own.two]);
  end.socket.terminate();
});

it("count for nothing also where they came to an answer before", async () => {
  const node = await w.opened({ answer });
  expect(await answerOf(predict())).toEqual([200, own.one]);
  let moved: Promise<Response> | undefined;
  await whileLocked(moves(w.two.model_id), async () => {
    moved = predict();
    await expect.poll(() => node.asked.length).toBe(2);
    // Longer than its answer takes to the service.
    await new Promise((done) => setTimeout(done, 300));
  });
  expect(await answerOf(moved as Promise<Response>)).toEqual([200, own.two]);
  expect(node.asked.map(nameOf)).toEqual(["one", "one", "two"]);
});

it("leave a node's only place to the model that is chosen", async () => {
  const node = await w.opened({ answer, capacity: 1 });
  expect(await answerOf(predict())).toEqual([200, own.one]);
  let moved: Promise<Response> | undefined;
  await whileLocked(moves(w.two.model_id), async (others) => {
    moved = predict();
    await others.awaited();
  });
  expect(await answerOf(moved as Promise<Response>)).toEqual([200, own.two]);
  expect(node.asked.map(nameOf)).toEqual(["one", "two"]);
});

it("go to no node of a workspace that the request may not be for", async () => {
  const node = await w.opened({ answer });
  const person = await colleague(w.world, w.admin, "annotator");
  await w.world.visionDatabase.execute(sql`
    WITH other AS (INSERT INTO workspace (id, name) VALUES (gen_random_uuid(), 'other') RETURNING id)
    INSERT INTO membership (workspace_id, account_id, role)
    SELECT id, ${person.id}::uuid, 'annotator' FROM other`);
  expect(await answerOf(predict(person))).toEqual([200, own.one]);
  expect(await answerOf(predict(person))).toEqual([200, own.one]);
  // An early look would have no model leave.
  expect(node.asked.map(({ may_evict }) => may_evict)).toEqual([true, true]);
});

it("end like all others where the node falls over, and nothing is tried or stored again", async () => {
  const end = await answeredOnce();
  const lost = predict();
  await end.request(2);
  end.socket.terminate();
  expect(await refusal(await lost)).toEqual([503, "no_node"]);
  const tasks = await w.world.visionDatabase.execute<{ id: string }>(sql`SELECT id FROM task`);
  expect(tasks.rows).toEqual([]);
});

it("open no model at another node, which who has it open would answer without", async () => {
  const cold = await w.opened({ answer, loaded: [] });
  const warm = await answeredOnce(2);
  const first = predict();
  const held = await warm.request(2);
  // Half of its places are taken: there is one for whoever is not early.
  const second = predict();
  warm.answer(await warm.request(3), FOUND);
  expect((await second).status).toBe(200);
  warm.answer(held, FOUND);
  expect((await first).status).toBe(200);
  expect(cold.asked).toEqual([]);
  warm.socket.terminate();
});

it("have a node open the model, whatever leaves it, once one fell over with the image", async () => {
  const cold = await w.opened({ answer, loaded: [] });
  const warm = await answeredOnce();
  const lost = predict();
  await warm.request(2);
  warm.socket.terminate();
  expect(await answerOf(lost)).toEqual([200, own.one]);
  expect(cold.asked.map(({ may_evict }) => may_evict)).toEqual([true]);
});

it("are with another node once theirs fell over, as all others are", async () => {
  const busy = await answeredOnce(2);
  const held = predict();
  const underWay = await busy.request(2);
  const falling = await heldNode();
  const seen = predict();
  falling.answer(await falling.request(1), FOUND);
  expect((await seen).status).toBe(200);
  const lost = predict();
  await falling.request(2);
  falling.socket.terminate();
  busy.answer(await busy.request(3), FOUND);
  expect((await lost).status).toBe(200);
  busy.answer(underWay, FOUND);
  expect((await held).status).toBe(200);
  busy.socket.terminate();
});

it("give a node that came its part, though they go by an older list of nodes", async () => {
  const first = await w.opened({ answer });
  expect(await answerOf(predict())).toEqual([200, own.one]);
  const second = await w.opened({ answer });
  for (let request = 0; request < 20; request++) {
    expect(await answerOf(predict())).toEqual([200, own.one]);
    await new Promise((done) => setTimeout(done, 50));
  }
  expect(second.asked.length).toBeGreaterThan(0);
  expect(first.asked.filter(({ may_evict }) => may_evict)).toHaveLength(1);
});

it("are begun for nothing once where no model is active any more", async () => {
  const node = await w.opened({ answer });
  expect(await answerOf(predict())).toEqual([200, own.one]);
  await activate(null);
  for (let request = 0; request < 3; request++) {
    expect(await refusal(await predict())).toEqual([409, "state_conflict"]);
  }
  // The first of them may have gone, and perhaps is not there yet.
  await new Promise((done) => setTimeout(done, 300));
  expect(node.asked.length).toBeLessThanOrEqual(2);
});
