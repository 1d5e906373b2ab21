// An experiment over an endpoint that is moved while it runs. Goal: no request that was answered
// under other shares, settings or models is counted, whether the minute finds the endpoint moved or
// moved there and back.

import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { Experiment } from "../../../edge/vision/experiments/campaigns/records.ts";
import { createEndpointWorld, type EndpointWorld } from "../../support/endpoint-world.ts";
import { askedExperiment, shadowedEndpoint } from "../../support/experiments.ts";

let w: EndpointWorld;
beforeAll(async () => {
  w = await createEndpointWorld();
});
beforeEach(() => w.fresh());
afterEach(() => w.cutNodes());

const tick = () => w.world.tick(Date.now());
const read = async (id: string) => Experiment.parse(await w.admin.ok("GET", `/experiments/${id}`));
const begin = async (slug: string) =>
  Experiment.parse(await w.admin.ok("POST", "/experiments", askedExperiment(w, slug)));

/** Predicts so often, and waits until the meter has heard of so many in all. */
async function ask(slug: string, count: number, inAll: number) {
  for (let request = 0; request < count; request++) await (await w.predict(slug)).arrayBuffer();
  await w.counted(slug, inAll);
  await expect
    .poll(async () => (await w.status(slug)).windows["1h"].shadows[0]?.mirrored ?? 0)
    .toBe(inAll);
}

it("counts nothing of the stretch in which it finds the endpoint moved", async () => {
  await w.opened();
  const { slug } = await shadowedEndpoint(w);
  const { experiment_id: id } = await begin(slug);
  await ask(slug, 3, 3);
  await tick();
  expect((await read(id)).results.samples).toBe(3);
  await w.admin.ok("PATCH", `/endpoints/${slug}`, { confidence: 0.6 });
  await ask(slug, 5, 8);
  await tick();
  expect(await read(id)).toMatchObject({
    status: "paused",
    reason: "endpoint_moved",
    results: { samples: 3 },
  });
});

it("counts nothing of a stretch in which the endpoint moved there and back", async () => {
  await w.opened();
  const { slug } = await shadowedEndpoint(w);
  const { experiment_id: id } = await begin(slug);
  await ask(slug, 2, 2);
  await w.admin.ok("PATCH", `/endpoints/${slug}`, { confidence: 0.6 });
  await ask(slug, 5, 7);
  await w.admin.ok("POST", `/endpoints/${slug}/rollback`);
  await tick();
  expect(await read(id)).toMatchObject({ status: "running", results: { samples: 0 } });
  // What began before the last move may end after the look that noticed it.
  await ask(slug, 1, 8);
  await tick();
  expect((await read(id)).results.samples).toBe(0);
  await ask(slug, 4, 12);
  await tick();
  expect((await read(id)).results.samples).toBe(4);
});

it("counts nothing of a stretch in which an alias moved there and back", async () => {
  await w.opened();
  const promote = (model: { model_id: string }) =>
    w.admin.ok("POST", `/models/${model.model_id}/promote`, { alias: "canary" });
  await promote(w.two);
  const { slug } = await w.make({
    models: [{ model_id: w.one.model_id }],
    shadow: { alias: "canary", share: 1 },
  });
  const { experiment_id: id } = await begin(slug);
  await ask(slug, 2, 2);
  await promote(w.one);
  await promote(w.two);
  await tick();
  expect(await read(id)).toMatchObject({ status: "running", results: { samples: 0 } });
});
