// Alerts of devices. Goal: each is told of once when it begins and once when it is over, to its own
// workspace's webhook, signed; and where that is, nobody learns.

import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { KEPT_ALERTS, noticeAlerts } from "../../../edge/vision/fleet/devices/alerts.ts";
import { DAY, HOUR, iso, MINUTE } from "../../../shared/time.ts";
import type { Device, DeviceAlert, FleetSettings } from "../../../shared/wire/fleet.ts";
import {
  createFleetWorld,
  enrol,
  type FleetWorld,
  type TestDevice,
} from "../../support/fleet-world.ts";
import { accept, type Receiver, startReceiver } from "../../support/receiver.ts";
import { forgetRows } from "../../support/retention.ts";
import type { Api } from "../../support/scripted-node.ts";

const SECRET = "a webhook's secret of 30 signs";

let w: FleetWorld;
let receiver: Receiver;
/** Devices are watched since then without a gap, until now. */
const watchedFrom = (since: number) =>
  database().execute(sql`
    INSERT INTO fleet_watch (since, seen_at) VALUES (${iso(since)}::timestamptz, now())
    ON CONFLICT (id) DO UPDATE SET since = excluded.since, seen_at = excluded.seen_at`);
beforeAll(async () => {
  w = await createFleetWorld();
  receiver = await startReceiver(SECRET);
});
beforeEach(async () => {
  await watchedFrom(Date.now() - HOUR);
  receiver.arrivals.length = 0;
  receiver.answer = accept;
});

const database = () => w.world.visionDatabase;
const tick = () => w.world.tick(Date.now());
const partsAt = (now: number) =>
  ({ database: database(), clock: () => now }) as Parameters<typeof noticeAlerts>[0];

/** A workspace with a device, which sends alerts to the receiver. */
async function alerted(more: object = {}): Promise<{ owner: Api; device: TestDevice }> {
  const owner = await w.stranger("admin");
  await owner.ok("PATCH", "/devices/settings", {
    webhook: { url: receiver.url, secret: SECRET },
    ...more,
  });
  const { enrolment_code } = await owner.ok<{ enrolment_code: string }>("POST", "/devices", {
    name: "gate",
    group: "gates",
  });
  return { owner, device: await enrol(w.world, enrolment_code) };
}
const beat = (device: TestDevice, body: object) =>
  device.api.ok("POST", device.own("heartbeat"), body);
/** Moves a device's last beat into the past. */
const silentFor = (device: TestDevice, milliseconds: number) =>
  database().execute(sql`
    UPDATE device_state SET beat_at = now() - ${milliseconds}::float8 * interval '1 millisecond'
     WHERE device_id = ${device.id}::uuid`);
const told = () => receiver.arrivals.map(({ body, verified }) => [body.type, verified]);

describe("an alert", () => {
  it("of a hot device is sent once, and once when it is over, clearly", async () => {
    const { owner, device } = await alerted({ hot_c: 70 });
    await beat(device, { temperature: 69.9 });
    await tick();
    await beat(device, { temperature: 75 });
    await tick();
    await tick();
    await beat(device, { temperature: 68 });
    await tick();
    expect(told()).toEqual([["device.hot", true]]);
    const shown = await owner.ok<Device>("GET", `/devices/${device.id}`);
    expect(shown.alerts).toEqual(["hot"]);
    await beat(device, { temperature: 60 });
    await tick();
    expect(told()).toEqual([
      ["device.hot", true],
      ["device.recovered", true],
    ]);
    expect(receiver.arrivals[1]?.body.data).toMatchObject({
      kind: "hot",
      value: 75,
      name: "gate",
      group: "gates",
      device_id: device.id,
      recovered_at: expect.any(String),
    });
    const [alert, ...others] = await owner.ok<DeviceAlert[]>("GET", "/devices/alerts");
    expect(others).toEqual([]);
    expect(alert).toMatchObject({ kind: "hot", value: 75, delivery: "delivered" });
    expect(await owner.ok("GET", "/devices/alerts?open=true")).toEqual([]);
  });

  it("of a low battery and of a lost device come by themselves", async () => {
    const { device } = await alerted();
    await beat(device, { battery: 12 });
    await tick();
    await silentFor(device, HOUR);
    await tick();
    await beat(device, { battery: 80 });
    await tick();
    expect(told().map(([type]) => type)).toEqual([
      "device.low_battery",
      "device.lost",
      "device.recovered",
      "device.recovered",
    ]);
  });

  it("is none of a device that was revoked, or that nobody wants to hear of", async () => {
    const { owner, device } = await alerted({ hot_c: null, low_battery: null });
    await beat(device, { battery: 1, temperature: 150 });
    await tick();
    await silentFor(device, HOUR);
    await owner.ok("POST", `/devices/${device.id}/revoke`);
    await tick();
    expect(told()).toEqual([]);
  });

  it("is sent again until it is taken, and says why it was not", async () => {
    const { owner, device } = await alerted();
    receiver.answer = (response) => response.writeHead(503).end();
    await beat(device, { temperature: 99 });
    await tick();
    const state = async () => (await owner.ok<DeviceAlert[]>("GET", "/devices/alerts"))[0];
    expect(await state()).toMatchObject({ delivery: "pending", last_error: expect.any(String) });
    expect((await state())?.last_error).not.toContain("127.0.0.1");
    await tick();
    expect(receiver.arrivals).toHaveLength(1);
    receiver.answer = accept;
    await database().execute(sql`
      UPDATE device_notice SET next_at = now() - interval '1 second' WHERE delivery = 'pending'`);
    await tick();
    expect(await state()).toMatchObject({ delivery: "delivered", last_error: null });
    expect(new Set(receiver.arrivals.map(({ id }) => id)).size).toBe(1);
  });

  it("without a webhook is kept, and sent nowhere", async () => {
    const owner = await w.stranger("admin");
    const made = await owner.ok<{ enrolment_code: string }>("POST", "/devices", { name: "a" });
    await beat(await enrol(w.world, made.enrolment_code), { temperature: 99 });
    await tick();
    const alerts = await owner.ok<DeviceAlert[]>("GET", "/devices/alerts");
    expect(alerts).toMatchObject([{ kind: "hot", delivery: "unsent", recovered_at: null }]);
  });

  it("of two minutes at once is noticed once, and goes after four months", async () => {
    const { owner, device } = await alerted();
    await beat(device, { temperature: 99 });
    await Promise.all([1, 2, 3, 4].map(() => noticeAlerts(partsAt(Date.now()))));
    expect(await owner.ok("GET", "/devices/alerts")).toHaveLength(1);
    await beat(device, { temperature: 20 });
    await noticeAlerts(partsAt(Date.now()));
    await forgetRows(partsAt(Date.now() + 119 * DAY), KEPT_ALERTS);
    expect(await owner.ok("GET", "/devices/alerts")).toHaveLength(1);
    await forgetRows(partsAt(Date.now() + 121 * DAY), KEPT_ALERTS);
    expect(await owner.ok("GET", "/devices/alerts")).toEqual([]);
  });
});

describe("where alerts go", () => {
  it("is shown to nobody, and stored sealed", async () => {
    const { owner } = await alerted({ hot_c: 60.5 });
    const shown = await owner.ok<FleetSettings>("GET", "/devices/settings");
    expect(shown).toMatchObject({ hot_c: 60.5, low_battery: 15, webhook: true });
    const { rows } = await database().execute<{ text: string }>(sql`
      SELECT jsonb_agg(to_jsonb(f))::text || (SELECT jsonb_agg(a)::text FROM audit_entry a
        WHERE action = 'changeFleetSettings') AS text FROM fleet_setting f`);
    const [text = ""] = rows.map((row) => row.text);
    expect(text).toContain("v1.");
    for (const secret of [SECRET, receiver.url, "127.0.0.1"]) expect(text).not.toContain(secret);
    for (const log of w.world.logs) expect(log).not.toContain(SECRET);
  });

  it("stays when something else is changed, and goes when it is null", async () => {
    const { owner } = await alerted();
    const change = (body: object) => owner.ok<FleetSettings>("PATCH", "/devices/settings", body);
    expect(await change({ hot_c: 50 })).toMatchObject({ hot_c: 50, webhook: true });
    expect(await change({ webhook: null })).toMatchObject({ hot_c: 50, webhook: false });
  });

  it("is changed by several at once, and no change is lost", async () => {
    for (let round = 0; round < 5; round++) {
      const owner = await w.stranger("admin");
      const change = (body: object) => owner.ok("PATCH", "/devices/settings", body);
      await Promise.all([
        change({ hot_c: 50 }),
        change({ low_battery: 5 }),
        change({ webhook: { url: receiver.url, secret: SECRET } }),
      ]);
      const shown = await owner.ok<FleetSettings>("GET", "/devices/settings");
      expect(shown).toMatchObject({ hot_c: 50, low_battery: 5, webhook: true });
    }
  });

  it.each([
    ["http://example.com/hook", SECRET],
    ["https://10.0.0.1/hook", SECRET],
    ["https://[::1]/hook", SECRET],
    ["https://169.254.169.254/latest/meta-data", SECRET],
    ["https://me:secret@example.com/", SECRET],
    ["none", SECRET],
    ["https://example.com/hook", "short"],
  ])("is not %s", async (url, secret) => {
    const owner = await w.stranger("admin");
    const body = { webhook: { url, secret } };
    expect(await owner.refused("PATCH", "/devices/settings", body)).toEqual([
      422,
      "invalid_request",
    ]);
  });
});

// The last one: it is an hour ahead, where devices of the others are lost too.
it("of a lost device waits, after a gap of the service, until the device had its time", async () => {
  const { owner, device } = await alerted();
  await beat(device, {});
  const open = async () =>
    (await owner.ok<DeviceAlert[]>("GET", "/devices/alerts")).map(({ kind }) => kind);
  // Ten minutes of a device that beats each minute.
  const start = Date.now() + HOUR;
  for (let minute = 0; minute < 10; minute++) {
    await noticeAlerts(partsAt(start + minute * MINUTE));
    expect(await open()).toEqual([]);
  }
  await noticeAlerts(partsAt(start + 10 * MINUTE));
  expect(await open()).toEqual(["lost"]);
});
