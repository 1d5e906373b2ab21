// A training run that is stuck, as admins see it. Goal: it is listed with why, and not any more
// once its node goes on.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { createTrainingWorld, epoch, type TrainingWorld } from "../../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld();
});

const stuck = () => w.admin.ok<Record<string, unknown>[]>("GET", "/admin/jobs/stuck");

it("is listed while it is silent, too long at work, or nobody frees its lease", async () => {
  const runId = await w.train();
  const task = await w.claimed();
  const { node_id: nodeId } = (
    await w.admin.ok<{ node_id: string; tasks: unknown[] }[]>("GET", "/admin/nodes")
  ).find(({ tasks }) => tasks.length > 0) ?? { node_id: "" };
  const shifted = (what: ReturnType<typeof sql>) =>
    w.world.visionDatabase.execute(sql`UPDATE task SET ${what} WHERE id = ${task.task_id}::uuid`);
  const listed = (reason: string, progress_at: unknown = null) => [
    {
      kind: "training",
      id: runId,
      progress_at,
      tasks: [{ task_id: task.task_id, node_id: nodeId, reason }],
    },
  ];
  expect(await stuck()).toEqual([]);
  await shifted(sql`claimed_at = now() - interval '6 minutes'`);
  expect(await stuck()).toMatchObject(listed("no_progress"));
  await w.report(task, { epoch: 1, recent: [epoch(1)] });
  expect(await stuck()).toEqual([]);
  await shifted(sql`claimed_at = now() - interval '8 days'`);
  expect(await stuck()).toMatchObject(listed("too_long", expect.any(String)));
  await shifted(sql`claimed_at = now(), lease_until = now() - interval '4 minutes'`);
  expect(await stuck()).toMatchObject(listed("lease_expired", expect.any(String)));
});
