// Endpoints where no GPU node is. Goal: the edge answers for them, says so, and what it saw at
// fewer pixels is taken for nothing that a node would have seen.

import { sql } from "drizzle-orm";
import sharp from "sharp";
import { beforeAll, expect, it } from "vitest";
import { EndpointStatus, type MetricsSummary } from "../../../../shared/wire/endpoints.ts";
import { form } from "../../../support/media.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { type Person, register } from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let workspaceId: string;
let one: RegisteredModel;
let two: RegisteredModel;

beforeAll(async () => {
  world = await createWorld({ services: ["infer", "vision"] });
  admin = await register(world);
  const me = await admin.ok<{ workspaces: { workspace_id: string }[] }>("GET", "/auth/me");
  workspaceId = me.workspaces[0]?.workspace_id ?? "";
  one = await registerModel(world, workspaceId, { classes: ["disc"], image_size: 320 });
  two = await registerModel(world, workspaceId, { classes: ["disc"], image_size: 320 });
  await world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${one.model_id}::uuid`,
  );
});

const make = (slug: string, more: Record<string, unknown> = {}) =>
  admin.ok("POST", "/endpoints", { slug, models: [{ model_id: one.model_id }], ...more });
const image = async () => {
  const create = { width: 64, height: 48, channels: 3 as const, background: "#a40" };
  return form({ content: new Uint8Array(await sharp({ create }).png().toBuffer()) });
};
const predict = async (slug: string) =>
  admin.send("POST", `/endpoints/${slug}/predict`, await image());
const status = async (slug: string) =>
  EndpointStatus.parse(await admin.ok("GET", `/endpoints/${slug}/status`));

it("answers for an endpoint, without a shadow and without a word in the drift", async () => {
  await make("gate", { confidence: 0, shadow: { model_id: two.model_id, share: 1 } });
  expect((await status("gate")).health).toBe("ok");
  const answer = await predict("gate");
  expect([answer.status, answer.headers.get("X-Served-By")]).toEqual([200, "edge"]);
  const hour = async () => (await status("gate")).windows["1h"];
  await expect.poll(async () => (await hour()).answered).toBe(1);
  expect((await hour()).shadows).toEqual([]);
  const { drift, predictions } = await admin.ok<MetricsSummary>("GET", "/metrics/summary");
  expect([predictions > 0, drift?.reference_count, drift?.count]).toEqual([true, 0, 0]);
});

it("does not make an endpoint's own image size smaller", async () => {
  await make("small", { image_size: 320 });
  await make("large", { image_size: 640 });
  expect((await predict("small")).status).toBe(200);
  const refused = await predict("large");
  const { code, detail } = (await refused.json()) as { code: string; detail: string };
  expect([refused.status, code]).toEqual([503, "no_node"]);
  expect(detail).toContain("it looks at 320 pixels a side, and 640 are asked for");
  const health = async (slug: string) => (await status(slug)).health;
  expect([await health("small"), await health("large")]).toEqual(["ok", "no_node"]);
});

it("looks at no more pixels than a model was trained at, whatever size an endpoint asks for", async () => {
  const create = { classes: ["disc"], image_size: 160 };
  const small = await registerModel(world, workspaceId, create);
  const models = [{ model_id: small.model_id }];
  await make("fewer", { models, image_size: 128 });
  await make("more", { models, image_size: 256 });
  const about = async (slug: string) => [(await status(slug)).health, (await predict(slug)).status];
  expect(await about("fewer")).toEqual(["ok", 200]);
  expect(await about("more")).toEqual(["no_node", 503]);
});

it("is no word of an endpoint's model where that looks at more pixels, for a target either", async () => {
  for (const [slug, image_size] of [
    ["told", 320],
    ["whole", 640],
  ])
    await make(String(slug), { image_size });
  const { key } = await admin.ok<{ key: string }>("POST", "/endpoints/told/keys", { name: "k" });
  const { target_id } = await admin.ok<{ target_id: string }>("POST", "/targets", {
    name: "itself",
    config: { kind: "vantage", url: world.urls.vision, endpoint: "told" },
    credential: key,
  });
  const compared = async (slug: string) => {
    const path = `/targets/${target_id}/predict?endpoint=${slug}`;
    return (await admin.send("POST", path, await image())).status;
  };
  expect([await compared("told"), await compared("whole")]).toEqual([200, 503]);
});
