// What admins see and do about nodes, queues and tasks, in workerd: every status of every route,
// and the bell that nodes wait for.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { ring } from "../../../edge/vision/tasks/nodes/bell.ts";
import { findTask } from "../../../edge/vision/tasks/queue/queue.ts";
import { systemClock } from "../../../shared/time.ts";
import { registerTestNode } from "../../support/nodes.ts";
import {
  ABSENT,
  createTaskWorld,
  DONE,
  refusal,
  type TaskWorld,
} from "../../support/task-world.ts";

let world: TaskWorld;
beforeAll(async () => {
  world = await createTaskWorld();
});

describe("GET /node/socket", () => {
  it("rings when asked to, answers pings, and hangs up on a revoked node", async () => {
    const made = await registerTestNode(world.urls.vision, world.admin, { name: "listener" });
    const address = world.url("/node/socket").replace("http", "ws");
    const socket = new WebSocket(address, { headers: made.headers });
    const messages: string[] = [];
    socket.on("message", (data) => messages.push(String(data)));
    await new Promise((opened, failed) => socket.on("open", opened).on("error", failed));
    const next = () => new Promise((got) => socket.once("message", (data) => got(String(data))));
    const pong = next();
    socket.send("ping");
    expect(await pong).toBe("pong");
    const rung = next();
    await ring(world.parts, [world.plain()]);
    const work = { type: "work", call: expect.any(Number), kind: "frames" };
    expect(JSON.parse(String(await rung))).toEqual(work);
    const closed = new Promise((gone) => socket.on("close", gone));
    expect((await world.asAdmin(`/admin/nodes/${made.nodeId}`, "DELETE")).status).toBe(204);
    expect(await closed).toBe(1008);
    expect(messages).toHaveLength(2);
  });

  it("is a WebSocket only", async () => {
    const plainGet = await fetch(world.url("/node/socket"), { headers: world.node.headers });
    expect(await refusal(plainGet)).toEqual([422, "invalid_request"]);
  });
});

describe("the admin routes", () => {
  it("list nodes, workers, queues and the status", async () => {
    const id = await world.enqueued({ subject: "job:stuck" });
    const task = await world.claimed();
    await world.visionDatabase.execute(
      sql`UPDATE task SET claimed_at = now() - interval '6 minutes' WHERE id = ${id}::uuid`,
    );
    const workers = (await (await world.asAdmin("/admin/workers")).json()) as Record<
      string,
      unknown
    >[];
    const mine = workers.find(({ node_id }) => node_id === world.node.nodeId);
    expect(mine).toMatchObject({ live: true, device: "test", slots: 1 });
    expect(mine?.tasks).toMatchObject([{ task_id: id, subject: "job:stuck" }]);
    const queues = (await (await world.asAdmin("/admin/queue")).json()) as Record<
      string,
      unknown
    >[];
    expect(queues.find(({ name }) => name === "frames")).toMatchObject({ depth: 0, running: 1 });
    const status = await (await world.asAdmin("/admin/status")).json();
    expect(status).toMatchObject({ queue_depth: 0, running: 1, stuck_job_count: 1 });
    expect((status as { worker_count: number }).worker_count).toBeGreaterThan(1);
    const nodes = (await (await world.asAdmin("/admin/nodes")).json()) as Record<string, unknown>[];
    expect(nodes.find(({ name }) => name === "listener")?.revoked_at).not.toBeNull();
    expect(workers.some(({ name }) => name === "listener")).toBe(false);
    expect((await world.finish(task, DONE)).status).toBe(200);
  });

  it("revoke a running task only once its process is gone, and take nothing else from it", async () => {
    const id = await world.enqueued();
    const task = await world.claimed();
    const revoke = () => world.asAdmin(`/admin/tasks/${id}/revoke`, "POST");
    for (const answer of [await revoke(), await revoke()]) {
      expect([answer.status, await answer.json()]).toEqual([
        202,
        { task_id: id, status: "running" },
      ]);
    }
    expect(await world.verdict(task)).toBe("revoke");
    const late = await world.finish(task, DONE);
    expect(late.status).toBe(409);
    expect(await late.json()).toMatchObject({ code: "lease_stale", verdict: "revoke" });
    const exited = await world.finish(task, { outcome: "revoked", exited: true });
    expect(await exited.json()).toEqual({ status: "revoked", repeated: false });
    expect(await (await world.finish(task, { outcome: "revoked", exited: true })).json()).toEqual({
      status: "revoked",
      repeated: true,
    });
    expect(await refusal(await revoke())).toEqual([409, "state_conflict"]);
    const missing = await world.asAdmin(`/admin/tasks/${ABSENT}/revoke`, "POST");
    expect(await refusal(missing)).toEqual([404, "not_found"]);
    const malformed = await world.asAdmin("/admin/tasks/x/revoke", "POST");
    expect(await refusal(malformed)).toEqual([422, "invalid_request"]);
    // Asking again changed nothing, and is no entry.
    const entries = await world.auditOf("revokeTask");
    expect(entries).toHaveLength(1);
    expect(entries[0]).toMatchObject({ actor: world.admin.id, subject: `task:${id}` });
  });

  it("revoke a queued task at once", async () => {
    const id = await world.enqueued();
    const answer = await world.asAdmin(`/admin/tasks/${id}/revoke`, "POST");
    expect(await answer.json()).toEqual({ task_id: id, status: "revoked" });
    const empty = await world.node.post("/node/claim", { kinds: ["frames"] });
    expect(await empty.json()).toBeNull();
  });

  it("purge what waits and leave what runs", async () => {
    await world.enqueued();
    const running = await world.claimed();
    const waiting = [await world.enqueued(), await world.enqueued()];
    const answer = await world.asAdmin("/admin/queue/frames/purge", "POST");
    const body = (await answer.json()) as { task_ids: string[] };
    expect({ ...body, task_ids: body.task_ids.sort() }).toEqual({
      purged: 2,
      task_ids: waiting.sort(),
      running: 1,
    });
    expect((await findTask(world.visionDatabase, waiting[0] ?? ""))?.state).toBe("cancelled");
    expect((await world.finish(running, DONE)).status).toBe(200);
    const unknown = await world.asAdmin("/admin/queue/nope/purge", "POST");
    expect(await refusal(unknown)).toEqual([404, "not_found"]);
    expect((await world.auditOf("purgeQueue"))[0]).toMatchObject({ after: { count: 2 } });
  });

  it("revoke a node: its token is refused and its tasks go to others", async () => {
    const made = await registerTestNode(world.urls.vision, world.admin, { name: "doomed" });
    const id = await world.enqueued();
    const lost = await world.claimed(made);
    const path = `/admin/nodes/${made.nodeId}`;
    expect((await world.asAdmin(path, "DELETE")).status).toBe(204);
    expect(await refusal(await world.asAdmin(path, "DELETE"))).toEqual([404, "not_found"]);
    expect(await refusal(await world.asAdmin("/admin/nodes/x", "DELETE"))).toEqual([
      422,
      "invalid_request",
    ]);
    expect(await refusal(await world.finish(lost, DONE, made))).toEqual([401, "unauthorized"]);
    await world.visionDatabase.execute(sql`
      UPDATE task SET lease_until = now() - interval '1 second' WHERE id = ${id}::uuid`);
    await world.tick(systemClock());
    expect(await findTask(world.visionDatabase, id)).toMatchObject({ state: "queued", attempt: 1 });
    await world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second' WHERE id = ${id}::uuid`,
    );
    const again = await world.claimed();
    expect([again.task_id, again.attempt]).toEqual([id, 2]);
    expect((await world.finish(again, DONE)).status).toBe(200);
  });
});
