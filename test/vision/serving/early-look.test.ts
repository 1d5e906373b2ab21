// Looks at images that begin before the database has said whose model looks. Goal: the node has the
// image meanwhile; a model's move holds for the very next request; and no node looks for nothing
// twice.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import type { LineHeadOf } from "../../../shared/line.ts";
import {
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
  image,
  refusal,
} from "../../support/endpoint-world.ts";
import { lineNode, openLineEnd } from "../../support/line-end.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import { beginTransaction } from "../../support/transactions.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});
beforeEach(() => w.freshNodes());
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
const predict = () => w.admin.send("POST", "/predict/image", image());
/** Each model finds something else. */
const own = ({ model }: LineHeadOf<"predict">) => ({
  body: {
    ...FOUND,
    predictions: FOUND.predictions.slice(0, model.model_id === w.one.model_id ? 1 : 2),
  },
});
const models = (asked: readonly LineHeadOf<"predict">[]) =>
  asked.map(({ model }) => (model.model_id === w.one.model_id ? "one" : "two"));

it("are with the node while the database is asked, whose word the answer waits for", async () => {
  const node = await w.opened();
  expect((await predict()).status).toBe(200);
  const others = await beginTransaction(w.world.visionDatabase);
  await others.query("LOCK TABLE model");
  let isAnswered = false;
  const answer = predict().finally(() => {
    isAnswered = true;
  });
  await expect.poll(() => node.asked.length).toBe(2);
  await others.awaited();
  expect(isAnswered).toBe(false);
  await others.commit();
  expect([(await answer).status, await (await answer).json()]).toEqual([200, FOUND.predictions]);
  // And it was looked at once.
  expect(models(node.asked)).toEqual(["one", "one"]);
});

it("count for nothing where another model is active by now, and end", async () => {
  const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
  const introduced = await lineNode(w.world, w.admin, { capabilities });
  const loaded = [w.one.model_id, w.two.model_id];
  const end = await openLineEnd(w.world, introduced, { loaded });
  const first = predict();
  end.answer(await end.request(1), FOUND);
  expect((await first).status).toBe(200);
  const others = await beginTransaction(w.world.visionDatabase);
  await others.query("LOCK TABLE model");
  for (const move of moves(w.two.model_id)) await others.query(move);
  const moved = predict();
  const early = await end.request(2);
  await others.commit();
  const right = await end.request(3);
  await expect
    .poll(() => end.frames.some(({ kind, id }) => kind === "cancel" && id === early))
    .toBe(true);
  // Also where it came to an answer meanwhile.
  end.answer(early, { ...FOUND, predictions: [] });
  end.answer(right, FOUND);
  expect([(await moved).status, await (await moved).json()]).toEqual([200, FOUND.predictions]);
  end.socket.terminate();
});

it("are another model's from the request after its move on, and none's where none is", async () => {
  const node = await w.opened({ answer: own });
  const lengths: number[] = [];
  for (const modelId of [w.one.model_id, w.two.model_id, w.two.model_id]) {
    await activate(modelId);
    lengths.push(((await (await predict()).json()) as unknown[]).length);
  }
  expect(lengths).toEqual([1, 2, 2]);
  await activate(null);
  expect(await refusal(await predict())).toEqual([409, "state_conflict"]);
  const count = node.asked.length;
  expect(await refusal(await predict())).toEqual([409, "state_conflict"]);
  expect(node.asked).toHaveLength(count);
  // One at most was for nothing at each of three moves.
  expect(count).toBeLessThanOrEqual(6);
});
