// Objects of what was deleted. Goal: a database that was set back within the grace finds each
// object that it names again, and after the grace all else is gone.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { systemClock } from "../../../shared/time.ts";
import {
  createTrainingWorld,
  epoch,
  labelsOf,
  type TrainingWorld,
} from "../../support/training-world.ts";

let w: TrainingWorld;
beforeAll(async () => {
  w = await createTrainingWorld({ OBJECT_GRACE_DAYS: "35" });
});

const keysUnder = async (prefix: string) =>
  (await w.world.media.list({ prefix })).objects.map(({ key }) => key);
const listed = async () => {
  const { rows } = await w.world.visionDatabase.execute<{ key: string }>(
    sql`SELECT key FROM discarded_object ORDER BY key COLLATE "C"`,
  );
  return rows.map(({ key }) => key);
};
const pass = (days: number) =>
  w.world.visionDatabase.execute(
    sql`UPDATE discarded_object SET discarded_at = discarded_at - ${days}::int * interval '1 day'`,
  );

async function deletedVideo(name: string) {
  const id = await w.video(name);
  const { rows } = await w.world.visionDatabase.execute<{ row: object; folder: string }>(sql`
    SELECT to_jsonb(v) AS row, 'ws/' || workspace_id || '/videos/' || id || '/' AS folder
      FROM video v WHERE id = ${id}::uuid`);
  const [found] = rows;
  if (!found) throw new Error("no video");
  const keys = await keysUnder(found.folder);
  expect(keys.length).toBeGreaterThan(2);
  expect((await w.admin.send("DELETE", `/videos/${id}`)).status).toBe(204);
  expect(await listed()).toContain(found.folder);
  return { ...found, id, keys };
}

it("a video's stay for the grace, and go after it", async () => {
  const { folder, keys } = await deletedVideo("gone.mp4");
  await pass(34);
  await w.world.tick(systemClock());
  expect(await keysUnder(folder)).toEqual(keys);
  await pass(2);
  await w.world.tick(systemClock());
  expect(await keysUnder(folder)).toEqual([]);
  expect(await listed()).toEqual([]);
});

it("those that a database of the past names are found, and stay", async () => {
  const { row, id, folder, keys } = await deletedVideo("back.mp4");
  await w.world.visionDatabase.execute(sql`
    INSERT INTO video SELECT * FROM jsonb_populate_record(NULL::video, ${JSON.stringify(row)}::jsonb)`);
  expect((await w.admin.send("GET", `/videos/${id}/thumbnail.jpg`)).status).toBe(200);
  await pass(36);
  await w.world.tick(systemClock());
  const left = await keysUnder(folder);
  expect(left.length).toBeGreaterThan(2);
  expect(keys).toEqual(expect.arrayContaining(left));
  expect((await w.admin.send("GET", `/videos/${id}/thumbnail.jpg`)).status).toBe(200);
  expect(await listed()).toEqual([]);
});

it("an export's are listed with its job, and a run's folder with its run", async () => {
  const jobId = await w.labeled(labelsOf("left", 8));
  w.node.script.export = async (task, by) => {
    const { archive } = task.payload as { archive: { key: string } };
    await by.write(task, { key: archive.key }, "a zip");
    return { bytes: 5, summary: {} };
  };
  const stop = w.node.start();
  const made = await w.admin.ok<{ export_id: string }>("POST", `/jobs/${jobId}/export`, {});
  await stop();
  expect((await w.admin.send("DELETE", `/jobs/${jobId}`)).status).toBe(204);
  expect((await listed()).join()).toMatch(new RegExp(`/exports/${made.export_id}/`));
  const runId = await w.train();
  await w.admin.ok("POST", `/train/${runId}/stop`);
  expect((await w.admin.send("DELETE", `/train/${runId}`)).status).toBe(204);
  expect((await listed()).join()).toContain(runId);
});

it("what the end of a round named stays when the run goes on, and goes after the grace", async () => {
  const runId = await w.train({ epochs: 9 });
  const task = await w.claimed();
  await w.admin.ok("POST", `/train/${runId}/stop`);
  const first = { ...(await w.stored(task, "checkpoint.bin")), epoch: 1, batch: 0 };
  const flushed = await w.result(task, [epoch(1)], { stopped: true, checkpoint: first });
  await w.finish(task, { outcome: "cancelled", result: flushed });
  await w.admin.ok("POST", `/train/${runId}/resume`);
  const ofRound = (await listed()).filter((key) => key.includes(runId));
  expect(ofRound).toContain(first.key);
  const next = await w.claimed();
  const replaced = { ...(await w.stored(next, "checkpoint.bin")), epoch: 2, batch: 0 };
  await w.report(next, { epoch: 3, recent: [epoch(2)], checkpoint: replaced });
  const last = { ...(await w.stored(next, "checkpoint.bin")), epoch: 3, batch: 0 };
  await w.report(next, { epoch: 4, recent: [epoch(3)], checkpoint: last });
  const done = await w.result(next, [epoch(2), epoch(3)]);
  await w.finish(next, { outcome: "finished", result: done });
  const kept = await w.keys(runId);
  expect(kept).toEqual(expect.arrayContaining(ofRound));
  expect(kept).not.toContain(replaced.key);
  await pass(36);
  await w.world.tick(systemClock());
  expect(await w.keys(runId)).not.toContain(first.key);
});
