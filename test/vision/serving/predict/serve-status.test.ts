// What the status of serving says of the active model's last prediction. Goal: one by a node's line
// is told, at whichever route and whatever that serves by now; and no other model's is.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, expect, it } from "vitest";
import type { ServeStatus } from "../../../../shared/wire/serving.ts";
import { createEndpointWorld, type EndpointWorld, image } from "../../../support/endpoint-world.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
  await w.world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${w.one.model_id}::uuid`,
  );
});
beforeEach(() => w.fresh());

const last = async () => (await w.admin.ok<ServeStatus>("GET", "/serve/status")).last_prediction_at;
/** The last prediction, once it is of an instant or later. */
const lastSince = (instant: number) =>
  expect.poll(async () => Date.parse((await last()) ?? "")).toBeGreaterThanOrEqual(instant);

it("is told of an image that a node looked at by its line, at any endpoint", async () => {
  const node = await w.opened();
  expect(await last()).toBeNull();
  const others = await w.make({ models: [{ model_id: w.two.model_id }] });
  expect((await w.predict(others.slug)).status).toBe(200);
  await w.counted(others.slug, 1);
  expect(await last()).toBeNull();
  const began = Date.now();
  expect((await w.admin.send("POST", "/predict/image", image())).status).toBe(200);
  await lastSince(began);
  const { slug } = await w.make({ models: [{ alias: "active" }] });
  const later = Date.now();
  expect((await w.predict(slug)).status).toBe(200);
  await lastSince(later);
  await w.admin.ok("PATCH", `/endpoints/${slug}`, { models: [{ model_id: w.two.model_id }] });
  await lastSince(later);
  await w.admin.ok("DELETE", `/endpoints/${slug}`);
  await lastSince(later);
  node.cut();
});
