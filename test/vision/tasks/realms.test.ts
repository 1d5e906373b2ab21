// What an admin rules: the nodes and tasks of the workspaces that they are admin of, and no others;
// an admin of the default workspace runs the installation. A workspace's own node claims its tasks
// only.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { source } from "../../../edge/vision/tasks/objects.ts";
import { registerTestNode, type TestNode } from "../../support/nodes.ts";
import { createTaskWorld, DONE, type TaskWorld } from "../../support/task-world.ts";
import { newTenant, type Reply, type Tenant } from "../../support/vision.ts";

let world: TaskWorld;
let first: Tenant;
let second: Tenant;
let own: TestNode;

const list = ({ body }: Reply) => Object.values(body) as Record<string, unknown>[];

/** A task of a tenant; ids of nothing but its workspace matter. */
const enqueuedBy = ({ workspaceId }: Tenant) => {
  const video = source(`ws/${workspaceId}/a`, 1);
  const payload = { video, video_id: "v", frames: [0], images: [] };
  return world.enqueued({ workspaceId, payload });
};

beforeAll(async () => {
  world = await createTaskWorld();
  first = await newTenant(world.urls.vision, world.admin, "admin");
  second = await newTenant(world.urls.vision, world.admin, "admin");
  own = await registerTestNode(world.urls.vision, first.member, { name: "of the first" });
});

describe("a workspace's own node", () => {
  it("claims its workspace's tasks, and no other node of a workspace does", async () => {
    const theirs = await enqueuedBy(second);
    const ours = await enqueuedBy(first);
    const stranger = await registerTestNode(world.urls.vision, second.member);
    expect((await world.claimed(own)).task_id).toBe(ours);
    const nothing = await own.post("/node/claim", { kinds: ["frames"] });
    expect(await nothing.json()).toBeNull();
    const task = await world.claimed(stranger);
    expect(task.task_id).toBe(theirs);
    expect((await world.finish(task, DONE, stranger)).status).toBe(200);
  });

  it("is made by the workspace's admins; one that serves all by operators alone", async () => {
    const ask = (tenant: Tenant, body?: object) =>
      tenant.member.ask("POST", "/admin/nodes/codes", body);
    expect((await ask(first)).body.workspace_id).toBe(first.workspaceId);
    expect((await ask(first, { workspace_id: null })).status).toBe(403);
    expect((await ask(first, { workspace_id: second.workspaceId })).status).toBe(404);
    const operators = await world.admin.ask("POST", "/admin/nodes/codes");
    expect([operators.status, operators.body.workspace_id]).toEqual([201, null]);
    const given = { workspace_id: second.workspaceId };
    expect((await world.admin.ask("POST", "/admin/nodes/codes", given)).body).toMatchObject(given);
    const made = await first.member.ask("POST", "/admin/workspaces", { name: "another" });
    expect(made.status).toBe(201);
    expect((await ask(first)).status).toBe(422);
    await world.visionDatabase.execute(sql`
      DELETE FROM membership WHERE workspace_id = ${String(made.body.workspace_id)}::uuid`);
    await first.member.renew();
  });
});

describe("an admin of one workspace", () => {
  it("sees its nodes, queues and stuck tasks only", async () => {
    const seen = async ({ member }: Tenant) => {
      const [nodes, workers, queues, status] = await Promise.all([
        member.ask("GET", "/admin/nodes"),
        member.ask("GET", "/admin/workers"),
        member.ask("GET", "/admin/queue"),
        member.ask("GET", "/admin/status"),
      ]);
      const names = (reply: Reply) => list(reply).map(({ name }) => name);
      const frames = list(queues).find(({ name }) => name === "frames");
      return { nodes: names(nodes), workers: names(workers), frames, status: status.body };
    };
    await world.visionDatabase.execute(
      sql`UPDATE task SET claimed_at = now() - interval '6 minutes' WHERE state = 'running'`,
    );
    const before = await seen(second);
    const waiting = await enqueuedBy(first);
    const ours = await seen(first);
    expect(ours.nodes).toEqual(["of the first"]);
    expect(ours.workers).toEqual(["of the first"]);
    // The operators' two nodes take its tasks too.
    expect(ours.frames).toMatchObject({ depth: 1, running: 1, consumers: 3 });
    expect(ours.status).toMatchObject({
      queue_depth: 1,
      running: 1,
      worker_count: 3,
      stuck_job_count: 1,
    });
    const theirs = await seen(second);
    expect({ ...theirs, status: null }).toEqual({ ...before, status: null });
    expect(theirs.nodes).toEqual(["a node"]);
    expect(theirs.frames).toMatchObject({ depth: 0, running: 0 });
    expect(theirs.status).toMatchObject({ queue_depth: 0, running: 0, stuck_job_count: 0 });
    const all = list(await world.admin.ask("GET", "/admin/nodes")).map(({ name }) => name);
    expect(all).toEqual(["a node", "a node", "of the first", "other"]);
    await world.admin.ask("POST", `/admin/tasks/${waiting}/revoke`);
  });

  it("moves its own tasks and nodes only; operators move all", async () => {
    const ours = await enqueuedBy(first);
    const theirs = await enqueuedBy(second);
    const purge = (tenant: Tenant) => tenant.member.ask("POST", "/admin/queue/frames/purge");
    expect((await second.member.ask("POST", `/admin/tasks/${ours}/revoke`)).status).toBe(404);
    expect((await purge(second)).body).toMatchObject({ task_ids: [theirs], running: 0 });
    const { nodeId } = own;
    expect((await second.member.ask("DELETE", `/admin/nodes/${nodeId}`)).status).toBe(404);
    const operators = world.node.nodeId;
    expect((await first.member.ask("DELETE", `/admin/nodes/${operators}`)).status).toBe(404);
    expect((await first.member.ask("POST", `/admin/tasks/${ours}/revoke`)).status).toBe(202);
    const another = await enqueuedBy(second);
    expect((await world.admin.ask("POST", `/admin/tasks/${another}/revoke`)).status).toBe(202);
    expect((await first.member.ask("DELETE", `/admin/nodes/${nodeId}`)).status).toBe(204);
  });

  it("does not count another workspace's node as one that serves it", async () => {
    const only = await registerTestNode(world.urls.vision, second.member, { kinds: ["predict"] });
    const serving = async ({ member, workspaceId }: Tenant) => {
      const { body } = await member.ask("GET", `/serve/status?workspace_id=${workspaceId}`);
      return body.nodes;
    };
    expect(await serving(second)).toEqual({ able: 1, warm: 0 });
    expect(await serving(first)).toEqual({ able: 0, warm: 0 });
    await second.member.ask("DELETE", `/admin/nodes/${only.nodeId}`);
  });
});
