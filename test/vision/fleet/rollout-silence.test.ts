// Devices of a rollout that fall silent. Goal: none of them holds a rollout up for good, and one
// that fell silent with the model is no sign that the model works. Method: time passes by moving
// everything that the database knows of a rollout and its devices into the past.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { Rollout, RolloutMove } from "../../../shared/wire/rollouts.ts";
import {
  completedExport,
  type ScriptedDevice,
  scriptedDevice,
  workspaceOf,
} from "../../support/rollout-world.ts";
import { colleague, type Person, register } from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let engineer: Person;
let workspaceId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  const admin = await register(world);
  workspaceId = await workspaceOf(admin);
  engineer = await colleague(world, admin, "engineer");
});

let groups = 0;
async function fleet(count: number) {
  const group = `group-${groups++}`;
  const devices: ScriptedDevice[] = [];
  for (let index = 0; index < count; index++) {
    const device = await scriptedDevice(world, engineer, { group });
    await device.beat();
    devices.push(device);
  }
  return { group, devices };
}
const begin = async (body: Record<string, unknown>) => {
  const { exportId } = await completedExport(world, workspaceId);
  const given = { export_id: exportId, gates: { stage_minutes: 0 }, ...body };
  return Rollout.parse(await engineer.ok("POST", "/rollouts", given));
};
const read = async ({ rollout_id: id }: Rollout) =>
  Rollout.parse(await engineer.ok("GET", `/rollouts/${id}`));
/** The newest move, with what the gates saw as they made it. */
const newestMove = async ({ rollout_id: id }: Rollout) =>
  RolloutMove.array().parse(await engineer.ok("GET", `/rollouts/${id}/moves`))[0];
const minute = () => world.tick(Date.now());

/** So much time passes, in which nobody beats. */
async function pass({ rollout_id: id }: Rollout, minutes: number) {
  const ago = sql`${minutes}::float8 * interval '1 minute'`;
  await world.visionDatabase.execute(sql`
    UPDATE device_state s SET beat_at = beat_at - ${ago} FROM device d, rollout r
     WHERE d.id = s.device_id AND r.id = ${id}::uuid AND d.group_name = r.group_name`);
  await world.visionDatabase.execute(sql`
    UPDATE rollout_device SET assigned_at = assigned_at - ${ago}, reported_at = reported_at - ${ago}
     WHERE rollout_id = ${id}::uuid`);
  await world.visionDatabase.execute(sql`
    UPDATE rollout SET stage_since = stage_since - ${ago} WHERE id = ${id}::uuid`);
}

/** The devices of which a rollout is wanted, by the database: asking them would be a beat. */
async function given({ rollout_id: id }: Rollout): Promise<string[]> {
  const { rows } = await world.visionDatabase.execute<{ id: string }>(sql`
    SELECT device_id::text AS id FROM device_desired WHERE rollout_id = ${id}::uuid`);
  return rows.map((row) => row.id);
}
const canaryOf = async (rollout: Rollout, devices: readonly ScriptedDevice[]) => {
  const [id] = await given(rollout);
  const canary = devices.find((one) => one.id === id);
  if (!canary) throw new Error("the rollout began with no device of the fleet");
  return { canary, others: devices.filter((one) => one !== canary) };
};

it("goes on with another canary where the first is lost while it downloads", async () => {
  const { group, devices } = await fleet(3);
  const rollout = await begin({ group, stages: [0.01, 100] });
  const { canary, others } = await canaryOf(rollout, devices);
  await canary.report("downloading");
  await minute();
  expect((await read(rollout)).reason).toMatch(/0 of 1 devices confirmed/);
  await pass(rollout, 11);
  for (const other of others) await other.beat();
  await minute();
  const taken = await given(rollout);
  expect(taken.length).toBe(2);
  const next = others.find(({ id }) => taken.includes(id));
  await next?.report("confirmed");
  await minute();
  expect(await newestMove(rollout)).toMatchObject({
    kind: "advance",
    figures: { taken: 2, heard: 1, confirmed: 1, failed: 0 },
  });
});

it.each<[string, (device: ScriptedDevice) => Promise<unknown>]>([
  ["revoked", (device) => engineer.ok("POST", `/devices/${device.id}/revoke`)],
  ["deleted", (device) => engineer.send("DELETE", `/devices/${device.id}`)],
])("goes on with another canary where the first is %s, and counts it no more", async (_, end) => {
  const { group, devices } = await fleet(3);
  const rollout = await begin({ group, stages: [0.01, 100] });
  const { canary, others } = await canaryOf(rollout, devices);
  await canary.report("active");
  await end(canary);
  await minute();
  const taken = await given(rollout);
  const next = others.find(({ id }) => taken.includes(id));
  await next?.report("confirmed");
  await minute();
  expect(await newestMove(rollout)).toMatchObject({
    kind: "advance",
    figures: { taken: 1, heard: 1, confirmed: 1, failed: 0 },
  });
});

it("counts a device as failed that fell silent with the model and did not come back", async () => {
  const { group, devices } = await fleet(3);
  const confirm = { inferences: 20, seconds: 1_200 };
  const rollout = await begin({ group, stages: [0.01, 100], confirm });
  const { canary, others } = await canaryOf(rollout, devices);
  await canary.report("active");
  // Within its time to confirm and ten intervals more, it may still come back.
  await pass(rollout, 29);
  for (const other of others) await other.beat();
  await minute();
  expect(await read(rollout)).toMatchObject({ status: "rolling", stage: 0 });
  expect(await given(rollout)).toEqual([canary.id]);
  await pass(rollout, 2);
  await minute();
  const ended = await read(rollout);
  expect(ended).toMatchObject({ status: "rolled_back", figures: { heard: 1, failed: 1 } });
  expect(ended.reason).toMatch(/1 of 1 devices rolled back or failed/);
  expect(await given(rollout)).toEqual([]);
});

it("completes without those of the last stage that were away for a week", async () => {
  const { group, devices } = await fleet(3);
  const rollout = await begin({ group, stages: [0.01, 100] });
  const { canary } = await canaryOf(rollout, devices);
  await canary.report("confirmed");
  await minute();
  await minute();
  await pass(rollout, 6 * 1_440);
  await minute();
  expect(await read(rollout)).toMatchObject({
    status: "rolling",
    reason: expect.stringMatching(/none of 2 devices/),
  });
  await pass(rollout, 2 * 1_440);
  await minute();
  expect(await read(rollout)).toMatchObject({ status: "completed", figures: { taken: 1 } });
});

it("takes up figures that a device told last in a minute, and no more after it", async () => {
  const { group, devices } = await fleet(1);
  const rollout = await begin({ group, stages: [100] });
  const [device] = devices as [ScriptedDevice];
  const { desired } = await device.beat();
  if (!desired) throw new Error("nothing is wanted of the device");
  const { manifest_url: _, ...own } = desired;
  const say = (inferences: number) =>
    device.beat({ ...own, slot: "a", status: "active", inferences });
  const known = async () => (await read(rollout)).figures.inferences;
  // One of these is at least the second of its minute, with what nobody was told.
  await say(3);
  expect(await known()).toBe(3);
  await say(4);
  await say(5);
  await pass(rollout, 3);
  await minute();
  expect(await known()).toBe(5);
});
