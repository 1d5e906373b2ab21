// What a prediction by an endpoint asks the database. Goal: nothing of nodes, while it is known
// that one has a line.

import { afterAll, beforeAll, expect, it } from "vitest";
import { createEndpointWorld, type EndpointWorld } from "../../../support/endpoint-world.ts";
import { beginTransaction } from "../../../support/transactions.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});
afterAll(() => w.cutNodes());

it("asks for no nodes while one is known to have a line, also at a size of its own", async () => {
  const { one } = w;
  await w.opened();
  for (const image_size of [null, one.image_size + 32]) {
    const { slug } = await w.make({ image_size });
    const answered = async () => (await w.predict(slug)).status;
    // What is known is known for a second: on a busy machine more than one look may be too late.
    let wasFree = false;
    for (let attempt = 0; attempt < 10 && !wasFree; attempt++) {
      expect(await answered()).toBe(200);
      const others = await beginTransaction(w.world.visionDatabase);
      await others.query("LOCK TABLE node");
      const locked = answered();
      wasFree = await Promise.race([
        locked.then(() => true),
        new Promise<false>((late) => setTimeout(() => late(false), 3_000)),
      ]);
      await others.commit();
      expect(await locked).toBe(200);
    }
    expect(wasFree).toBe(true);
  }
});
