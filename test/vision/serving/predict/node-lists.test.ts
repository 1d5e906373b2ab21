// Which nodes predictions read from the database. Goal: none, for NODE_LIST_SECONDS after a list
// that named one.

import { afterAll, beforeAll, expect, it } from "vitest";
import { createEndpointWorld, type EndpointWorld, image } from "../../../support/endpoint-world.ts";
import { beginTransaction } from "../../../support/transactions.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld({ nodeListSeconds: 10 });
});
afterAll(() => w.cutNodes());

/** Whether a prediction is answered while nobody may read the nodes. */
async function isAnsweredWithoutNodes(predict: () => Promise<Response>): Promise<boolean> {
  const others = await beginTransaction(w.world.visionDatabase);
  await others.query("LOCK TABLE node");
  const answer = predict();
  const isAnswered = await Promise.race([
    answer.then(() => true),
    new Promise<false>((late) => setTimeout(() => late(false), 3_000)),
  ]);
  await others.commit();
  expect((await answer).status).toBe(200);
  return isAnswered;
}

it("are listed once: by the active model, and by endpoints of each image size", async () => {
  await w.opened();
  const endpointOf = async (image_size: number | null) => {
    const { slug } = await w.make({ image_size });
    return () => w.predict(slug);
  };
  const predictions = [
    () => w.admin.send("POST", "/predict/image", image()),
    await endpointOf(null),
    await endpointOf(w.one.image_size + 32),
  ];
  for (const predict of predictions) {
    expect((await predict()).status).toBe(200);
    expect(await isAnsweredWithoutNodes(predict)).toBe(true);
  }
});

it("are listed anew where a list named none, so that a node that connects is asked", async () => {
  await w.fresh();
  const predict = async () => (await w.admin.send("POST", "/predict/image", image())).status;
  expect(await predict()).not.toBe(200);
  await w.opened();
  expect(await predict()).toBe(200);
});
