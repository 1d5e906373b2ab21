// Predictions against named endpoints, with nodes whose end the test holds. Goal: the right model
// answers whoever may ask, every request is counted once however it ends, and a move of the
// endpoint costs none.

import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { endpointMeter } from "../../../../edge/vision/serving/endpoints/meter.ts";
import { LINE_STATUS } from "../../../../shared/tasks/line.ts";
import { systemClock } from "../../../../shared/time.ts";
import { MetricsSummary } from "../../../../shared/wire/endpoints.ts";
import {
  answering,
  createEndpointWorld,
  type EndpointWorld,
  FOUND,
  image,
  refusal,
  UPLOAD_BYTES_MAX,
} from "../../../support/endpoint-world.ts";
import type { AnsweringOptions } from "../../../support/line-end.ts";
import { form, mp4, png } from "../../../support/media.ts";
import { CAPABILITIES } from "../../../support/nodes.ts";
import { type RegisteredModel, registerModel } from "../../../support/registered-model.ts";
import { apiAs, colleague, type Person, scriptedNode } from "../../../support/scripted-node.ts";
import { beginTransaction } from "../../../support/transactions.ts";
import type { World } from "../../../support/world.ts";

let w: EndpointWorld;
let world: World;
let admin: Person;
let workspaceId: string;
let one: RegisteredModel;
let two: RegisteredModel;
beforeAll(async () => {
  w = await createEndpointWorld();
  ({ world, admin, workspaceId } = w);
});
beforeEach(async () => {
  ({ one, two } = await w.fresh());
});
afterEach(() => w.cutNodes());

const opened = (options?: Partial<AnsweringOptions>) => w.opened(options);
const predict: EndpointWorld["predict"] = (...request) => w.predict(...request);
const status: EndpointWorld["status"] = (...of) => w.status(...of);
const counted: EndpointWorld["counted"] = (...of) => w.counted(...of);

describe("a prediction", () => {
  it("is answered by the endpoint's model, and told by its classes and confidence", async () => {
    const node = await opened({ name: "n1" });
    const { slug } = await w.make({ classes: ["disc"], confidence: 0.5, image_size: 64 });
    const response = await predict(slug);
    expect(await response.json()).toEqual([FOUND.predictions[0]]);
    expect(response.headers.get("X-Model-Id")).toBe(one.model_id);
    expect(response.headers.get("X-Served-By")).toBe("node/n1");
    // The node is asked for all that drift looks at, at the endpoint's own size.
    expect(node.asked).toMatchObject([
      { confidence: 0.25, model: { model_id: one.model_id, image_size: 64 } },
    ]);
    const hour = await counted(slug, 1);
    expect(hour).toMatchObject({
      answered: 1,
      errors: {},
      batch_sizes: [{ size: 2, count: 1 }],
      cold_starts: 0,
      models: [{ model_id: one.model_id, requests: 1 }],
    });
    expect(hour.latency_ms.p50).toBeGreaterThan(0);
  });

  it("tells what is at the endpoint's confidence or above, also below what drift looks at", async () => {
    const node = await opened();
    const { slug } = await w.make({ confidence: 0.1 });
    expect(await (await predict(slug)).json()).toEqual(FOUND.predictions);
    expect(node.asked[0]?.confidence).toBe(0.1);
  });

  it("has masks where they are asked for, of what the endpoint tells, and of no other model", async () => {
    const outlining = await registerModel(world, workspaceId, {
      classes: ["disc", "star"],
      task: "segmentation",
    });
    const size: [number, number] = [48, 64];
    const mask = { rle: { size, counts: [49, 10, 64 * 48 - 59] } };
    const predictions = FOUND.predictions.slice(0, 2).map((found) => ({ ...found, mask }));
    const node = await opened({
      loaded: [outlining.model_id],
      answer: () => ({ body: { ...FOUND, predictions, masks_left_out: 3 } }),
    });
    const models = [{ model_id: outlining.model_id }];
    const { slug } = await w.make({ models, classes: ["disc"], confidence: 0.5 });
    const response = await predict(slug, "?mask=rle");
    expect(await response.json()).toEqual([predictions[0]]);
    expect(response.headers.get("X-Masks-Left-Out")).toBe("3");
    // What is not told is not drawn.
    expect(node.asked).toMatchObject([{ confidence: 0.5, mask: "rle" }]);
    const plain = await w.make({ models: [{ model_id: one.model_id }] });
    expect(await refusal(await predict(plain.slug, "?mask=rle"))).toEqual([422, "invalid_request"]);
  });

  it("goes by the queue where no node has a line", async () => {
    const script = {
      predict: () => ({
        width: 64,
        height: 48,
        frames: [{ frame_index: 0, time: 0, predictions: FOUND.predictions }],
        seconds: 0.1,
        left_out: 0,
      }),
    };
    const capabilities = { ...CAPABILITIES, kinds: ["predict"] };
    const node = await scriptedNode(world, admin, script, capabilities);
    const stop = node.start();
    const { slug } = await w.make({ classes: ["star"] });
    const response = await predict(slug);
    expect(response.headers.get("X-Served-By")).toBeNull();
    expect(await response.json()).toEqual([FOUND.predictions[1]]);
    expect(await counted(slug, 1)).toMatchObject({ answered: 1, batch_sizes: [] });
    await stop();
  });

  it("of a split goes to the model of its key, each time, and to all of them without", async () => {
    await opened();
    const { slug } = await w.make({
      models: [{ model_id: one.model_id }, { model_id: two.model_id }],
    });
    const modelOf = async (query: string) =>
      (await predict(slug, query)).headers.get("X-Model-Id") as string;
    // By a hash with the endpoint's id: all alike come once in a billion.
    const keys = Array.from({ length: 32 }, (_, key) => `?sticky_key=camera-${key}`);
    const first = await Promise.all(keys.map(modelOf));
    expect(await Promise.all(keys.map(modelOf))).toEqual(first);
    expect(new Set(first)).toEqual(new Set([one.model_id, two.model_id]));
    // All alike come once in a million.
    const without = await Promise.all(Array.from({ length: 20 }, () => modelOf("")));
    expect(new Set(without).size).toBe(2);
    const hour = await counted(slug, 84);
    expect(hour.models.reduce((sum, { requests }) => sum + requests, 0)).toBe(84);
  });

  it("passes over an alias of none, and is refused where no model is left", async () => {
    await opened();
    const some = await w.make({
      models: [{ alias: "canary", weight: 99 }, { model_id: two.model_id }],
    });
    expect((await predict(some.slug)).headers.get("X-Model-Id")).toBe(two.model_id);
    const none = await w.make({ models: [{ alias: "canary" }] });
    expect((await status(none.slug)).health).toBe("no_model");
    expect(await refusal(await predict(none.slug))).toEqual([409, "state_conflict"]);
    expect(await counted(none.slug, 1)).toMatchObject({
      answered: 0,
      errors: { state_conflict: 1 },
      models: [],
    });
  });
});

describe("a refusal", () => {
  const large = (bytes: number) => {
    const content = new Uint8Array(bytes);
    content.set(png(64, 48));
    return form({ content });
  };

  it.each<[string, () => FormData, [number, string]]>([
    // A body that is no form is the point.
    ["no form", () => new Uint8Array([1]) as never, [400, "bad_body"]],
    ["a video", () => form({ content: mp4() }), [415, "unsupported_media"]],
    ["a file that is too large", () => large(UPLOAD_BYTES_MAX + 1), [413, "file_too_large"]],
    ["no file", () => form(["a", "b"]), [422, "invalid_request"]],
  ])("of %s is counted under its code", async (_, body, expected) => {
    await opened();
    const { slug } = await w.make();
    expect(await refusal(await predict(slug, "", admin, body()))).toEqual(expected);
    const [, code] = expected;
    expect(await counted(slug, 1)).toMatchObject({ answered: 0, errors: { [code]: 1 } });
  });

  it("by nodes is told and counted: full, broken, none, gone", async () => {
    const { slug } = await w.make();
    expect(await refusal(await predict(slug))).toEqual([503, "no_node"]);
    expect((await status(slug)).health).toBe("no_node");
    const held = Promise.withResolvers<void>();
    const node = await opened({
      capacity: 1,
      answer: async () => {
        await held.promise;
        return answering();
      },
    });
    const first = predict(slug);
    await expect.poll(() => node.asked.length).toBe(1);
    await expect.poll(async () => (await status(slug)).in_flight).toBe(1);
    const full = await predict(slug);
    expect(full.headers.get("Retry-After")).toBe("1");
    expect(await refusal(full)).toEqual([429, "overloaded"]);
    held.resolve();
    expect((await first).status).toBe(200);
    await expect.poll(async () => (await status(slug)).in_flight).toBe(0);
    expect(await counted(slug, 3)).toMatchObject({
      answered: 1,
      errors: { no_node: 1, overloaded: 1 },
    });
    node.cut();
    await world.visionDatabase.execute(sql`UPDATE node SET revoked_at = now()`);
    await opened({
      answer: () => ({ status: LINE_STATUS.refused, body: { code: "bad_weights", detail: "no" } }),
    });
    expect(await refusal(await predict(slug))).toEqual([502, "task_failed"]);
    expect((await counted(slug, 4)).errors).toMatchObject({ task_failed: 1 });
  });

  it("of who may not is none of the endpoint's requests", async () => {
    await opened();
    const { slug } = await w.make();
    const viewer = await colleague(world, admin, "viewer");
    expect(await refusal(await predict(slug, "", viewer))).toEqual([403, "forbidden"]);
    expect(await refusal(await predict(slug, "", apiAs(world.urls.vision, "")))).toEqual([
      401,
      "unauthorized",
    ]);
    expect(await refusal(await predict("nowhere"))).toEqual([404, "not_found"]);
    expect(await refusal(await predict(slug, "?sticky_key="))).toEqual([422, "invalid_request"]);
    expect((await predict(slug)).status).toBe(200);
    expect(await counted(slug, 1)).toMatchObject({ answered: 1, errors: {} });
  });
});

describe("a key", () => {
  it("opens predictions and the status of its endpoint, and nothing else", async () => {
    await opened();
    const { slug } = await w.make();
    const other = await w.make();
    const { api, key_id } = await w.keyFor(slug);
    expect((await predict(slug, "", api)).status).toBe(200);
    expect((await predict(slug, `?workspace_id=${workspaceId}`, api)).status).toBe(200);
    expect((await status(slug, api)).slug).toBe(slug);
    const elsewhere = `?workspace_id=${crypto.randomUUID()}`;
    expect(await refusal(await predict(slug, elsewhere, api))).toEqual([404, "not_found"]);
    const shut = [
      ["POST", `/endpoints/${other.slug}/predict`],
      ["GET", `/endpoints/${other.slug}/status`],
      ["GET", `/endpoints/${slug}`],
      ["PATCH", `/endpoints/${slug}`],
      ["DELETE", `/endpoints/${slug}`],
      ["GET", `/endpoints/${slug}/keys`],
      ["GET", "/endpoints"],
      ["GET", "/metrics/summary"],
      ["GET", "/projects"],
    ] as const;
    for (const [method, path] of shut) {
      expect([path, await api.refused(method, path)]).toEqual([path, [401, "unauthorized"]]);
    }
    const wrong = apiAs(
      world.urls.vision,
      `${api.token.slice(0, -1)}${api.token.endsWith("A") ? "B" : "A"}`,
    );
    expect(await refusal(await predict(slug, "", wrong))).toEqual([401, "unauthorized"]);
    await admin.ok("DELETE", `/endpoints/${slug}/keys/${key_id}`);
    expect(await refusal(await predict(slug, "", api))).toEqual([401, "unauthorized"]);
    const again = await w.keyFor(slug);
    await admin.ok("DELETE", `/endpoints/${slug}`);
    expect(await refusal(await predict(slug, "", again.api))).toEqual([401, "unauthorized"]);
    await admin.ok("POST", `/endpoints/${slug}/rollback`);
    expect((await predict(slug, "", again.api)).status).toBe(200);
  });

  it("opens no more than its rate, says when to come, and limits no other", async () => {
    await opened();
    const { slug } = await w.make();
    const limited = await w.keyFor(slug, { requests_per_minute: 5, burst: 3 });
    const free = await w.keyFor(slug);
    const burst = await Promise.all([1, 2, 3].map(() => predict(slug, "", limited.api)));
    expect(burst.map((response) => response.status)).toEqual([200, 200, 200]);
    const over = await predict(slug, "", limited.api);
    // One in twelve seconds; the bucket filled a little since.
    const seconds = Array.from({ length: 12 }, (_, index) => String(index + 1));
    expect(seconds).toContain(over.headers.get("Retry-After"));
    expect(await over.json()).toMatchObject({ code: "rate_limited", requests_per_minute: 5 });
    expect(over.status).toBe(429);
    expect((await predict(slug, "", free.api)).status).toBe(200);
    expect((await predict(slug)).status).toBe(200);
    // The status is not limited.
    expect((await status(slug, limited.api)).slug).toBe(slug);
    await expect
      .poll(async () => (await predict(slug, "", limited.api)).status, {
        interval: 500,
      })
      .toBe(200);
    const { errors } = (await status(slug)).windows["1h"];
    expect(errors.rate_limited).toBeGreaterThanOrEqual(1);
  });
});

describe("a move", () => {
  it("of the model under load costs no request, nor does its rollback", async () => {
    await opened({
      answer: async () => {
        await new Promise((done) => setTimeout(done, 5));
        return answering();
      },
    });
    const { slug } = await w.make();
    let isOver = false;
    const models = new Map<string, number>();
    const statuses = new Map<number, number>();
    const worker = async () => {
      while (!isOver) {
        const response = await predict(slug);
        const model = response.headers.get("X-Model-Id") ?? "";
        await response.arrayBuffer();
        models.set(model, (models.get(model) ?? 0) + 1);
        statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1);
      }
    };
    const load = Promise.all(Array.from({ length: 4 }, worker));
    const reached = (model: RegisteredModel, count: number) =>
      expect.poll(() => models.get(model.model_id) ?? 0).toBeGreaterThanOrEqual(count);
    await reached(one, 10);
    await admin.ok("PATCH", `/endpoints/${slug}`, { models: [{ model_id: two.model_id }] });
    await reached(two, 10);
    const before = models.get(one.model_id) ?? 0;
    await admin.ok("POST", `/endpoints/${slug}/rollback`);
    await reached(one, before + 10);
    isOver = true;
    await load;
    expect([...statuses.keys()]).toEqual([200]);
    const sent = statuses.get(200) ?? 0;
    // Each of them is in the count, under the model that answered it.
    const hour = await counted(slug, sent);
    expect(hour.answered).toBe(sent);
    expect(Object.fromEntries(hour.models.map((of) => [of.model_id, of.requests]))).toEqual(
      Object.fromEntries(models),
    );
  });

  it("of an alias is seen by the next request", async () => {
    await opened();
    const { slug } = await w.make({ models: [{ alias: "production" }] });
    for (const model of [one, two, one]) {
      await admin.ok("POST", `/models/${model.model_id}/promote`, { alias: "production" });
      expect((await predict(slug)).headers.get("X-Model-Id")).toBe(model.model_id);
    }
  });
});

describe("a fault", () => {
  it("of a node with requests in its hands has each answered once and counted once", async () => {
    const never = Promise.withResolvers<void>();
    const falling = await opened({
      answer: async () => {
        await never.promise;
        return answering();
      },
    });
    const staying = await opened();
    const { slug } = await w.make();
    const answers = Array.from({ length: 12 }, () => predict(slug));
    // Of two random orders for each request, one of all twelve is a chance of one in two thousand.
    await expect.poll(() => falling.asked.length).toBeGreaterThan(0);
    await expect.poll(() => falling.asked.length + staying.asked.length).toBe(12);
    falling.cut();
    const statuses = (await Promise.all(answers)).map((response) => response.status);
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(await counted(slug, 12)).toMatchObject({ answered: 12, errors: {} });
    never.resolve();
    await expect.poll(async () => (await status(slug)).in_flight).toBe(0);
  });

  it("of whoever asked, who leaves before the answer, is a request that is counted", async () => {
    const held = Promise.withResolvers<void>();
    const node = await opened({
      answer: async () => {
        await held.promise;
        return answering();
      },
    });
    const { slug } = await w.make();
    const leave = new AbortController();
    const left = fetch(`${world.urls.vision}/api/v1/endpoints/${slug}/predict`, {
      method: "POST",
      headers: { Authorization: `Bearer ${admin.token}` },
      body: image(),
      signal: leave.signal,
    }).catch(() => null);
    await expect.poll(() => node.asked.length).toBe(1);
    leave.abort();
    await left;
    held.resolve();
    const { answered, errors } = await counted(slug, 1);
    // A runtime that does not notice lets it be answered.
    expect(answered + (errors.client_left ?? 0)).toBe(1);
    expect((await status(slug)).in_flight).toBe(0);
  });

  it("of the meter, which is evicted under load, loses no more than what it had not written", async () => {
    await opened();
    const { slug, endpoint_id } = await w.make();
    for (let index = 0; index < 5; index++) expect((await predict(slug)).status).toBe(200);
    await counted(slug, 5);
    const meter = endpointMeter(
      { meters: world.objects("METERS"), log: { info() {}, warning() {}, error() {} } },
      endpoint_id,
    );
    await expect
      .poll(async () => (await meter.read(systemClock())).unwritten, {
        interval: 500,
      })
      .toBe(0);
    await world.evict("EndpointMeter", `endpoint:${endpoint_id}`);
    for (let index = 0; index < 3; index++) expect((await predict(slug)).status).toBe(200);
    expect(await counted(slug, 8)).toMatchObject({ answered: 8 });
  });
});

it("a key is of no endpoint that is deleted while it is made", async () => {
  const { slug, endpoint_id } = await w.make();
  const deletion = await beginTransaction(world.visionDatabase);
  await deletion.query("LOCK TABLE endpoint_key");
  const refused = admin.refused("POST", `/endpoints/${slug}/keys`, { name: "k" });
  await deletion.awaited();
  await deletion.query(`UPDATE endpoint SET deleted_at = now() WHERE id = '${endpoint_id}'`);
  await deletion.commit();
  expect(await refused).toEqual([404, "not_found"]);
});

describe("GET /metrics/summary", () => {
  const summary = async (query = "") =>
    MetricsSummary.parse(await admin.ok("GET", `/metrics/summary${query}`));

  it("adds up the default routes and the endpoints", async () => {
    await opened();
    const before = await summary();
    const { slug } = await w.make({ classes: ["disc"] });
    for (let index = 0; index < 3; index++) await predict(slug);
    await admin.ok("POST", "/predict/image", image());
    const other = await registerModel(world, workspaceId, { classes: ["disc", "star"] });
    await admin.ok("POST", `/predict/image?model_id=${other.model_id}&confidence=0.8`, image());
    expect(await refusal(await admin.send("POST", "/predict/image", form(["a", "b"])))).toEqual([
      422,
      "invalid_request",
    ]);
    await expect.poll(async () => (await summary()).requests - before.requests).toBe(6);
    const after = await summary();
    expect(after.answered - before.answered).toBe(5);
    expect((after.errors.invalid_request ?? 0) - (before.errors.invalid_request ?? 0)).toBe(1);
    const discs = (of: MetricsSummary) =>
      of.classes.find(({ class: name }) => name === "disc")?.count ?? 0;
    // The endpoint tells two of three; the others all that the node gave.
    expect(discs(after) - discs(before)).toBe(3 * 2 + 2 + 2);
    expect(after.predictions - before.predictions).toBe(3 * 2 + 3 + 3);
    expect(after.active_model_id).toBe(one.model_id);
    expect(after.confidence_histogram).toHaveLength(20);
    expect(after.confidence_histogram.at(-2)).toMatchObject({ from: 0.9, to: 0.95 });
    expect(after.models.find(({ model_id }) => model_id === other.model_id)?.requests).toBe(1);
    expect(after.endpoints).toBeGreaterThan(0);
    expect(after.drift).toMatchObject({ reference: "first_predictions", model_id: one.model_id });
    expect((await summary("?window=1h")).requests).toBeGreaterThanOrEqual(6);
    expect(await admin.refused("GET", "/metrics/summary?window=1y")).toEqual([
      422,
      "invalid_request",
    ]);
  });

  it("holds a model's detections against those of its validation, where it has them", async () => {
    await opened();
    const model = await registerModel(world, workspaceId, { classes: ["disc", "star"] });
    // As the node finds them: of three, one at 0.9, one at 0.6 and one at 0.3.
    const bins = Array.from({ length: 20 }, (_, bin) => Number([6, 12, 18].includes(bin)) * 100);
    const activate = async (id: string) => {
      await world.visionDatabase.execute(sql`UPDATE model SET active = false`);
      await world.visionDatabase.execute(
        sql`UPDATE model SET active = true WHERE id = ${id}::uuid`,
      );
    };
    await world.visionDatabase.execute(sql`UPDATE model
      SET confidence_bins = ${JSON.stringify(bins)}::jsonb WHERE id = ${model.model_id}::uuid`);
    await activate(model.model_id);
    const { slug } = await w.make({ models: [{ model_id: model.model_id }] });
    for (let round = 0; round < 4; round++) {
      await Promise.all(Array.from({ length: 20 }, () => predict(slug)));
    }
    await counted(slug, 80);
    // From the first detection on: none is put aside as a reference.
    expect((await summary()).drift).toMatchObject({
      model_id: model.model_id,
      reference: "validation",
      reference_count: 300,
      count: 240,
      verdict: "stable",
    });
    await activate(one.model_id);
  });

  it("is of the workspaces of who asks", async () => {
    const path = `/metrics/summary?workspace_id=${crypto.randomUUID()}`;
    expect(await admin.refused("GET", path)).toEqual([404, "not_found"]);
  });
});
