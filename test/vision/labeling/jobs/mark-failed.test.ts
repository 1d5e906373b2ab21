// A labeling job that is stuck: listed for whom it concerns, and failed by an admin. Goal: it ends
// once, what was labeled stays, and nothing that nodes say of it later changes anything.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import type { ClaimedTask } from "../../../../shared/tasks/node-protocol.ts";
import { Job, type JobProgress } from "../../../../shared/wire/labeling.ts";
import type { Role } from "../../../../shared/wire/vision.ts";
import {
  colleague,
  labelAs,
  newProject,
  type Person,
  probeAs,
  register,
  type ScriptedNode,
  scriptedNode,
  uploadVideo,
} from "../../../support/scripted-node.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let node: ScriptedNode;
let projectId: string;
let videoId: string;

const found = labelAs((_, prompts) =>
  prompts.map(({ class_name }) => ({
    class_name,
    confidence: 0.7,
    polygon: null,
    duplicate_of: null,
    bbox: [10, 10, 50, 90],
  })),
);

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  node = await scriptedNode(world, admin, { probe: probeAs({ frames: 40 }), label: found });
  projectId = (await newProject(admin)).project_id;
  videoId = (await uploadVideo(admin, projectId)).video_id;
  await node.work();
});

/** A job of two tasks, one of which a node has and one of which waits. */
async function claimed(): Promise<{ id: string; task: ClaimedTask }> {
  const body = { project_id: projectId, video_ids: [videoId], prompts: ["person"] };
  const { job_id: id } = await admin.ok<{ job_id: string }>("POST", "/label", body);
  const task = (await node.claim(["label"])) as ClaimedTask;
  return { id, task };
}
const markFailed = (id: string) => `/admin/jobs/${id}/mark-failed`;
const report = (task: ClaimedTask) =>
  node.finish(task, { outcome: "finished", result: found(task) });
const statusOf = (id: string) => admin.ok<JobProgress>("GET", `/status/${id}`);

describe("a stuck job", () => {
  it("is listed with its tasks and why, for admins of its workspace and operators", async () => {
    const { id, task } = await claimed();
    const stuck = () => admin.ok<Record<string, unknown>[]>("GET", "/admin/jobs/stuck");
    expect(await stuck()).toEqual([]);
    await world.visionDatabase.execute(sql`
      UPDATE task SET claimed_at = now() - interval '6 minutes' WHERE id = ${task.task_id}::uuid`);
    expect(await stuck()).toMatchObject([
      {
        kind: "labeling",
        id,
        name: "person",
        progress_at: null,
        tasks: [{ task_id: task.task_id, reason: "no_progress" }],
      },
    ]);
    // A task of neither a job nor a run is nobody's job.
    await world.visionDatabase.execute(
      sql`UPDATE task SET subject = 'job:none' WHERE id = ${task.task_id}::uuid`,
    );
    expect(await stuck()).toEqual([]);
    const engineer = await colleague(world, admin, "engineer");
    expect(await engineer.refused("GET", "/admin/jobs/stuck")).toEqual([403, "forbidden"]);
    await admin.ok("DELETE", `/jobs/${id}`);
    await world.visionDatabase.execute(sql`DELETE FROM task WHERE kind = 'label'`);
  });
});

describe("a job marked as failed", () => {
  it("ends at once, and takes nothing that comes of its tasks", async () => {
    const { id, task } = await claimed();
    const failed = Job.parse(await admin.ok("POST", markFailed(id)));
    expect(failed).toMatchObject({
      status: "failed",
      failure: "an administrator marked the job as failed",
    });
    expect(failed.ended_at).not.toBeNull();
    expect(await admin.refused("POST", markFailed(id))).toEqual([409, "state_conflict"]);
    const late = await report(task);
    expect([late.status, await late.json()]).toMatchObject([409, { code: "lease_stale" }]);
    // The one that waited is nobody's any more.
    expect(await node.claim(["label"])).toBeNull();
    await node.finish(task, { outcome: "revoked", exited: true });
    expect(await statusOf(id)).toMatchObject({
      status: "failed",
      frames_done: 0,
      stored_annotations: 0,
    });
    const { rows } = await world.visionDatabase.execute(sql`
      SELECT before, after->'status' AS after FROM audit_entry
       WHERE action = 'failJob' AND subject = ${`job:${id}`}`);
    expect(rows).toEqual([{ before: { status: "queued" }, after: "failed" }]);
  });

  it("keeps what it labeled, and is resumed for the rest", async () => {
    const { id, task } = await claimed();
    expect((await report(task)).status).toBe(200);
    const open = (await node.claim(["label"])) as ClaimedTask;
    await admin.ok("POST", markFailed(id));
    expect(await statusOf(id)).toMatchObject({ frames_done: 32, stored_annotations: 32 });
    await admin.ok("POST", `/jobs/${id}/resume`);
    const done = await node.work();
    expect(done.map(({ payload }) => (payload.frames as number[]).length)).toEqual([8]);
    await node.finish(open, { outcome: "revoked", exited: true });
    expect(await statusOf(id)).toMatchObject({
      status: "completed",
      frames_done: 40,
      stored_annotations: 40,
    });
  });

  it.each<[Role, number]>([
    ["viewer", 403],
    ["engineer", 403],
    ["admin", 200],
  ])("is so by an admin only, not by a %s: %d", async (role, status) => {
    const { id, task } = await claimed();
    const person = await colleague(world, admin, role);
    expect((await person.send("POST", markFailed(id))).status).toBe(status);
    await admin.send("POST", markFailed(id));
    await node.finish(task, { outcome: "revoked", exited: true });
  });

  it("is no other workspace's", async () => {
    expect(await admin.refused("POST", markFailed(crypto.randomUUID()))).toEqual([
      404,
      "not_found",
    ]);
  });
});
