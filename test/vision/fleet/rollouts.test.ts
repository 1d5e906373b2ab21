// Rollouts over HTTP, with devices that answer as scripted over the real protocol. Goal: a model
// reaches devices stage by stage, a bad one goes back before it reaches them all, and what is
// wanted of a device is always one thing, signed.

import { createHash, createPublicKey, verify } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import {
  MANIFEST_DOMAIN,
  Manifest,
  Rollout,
  RolloutDevice,
  RolloutMove,
  SignedManifest,
} from "../../../shared/wire/rollouts.ts";
import { smallFile } from "../../support/described-files.ts";
import {
  completedExport,
  type ScriptedDevice,
  scriptedDevice,
  workspaceOf,
} from "../../support/rollout-world.ts";
import { apiAs, colleague, type Person, register } from "../../support/scripted-node.ts";
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

const AT_ONCE = { stage_minutes: 0 };
let groups = 0;
const newGroup = () => `group-${groups++}`;

async function fleet(group: string, count: number): Promise<ScriptedDevice[]> {
  const devices: ScriptedDevice[] = [];
  for (let index = 0; index < count; index++) {
    devices.push(await scriptedDevice(world, engineer, { group }));
    await devices.at(-1)?.beat();
  }
  return devices;
}
const begin = async (body: Record<string, unknown>) => {
  const { exportId } = body.export_id
    ? { exportId: body.export_id }
    : await completedExport(world, workspaceId);
  const given = { export_id: exportId, gates: AT_ONCE, ...body };
  return Rollout.parse(await engineer.ok("POST", "/rollouts", given));
};
const read = async ({ rollout_id: id }: { rollout_id: string }) =>
  Rollout.parse(await engineer.ok("GET", `/rollouts/${id}`));
const moves = async ({ rollout_id: id }: { rollout_id: string }) =>
  RolloutMove.array().parse(await engineer.ok("GET", `/rollouts/${id}/moves`));
const minute = () => world.tick(Date.now());
async function adopt(device: ScriptedDevice) {
  await device.report("confirmed");
  await minute();
}
/** The devices of which a rollout is wanted. */
async function wanted(devices: readonly ScriptedDevice[], { rollout_id: id }: Rollout) {
  const all = await Promise.all(devices.map((one) => one.beat()));
  return devices.filter((_, index) => all[index]?.desired?.rollout_id === id);
}
const manifestOf = async (device: ScriptedDevice) =>
  SignedManifest.parse(await device.api.ok("GET", `/devices/${device.id}/manifest`));

describe("a rollout", () => {
  it("reaches devices stage by stage, and new ones once it is complete", async () => {
    const group = newGroup();
    const devices = await fleet(group, 4);
    const rollout = await begin({ group, stages: [0.01, 50, 100] }); // One, whatever its hash.
    expect(rollout).toMatchObject({ status: "rolling", stage: 0, population: 4, group, tags: [] });
    const [canary, ...none] = await wanted(devices, rollout);
    expect(none).toEqual([]);
    await minute();
    expect(await read(rollout)).toMatchObject({
      stage: 0,
      reason: expect.stringMatching(/0 of 1/),
    });
    await canary?.report("downloading");
    await minute();
    const waiting = await read(rollout);
    expect(waiting).toMatchObject({ stage: 0, devices: { downloading: 1, pending: 0 } });
    expect(waiting.reason).toMatch(/0 of 1 devices confirmed/);
    await canary?.report("confirmed", { inferences: 30 });
    await minute();
    expect(await read(rollout)).toMatchObject({ stage: 1, devices: { confirmed: 1 } });
    for (const device of await wanted(devices, rollout)) await device.report("confirmed");
    await minute();
    expect((await wanted(devices, rollout)).length).toBe(4);
    for (const device of devices) await device.report("confirmed");
    await minute();
    expect(await read(rollout)).toMatchObject({
      status: "completed",
      devices: { confirmed: 4 },
      figures: { taken: 4, heard: 4, confirmed: 4, failed: 0 },
    });
    expect((await moves(rollout)).map(({ kind }) => kind)).toEqual([
      ...["complete", "advance", "advance", "create"],
    ]);
    const late = await scriptedDevice(world, engineer, { group });
    await minute();
    expect(await wanted([late], rollout)).toEqual([late]);
  });

  it("takes devices by a hash of both ids, which stays as it is", async () => {
    const group = newGroup();
    const devices = await fleet(group, 12);
    const rollout = await begin({ group, stages: [40, 100] });
    const buckets = new Map(
      devices.map(({ id }) => {
        const hash = createHash("sha256").update(`${rollout.rollout_id}:${id}`).digest();
        return [id, hash.readUInt32BE(0) % 10_000];
      }),
    );
    const lowest = Math.min(...buckets.values());
    const expected = devices.filter(({ id }) => {
      const bucket = buckets.get(id) ?? 0;
      return bucket < 4_000 || bucket === lowest;
    });
    const taken = await wanted(devices, rollout);
    expect(taken.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
    const listed = RolloutDevice.array().parse(
      await engineer.ok("GET", `/rollouts/${rollout.rollout_id}/devices?status=pending`),
    );
    expect(listed.map(({ device_id, bucket }) => [device_id, bucket])).toEqual(
      expected
        .map(({ id }) => [id, buckets.get(id)] as const)
        .sort(([, one = 0], [, other = 0]) => one - other),
    );
    await minute();
    await minute();
    expect(await wanted(devices, rollout)).toEqual(taken);
  });

  it("goes to devices with all of its tags, and to no other workspace's", async () => {
    const tag = newGroup();
    const both = await scriptedDevice(world, engineer, { tags: [tag, "outdoor"] });
    const one = await scriptedDevice(world, engineer, { tags: [tag] });
    const rollout = await begin({ tags: [tag, "outdoor"], stages: [100] });
    expect(await wanted([both, one], rollout)).toEqual([both]);
    expect(rollout.population).toBe(1);
  });

  it("that fails on its canary goes back by itself, and reaches nobody else", async () => {
    const group = newGroup();
    const devices = await fleet(group, 3);
    const good = await begin({ group, stages: [100] });
    for (const device of devices) await device.report("confirmed");
    await minute();
    const bad = await begin({ group, stages: [0.01, 100] });
    const [canary] = await wanted(devices, bad);
    const before = (await canary?.beat())?.desired?.version ?? "";
    const answer = await canary?.report("failed", { failure: "trial_failed: no numbers" });
    // What it had confirmed is wanted of it again, by a manifest of a later version.
    expect(answer?.desired?.rollout_id).toBe(good.rollout_id);
    expect(Number(answer?.desired?.version)).toBeGreaterThan(Number(before));
    await minute();
    const ended = await read(bad);
    expect(ended).toMatchObject({
      status: "rolled_back",
      devices: { failed: 1 },
      figures: { failed: 1 },
    });
    expect(ended.reason).toMatch(/1 of 1 devices rolled back or failed/);
    const [last] = await moves(bad);
    expect(last).toMatchObject({ kind: "roll_back", actor_id: null, figures: { failed: 1 } });
    await minute();
    expect((await wanted(devices, good)).length).toBe(3);
    expect(await wanted(devices, bad)).toEqual([]);
    // Late words of the one that failed change nothing.
    await canary?.beat({ rollout_id: bad.rollout_id, version: before, status: "confirmed" });
    expect(await read(bad)).toMatchObject({
      status: "rolled_back",
      devices: { failed: 1, confirmed: 0 },
    });
  });

  const SURE = [0, 0, 0, 0, 0, 0, 0, 50, 150, 300];
  it.each([
    ["slow", { latency_p50_ms: 10 }, { latency_p50_ms: 40 }, /4\.00 times/],
    ["unsure", { scores: SURE }, { scores: SURE.toReversed() }, /scores/],
  ])("that is found %s later goes back on every device", async (_, before, after, why) => {
    const group = newGroup();
    const devices = await fleet(group, 4);
    const good = await begin({ group, stages: [100] });
    for (const device of devices) {
      await device.report("confirmed", { ...before, inferences: 500 });
    }
    await minute();
    const slow = await begin({ group, stages: [100] });
    for (const device of devices) {
      await device.report("confirmed", { ...after, inferences: 500 });
    }
    await minute();
    const ended = await read(slow);
    expect(ended).toMatchObject({ status: "rolled_back", devices: { rolled_back: 4 } });
    expect(ended.reason).toMatch(why);
    const [listed] = Rollout.array().parse(await engineer.ok("GET", "/rollouts?limit=1"));
    expect(listed).toMatchObject({ rollout_id: slow.rollout_id, figures: { taken: 4 } });
    expect(listed?.figures.latency_ratio).toBeNull();
    expect((await wanted(devices, good)).length).toBe(4);
  });

  it("goes back where one more device than may gave up on it for its crashes", async () => {
    const group = newGroup();
    const devices = await fleet(group, 4);
    const gates = { ...AT_ONCE, failed_max: 1, crash_loops_max: 1 };
    const rollout = await begin({ group, stages: [100], gates });
    const [first, second, other] = devices;
    await other?.report("failed", { failure: "trial_failed: a test" });
    await first?.report("rolled_back", { failure: "crash_loop: a test" });
    await minute();
    expect(await read(rollout)).toMatchObject({ status: "rolling", figures: { crash_loops: 1 } });
    await second?.report("failed", { failure: "crash_loop: a test" });
    await minute();
    const ended = await read(rollout);
    expect(ended).toMatchObject({ status: "rolled_back", figures: { crash_loops: 2 } });
    expect(ended.reason).toMatch(/2 devices gave up on it for its crashes/);
  });

  it("does not complete before the last stage's own devices are heard of", async () => {
    const group = newGroup();
    const devices = await fleet(group, 3);
    const rollout = await begin({ group, stages: [0.01, 100] });
    const [canary] = await wanted(devices, rollout);
    await canary?.report("confirmed");
    for (const { id } of devices) {
      await world.visionDatabase.execute(sql`
        UPDATE device_state SET beat_at = now() - interval '1 day' WHERE device_id = ${id}::uuid`);
    }
    for (let minutes = 0; minutes < 3; minutes++) await minute();
    expect(await read(rollout)).toMatchObject({
      status: "rolling",
      stage: 1,
      reason: expect.stringMatching(/none of 2 devices/),
    });
    for (const device of devices) await device.report("confirmed");
    await minute();
    expect(await read(rollout)).toMatchObject({ status: "completed", devices: { confirmed: 3 } });
  });

  it("is judged by all of its devices, of which none decides alone", async () => {
    const group = newGroup();
    const devices = await fleet(group, 4);
    const rollout = await begin({ group, stages: [100], gates: { ...AT_ONCE, failed_max: 0.5 } });
    const [flood, ...others] = devices;
    for (const device of others) await device.report("confirmed", { inferences: 1_000 });
    await flood?.report("active", { inferences: 0, failures: 9e15 });
    const { figures } = await read(rollout);
    expect(figures).toMatchObject({ inferences: 3_000, inference_failures: 1_000 });
    // A last word without figures leaves those that were told before.
    await others[0]?.report("rolled_back", { failure: "left: a test" });
    expect((await read(rollout)).figures).toEqual({ ...figures, failed: 1, confirmed: 2 });
  });

  it("keeps the scores that a device told, also where it began to count anew", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const rollout = await begin({ group, stages: [100] });
    const scores = async () => {
      const { rows } = await world.visionDatabase.execute<{ scores: number[] }>(sql`
        SELECT to_jsonb(scores) AS scores FROM rollout_device
         WHERE rollout_id = ${rollout.rollout_id}::uuid`);
      return rows[0]?.scores;
    };
    const told = [0, 0, 300, 20, 0, 0, 0, 0, 0, 5];
    const few = [0, 0, 0, 3, 0, 0, 0, 0, 0, 0];
    await device.report("active", { scores: told });
    await device.report("confirmed", { scores: few });
    expect(await scores()).toEqual(told);
    const more = told.map((count) => count + 1);
    await device.report("confirmed", { scores: more });
    expect(await scores()).toEqual(more);
  });

  it("is paused, resumed and aborted by people; what it reached goes back", async () => {
    const group = newGroup();
    const devices = await fleet(group, 3);
    const former = await begin({ group, stages: [100] });
    for (const device of devices) await device.report("confirmed");
    await minute();
    const rollout = await begin({ group, stages: [0.01, 100] });
    const own = `/rollouts/${rollout.rollout_id}`;
    const [canary] = await wanted(devices, rollout);
    expect(await engineer.ok("POST", `${own}/pause`)).toMatchObject({ status: "paused" });
    expect(await engineer.refused("POST", `${own}/pause`)).toEqual([409, "state_conflict"]);
    await canary?.report("confirmed");
    await minute();
    // What it had reached stays; nobody else gets it.
    expect(await read(rollout)).toMatchObject({ status: "paused", stage: 0 });
    expect((await wanted(devices, rollout)).length).toBe(1);
    expect(await engineer.ok("POST", `${own}/resume`)).toMatchObject({ status: "rolling" });
    await minute();
    expect((await wanted(devices, rollout)).length).toBe(3);
    expect(await engineer.ok("POST", `${own}/abort`)).toMatchObject({
      status: "aborted",
      devices: { rolled_back: 3 },
    });
    expect((await wanted(devices, former)).length).toBe(3);
    for (const verb of ["pause", "resume", "abort"]) {
      expect(await engineer.refused("POST", `${own}/${verb}`)).toEqual([409, "state_conflict"]);
    }
    const kinds = (await moves(rollout)).map(({ kind, actor_id }) => [kind, actor_id !== null]);
    expect(kinds).toEqual([
      ["abort", true],
      ["advance", false],
      ["resume", true],
      ["pause", true],
      ["create", true],
    ]);
  });

  it("is gone back from to what was confirmed, not to what was called off meanwhile", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const first = await begin({ group, stages: [100] });
    await adopt(device);
    const second = await begin({ group, stages: [100] });
    await adopt(device);
    const third = await begin({ group, stages: [100] });
    expect(await wanted([device], third)).toEqual([device]);
    await engineer.ok("POST", `/rollouts/${second.rollout_id}/abort`);
    const { desired } = await device.report("failed", { failure: "trial_failed: x" });
    expect(desired?.rollout_id).toBe(first.rollout_id);
  });

  it("is over once a later one of the same devices completed, and never comes back", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const rolling = await begin({ group, stages: [100] });
    const paused = await begin({ group, stages: [100] });
    await engineer.ok("POST", `/rollouts/${paused.rollout_id}/pause`);
    const last = await begin({ group, stages: [100] });
    await adopt(device);
    expect(await read(last)).toMatchObject({ status: "completed" });
    for (const one of [rolling, paused]) {
      expect(await read(one)).toMatchObject({ status: "superseded", reason: null });
      expect((await moves(one))[0]?.kind).toBe("supersede");
    }
    await engineer.ok("POST", `/rollouts/${last.rollout_id}/abort`);
    await minute();
    expect((await device.beat()).desired).toBeNull();
  });

  it("is not gone back from to one whose file was let go", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const { exportId, modelId } = await completedExport(world, workspaceId);
    await begin({ group, stages: [100], export_id: exportId });
    await adopt(device);
    const second = await begin({ group, stages: [100] });
    await adopt(device);
    const third = await begin({ group, stages: [100] });
    await adopt(device);
    // Nothing leads to the first any more, so it may be deleted.
    const own = `/models/${modelId}/exports/${exportId}`;
    expect((await engineer.send("DELETE", own)).status).toBe(204);
    await engineer.ok("POST", `/rollouts/${third.rollout_id}/abort`);
    expect((await device.beat()).desired?.rollout_id).toBe(second.rollout_id);
    await device.report("failed", { failure: "hash_mismatch: x" });
    expect((await device.beat()).desired).toBeNull();
  });

  it("leaves a device without a former model what it has, and wants nothing of it", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    await begin({ group, stages: [100] });
    const { desired } = await device.report("failed", { failure: "trial_failed: x" });
    expect(desired).toBeNull();
    expect(await device.api.refused("GET", `/devices/${device.id}/manifest`)).toEqual([
      404,
      "not_found",
    ]);
  });

  it("hears in the next minute what a fault kept from it", async () => {
    const group = newGroup();
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const rollout = await begin({ group, stages: [100] });
    await device.report("confirmed");
    await world.visionDatabase.execute(sql`
      UPDATE rollout_device SET state = 'pending' WHERE rollout_id = ${rollout.rollout_id}::uuid`);
    await minute();
    expect(await read(rollout)).toMatchObject({ status: "completed", devices: { confirmed: 1 } });
  });

  it("that cannot be judged keeps no other waiting", async () => {
    const [group, other] = [newGroup(), newGroup()];
    const [device] = (await fleet(group, 1)) as [ScriptedDevice];
    const broken = await begin({ group: other, stages: [100] });
    const rollout = await begin({ group, stages: [100] });
    await device.report("confirmed");
    const setGates = (gates: SQL) =>
      world.visionDatabase.execute(sql`
        UPDATE rollout SET gates = ${gates}, updated_at = now() - interval '1 day'
         WHERE id = ${broken.rollout_id}::uuid`);
    await setGates(sql`'null'::jsonb`);
    await minute();
    expect(await read(rollout)).toMatchObject({ status: "completed" });
    await setGates(sql`${JSON.stringify(rollout.gates)}::jsonb`);
    await minute();
    expect(await read(broken)).toMatchObject({ status: "rolling" });
  });

  it("of a device that was away for weeks is what is wanted now", async () => {
    const group = newGroup();
    const [away] = (await fleet(group, 1)) as [ScriptedDevice];
    await begin({ group, stages: [100] });
    await world.visionDatabase.execute(sql`
      UPDATE device_state SET beat_at = now() - interval '30 days'
       WHERE device_id = ${away.id}::uuid`);
    const next = await begin({ group, stages: [100] });
    expect((await away.beat()).desired?.rollout_id).toBe(next.rollout_id);
  });
});

describe("a manifest", () => {
  it("is signed by every key, is for its device, and leads to the file", async () => {
    const group = newGroup();
    const [device, other] = (await fleet(group, 2)) as [ScriptedDevice, ScriptedDevice];
    const content = smallFile();
    const { exportId, modelId } = await completedExport(world, workspaceId, content);
    const rollout = await begin({ group, stages: [100], export_id: exportId, confidence: 0.4 });
    const signed = await manifestOf(device);
    expect(await manifestOf(device)).toEqual(signed);
    const manifest = Manifest.parse(JSON.parse(signed.manifest));
    const { desired } = await device.beat();
    expect(manifest).toMatchObject({
      device_id: device.id,
      rollout_id: rollout.rollout_id,
      model_id: modelId,
      export_id: exportId,
      version: desired?.version,
      file: content.file,
      confidence: 0.4,
      min_agent: "0.1.0",
      keys: device.enrolled.manifest_keys,
    });
    // Members in the order of their names at every depth, without blanks.
    const sorted = (value: unknown): unknown =>
      value && typeof value === "object" && !Array.isArray(value)
        ? Object.fromEntries(
            Object.entries(value)
              .sort(([one], [two]) => (one < two ? -1 : 1))
              .map(([name, held]) => [name, sorted(held)]),
          )
        : Array.isArray(value)
          ? value.map(sorted)
          : value;
    expect(signed.manifest).toBe(JSON.stringify(sorted(JSON.parse(signed.manifest))));
    // Node's own Ed25519, over the bytes as they came.
    const [key] = device.enrolled.manifest_keys;
    const jwk = { kty: "OKP", crv: "Ed25519", x: key?.public_key ?? "" };
    const [signature] = signed.signatures;
    expect(signature?.key_id).toBe(key?.key_id);
    const isSigned = (text: string) =>
      verify(
        null,
        Buffer.from(MANIFEST_DOMAIN + text),
        createPublicKey({ key: jwk, format: "jwk" }),
        Buffer.from(signature?.signature ?? "", "base64url"),
      );
    expect(isSigned(signed.manifest)).toBe(true);
    expect(isSigned(`${signed.manifest} `)).toBe(false);
    const own = `/devices/${device.id}/artifact?version=${manifest.version}`;
    const redirect = await device.api.send("GET", own);
    expect(redirect.status).toBe(302);
    const address = redirect.headers.get("Location") ?? "";
    expect(await (await fetch(address)).text()).toBe(content.bytes.toString());
    const part = await fetch(address, { headers: { Range: "bytes=5-" } });
    expect([part.status, await part.text()]).toEqual([206, content.bytes.subarray(5).toString()]);
    // Another device's token opens neither; nor does an access token, or none.
    const paths = [`/devices/${device.id}/manifest`, own];
    for (const path of paths) {
      expect(await other.api.refused("GET", path)).toEqual([404, "not_found"]);
      expect(await engineer.refused("GET", path)).toEqual([401, "unauthorized"]);
      expect(await apiAs(world.urls.vision, "").refused("GET", path)).toEqual([
        401,
        "unauthorized",
      ]);
    }
    // A device that enrolled before there were keys gets them with its next token.
    const next = await other.api.ok("POST", `/devices/${other.id}/token`);
    expect(next).toMatchObject({ manifest_keys: device.enrolled.manifest_keys });
    // A version that is not wanted any more.
    await begin({ group, stages: [100] });
    expect(await device.api.refused("GET", own)).toEqual([409, "state_conflict"]);
    const wrong = `/devices/${device.id}/artifact`;
    expect(await device.api.refused("GET", `${wrong}?version=x`)).toEqual([422, "invalid_request"]);
    expect(await device.api.refused("GET", wrong)).toEqual([422, "invalid_request"]);
  });
});
