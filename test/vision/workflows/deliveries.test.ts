// What runs ask for outside, and the secrets that it takes. Goal: each webhook arrives once it can,
// signed, under an id that stays the same; nobody reaches a private network; and no secret's value
// is in any answer, row, log line or error.

import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Parts } from "../../../edge/vision/base/parts.ts";
import {
  KEPT_DELIVERIES,
  listDeliveries,
  sendDeliveries,
} from "../../../edge/vision/workflows/deliveries.ts";
import { type EffectOfRun, performEffects } from "../../../edge/vision/workflows/effects.ts";
import { openSecrets } from "../../../edge/vision/workflows/secrets.ts";
import { Secret } from "../../../shared/secret.ts";
import { DAY, MINUTE } from "../../../shared/time.ts";
import type { WorkflowDelivery, WorkflowSecret } from "../../../shared/wire/workflows.ts";
import { png } from "../../support/media.ts";
import { accept, type Receiver, startReceiver } from "../../support/receiver.ts";
import { forgetRows } from "../../support/retention.ts";
import { createWorkflowWorld, type WorkflowWorld } from "../../support/workflow-world.ts";
import { VISION_SEALING_KEY } from "../../support/world.ts";

const SIGNING = "a-signing-secret-of-thirty-signs";
const VALUE = "a value that nobody is shown";

let w: WorkflowWorld;
let receiver: Receiver;
/** The instant of a test, which it moves. */
let now: number;
beforeAll(async () => {
  w = await createWorkflowWorld();
  receiver = await startReceiver(SIGNING);
  await setSecret("signing", SIGNING);
});
beforeEach(async () => {
  now = Date.now();
  receiver.arrivals.length = 0;
  receiver.answer = accept;
  await w.world.visionDatabase.execute(sql`DELETE FROM workflow_delivery`);
});

const setSecret = (name: string, value: string) =>
  w.engineer.ok<WorkflowSecret>("PUT", `/workflows/secrets/${name}`, {
    value,
    workspace_id: w.workspaceId,
  });
const source = (more: object = {}) => ({
  workspaceId: w.workspaceId,
  workflowId: null,
  runId: randomUUID(),
  actorId: null,
  ...more,
});
const webhook = (more: object = {}, effect: Partial<EffectOfRun> = {}): EffectOfRun => ({
  kind: "webhook",
  step: "send",
  element: [],
  image: null,
  request: {
    url: receiver.url,
    url_secret: null,
    headers: {},
    secret_headers: {},
    signing_secret: "signing",
    payload: { count: 3 },
    ...more,
  },
  ...effect,
});
const send = (parts: Parts = w.partsAt(now)) => sendDeliveries(parts);
const deliveries = (query = "") =>
  w.viewer.ok<WorkflowDelivery[]>("GET", `/workflows/deliveries${query}`);

describe("a webhook", () => {
  it("is in the outbox once for its run, step and element, and sent once, signed", async () => {
    const asked = source();
    const effects = [webhook(), webhook({}, { element: [0, 2] })];
    const parts = w.partsAt(now);
    const outcomes = await performEffects(parts, asked, effects);
    expect(outcomes).toEqual([
      { step: "send", element: [], kind: "webhook", status: "queued", detail: null },
      { step: "send", element: [0, 2], kind: "webhook", status: "queued", detail: null },
    ]);
    expect(await performEffects(parts, asked, effects)).toEqual(outcomes);
    await Promise.all([send(), send(), sendDeliveries(parts, { runId: asked.runId })]);
    await performEffects(parts, asked, effects);
    await send();
    const arrived = receiver.arrivals.map(({ id, verified, body }) => [id, verified, body]);
    expect(arrived.sort()).toEqual([
      [`${asked.runId}.send`, true, { count: 3 }],
      [`${asked.runId}.send.0.2`, true, { count: 3 }],
    ]);
    expect(await deliveries(`?run_id=${asked.runId}&status=delivered`)).toMatchObject([
      { status: "delivered", attempts: 1, last_error: null, ended_at: expect.any(String) },
      { status: "delivered", attempts: 1 },
    ]);
  });

  it("that fails is tried again under the same id, until it is taken", async () => {
    const asked = source();
    await performEffects(w.partsAt(now), asked, [webhook()]);
    receiver.answer = (response) => response.writeHead(500).end();
    await send();
    expect(await deliveries()).toMatchObject([
      { status: "pending", attempts: 1, last_error: "the receiver answered 500", ended_at: null },
    ]);
    now += MINUTE - 1;
    await send();
    expect(receiver.arrivals).toHaveLength(1);
    receiver.answer = accept;
    now += 1;
    await send();
    const ids = receiver.arrivals.map(({ id, verified }) => [id, verified]);
    expect(ids).toEqual([
      [`${asked.runId}.send`, true],
      [`${asked.runId}.send`, true],
    ]);
    expect(await deliveries()).toMatchObject([{ status: "delivered", attempts: 2 }]);
  });

  it("is given up after a day, and then holds neither address nor body", async () => {
    await performEffects(w.partsAt(now), source(), [webhook()]);
    receiver.answer = (response) => response.writeHead(503).end();
    for (let attempt = 0; attempt < 8; attempt++) {
      await send();
      now += 13 * 60 * MINUTE;
    }
    expect(receiver.arrivals).toHaveLength(6);
    expect(await deliveries()).toMatchObject([{ status: "given_up", attempts: 6 }]);
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT request FROM workflow_delivery`);
    expect(rows).toEqual([{ request: null }]);
    await forgetRows(w.partsAt(now), KEPT_DELIVERIES);
    expect(await deliveries()).toHaveLength(1);
    await forgetRows(w.partsAt(now + 31 * DAY), KEPT_DELIVERIES);
    expect(await deliveries()).toEqual([]);
  });

  it("to a private address is not sent, whether it is named or led to", async () => {
    const sent = receiver.arrivals.length;
    const inside = { hosts: [], resolve: async () => ["10.0.0.7"] };
    await performEffects(w.partsAt(now), source(), [
      webhook({ url: "https://127.0.0.1/x" }, { step: "literal" }),
      webhook({ url: "https://169.254.169.254/latest" }, { step: "metadata" }),
      webhook({ url: "http://example.com/x" }, { step: "plain" }),
      webhook({ url: "https://inside.example.com/x" }, { step: "name" }),
    ]);
    await send(w.partsAt(now, { outbound: inside }));
    const told = Object.fromEntries(
      (await deliveries()).map(({ step, last_error }) => [step, last_error]),
    );
    expect(told).toEqual({
      literal: "not sent: the address is not public",
      metadata: "not sent: the address is not public",
      plain: "not sent: the address does not begin with https://",
      name: "not sent: the address leads to an address that is not public",
    });
    expect(receiver.arrivals).toHaveLength(sent);
  });

  it("carries an image beside its payload, and is refused where that is too large", async () => {
    const file = Uint8Array.from(png(64, 48));
    const large = new Uint8Array(1_200_000).fill(7);
    large.set(file);
    const outcomes = await performEffects(w.partsAt(now), source(), [
      webhook({}, { image: file }),
      webhook({}, { image: large, step: "large" }),
      webhook({ url: null }, { step: "nowhere" }),
      { ...webhook(), step: "malformed", request: { url: 3 } },
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual([
      "queued",
      "refused",
      "queued",
      "refused",
    ]);
    await send();
    const [{ body } = { body: {} }] = receiver.arrivals;
    const data = `data:image/png;base64,${Buffer.from(file).toString("base64")}`;
    expect(body).toEqual({ payload: { count: 3 }, image: data });
  });

  it("of a workspace that has as many waiting as may is refused", async () => {
    const asked = source();
    const many = Array.from({ length: 502 }, (_, index) => webhook({}, { element: [index] }));
    const outcomes = await performEffects(w.partsAt(now), asked, many);
    expect(outcomes.filter(({ status }) => status === "queued")).toHaveLength(500);
    expect(outcomes.slice(500).map(({ status }) => status)).toEqual(["refused", "refused"]);
    const other = await w.stranger();
    const own = source({ workspaceId: other.workspaceId });
    const [outcome] = await performEffects(w.partsAt(now), own, [
      webhook({ signing_secret: null }),
    ]);
    expect(outcome?.status).toBe("queued");
    // Of each workspace some are sent at a time, so that nobody waits for the others.
    await send();
    expect(receiver.arrivals.map(({ id }) => id)).toContain(`${own.runId}.send`);
    expect(receiver.arrivals).toHaveLength(21);
  });
});

describe("a secret", () => {
  it("is what a webhook's address, headers and signature are made of", async () => {
    await setSecret("hook", receiver.url);
    await setSecret("token", VALUE);
    let seen: Record<string, unknown> = {};
    const headers = { "x-plain": "seen" };
    const request = {
      url: null,
      url_secret: "hook",
      headers,
      secret_headers: { "x-key": "token" },
    };
    await performEffects(w.partsAt(now), source(), [webhook(request)]);
    receiver.answer = (response) => {
      seen = response.req.headers;
      accept(response);
    };
    await send();
    expect(seen).toMatchObject({ "x-key": VALUE, "x-plain": "seen" });
    expect(receiver.arrivals[0]?.verified).toBe(true);
  });

  it("comes back in no answer, row, log line or error", async () => {
    const name = "hidden";
    const made = await setSecret(name, `${VALUE}\nwith a line of its own`);
    await setSecret("address", "https://user:pass@example.com/secret-path");
    const requests = [
      { secret_headers: { "x-key": name } },
      { url: null, url_secret: "address" },
      { signing_secret: name, url: "https://127.0.0.1/" },
      { url: null, url_secret: name },
      { signing_secret: "absent" },
    ];
    const parts = w.partsAt(now);
    const effects = requests.map((request, index) => webhook(request, { element: [index] }));
    const outcomes = await performEffects(parts, source(), effects);
    await send(parts);
    const told = await deliveries();
    expect(told.map(({ last_error }) => last_error).every(Boolean)).toBe(true);
    const otherKey = w.partsAt(now + MINUTE, { sealing: [new Secret(`${VISION_SEALING_KEY}!`)] });
    await send(otherKey);
    expect((await deliveries()).map(({ last_error }) => last_error)).toContain(
      "its address and secrets could not be opened: enter them anew",
    );
    const { rows } = await w.world.visionDatabase.execute(sql`
      SELECT to_jsonb(s) AS secret FROM workflow_secret s
      UNION ALL SELECT to_jsonb(d) FROM workflow_delivery d
      UNION ALL SELECT to_jsonb(e) FROM audit_entry e`);
    const listed = await w.admin.ok("GET", "/workflows/secrets");
    const logs = [...parts.logs, ...otherKey.logs, ...w.world.logs];
    expect(logs.join("\n")).toContain("message_not_delivered");
    const all = JSON.stringify([made, outcomes, told, await deliveries(), rows, listed, logs]);
    for (const hidden of [VALUE, "with a line", "user:pass", "secret-path", SIGNING]) {
      expect([hidden, all.includes(hidden)]).toEqual([hidden, false]);
    }
    expect(all).toContain(name);
  });

  it("opens in its own row and workspace alone, and is replaced and deleted", async () => {
    const parts = w.partsAt(now);
    await setSecret("twice", "first");
    await setSecret("twice", "second");
    const opened = await openSecrets(parts, w.workspaceId, ["twice", "absent"]);
    expect([...opened].map(([name, value]) => [name, value.reveal()])).toEqual([
      ["twice", "second"],
    ]);
    const other = await w.stranger();
    expect(await openSecrets(parts, other.workspaceId, ["twice"])).toEqual(new Map());
    expect(await other.ok("GET", "/workflows/secrets")).toEqual([]);
    expect(await other.refused("DELETE", "/workflows/secrets/twice")).toEqual([404, "not_found"]);
    await setSecret("moved", "elsewhere");
    await w.world.visionDatabase.execute(sql`
      UPDATE workflow_secret SET sealed = (SELECT sealed FROM workflow_secret WHERE name = 'twice')
       WHERE name = 'moved'`);
    await expect(openSecrets(parts, w.workspaceId, ["moved"])).rejects.toMatchObject({
      code: "bad_configuration",
    });
    await w.engineer.ok("DELETE", `/workflows/secrets/twice?workspace_id=${w.workspaceId}`);
    expect(await openSecrets(parts, w.workspaceId, ["twice"])).toEqual(new Map());
  });
});

describe("an image for a project", () => {
  const upload = (image: Uint8Array<ArrayBuffer> | null, project = w.projectId): EffectOfRun => ({
    kind: "dataset_upload",
    step: "keep",
    element: [1],
    image,
    request: { project, tags: ["gate"], objects: [] },
  });
  const videos = () => w.admin.ok<{ filename: string }[]>("GET", `/projects/${w.projectId}/videos`);

  it("becomes a video of one frame, once for its bytes", async () => {
    const asked = source();
    const file = Uint8Array.from(png(20, 10));
    const parts = w.partsAt(now);
    const [stored] = await performEffects(parts, asked, [upload(file)]);
    expect(stored).toMatchObject({ status: "stored", kind: "dataset_upload" });
    expect(await performEffects(parts, source(), [upload(file)])).toEqual([stored]);
    const made = await videos();
    expect(made.map(({ filename }) => filename)).toEqual([`gate-workflow-${asked.runId}-keep-1`]);
  });

  it("that cannot be stored, or named, is refused without failing what goes beside it", async () => {
    const file = Uint8Array.from(png(21, 10));
    const tagged = upload(file);
    tagged.request = { project: w.projectId, tags: ["a\0"], objects: [] };
    const [stored, nowhere] = await performEffects(w.partsAt(now), source(), [
      tagged,
      upload(file, "\0"),
    ]);
    expect([stored?.status, nowhere?.status]).toEqual(["stored", "refused"]);
    const broken = { ...w.world.media, put: () => Promise.reject(new Error("no store")) };
    // Of the store only what fails is called.
    const bucket = broken as unknown as Parts["bucket"];
    const outcomes = await performEffects(w.partsAt(now, { bucket }), source(), [
      webhook(),
      upload(Uint8Array.from(png(22, 10))),
      webhook({}, { image: new Uint8Array(100), step: "other" }),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual(["queued", "refused", "refused"]);
  });

  it("is refused for a project of another workspace, without room, and of no image", async () => {
    const other = await w.stranger();
    const theirs = await other.ok<{ project_id: string }>("POST", "/projects", { name: "theirs" });
    const file = Uint8Array.from(png(30, 10));
    const full = w.partsAt(now, {
      limits: { workspaceBytesMax: 1, accountBytesMax: 1 } as Parts["limits"],
    });
    const before = await videos();
    const outcomes = [
      ...(await performEffects(w.partsAt(now), source(), [
        upload(file, theirs.project_id),
        upload(file, "no id"),
        upload(null),
        upload(new Uint8Array(100)),
      ])),
      ...(await performEffects(full, source(), [upload(file)])),
    ];
    expect(outcomes.map(({ status }) => status)).toEqual(Array(5).fill("refused"));
    expect(outcomes.map(({ detail }) => detail)).toContain("no such project in the workspace");
    expect(await videos()).toEqual(before);
  });
});

it("deliveries of another workspace are nobody else's", async () => {
  await performEffects(w.partsAt(now), source(), [webhook()]);
  const other = await w.stranger();
  expect(await other.ok("GET", "/workflows/deliveries")).toEqual([]);
  const filter = { limit: 10, offset: 0 };
  expect(await listDeliveries(w.partsAt(now), [other.workspaceId], filter)).toEqual([]);
});
