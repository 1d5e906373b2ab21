// Addresses that a node asks for while it works, in workerd, with the real Postgres and object
// store. Goal: a node reads and writes only what its task may, only while the task is its own, and
// a later attempt finds what an earlier one left.

import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { nodesWhere } from "../../../edge/vision/tasks/nodes/nodes.ts";
import { source, target } from "../../../edge/vision/tasks/objects.ts";
import { amendPayload, findTask } from "../../../edge/vision/tasks/queue/queue.ts";
import {
  type ClaimedTask,
  NODE_PROTOCOL,
  WriteAddress,
} from "../../../shared/tasks/node-protocol.ts";
import { ObjectSource } from "../../../shared/tasks/tasks.ts";
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

const ask = (task: ClaimedTask, what: string, body: object, by = world.node) =>
  by.post(`/node/tasks/${task.task_id}/${what}`, { fence: task.fence, ...body });
const IMAGE = "an image";
const contentOf = (text: string) => ({
  bytes: Buffer.byteLength(text),
  md5: createHash("md5").update(text).digest("hex"),
});
const image = { name: "results.png", content_type: "image/png", ...contentOf(IMAGE) };

/** A claimed task of the subject run:1. */
async function running(more: object = {}): Promise<ClaimedTask> {
  await world.enqueued({ subject: "run:1", ...more });
  return world.claimed();
}

async function addressOf(task: ClaimedTask, body: object): Promise<WriteAddress> {
  const response = await ask(task, "target", body);
  expect(response.status).toBe(200);
  return WriteAddress.parse(await response.json());
}

const put = async ({ url, headers }: Omit<WriteAddress, "key">, body: string) =>
  (await fetch(url, { method: "PUT", headers, body })).status;

async function refuses(task: ClaimedTask, status: [number, string], by = world.node, fence = 0) {
  const body = { fence: task.fence + fence };
  expect(await refusal(await ask(task, "target", { ...image, ...body }, by))).toEqual(status);
  const key = (task.payload.video as { key: string }).key;
  expect(await refusal(await ask(task, "source", { key, ...body }, by))).toEqual(status);
}

describe("POST /node/tasks/{task_id}/target", () => {
  it("gives a new key in the subject's folder each time, to be written and read", async () => {
    const task = await running();
    const [one, other] = [await addressOf(task, image), await addressOf(task, image)];
    const folder = `ws/${world.workspace}/run/1/${task.fence}-`;
    for (const { key } of [one, other]) {
      expect(key.startsWith(folder) && key.endsWith("/results.png")).toBe(true);
    }
    expect(one.key).not.toBe(other.key);
    expect(await put(one, IMAGE)).toBe(200);
    // A later attempt reads it, once the payload names it.
    const patch = { resume: source(one.key, 8) };
    expect(await amendPayload(world.visionDatabase, asQueue(task), patch)).toBe(true);
    const again = await ask(task, "source", { key: one.key });
    const read = ObjectSource.parse(await again.json());
    expect(read).toMatchObject({ key: one.key, bytes: 8 });
    expect(await (await fetch(read.url)).text()).toBe(IMAGE);
    await world.finish(task, DONE);
  });

  it("is for the announced bytes and type only, and for writing them once", async () => {
    const task = await running();
    const address = await addressOf(task, image);
    expect(new URL(address.url).searchParams.get("X-Amz-Expires")).toBe("600");
    const without = (name: string) => {
      const { [name]: _, ...headers } = address.headers;
      return { url: address.url, headers };
    };
    for (const name of ["If-None-Match", "Content-MD5"]) {
      expect([name, await put(without(name), IMAGE)]).toEqual([name, 403]);
    }
    const page = { url: address.url, headers: { ...address.headers, "Content-Type": "text/html" } };
    expect(await put(page, IMAGE)).toBe(403);
    expect(await put(address, "an imagf")).toBe(400);
    expect(await put(address, "an image that is longer")).toBe(403);
    expect(await put(address, IMAGE)).toBe(200);
    expect(await put(address, IMAGE)).toBe(412);
    await world.finish(task, DONE);
  });

  it("gives the targets of the payload, to each attempt under a key of its own", async () => {
    const key = `ws/${world.workspace}/frames/1.jpg`;
    const video = source(`ws/${world.workspace}/a`, 1);
    const images = [target(key, "image/jpeg")];
    const task = await running({ payload: { video, video_id: "v", frames: [1], images } });
    const asked = { key, ...contentOf(IMAGE) };
    const first = await addressOf(task, asked);
    expect(first.headers["Content-Type"]).toBe("image/jpeg");
    expect(first.key).not.toBe(key);
    const foreign = { ...asked, key: `ws/${world.workspace}/a` };
    expect(await refusal(await ask(task, "target", foreign))).toEqual([404, "not_found"]);
    const failed = { outcome: "failed", code: "x", detail: "y", retryable: true };
    expect((await world.finish(task, failed)).status).toBe(200);
    await world.visionDatabase.execute(sql`
      UPDATE task SET available_at = now() - interval '1 second' WHERE id = ${task.task_id}::uuid`);
    const second = await world.claimed();
    const later = await addressOf(second, asked);
    expect(later.key).not.toBe(first.key);
    // The first attempt is late: what it writes is nothing that anybody reads.
    expect(await put(first, IMAGE)).toBe(200);
    expect(await put(later, IMAGE)).toBe(200);
    await world.finish(second, DONE);
  });

  it("takes plain file names and types that no browser runs, and refuses others", async () => {
    const task = await running();
    const names = ["../x", "a/b", "", ".hidden", "x".repeat(101), "a\0", "é"];
    for (const name of names) {
      const answer = await refusal(await ask(task, "target", { ...image, name }));
      expect([name, ...answer]).toEqual([name, 422, "invalid_request"]);
    }
    const wrong = [
      { content_type: "text/html" },
      { md5: "x" },
      { bytes: -1 },
      { bytes: 6 * 1024 ** 3 },
    ];
    for (const more of wrong) {
      const answer = await ask(task, "target", { ...image, ...more });
      expect(await refusal(answer)).toEqual([422, "invalid_request"]);
    }
    const { headers } = world.node;
    for (const what of ["target", "source"]) {
      const url = world.url(`/node/tasks/${task.task_id}/${what}`);
      const broken = await fetch(url, { method: "POST", headers, body: "{" });
      expect(await refusal(broken)).toEqual([400, "bad_body"]);
    }
    await world.finish(task, DONE);
  });
});

describe("POST /node/tasks/{task_id}/source", () => {
  it("gives addresses of what the payload lets the node read, and of nothing else", async () => {
    const video = source(`ws/${world.workspace}/video`, 12);
    const images = [target(`ws/${world.workspace}/image`, "image/jpeg")];
    const payload = { video, video_id: "v", frames: [0], images };
    const task = await running({ payload });
    const answer = await ask(task, "source", { key: video.key });
    expect(answer.status).toBe(200);
    const given = ObjectSource.parse(await answer.json());
    expect(given).toMatchObject({ key: video.key, bytes: 12 });
    expect(new URL(given.url).searchParams.get("X-Amz-Expires")).toBe("600");
    for (const key of [images[0]?.key, `ws/${world.workspace}/other`, "ws/x/video", ""]) {
      const other = await ask(task, "source", { key });
      expect(await refusal(other)).toEqual([404, "not_found"]);
    }
    expect(await refusal(await ask(task, "source", {}))).toEqual([422, "invalid_request"]);
    await world.finish(task, DONE);
  });
});

describe("the fence", () => {
  it("keeps out another node, an older claim, and whoever's task ended or was revoked", async () => {
    const task = await running();
    await refuses(task, [409, "lease_stale"], world.other);
    await refuses(task, [409, "lease_stale"], world.node, -1);
    await refuses({ ...task, task_id: ABSENT }, [409, "lease_stale"]);
    await world.asAdmin(`/admin/tasks/${task.task_id}/revoke`, "POST");
    const revoked = await ask(task, "target", image);
    expect(await revoked.json()).toMatchObject({ code: "lease_stale", verdict: "revoke" });
    await world.finish(task, { outcome: "revoked", exited: true });
    await refuses(task, [409, "lease_stale"]);
  });
});

describe("an upgrade", () => {
  it.each([
    ["an older", -1],
    ["a newer", 1],
  ])("gives a node of %s protocol nothing, and says why", async (name, more) => {
    const protocol = NODE_PROTOCOL + more;
    const made = await registerTestNode(world.urls.vision, world.admin, { name });
    await world.visionDatabase.execute(sql`
      UPDATE node SET capabilities = capabilities || ${JSON.stringify({ protocol })}::jsonb
       WHERE id = ${made.nodeId}::uuid`);
    const answer = await made.post("/node/claim", { kinds: ["frames"] });
    expect(answer.status).toBe(422);
    expect(await answer.json()).toMatchObject({
      code: "invalid_request",
      detail: expect.stringContaining(
        `protocol ${protocol}, the service ${NODE_PROTOCOL}: install`,
      ),
    });
    // Nor is anything expected of it.
    const meant = nodesWhere({ workspaceId: world.workspace });
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT count(*)::int AS all, count(*) FILTER (WHERE ${meant})::int AS claiming FROM node
       WHERE id = ${made.nodeId}::uuid`);
    expect(rows).toEqual([{ all: 1, claiming: 0 }]);
  });
});

describe("amendPayload", () => {
  it("hands later attempts what an earlier one left, once and under its fence", async () => {
    const database = world.visionDatabase;
    const task = await running();
    const key = `ws/${world.workspace}/run/1/checkpoint`;
    const resume = { checkpoint: source(key, 5), at: { epoch: 2, batch: 7 } };
    expect(await amendPayload(database, asQueue(task), { resume: null })).toBe(true);
    expect(await amendPayload(database, asQueue(task), { resume })).toBe(true);
    for (const fence of [task.fence - 1, task.fence + 1]) {
      const other = { taskId: task.task_id, fence };
      expect(await amendPayload(database, other, { resume: null })).toBe(false);
    }
    const foreign = { resume: { checkpoint: source("ws/another/run/1/checkpoint", 5) } };
    expect(await amendPayload(database, asQueue(task), foreign)).toBe(false);
    await world.finish(task, { outcome: "failed", code: "x", detail: "y", retryable: true });
    expect(await amendPayload(database, asQueue(task), { resume: null })).toBe(false);
    await database.execute(sql`
      UPDATE task SET available_at = now() - interval '1 second' WHERE id = ${task.task_id}::uuid`);
    const second = await world.claimed();
    expect(second).toMatchObject({ task_id: task.task_id, attempt: 2 });
    const { checkpoint, at } = second.payload.resume as typeof resume;
    expect(at).toEqual({ epoch: 2, batch: 7 });
    expect(checkpoint).toMatchObject({ key, bytes: 5, url: expect.stringMatching(/Signature/) });
    expect(second.payload.video).toMatchObject({ key: `ws/${world.workspace}/a` });
    const stored = await findTask(database, task.task_id);
    expect(JSON.stringify(stored?.payload)).not.toContain("Signature");
    await world.finish(second, DONE);
  });
});

const asQueue = ({ task_id: taskId, fence }: ClaimedTask) => ({ taskId, fence });
