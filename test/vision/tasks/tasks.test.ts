// The node protocol in workerd, with the real Postgres and object store: every status of every
// route, and what each leaves behind. What admins do is in `task-admin.test.ts`.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { API } from "../../../edge/vision/base/api.ts";
import { ring } from "../../../edge/vision/tasks/nodes/bell.ts";
import { source, target } from "../../../edge/vision/tasks/objects.ts";
import { type HandlersByKind, minuteTasks } from "../../../edge/vision/tasks/queue/delivery.ts";
import { enqueue, findTask, type NewTask } from "../../../edge/vision/tasks/queue/queue.ts";
import { runNow, submit } from "../../../edge/vision/tasks/queue/wait.ts";
import {
  ClaimedTask,
  RegisteredNode,
  type TaskProgress,
} from "../../../shared/tasks/node-protocol.ts";
import { CAPABILITIES } from "../../support/nodes.ts";
import {
  ABSENT,
  bearer,
  createTaskWorld,
  DONE,
  refusal,
  type TaskWorld,
} from "../../support/task-world.ts";

let world: TaskWorld;
beforeAll(async () => {
  world = await createTaskWorld();
});

describe("introducing a node", () => {
  it("takes a code once, gives a token, and keeps neither", async () => {
    const made = await world.asAdmin("/admin/nodes/codes", "POST");
    expect(made.status).toBe(201);
    const { code, expires_at } = (await made.json()) as { code: string; expires_at: string };
    expect(Date.parse(expires_at) - Date.now()).toBeGreaterThan(3_500_000);
    const body = JSON.stringify({ code, name: "once", capabilities: CAPABILITIES });
    const register = () =>
      fetch(world.url("/node/register"), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
      });
    const answers = await Promise.all([register(), register(), register()]);
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 401, 401]);
    const taken = answers.find(({ status }) => status === 201) as Response;
    const { node_id, node_token } = RegisteredNode.parse(await taken.json());
    expect(node_token).toMatch(/^vnt_[\w-]{43}$/);
    expect(code).toMatch(/^vnc_[\w-]{22}$/);
    const { rows } = await world.visionDatabase.execute(
      sql`SELECT row_to_json(node)::text AS one FROM node UNION ALL
        SELECT row_to_json(node_code)::text FROM node_code`,
    );
    expect(JSON.stringify(rows)).not.toContain(node_token);
    expect(JSON.stringify(rows)).not.toContain(code);
    expect(world.logs.join()).not.toContain(node_token);
    const [entry] = await world.auditOf("registerNode");
    expect(entry).toMatchObject({ actor: world.admin.id, subject: `node:${node_id}` });
  });

  it("refuses an unknown or expired code with 401, and a malformed body with 422 or 400", async () => {
    const register = (body: string) =>
      fetch(world.url("/node/register"), {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body,
      });
    const made = (await (await world.asAdmin("/admin/nodes/codes", "POST")).json()) as {
      code: string;
    };
    await world.visionDatabase.execute(
      sql`UPDATE node_code SET expires_at = now() - interval '1 second' WHERE used_at IS NULL`,
    );
    for (const code of ["vnc_guess", made.code]) {
      const body = JSON.stringify({ code, name: "x", capabilities: CAPABILITIES });
      expect(await refusal(await register(body))).toEqual([401, "unauthorized"]);
    }
    expect(await refusal(await register('{"code":"x"}'))).toEqual([422, "invalid_request"]);
    expect(await refusal(await register("{"))).toEqual([400, "bad_body"]);
  });
});

describe("the door", () => {
  const nodeRoutes = [
    ["POST", "/node/claim"],
    ["POST", "/node/heartbeat"],
    ["POST", `/node/tasks/${ABSENT}/progress`],
    ["POST", `/node/tasks/${ABSENT}/finish`],
    ["POST", `/node/tasks/${ABSENT}/target`],
    ["POST", `/node/tasks/${ABSENT}/source`],
    ["GET", "/node/socket"],
  ];
  const adminRoutes = [
    ["POST", "/admin/nodes/codes"],
    ["GET", "/admin/nodes"],
    ["DELETE", `/admin/nodes/${ABSENT}`],
    ["GET", "/admin/status"],
    ["GET", "/admin/workers"],
    ["GET", "/admin/queue"],
    ["POST", `/admin/tasks/${ABSENT}/revoke`],
    ["POST", "/admin/queue/frames/purge"],
  ];

  it("lets nobody without the right kind of token in", async () => {
    const call = async (method: string, path: string, headers: Record<string, string>) =>
      refusal(await fetch(world.url(path), { method, headers }));
    const wrong = { Authorization: "Bearer vnt_wrong" };
    for (const [method = "", path = ""] of nodeRoutes) {
      for (const headers of [{}, wrong, bearer(world.admin)]) {
        expect([path, await call(method, path, headers)]).toEqual([path, [401, "unauthorized"]]);
      }
    }
    const nodeToken = { Authorization: world.node.headers.Authorization ?? "" };
    for (const [method = "", path = ""] of adminRoutes) {
      for (const headers of [{}, wrong, nodeToken]) {
        expect([path, await call(method, path, headers)]).toEqual([path, [401, "unauthorized"]]);
      }
      expect([path, await call(method, path, bearer(world.engineer))]).toEqual([
        path,
        [403, "forbidden"],
      ]);
    }
  });

  it("describes every one of them", async () => {
    const { paths } = (await (await fetch(`${world.urls.vision}/openapi.json`)).json()) as {
      paths: Record<string, Record<string, unknown>>;
    };
    for (const [method = "", path = ""] of [...nodeRoutes, ...adminRoutes]) {
      const declared = Object.keys(paths).find((one) =>
        new RegExp(`^${one.replace(/\{\w+\}/g, "[^/]+")}$`).test(API + path),
      );
      expect([path, paths[declared ?? ""]?.[method.toLowerCase()]]).toEqual([
        path,
        expect.anything(),
      ]);
    }
  });
});

describe("POST /node/claim", () => {
  it("answers null when there is nothing, and 422 or 400 for a malformed body", async () => {
    const empty = await world.node.post("/node/claim", { kinds: ["segment"] });
    expect([empty.status, await empty.json()]).toEqual([200, null]);
    const none = await world.node.post("/node/claim", { kinds: [] });
    expect(await refusal(none)).toEqual([422, "invalid_request"]);
    const { headers } = world.node;
    const broken = await fetch(world.url("/node/claim"), { method: "POST", headers, body: "{" });
    expect(await refusal(broken)).toEqual([400, "bad_body"]);
  });

  it("hands out the highest priority first, then the oldest, each to one node only", async () => {
    const first = await world.enqueued();
    const second = await world.enqueued();
    const urgent = await world.enqueued({ priority: 100 });
    const order = [await world.claimed(), await world.claimed(world.other), await world.claimed()];
    expect(order.map(({ task_id }) => task_id)).toEqual([urgent, first, second]);
    for (const [index, task] of order.entries()) {
      expect((await world.finish(task, DONE, index === 1 ? world.other : world.node)).status).toBe(
        200,
      );
    }
  });

  it("hands out what people wait for before labeling that was enqueued earlier", async () => {
    const kinds = ["label", "export", "probe", "segment"] as const;
    const failed = { outcome: "failed", code: "x", detail: "x", retryable: false };
    const order: string[] = [];
    await submit(
      world.parts,
      kinds.map((kind) => world.plain({ kind })),
    );
    for (const _ of kinds) {
      const claim = await world.node.post("/node/claim", { kinds });
      const task = ClaimedTask.parse(await claim.json());
      order.push(task.kind);
      expect((await world.finish(task, failed)).status).toBe(200);
    }
    expect(order).toEqual(["segment", "export", "probe", "label"]);
  });

  it("waits for a task, and is woken by the bell", async () => {
    const waiting = world.node.post("/node/claim", { kinds: ["export"], wait_seconds: 30 });
    const payload = {
      export_id: "e",
      format: "yolo",
      manifest: source(`ws/${world.workspace}/m`, 1),
      archive: target(`ws/${world.workspace}/z`, "application/zip"),
    };
    const [task] = await submit(world.parts, [world.plain({ kind: "export", payload })]);
    const got = ClaimedTask.parse(await (await waiting).json());
    expect(got.task_id).toBe(task?.taskId);
    const outcome = { outcome: "failed", code: "test", detail: "over", retryable: false };
    expect((await world.finish(got, outcome)).status).toBe(200);
  });

  it("gives addresses that read and write exactly the named objects", async () => {
    const prefix = `ws/${world.workspace}/videos/ä b+c`;
    const [video, pts] = [`${prefix}/source`, `${prefix}/pts`];
    const payload = {
      video: source(video, 5),
      video_id: "v",
      filename: "f",
      still: false,
      pts: target(pts, "application/octet-stream"),
      thumbnail: target(`${prefix}/thumbnail.jpg`, "image/jpeg"),
    };
    // `plain` makes a task of another kind by what is laid over it.
    await enqueue(world.visionDatabase, [world.plain({ kind: "probe", payload } as never)]);
    const task = await world.claimed(world.node, "probe");
    const given = task.payload as typeof payload;
    // What it writes has no address until the bytes are there.
    expect(given.pts).toEqual(payload.pts);
    await world.media.put(video, "hello");
    const read = await fetch(given.video.url);
    expect([read.status, await read.text()]).toEqual([200, "hello"]);
    expect((await fetch(given.video.url.replace("source", "pts"))).status).toBe(403);
    expect((await fetch(given.video.url, { method: "DELETE" })).status).toBe(403);
    const stored = await findTask(world.visionDatabase, task.task_id);
    expect(JSON.stringify(stored)).not.toContain("X-Amz");
    expect(world.logs.join()).not.toContain("X-Amz-Signature=0");
    const outcome = { outcome: "finished", result: { broken: "no video" } };
    expect((await world.finish(task, outcome)).status).toBe(200);
  });

  it("refuses to enqueue what would reach into another workspace", async () => {
    const foreign = { video: source(`ws/${ABSENT}/a`, 1), video_id: "v", frames: [0], images: [] };
    await expect(
      // `plain` makes a task of another kind by what is laid over it.
      enqueue(world.visionDatabase, [world.plain({ payload: foreign } as never)]),
    ).rejects.toThrow(/its workspace's own/);
  });
});

describe("POST /node/heartbeat and progress", () => {
  it("renew the lease, keep progress and capabilities, and tell a stranger it has lost", async () => {
    const id = await world.enqueued();
    const task = await world.claimed();
    expect(task.task_id).toBe(id);
    await world.visionDatabase.execute(
      sql`UPDATE task SET lease_until = now() WHERE id = ${id}::uuid`,
    );
    expect(await world.verdict(task)).toBe("go_on");
    const { rows } = await world.visionDatabase.execute<{ left: number }>(sql`
      SELECT extract(epoch FROM lease_until - now())::float8 AS left FROM task
       WHERE id = ${id}::uuid`);
    expect(rows[0]?.left).toBeGreaterThan(55);
    expect(await world.verdict(task, world.other)).toBe("lost");
    expect(await world.verdict(task, world.node, task.fence + 1)).toBe("lost");
    const progress = { fence: task.fence, done: 1, total: 4, detail: { found: 2 } };
    const report = await world.node.post(`/node/tasks/${id}/progress`, progress);
    expect([report.status, await report.json()]).toEqual([200, { verdict: "go_on" }]);
    expect((await findTask(world.visionDatabase, id))?.progress).toEqual({
      done: 1,
      total: 4,
      detail: { found: 2 },
    });
    const stranger = await world.other.post(`/node/tasks/${id}/progress`, progress);
    expect(await refusal(stranger)).toEqual([409, "lease_stale"]);
    const unfit = await world.node.post(`/node/tasks/${id}/progress`, { fence: 1 });
    expect(await refusal(unfit)).toEqual([422, "invalid_request"]);
    expect((await world.finish(task, DONE)).status).toBe(200);
    expect(await world.verdict(task)).toBe("lost");
  });

  it("refuse malformed bodies", async () => {
    const beat = await world.node.post("/node/heartbeat", { tasks: [{ task_id: "x", fence: 1 }] });
    expect(await refusal(beat)).toEqual([422, "invalid_request"]);
    const { headers } = world.node;
    for (const path of ["/node/heartbeat", `/node/tasks/${ABSENT}/progress`]) {
      const broken = await fetch(world.url(path), { method: "POST", headers, body: "{" });
      expect(await refusal(broken)).toEqual([400, "bad_body"]);
    }
  });
});

describe("POST /node/tasks/{task_id}/finish", () => {
  it("takes an outcome once; the same again changes nothing, another is stale", async () => {
    const id = await world.enqueued();
    const task = await world.claimed();
    const answers = await Promise.all([
      world.finish(task, DONE),
      world.finish(task, DONE),
      world.finish(task, DONE),
    ]);
    const bodies = (await Promise.all(answers.map((answer) => answer.json()))) as {
      status: string;
      repeated: boolean;
    }[];
    expect(bodies.map(({ status }) => status)).toEqual(["finished", "finished", "finished"]);
    expect(bodies.filter(({ repeated }) => !repeated)).toHaveLength(1);
    const failed = { outcome: "failed", code: "x", detail: "late", retryable: true };
    expect(await refusal(await world.finish(task, failed))).toEqual([409, "lease_stale"]);
    expect((await findTask(world.visionDatabase, id))?.state).toBe("finished");
  });

  it("queues a failed attempt again and keeps what each said, until the last one fails it", async () => {
    const id = await world.enqueued({ attemptsMax: 2 });
    const failed = (detail: string) => ({
      outcome: "failed",
      code: "oom",
      detail,
      retryable: true,
    });
    const first = await world.claimed();
    expect(await (await world.finish(first, failed("one"))).json()).toEqual({
      status: "queued",
      repeated: false,
    });
    expect(await (await world.finish(first, failed("one"))).json()).toEqual({
      status: "queued",
      repeated: true,
    });
    // Its backoff, cut short.
    await world.visionDatabase.execute(
      sql`UPDATE task SET available_at = now() - interval '1 second' WHERE id = ${id}::uuid`,
    );
    const second = await world.claimed(world.other);
    expect([second.attempt, second.fence]).toEqual([2, first.fence + 1]);
    expect(await refusal(await world.finish(first, DONE))).toEqual([409, "lease_stale"]);
    expect(await (await world.finish(second, failed("two"), world.other)).json()).toMatchObject({
      status: "failed",
    });
    const task = await findTask(world.visionDatabase, id);
    expect(task?.errors.map(({ detail, node_id }) => [detail, node_id])).toEqual([
      ["one", world.node.nodeId],
      ["two", world.other.nodeId],
    ]);
  });

  it("does not count a snoozed attempt, and refuses what nobody asked for", async () => {
    const id = await world.enqueued();
    const task = await world.claimed();
    for (const outcome of [
      { outcome: "cancelled", result: null },
      { outcome: "revoked", exited: true },
    ]) {
      const [status, code] = await refusal(await world.finish(task, outcome));
      expect([status, code]).toEqual([409, "state_conflict"]);
    }
    const snoozed = await world.finish(task, { outcome: "snoozed", seconds: 0 });
    expect(await snoozed.json()).toEqual({ status: "queued", repeated: false });
    const again = await world.claimed();
    expect([again.task_id, again.attempt, again.fence]).toEqual([id, 1, task.fence + 1]);
    expect((await world.finish(again, DONE)).status).toBe(200);
  });

  it("fails an attempt by its result's shape; refuses an unknown task and a malformed body", async () => {
    await enqueue(world.visionDatabase, [
      world.plain({
        kind: "segment",
        payload: { video: source(`ws/${world.workspace}/a`, 1), video_id: "v", points: [] },
        // `plain` makes a task of another kind by what is laid over it.
      } as never),
    ]);
    const task = await world.claimed(world.node, "segment");
    const unfit = await world.finish(task, { outcome: "finished", result: { masks: "many" } });
    expect(await unfit.json()).toMatchObject({
      status: "queued",
      problem: expect.stringMatching(/^result\.masks: /),
    });
    const [attempt] = (await findTask(world.visionDatabase, task.task_id))?.errors ?? [];
    expect(attempt).toMatchObject({
      code: "bad_result",
      detail: expect.stringMatching(/was refused: result\.masks/),
    });
    const gone = await world.node.post(`/node/tasks/${ABSENT}/finish`, { fence: 1, outcome: DONE });
    expect(await refusal(gone)).toEqual([404, "not_found"]);
    const bad = await world.node.post(`/node/tasks/${task.task_id}/finish`, { fence: 1 });
    expect(await refusal(bad)).toEqual([422, "invalid_request"]);
    const { headers } = world.node;
    const path = world.url(`/node/tasks/${task.task_id}/finish`);
    const broken = await fetch(path, { method: "POST", headers, body: "{" });
    expect(await refusal(broken)).toEqual([400, "bad_body"]);
    // The attempt is over: whatever else its node says of it is late.
    expect(await refusal(await world.finish(task, DONE))).toEqual([409, "lease_stale"]);
    await world.asAdmin(`/admin/tasks/${task.task_id}/revoke`, "POST");
  });
});

describe("settling", () => {
  it("hands an outcome over until its room took it, and swallows what progress throws", async () => {
    const id = await world.enqueued({ subject: "settling" });
    const task = await world.claimed();
    const seen: string[] = [];
    let refuse = true;
    const handlers: HandlersByKind = {
      frames: {
        ended: async (_, { taskId, state }) => {
          seen.push(`${taskId} ${state}`);
          if (refuse) throw new Error("not now");
        },
        progressed: async (_parts, _task, _progress: TaskProgress) => {
          throw new Error("never");
        },
      },
    };
    expect((await world.finish(task, DONE)).status).toBe(200);
    // The service has no handlers in this state of things: let it be unsettled, and old.
    await world.visionDatabase.execute(sql`
      UPDATE task SET settled_at = NULL, ended_at = now() - interval '1 minute'
       WHERE id = ${id}::uuid`);
    await minuteTasks(world.parts, handlers);
    await minuteTasks(world.parts, handlers);
    refuse = false;
    await minuteTasks(world.parts, handlers);
    await minuteTasks(world.parts, handlers);
    expect(seen).toEqual(Array(3).fill(`${id} finished`));
  });
});

describe("what a node says", () => {
  it("is stored as far as Postgres can, and its last words are cut", async () => {
    const id = await world.enqueued({ attemptsMax: 1 });
    const task = await world.claimed();
    const detail = `a\0b\ud800${"x".repeat(5_000)}`;
    const progress = { fence: task.fence, done: 0, total: 1, detail: { note: "n\0\udc00" } };
    const path = `/node/tasks/${id}/progress`;
    expect((await world.node.post(path, progress)).status).toBe(200);
    const outcome = { outcome: "failed", code: "x\0", detail, retryable: true };
    expect((await world.finish(task, outcome)).status).toBe(200);
    const [error] = (await findTask(world.visionDatabase, id))?.errors ?? [];
    expect(error).toMatchObject({ code: "x", detail: `ab\ufffd${"x".repeat(1_997)}` });
  });
});

describe("the minute cron", () => {
  it("sweeps old results that are large", async () => {
    const database = world.visionDatabase;
    const id = await world.enqueued();
    expect((await world.finish(await world.claimed(), DONE)).status).toBe(200);
    await minuteTasks(world.parts, {});
    expect((await findTask(database, id))?.result).toEqual({});
    await database.execute(sql`
      UPDATE task SET settled_at = now() - interval '25 hours' WHERE id = ${id}::uuid`);
    await minuteTasks(world.parts, {});
    // A room may still count on what is small.
    expect(await findTask(database, id)).toMatchObject({ result: {}, state: "finished" });
    await database.execute(sql`
      UPDATE task SET result = jsonb_build_object('large', repeat('x', 2000)) WHERE id = ${id}::uuid`);
    await minuteTasks(world.parts, {});
    expect(await findTask(database, id)).toMatchObject({ result: null, state: "finished" });
  });
});

describe("runNow", () => {
  const work = () =>
    world.plain({ subject: "interactive" }) as Extract<NewTask, { kind: "frames" }>;

  it("returns the node's result, or its own words", async () => {
    const waiting = runNow(world.parts, work(), { timeoutMs: 20_000 });
    const claim = { kinds: ["frames"], wait_seconds: 20 };
    const take = async () =>
      ClaimedTask.parse(await (await world.node.post("/node/claim", claim)).json());
    expect((await world.finish(await take(), DONE)).status).toBe(200);
    expect(await waiting).toEqual({});
    const refused = runNow(world.parts, work(), { timeoutMs: 20_000 });
    const failure = expect(refused).rejects.toMatchObject({
      code: "task_failed",
      message: "out of memory",
      data: { node_code: "oom" },
    });
    const outcome = { outcome: "failed", code: "oom", detail: "out of memory", retryable: true };
    expect((await world.finish(await take(), outcome)).status).toBe(200);
    await failure;
  });

  it("says no_node when nobody offers the kind or nobody takes it in time", async () => {
    await expect(runNow(world.parts, work(), { timeoutMs: 0 })).rejects.toMatchObject({
      code: "no_node",
    });
    const empty = await world.node.post("/node/claim", { kinds: ["frames"] });
    expect(await empty.json()).toBeNull();
    await world.visionDatabase.execute(
      sql`UPDATE node SET last_heartbeat_at = now() - interval '2 minutes'`,
    );
    await expect(runNow(world.parts, work())).rejects.toMatchObject({ code: "no_node" });
  });

  it("costs its caller nothing when the bell is broken", async () => {
    const broken = { idFromName: () => null, get: () => ({ ring: () => Promise.reject(1) }) };
    // A broken namespace has just what is called.
    // `plain` makes a task of another kind by what is laid over it.
    await ring({ ...world.parts, doorbell: broken as never }, [world.plain()]);
  });
});
