// Incidents as operators meet them: one Worker, its cron, a receiver. Goal: each is told of once as
// it begins and once as it is over, to the operators' webhook alone; where that is, nobody learns.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Incident } from "../../../../edge/vision/auth/incidents/routes.ts";
import { HOUR, iso, MINUTE, systemClock } from "../../../../shared/time.ts";
import { readExposition } from "../../../support/exposition.ts";
import { registerTestNode } from "../../../support/nodes.ts";
import { accept, alertsTo, type Receiver, startReceiver } from "../../../support/receiver.ts";
import { createTaskWorld, type TaskWorld } from "../../../support/task-world.ts";
import { newTenant } from "../../../support/vision.ts";

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const IN_THE_ADDRESS = "a-token-in-the-address";
const METRICS = "the token of what scrapes";

let w: TaskWorld;
let receiver: Receiver;
beforeAll(async () => {
  receiver = await startReceiver(SECRET);
  w = await createTaskWorld({
    ...alertsTo(`${receiver.url}?token=${IN_THE_ADDRESS}`, SECRET),
    METRICS_TOKEN: METRICS,
  });
});
beforeEach(async () => {
  await w.visionDatabase.execute(sql`
    INSERT INTO fleet_watch (since, seen_at)
    VALUES (${iso(systemClock() - HOUR)}::timestamptz, now())
    ON CONFLICT (id) DO UPDATE SET since = excluded.since, seen_at = excluded.seen_at`);
  receiver.arrivals.length = 0;
  receiver.answer = accept;
});

const tick = () => w.tick(systemClock());
const ask = async <Answer>(path: string, method = "GET"): Promise<Answer> => {
  const { status, body } = await w.admin.ask(method, path);
  expect([path, status]).toEqual([path, 200]);
  return body as Answer;
};
const listed = (query = "") => ask<Incident[]>(`/admin/incidents${query}`);
const about = (subject: string) =>
  receiver.arrivals.filter(({ body }) => (body.data as { subject?: string }).subject === subject);
const told = (subject: string) => about(subject).map(({ body, verified }) => [body.type, verified]);

/** A node that was last heard of so long ago. */
async function silentNode(name: string): Promise<string> {
  const { nodeId } = await registerTestNode(w.urls.vision, w.admin, { name });
  await heard(nodeId, 10 * MINUTE);
  return nodeId;
}
const heard = (nodeId: string, agoMs: number) =>
  w.visionDatabase.execute(sql`
    UPDATE node SET last_heartbeat_at = now() - ${agoMs}::float8 * interval '1 millisecond'
     WHERE id = ${nodeId}::uuid`);
/** What is pending is due now. */
const makeDue = () =>
  w.visionDatabase.execute(sql`
    UPDATE incident_notice SET next_at = now() - interval '1 second' WHERE delivery = 'pending'`);

describe("an incident", () => {
  it("is told once though crons run at the same moment, and once when it is over", async () => {
    const id = await silentNode("gpu-7");
    await Promise.all([tick(), tick(), tick()]);
    await tick();
    expect(told(id)).toEqual([["incident.node_lost", true]]);
    expect(about(id)[0]?.body).toMatchObject({
      timestamp: expect.stringMatching(/Z$/),
      data: {
        kind: "node_lost",
        detail: expect.stringContaining("gpu-7"),
        raised_at: expect.any(String),
        recovered_at: null,
      },
    });
    const [open] = (await listed("?open=true")).filter(({ subject }) => subject === id);
    expect(open).toMatchObject({ kind: "node_lost", delivery: "delivered", last_error: null });
    expect(about(id)[0]?.body.data).toMatchObject({ incident_id: open?.incident_id });
    await heard(id, 0);
    await Promise.all([tick(), tick(), tick()]);
    await tick();
    expect(told(id)).toEqual([
      ["incident.node_lost", true],
      ["incident.recovered", true],
    ]);
    expect(about(id)[1]?.body.data).toMatchObject({
      incident_id: open?.incident_id,
      recovered_at: expect.any(String),
    });
    const ended = (await listed("?open=false")).filter(({ subject }) => subject === id);
    expect(ended).toMatchObject([{ recovered_at: expect.any(String), delivery: "delivered" }]);
    // What begins anew is another one.
    await heard(id, HOUR);
    await tick();
    expect(told(id)).toHaveLength(3);
    expect((await w.admin.ask("DELETE", `/admin/nodes/${id}`)).status).toBe(204);
    await tick();
    expect(told(id).at(-1)).toEqual(["incident.recovered", true]);
  });

  it("is sent again to a receiver that was down, by the same id, and says why", async () => {
    receiver.answer = (response) => response.writeHead(503).end();
    const id = await silentNode("gpu-8");
    await tick();
    const state = async () => (await listed()).find(({ subject }) => subject === id);
    expect(await state()).toMatchObject({
      delivery: "pending",
      last_error: "the receiver answered 503",
    });
    await tick();
    expect(told(id)).toHaveLength(1);
    receiver.answer = accept;
    await makeDue();
    await tick();
    await tick();
    expect(told(id)).toHaveLength(2);
    expect(new Set(about(id).map((one) => one.id)).size).toBe(1);
    expect(await state()).toMatchObject({ delivery: "delivered", last_error: null });
    await heard(id, 0);
    await tick();
  });

  it("is none of a node that said it leaves, or when nobody watched until now", async () => {
    const leaving = await silentNode("gpu-9");
    await w.visionDatabase.execute(sql`
      UPDATE node SET draining = true WHERE id = ${leaving}::uuid`);
    await tick();
    expect(told(leaving)).toEqual([]);
    await w.visionDatabase.execute(sql`
      UPDATE fleet_watch SET seen_at = now() - interval '1 hour'`);
    const unwatched = await silentNode("gpu-10");
    await tick();
    expect(told(unwatched)).toEqual([]);
    await heard(unwatched, 0);
  });

  it("is counted by the metrics while it is open", async () => {
    const open = async () => {
      const headers = { Authorization: `Bearer ${METRICS}` };
      const text = await (await fetch(`${w.urls.vision}/metrics`, { headers })).text();
      const samples = readExposition(text).get("vantage_vision_incidents_open")?.samples;
      return [samples?.get('kind="node_lost"'), samples?.get('kind="backup_missing"')];
    };
    expect(await open()).toEqual([0, 0]);
    const id = await silentNode("gpu-11");
    await tick();
    expect(await open()).toEqual([1, 0]);
    await heard(id, 0);
    await tick();
  });
});

describe("the webhook", () => {
  it("can be tried, which is written down", async () => {
    const path = "/admin/incidents/test";
    expect(await ask(path, "POST")).toEqual({ delivered: true, last_error: null });
    receiver.answer = (response) => response.writeHead(500).end();
    const refused = { delivered: false, last_error: "the receiver answered 500" };
    expect(await ask(path, "POST")).toEqual(refused);
    expect(receiver.arrivals.map(({ body, verified }) => [body.type, verified])).toEqual([
      ["incident.test", true],
      ["incident.test", true],
    ]);
    const written = (await w.auditOf("sendTestIncident")).map(({ after }) => after);
    expect(written).toEqual([{ delivered: false }, { delivered: true }]);
  });

  it("is for operators alone, as the list is", async () => {
    // Somebody who is admin, of another workspace.
    const { member } = await newTenant(w.urls.vision, w.admin, "admin");
    expect((await member.ask("GET", "/admin/status")).status).toBe(200);
    for (const [method, path] of [
      ["GET", "/admin/incidents"],
      ["POST", "/admin/incidents/test"],
    ] as const) {
      expect((await member.ask(method, path)).status).toBe(403);
      expect((await fetch(w.url(path), { method })).status).toBe(401);
    }
    expect(receiver.arrivals).toEqual([]);
  });

  it("leaves neither its address nor its secret in the log, a list or the database", async () => {
    const id = await silentNode("gpu-12");
    receiver.answer = (response) => response.writeHead(302, { Location: receiver.url }).end();
    await tick();
    await ask("/admin/incidents/test", "POST");
    const { rows } = await w.visionDatabase.execute<{ text: string }>(sql`
      SELECT (SELECT jsonb_agg(i)::text FROM incident i)
        || (SELECT jsonb_agg(n)::text FROM incident_notice n)
        || (SELECT jsonb_agg(a)::text FROM audit_entry a) AS text`);
    const texts = [w.logs.join("\n"), JSON.stringify(await listed()), rows[0]?.text ?? ""];
    expect(texts[0]).toContain("message_not_delivered");
    expect(texts[1]).toContain(id);
    for (const text of texts) {
      for (const secret of [SECRET, IN_THE_ADDRESS, new URL(receiver.url).host]) {
        expect(text.includes(secret)).toBe(false);
      }
    }
  });

  it("has its incidents listed page by page, the newest first", async () => {
    const all = await listed();
    expect(all.length).toBeGreaterThan(2);
    expect(all.map(({ raised_at }) => raised_at)).toEqual(
      all
        .map(({ raised_at }) => raised_at)
        .toSorted()
        .toReversed(),
    );
    expect(await listed("?limit=1&offset=1")).toEqual(all.slice(1, 2));
    expect((await w.admin.ask("GET", "/admin/incidents?limit=0")).status).toBe(422);
  });
});

it("without a webhook is kept and sent nowhere, and there is nothing to try", async () => {
  const other = await createTaskWorld();
  const { nodeId } = await registerTestNode(other.urls.vision, other.admin);
  await other.visionDatabase.execute(sql`
    INSERT INTO fleet_watch (since, seen_at)
    VALUES (${iso(systemClock() - HOUR)}::timestamptz, now())`);
  await other.visionDatabase.execute(sql`
    UPDATE node SET last_heartbeat_at = now() - interval '1 hour' WHERE id = ${nodeId}::uuid`);
  await other.tick(systemClock());
  const { body } = await other.admin.ask("GET", "/admin/incidents");
  expect(body).toMatchObject([{ subject: nodeId, delivery: "unsent" }]);
  const { status, body: refused } = await other.admin.ask("POST", "/admin/incidents/test");
  expect([status, refused.code]).toEqual([409, "state_conflict"]);
});
