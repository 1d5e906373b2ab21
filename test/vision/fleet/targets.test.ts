// Targets. Goal: a server elsewhere is asked in its own words, its credential goes to it alone and
// is shown to nobody, and what it says of an image is held against a model of ours.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { sql } from "drizzle-orm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { KEPT_CHECKS } from "../../../edge/vision/fleet/targets/health.ts";
import type {
  Target,
  TargetCheck,
  TargetPrediction,
} from "../../../edge/vision/fleet/targets/records.ts";
import { HELD_BYTES_MAX } from "../../../edge/vision/serving/predict/held-bytes.ts";
import { DAY } from "../../../shared/time.ts";
import { FOUND, image } from "../../support/endpoint-world.ts";
import { createFleetWorld, type FleetWorld } from "../../support/fleet-world.ts";
import { answeringNode } from "../../support/line-end.ts";
import { form, png } from "../../support/media.ts";
import { type RegisteredModel, registerModel } from "../../support/registered-model.ts";
import { forgetRows } from "../../support/retention.ts";

const KEY = "a-key-of-the-other-server";

/** A server of somebody else's, which answers as the test says. */
interface Elsewhere {
  url: string;
  heard: { path: string; headers: IncomingMessage["headers"]; body: Buffer }[];
  answer: (path: string, response: ServerResponse) => void;
}

let w: FleetWorld;
let model: RegisteredModel;
let elsewhere: Elsewhere;
const closing: (() => void)[] = [];

const json = (body: unknown) => (_: string, response: ServerResponse) => {
  response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(body));
};

beforeAll(async () => {
  w = await createFleetWorld();
  model = await registerModel(w.world, w.workspaceId, { classes: ["disc", "star"] });
  await w.world.visionDatabase.execute(
    sql`UPDATE model SET active = true WHERE id = ${model.model_id}::uuid`,
  );
  const node = await answeringNode(w.world, w.admin, {
    loaded: [model.model_id],
    answer: () => ({ body: FOUND }),
  });
  elsewhere = { url: "", heard: [], answer: json({}) };
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const path = request.url ?? "";
    elsewhere.heard.push({ path, headers: request.headers, body });
    elsewhere.answer(path, response);
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  elsewhere.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  closing.push(() => {
    node.cut();
    server.close();
    server.closeAllConnections();
  });
});
afterAll(() => {
  for (const close of closing) close();
});

const tick = () => w.world.tick(Date.now());
const make = (config: object, more: object = {}) =>
  w.admin.ok<Target>("POST", "/targets", {
    name: "other",
    workspace_id: w.workspaceId,
    config,
    ...more,
  });
const roboflow = (more: object = {}) => ({
  kind: "http",
  url: elsewhere.url,
  protocol: "roboflow",
  model: "discs/3",
  ...more,
});
const read = (id: string) => w.admin.ok<Target>("GET", `/targets/${id}`);
const predict = (id: string, query = "") =>
  w.admin.ok<TargetPrediction>("POST", `/targets/${id}/predict${query}`, image());

describe("a target", () => {
  it("is made, changed, listed and deleted", async () => {
    const made = await make(roboflow(), { credential: KEY });
    expect(made).toMatchObject({ status: "unknown", has_credential: true, enabled: true });
    const path = `/targets/${made.target_id}`;
    const changed = await w.admin.ok<Target>("PATCH", path, { name: "renamed", enabled: false });
    expect(changed).toMatchObject({ name: "renamed", enabled: false, config: made.config });
    const listed = await w.admin.ok<Target[]>("GET", "/targets");
    expect(listed).toContainEqual(changed);
    await w.admin.ok("DELETE", path);
    expect(await w.admin.refused("GET", path)).toEqual([404, "not_found"]);
    expect(await w.admin.refused("DELETE", path)).toEqual([404, "not_found"]);
  });

  it.each([
    [
      "an address without https",
      { kind: "http", url: "http://example.com", protocol: "torchserve", model: "m" },
    ],
    [
      "a private address",
      { kind: "http", url: "https://10.0.0.1", protocol: "torchserve", model: "m" },
    ],
    ["the metadata of a cloud", { kind: "vantage", url: "https://169.254.169.254", endpoint: "e" }],
    ["a query", { kind: "vantage", url: "https://example.com/?a=1", endpoint: "e" }],
    [
      "credentials in its address",
      { kind: "vantage", url: "https://a:b@example.com", endpoint: "e" },
    ],
    ["no address", { kind: "vantage", url: "none", endpoint: "e" }],
    ["an unknown kind", { kind: "ftp", url: "https://example.com" }],
    [
      "a model that leads elsewhere",
      { kind: "http", url: "https://example.com", protocol: "torchserve", model: "a?b" },
    ],
  ])("is not made with %s", async (_, config) => {
    const body = { name: "x", workspace_id: w.workspaceId, config };
    expect(await w.admin.refused("POST", "/targets", body)).toEqual([422, "invalid_request"]);
  });

  it("is no device of another workspace", async () => {
    const other = await w.stranger();
    const device = await other.ok<{ device_id: string }>("POST", "/devices", { name: "theirs" });
    const config = { kind: "device", device_id: device.device_id };
    expect(
      await w.admin.refused("POST", "/targets", { name: "x", workspace_id: w.workspaceId, config }),
    ).toEqual([404, "not_found"]);
  });

  it("is seen by viewers, asked by annotators and changed by engineers", async () => {
    const { target_id } = await make(roboflow());
    const path = `/targets/${target_id}`;
    const viewer = await w.member("viewer");
    const annotator = await w.member("annotator");
    await viewer.ok("GET", path);
    await viewer.ok("GET", `${path}/checks`);
    const refusals = [
      await viewer.refused("POST", `${path}/predict`, image()),
      await annotator.refused("POST", "/targets", {
        name: "x",
        workspace_id: w.workspaceId,
        config: roboflow(),
      }),
      await annotator.refused("PATCH", path, { name: "x" }),
      await annotator.refused("POST", `${path}/check`),
      await annotator.refused("DELETE", path),
    ];
    expect(new Set(refusals.map(String))).toEqual(new Set(["403,forbidden"]));
    elsewhere.answer = json({ predictions: [] });
    await annotator.ok("POST", `${path}/predict`, image());
  });
});

describe("a target's credential", () => {
  it("is sealed, and in no answer, log or audit entry", async () => {
    const { target_id } = await make(roboflow(), { credential: KEY });
    elsewhere.answer = (_, response) => response.writeHead(401).end(KEY);
    const refused = await w.admin.send("POST", `/targets/${target_id}/predict`, image());
    expect([refused.status, (await refused.text()).includes(KEY)]).toEqual([502, false]);
    const { rows } = await w.world.visionDatabase.execute<{ text: string }>(sql`
      SELECT (SELECT jsonb_agg(t) FROM target t)::text
        || (SELECT jsonb_agg(a) FROM audit_entry a)::text AS text`);
    expect(rows[0]?.text).toContain("addTarget");
    expect(rows[0]?.text).not.toContain(KEY);
    for (const log of w.world.logs) expect(log).not.toContain(KEY);
  });

  it("goes to no server that it was not given for", async () => {
    const { target_id } = await make(roboflow(), { credential: KEY });
    const path = `/targets/${target_id}`;
    const moved = { config: roboflow({ url: "https://elsewhere.example" }) };
    expect(await w.admin.refused("PATCH", path, moved)).toEqual([422, "invalid_request"]);
    const without = await w.admin.ok<Target>("PATCH", path, { ...moved, credential: null });
    expect(without.has_credential).toBe(false);
  });

  it("does not open in another row", async () => {
    const [one, other] = [await make(roboflow(), { credential: KEY }), await make(roboflow())];
    await w.world.visionDatabase.execute(sql`
      UPDATE target SET credential = (SELECT credential FROM target WHERE id = ${one.target_id}::uuid)
       WHERE id = ${other.target_id}::uuid`);
    const path = `/targets/${other.target_id}/predict`;
    expect(await w.admin.refused("POST", path, image())).toEqual([500, "bad_configuration"]);
  });
});

describe("a prediction", () => {
  it("is asked of Roboflow's server in its words", async () => {
    const { target_id } = await make(roboflow(), { credential: KEY });
    elsewhere.answer = json({
      time: 0.1,
      image: { width: 64, height: 48 },
      predictions: [
        { x: 50, y: 21, width: 20, height: 38, class: "star", confidence: 0.7, class_id: 1 },
        { x: 15.5, y: 21, width: 29, height: 38, class: "disc", confidence: 0.8, class_id: 0 },
      ],
    });
    const answer = await predict(target_id);
    expect(answer).toMatchObject({
      predictions: [
        { class: "disc", confidence: 0.8, bbox: [1, 2, 30, 40] },
        { class: "star", confidence: 0.7, bbox: [40, 2, 60, 40] },
      ],
      compared: null,
    });
    const { path, body } = elsewhere.heard.at(-1) ?? { path: "", body: Buffer.alloc(0) };
    const sent = JSON.parse(body.toString());
    expect([path, sent.api_key, sent.model_id]).toEqual([
      "/infer/object_detection",
      KEY,
      "discs/3",
    ]);
    expect(Buffer.from(sent.image.value, "base64").subarray(1, 4).toString()).toBe("PNG");
  });

  it("is asked of TorchServe in its words", async () => {
    const config = {
      kind: "http",
      url: `${elsewhere.url}/below/`,
      protocol: "torchserve",
      model: "frcnn/1.0",
    };
    const { target_id } = await make(config, { credential: KEY });
    elsewhere.answer = json([
      { disc: [1, 2, 30, 40], score: 0.9 },
      { score: 0.95, star: [40, 2, 60, 40] },
    ]);
    const { predictions } = await predict(target_id);
    expect(predictions).toEqual([
      { class: "star", confidence: 0.95, bbox: [40, 2, 60, 40] },
      { class: "disc", confidence: 0.9, bbox: [1, 2, 30, 40] },
    ]);
    const { path, headers, body } = elsewhere.heard.at(-1) as Elsewhere["heard"][number];
    expect(path).toBe("/below/predictions/frcnn/1.0");
    expect([headers.authorization, headers["content-type"]]).toEqual([
      `Bearer ${KEY}`,
      "image/png",
    ]);
    expect(body.subarray(1, 4).toString()).toBe("PNG");
  });

  it("is asked of another instance's endpoint, which is well when it says so", async () => {
    const slug = "gate";
    const models = [{ model_id: model.model_id }];
    await w.admin.ok("POST", "/endpoints", { slug, workspace_id: w.workspaceId, models });
    const { key } = await w.admin.ok<{ key: string }>("POST", `/endpoints/${slug}/keys`, {
      name: "k",
    });
    const config = { kind: "vantage", url: w.world.urls.vision, endpoint: slug };
    const { target_id } = await make(config, { credential: key });
    const { predictions } = await predict(target_id);
    expect(predictions).toEqual(FOUND.predictions);
    const check = await w.admin.ok<TargetCheck>("POST", `/targets/${target_id}/check`);
    expect(check).toMatchObject({ up: true, problem: null });
  });

  it("is held against a model of ours, by its id, its name or an endpoint", async () => {
    const { target_id } = await make(roboflow());
    const box = { class: "disc", confidence: 0.8, x: 15.5, y: 21, width: 29, height: 38 };
    elsewhere.answer = json({
      predictions: [box, { ...box, class: "disc", x: 50, width: 20 }, { ...box, x: 500 }],
    });
    await w.admin.ok("POST", "/endpoints", {
      slug: "compared",
      workspace_id: w.workspaceId,
      models: [{ model_id: model.model_id }],
    });
    for (const query of [`model_id=${model.model_id}`, "endpoint=compared"]) {
      const { compared } = await predict(target_id, `?${query}`);
      expect(compared).toMatchObject({
        model_id: model.model_id,
        predictions: FOUND.predictions,
        matched: 1,
        other_class: 1,
        only_target: 1,
        only_model: 1,
        mean_iou: 1,
      });
    }
    const path = `/targets/${target_id}/predict`;
    const both = `${path}?model_id=${model.model_id}&endpoint=compared`;
    expect(await w.admin.refused("POST", both, image())).toEqual([422, "invalid_request"]);
    const nobodys = `${path}?model_id=${crypto.randomUUID()}`;
    expect(await w.admin.refused("POST", nobodys, image())).toEqual([404, "not_found"]);
  });

  it.each([
    ["no JSON", (_: string, response: ServerResponse) => response.writeHead(200).end("<html>")],
    ["no predictions", json({ result: [] })],
    [
      "a box of no size",
      json({ predictions: [{ x: 1, y: 1, width: 0, height: 1, class: "a", confidence: 1 }] }),
    ],
    [
      "a confidence of 7",
      json({ predictions: [{ x: 1, y: 1, width: 1, height: 1, class: "a", confidence: 7 }] }),
    ],
    ["an error", (_: string, response: ServerResponse) => response.writeHead(500).end()],
    ["nothing", (_: string, response: ServerResponse) => response.destroy()],
    [
      "a way elsewhere",
      (_: string, response: ServerResponse) =>
        response.writeHead(302, { Location: "http://10.0.0.1/" }).end(),
    ],
    [
      "ten megabytes",
      (_: string, response: ServerResponse) =>
        response.writeHead(200).end(Buffer.alloc(10_000_000, 32)),
    ],
  ])("is 502 where the target answers %s", async (_, answer) => {
    const { target_id } = await make(roboflow());
    elsewhere.answer = answer;
    const path = `/targets/${target_id}/predict`;
    expect(await w.admin.refused("POST", path, image())).toEqual([502, "target_failed"]);
    await w.admin.ok("DELETE", `/targets/${target_id}`);
  });

  it("gives back the memory that its image took, however the target answers", async () => {
    const { target_id } = await make(roboflow());
    const bytes = 7 * 1024 * 1024;
    const content = new Uint8Array(bytes);
    content.set(png(64, 48));
    const ask = (query: string) =>
      w.admin.send("POST", `/targets/${target_id}/predict${query}`, form({ content }));
    const answers = [
      { answer: json({ predictions: [] }), query: "", status: 200 },
      { answer: json({ predictions: [] }), query: `?model_id=${model.model_id}`, status: 200 },
      { answer: json({ result: [] }), query: "", status: 502 },
      { answer: json({ result: [] }), query: `?model_id=${model.model_id}`, status: 502 },
    ];
    // More than an isolate holds at once, copies included.
    const rounds = Math.ceil(HELD_BYTES_MAX / (2 * bytes * answers.length)) + 1;
    for (const { answer, query, status } of Array(rounds).fill(answers).flat()) {
      elsewhere.answer = answer;
      expect((await ask(query)).status).toBe(status);
    }
  });

  it("is none by a device, and none of what is no image", async () => {
    const { device_id } = await w.made();
    const { target_id } = await make({ kind: "device", device_id });
    const path = `/targets/${target_id}/predict`;
    expect(await w.admin.refused("POST", path, image())).toEqual([409, "state_conflict"]);
    const server = await make(roboflow());
    const words = new TextEncoder().encode("no image at all, only words in a row");
    const own = `/targets/${server.target_id}/predict`;
    expect(await w.admin.refused("POST", own, form({ content: words }))).toEqual([
      415,
      "unsupported_media",
    ]);
  });
});

describe("a target's health", () => {
  it("is looked at by the minute, and each look is remembered", async () => {
    const { target_id } = await make(roboflow());
    elsewhere.answer = json({ name: "inference", version: "1" });
    const before = elsewhere.heard.length;
    await tick();
    const up = await read(target_id);
    expect(up).toMatchObject({ status: "up", problem: null });
    expect(up.latency_ms).toBeGreaterThanOrEqual(0);
    // Targets of other tests may be due as well.
    expect(elsewhere.heard.slice(before).map(({ path }) => path)).toContain("/info");
    elsewhere.answer = (_, response) => response.writeHead(503).end();
    await w.admin.ok("POST", `/targets/${target_id}/check`);
    expect(await read(target_id)).toMatchObject({ status: "down", problem: "answered 503" });
    const checks = await w.admin.ok<TargetCheck[]>("GET", `/targets/${target_id}/checks`);
    expect(checks.map((one) => one.up)).toEqual([false, true]);
    await forgetRows(
      { database: w.world.visionDatabase, clock: () => Date.now() + 8 * DAY },
      KEPT_CHECKS,
    );
    expect(await w.admin.ok("GET", `/targets/${target_id}/checks`)).toEqual([]);
  });

  it("says what the database can store, whatever its server answers", async () => {
    const url = `${elsewhere.url}/hostile`;
    const { target_id } = await make({ kind: "vantage", url, endpoint: "gate" });
    elsewhere.answer = json({ health: `x\0${"y".repeat(47)}\u{1f600}` });
    const check = await w.admin.ok<TargetCheck>("POST", `/targets/${target_id}/check`);
    expect(check).toMatchObject({ up: false, problem: `says of itself: x${"y".repeat(47)}\ufffd` });
    elsewhere.answer = json({});
    await w.admin.ok("DELETE", `/targets/${target_id}`);
  });

  it("is looked at less and less often while it is down, and not when nobody wants it", async () => {
    const { target_id } = await make(roboflow());
    elsewhere.answer = (_, response) => response.destroy();
    const next = async () => {
      const { rows } = await w.world.visionDatabase.execute<{ seconds: number }>(sql`
        SELECT extract(epoch FROM next_check_at - checked_at)::float8 AS seconds FROM target
         WHERE id = ${target_id}::uuid`);
      return rows[0]?.seconds;
    };
    const pauses = [];
    for (let look = 0; look < 6; look++) {
      await w.admin.ok("POST", `/targets/${target_id}/check`);
      pauses.push(await next());
    }
    expect(pauses).toEqual([60, 120, 240, 480, 960, 960]);
    await w.admin.ok("PATCH", `/targets/${target_id}`, { enabled: false });
    const before = elsewhere.heard.length;
    await tick();
    expect(elsewhere.heard.slice(before).filter(({ path }) => path === "/info")).toEqual([]);
  });

  it("of what was changed while it was looked at is not said", async () => {
    const { target_id } = await make(roboflow());
    let release = () => {};
    const asked = new Promise<void>((done) => {
      elsewhere.answer = (_, response) => {
        release = () => response.writeHead(500).end();
        done();
      };
    });
    const check = w.admin.ok("POST", `/targets/${target_id}/check`);
    await asked;
    await w.admin.ok("PATCH", `/targets/${target_id}`, { config: roboflow({ model: "new/1" }) });
    release();
    await check;
    expect(await read(target_id)).toMatchObject({ status: "unknown", problem: null });
  });

  it("of a device follows from its heartbeats", async () => {
    const device = await w.enrolled();
    const { target_id } = await make({ kind: "device", device_id: device.id });
    const look = () => w.admin.ok<TargetCheck>("POST", `/targets/${target_id}/check`);
    expect(await look()).toMatchObject({ up: false, problem: "is not heard of yet" });
    await device.api.ok("POST", device.own("heartbeat"), {});
    expect(await look()).toMatchObject({ up: true });
    await w.admin.ok("DELETE", `/devices/${device.id}`);
    expect(await look()).toMatchObject({ up: false });
  });
});
