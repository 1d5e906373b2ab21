// Heartbeats that come late, such as a copy that a way held back. Goal: a device is shown as its
// latest beat says, and is never deaf for long.

import { sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import type { DeviceReading } from "../../../shared/wire/fleet.ts";
import { createFleetWorld, type FleetWorld, type TestDevice } from "../../support/fleet-world.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

const model = (inferences: number) => ({ status: "active", slot: "a", version: "3", inferences });
const said = (uptime: number | null, battery: number) => ({
  boot_id: "boot-1",
  uptime,
  battery,
  fan: battery,
  model: model(battery),
});
const beat = (device: TestDevice, body: object) =>
  device.api.ok("POST", device.own("heartbeat"), body);
const batteryOf = async (device: TestDevice) => (await w.device(device.id)).battery;
/** Makes the device's last beat, and its history, older. */
const age = (device: TestDevice, seconds: number) =>
  w.world.visionDatabase.execute(sql`
    WITH b AS (UPDATE device_beat SET at = at - ${seconds}::float8 * interval '1 second'
      WHERE device_id = ${device.id}::uuid)
    UPDATE device_state SET beat_at = beat_at - ${seconds}::float8 * interval '1 second'
     WHERE device_id = ${device.id}::uuid`);

it("change nothing after a later one of their boot", async () => {
  const device = await w.enrolled();
  await beat(device, said(100, 80));
  await beat(device, said(160, 70));
  await age(device, 60);
  const before = await w.device(device.id);
  expect(before).toMatchObject({ battery: 70, uptime: 160, model: model(70) });
  expect(await beat(device, said(100, 80))).toMatchObject({ desired: null });
  expect(await w.device(device.id)).toEqual(before);
  const readings = await w.admin.ok<DeviceReading[]>("GET", device.own("heartbeats"));
  expect(readings).toHaveLength(1);
});

it("are told by boot and uptime: others are as new as they come", async () => {
  const device = await w.enrolled();
  await beat(device, said(160, 70));
  await beat(device, said(160, 69));
  expect(await batteryOf(device)).toBe(69);
  await beat(device, { ...said(5, 68), boot_id: "boot-2" });
  expect(await batteryOf(device)).toBe(68);
  await beat(device, { ...said(null, 67), boot_id: "boot-2" });
  expect(await batteryOf(device)).toBe(67);
  await beat(device, { ...said(1, 66), boot_id: "boot-2" });
  expect(await batteryOf(device)).toBe(66);
});

it("are believed after ten minutes: an uptime that jumped back makes no device deaf", async () => {
  const device = await w.enrolled();
  await beat(device, said(1e9, 70));
  await beat(device, said(60, 69));
  expect(await batteryOf(device)).toBe(70);
  await age(device, 601);
  await beat(device, said(660, 68));
  expect(await batteryOf(device)).toBe(68);
});
