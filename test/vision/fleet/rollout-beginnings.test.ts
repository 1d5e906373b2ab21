// What may begin a rollout, who may, and what a rollout holds on to.

import { beforeAll, describe, expect, it } from "vitest";
import { Rollout } from "../../../shared/wire/rollouts.ts";
import { smallFile } from "../../support/described-files.ts";
import { completedExport, scriptedDevice, workspaceOf } from "../../support/rollout-world.ts";
import { colleague, type Person, register } from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

let world: World;
let admin: Person;
let engineer: Person;
let workspaceId: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  workspaceId = await workspaceOf(admin);
  engineer = await colleague(world, admin, "engineer");
});

let groups = 0;
const newGroup = () => `group-${groups++}`;
const begin = async (body: Record<string, unknown>) => {
  const { exportId } = body.export_id
    ? { exportId: body.export_id }
    : await completedExport(world, workspaceId);
  return Rollout.parse(await engineer.ok("POST", "/rollouts", { export_id: exportId, ...body }));
};

describe("POST /rollouts", () => {
  it.each<[string, Record<string, unknown>, RegExp]>([
    ["neither group nor tags", {}, /^group/],
    ["both", { group: "a", tags: ["b"] }, /^group/],
    ["stages that fall", { group: "a", stages: [50, 10, 100] }, /^stages/],
    ["stages that end early", { group: "a", stages: [1, 50] }, /^stages/],
    ["no stage", { group: "a", stages: [] }, /^stages/],
    ["a share above all", { group: "a", stages: [101] }, /^stages/],
    ["a gate that there is none of", { group: "a", gates: { luck: 1 } }, /gates/],
    ["a share that is none", { group: "a", gates: { failed_max: 2 } }, /^gates/],
    ["a release that is none", { group: "a", min_agent: "v1" }, /^min_agent/],
    ["a name that it does not know", { group: "a", device: "x" }, /device/],
    ["no inference at all", { group: "a", confirm: { inferences: 0 } }, /^confirm/],
  ])("refuses %s", async (_, more, detail) => {
    const { exportId } = await completedExport(world, workspaceId);
    const body = { export_id: exportId, ...more };
    const response = await engineer.send("POST", "/rollouts", body);
    const answer = (await response.json()) as Record<string, unknown>;
    expect([response.status, answer.detail]).toEqual([422, expect.stringMatching(detail)]);
  });

  it("refuses files that devices do not run, and exports that are not there", async () => {
    const of = async (more: Parameters<typeof completedExport>[3]) => {
      const { exportId } = await completedExport(world, workspaceId, smallFile(), more);
      return engineer.refused("POST", "/rollouts", { export_id: exportId, group: "a" });
    };
    expect(await of({ output: "raw" })).toEqual([422, "invalid_request"]);
    expect(await of({ batch: 4 })).toEqual([422, "invalid_request"]);
    expect(await of({ state: "queued" })).toEqual([409, "state_conflict"]);
    const nobodys = { export_id: crypto.randomUUID(), group: "a" };
    expect(await engineer.refused("POST", "/rollouts", nobodys)).toEqual([404, "not_found"]);
  });

  it("is for engineers; viewers read", async () => {
    const group = newGroup();
    const rollout = await begin({ group });
    const viewer = await colleague(world, admin, "viewer");
    const { export_id } = rollout;
    const forbidden = [403, "forbidden"];
    expect(await viewer.refused("POST", "/rollouts", { export_id, group })).toEqual(forbidden);
    for (const verb of ["pause", "resume", "abort"]) {
      const path = `/rollouts/${rollout.rollout_id}/${verb}`;
      expect(await viewer.refused("POST", path)).toEqual(forbidden);
    }
    expect(await viewer.ok("GET", `/rollouts/${rollout.rollout_id}`)).toMatchObject({ group });
    const [newest] = Rollout.array().parse(
      await viewer.ok("GET", "/rollouts?limit=1&status=rolling"),
    );
    expect(newest?.rollout_id).toBe(rollout.rollout_id);
  });

  it("holds on to its model and export until nobody may be asked for them", async () => {
    const group = newGroup();
    await (await scriptedDevice(world, engineer, { group })).beat();
    const { exportId, modelId } = await completedExport(world, workspaceId);
    const rollout = await begin({ group, export_id: exportId, stages: [100] });
    const own = `/models/${modelId}/exports/${exportId}`;
    expect(await engineer.refused("DELETE", own)).toEqual([409, "state_conflict"]);
    expect(await engineer.refused("DELETE", `/models/${modelId}`)).toEqual([409, "state_conflict"]);
    await engineer.ok("POST", `/rollouts/${rollout.rollout_id}/abort`);
    await world.tick(Date.now());
    expect((await engineer.send("DELETE", own)).status).toBe(204);
    expect((await engineer.send("DELETE", `/models/${modelId}`)).status).toBe(204);
    // The rollout's record outlives what it brought.
    expect(await engineer.ok("GET", `/rollouts/${rollout.rollout_id}`)).toMatchObject({
      status: "aborted",
      export_id: exportId,
    });
  });
});

it("cannot begin where no key is configured, and says so", async () => {
  const bare = await createWorld({
    services: ["vision"],
    environment: { vision: { DEVICE_SIGNING_KEY: "" } },
  });
  const person = await register(bare);
  const { exportId } = await completedExport(bare, await workspaceOf(person));
  const body = { export_id: exportId, group: "a" };
  expect(await person.refused("POST", "/rollouts", body)).toEqual([500, "bad_configuration"]);
  const device = await scriptedDevice(bare, person);
  expect(device.enrolled.manifest_keys).toEqual([]);
});
