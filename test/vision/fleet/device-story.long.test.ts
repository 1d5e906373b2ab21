// The whole way with real programs: three agents at the real service, an exported model that
// reaches them, one that fails on its first device and goes back before it reaches the third, a
// device that was away, and logs that are whole.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { Device } from "../../../shared/wire/fleet.ts";
import { Rollout, RolloutDevice } from "../../../shared/wire/rollouts.ts";
import { deviceFile } from "../../support/device-files.ts";
import {
  type DeviceProcess,
  deviceFolder,
  imageFolder,
  startDevice,
} from "../../support/device-process.ts";
import { completedExport, workspaceOf } from "../../support/rollout-world.ts";
import { type Person, register } from "../../support/scripted-node.ts";
import { createWorld, type World } from "../../support/world.ts";

const GROUP = "gates";
/** Of the devices, percent: one, and by its hash another one once in ten thousand. */
const CANARY = 0.01;
let world: World;
let admin: Person;
let workspaceId: string;
let images: string;

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world);
  workspaceId = await workspaceOf(admin);
  images = await imageFolder();
});

interface EnrolledAgent {
  id: string;
  environment: Record<string, string>;
  process: DeviceProcess;
}

async function agent(): Promise<EnrolledAgent> {
  const body = { name: "gate", group: GROUP, interval_s: 5 };
  const made = await admin.ok<{ device_id: string; enrolment_code: string }>(
    "POST",
    "/devices",
    body,
  );
  const environment = {
    VANTAGE_URL: world.urls.vision,
    VANTAGE_DEVICE_CODE: made.enrolment_code,
    VANTAGE_DEVICE_DIR: deviceFolder("story"),
    VANTAGE_DEVICE_SOURCE: images,
    VANTAGE_DEVICE_FPS: "5",
  };
  return { id: made.device_id, environment, process: startDevice(environment) };
}

const modelOf = async (id: string) => Device.parse(await admin.ok("GET", `/devices/${id}`)).model;

async function begin(file: ReturnType<typeof deviceFile>, stages: number[]): Promise<Rollout> {
  const { exportId } = await completedExport(world, workspaceId, file);
  return Rollout.parse(
    await admin.ok("POST", "/rollouts", {
      export_id: exportId,
      group: GROUP,
      stages,
      confirm: { inferences: 3, seconds: 600 },
      // Two cores run three agents and the service: latencies tell nothing here.
      gates: { stage_minutes: 0, latency_ratio_max: null, score_shift_max: null, confirmed_min: 1 },
    }),
  );
}

/** Waits for a state while minutes pass. */
async function ended({ rollout_id: id }: Rollout, state: string): Promise<Rollout> {
  const read = async () => Rollout.parse(await admin.ok("GET", `/rollouts/${id}`));
  await expect
    .poll(
      async () => {
        await world.tick(Date.now());
        const { status: now, reason, devices } = await read();
        return now === state ? now : JSON.stringify({ now, reason, devices });
      },
      { interval: 1_000 },
    )
    .toBe(state);
  return read();
}

/** How many lines of its log the service has and lacks, over all boots of a device, from 1 on. */
async function logOf(id: string) {
  const { rows } = await world.visionDatabase.execute<{ lines: number; gaps: number }>(sql`
    SELECT coalesce(sum(lines), 0)::int AS lines,
      coalesce(sum(upper(received) - 1 - lines), 0)::int AS gaps
      FROM device_boot WHERE device_id = ${id}::uuid AND received <> '{}'`);
  return rows[0] ?? { lines: 0, gaps: 0 };
}

it("brings a model to three devices, takes a bad one back from the first, and loses no line", async () => {
  const agents = [await agent(), await agent(), await agent()];
  const [, , third] = agents as [EnrolledAgent, EnrolledAgent, EnrolledAgent];

  const good = await begin(deviceFile(1), [CANARY, 100]);
  await ended(good, "completed");
  for (const { id } of agents) {
    await expect
      .poll(() => modelOf(id))
      .toMatchObject({ rollout_id: good.rollout_id, status: "confirmed" });
    await expect.poll(async () => (await logOf(id)).lines).toBeGreaterThan(0);
  }

  // A file that is whole and signed, and gives no numbers: only a device that tries it can tell.
  const bad = await begin(deviceFile(2, { blind: true }), [CANARY, 100]);
  const back = await ended(bad, "rolled_back");
  expect(back.devices.failed).toBe(1);
  const path = `/rollouts/${bad.rollout_id}/devices`;
  const reached = RolloutDevice.array().parse(await admin.ok("GET", path));
  expect(reached).toHaveLength(1);
  expect(reached[0]?.failure).toMatch(/^trial_failed/);
  for (const { id } of agents) {
    await expect
      .poll(() => modelOf(id))
      .toMatchObject({ rollout_id: good.rollout_id, status: "confirmed" });
  }

  // One is cut off and away while the next one goes round; it gets it when it is back.
  third.process.signal("SIGKILL");
  await third.process.ended;
  const before = await logOf(third.id);
  await world.visionDatabase.execute(sql`
    UPDATE device_state SET beat_at = now() - interval '10 days' WHERE device_id = ${third.id}::uuid`);
  const next = await begin(deviceFile(3), [CANARY, 100]);
  await ended(next, "completed");
  third.process = startDevice(third.environment);
  await expect
    .poll(() => modelOf(third.id))
    .toMatchObject({ rollout_id: next.rollout_id, status: "confirmed", crashes: 0 });
  await expect.poll(async () => (await logOf(third.id)).lines).toBeGreaterThan(before.lines);
  for (const one of agents) {
    one.process.signal("SIGTERM");
    expect(await one.process.ended).toEqual({ code: 0, signal: null });
    expect((await logOf(one.id)).gaps).toBe(0);
  }
});
