// What is kept of devices' logs, and for how long. Goal: which lines came is known for longer than
// a device may be away, and a device takes no more bytes than it may.

import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, it } from "vitest";
import { DEVICE_LOG_BYTES_MAX, forgetLogs } from "../../../edge/vision/fleet/devices/logs.ts";
import { DAY } from "../../../shared/time.ts";
import { LogReceipt } from "../../../shared/wire/fleet.ts";
import {
  createFleetWorld,
  type FleetWorld,
  line,
  lines,
  type TestDevice,
} from "../../support/fleet-world.ts";

let w: FleetWorld;
beforeAll(async () => {
  w = await createFleetWorld();
});

const sync = async (device: TestDevice, body: object) =>
  LogReceipt.parse(await device.api.ok("POST", device.own("sync-logs"), body));
/** What the minute forgets so many days from now. */
const forgetIn = (days: number) =>
  // Of the limits only the one of logs is read.
  forgetLogs({
    database: w.world.visionDatabase,
    clock: () => Date.now() + days * DAY,
    limits: { deviceLogDays: 30 },
  } as Parameters<typeof forgetLogs>[0]);
/** Lines and bytes of a device's boots, as they are counted and as they are. */
const held = async (device: TestDevice) => {
  const { rows } = await w.world.visionDatabase.execute(sql`
    SELECT boot_id, lines::float8 AS lines, bytes::float8 AS bytes,
      (SELECT count(*)::float8 FROM device_log l WHERE l.boot = b.id) AS lines_stored,
      (SELECT coalesce(sum(l.bytes), 0)::float8 FROM device_log l WHERE l.boot = b.id) AS bytes_stored
      FROM device_boot b WHERE device_id = ${device.id}::uuid ORDER BY boot_id`);
  return rows;
};

describe("which lines came", () => {
  it("is known of a boot without lines for over a year, and then not", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: lines(1, 5) });
    await forgetIn(31);
    await forgetIn(399);
    const after = await sync(device, { boot_id: "a", lines: lines(4, 6) });
    expect(after).toMatchObject({ acked_seq: 6, stored: 1, duplicates: 2, gaps: [] });
    await forgetIn(401);
    const anew = await sync(device, { boot_id: "a", lines: [line(7)] });
    expect(anew).toMatchObject({ acked_seq: 0, gaps: [{ from: 1, to: 6 }] });
  });
});

describe("bytes of a device's lines", () => {
  const note = (seq: number, length: number) => line(seq, { note: "x".repeat(length) });

  it("are counted as lines come and go, and once", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: [note(1, 100_000), note(2, 50_000)] });
    await sync(device, { boot_id: "a", lines: [note(2, 50_000), note(3, 10)] });
    const [boot] = await held(device);
    expect(boot?.bytes).toBeGreaterThan(150_000);
    expect(boot?.bytes).toBeLessThan(152_000);
    expect(boot).toMatchObject({ lines: 3, lines_stored: 3, bytes_stored: boot?.bytes });
    await forgetIn(31);
    expect(await held(device)).toEqual([
      { boot_id: "a", lines: 0, bytes: 0, lines_stored: 0, bytes_stored: 0 },
    ]);
  });

  it("that are too many are taken no more, until the oldest went", async () => {
    const device = await w.enrolled();
    await sync(device, { boot_id: "a", lines: range(1, 20).map((seq) => note(seq, 100_000)) });
    // What would take thousands of batches is counted as if it were there.
    const count = (bytes: number) =>
      w.world.visionDatabase.execute(sql`
        UPDATE device_boot SET bytes = ${bytes}::bigint
         WHERE device_id = ${device.id}::uuid AND boot_id = 'a'`);
    await count(DEVICE_LOG_BYTES_MAX + 300 * 1024 ** 2);
    const more = { boot_id: "b", lines: lines(1, 5) };
    const refused = await device.api.refused("POST", device.own("sync-logs"), more);
    expect(refused).toEqual([413, "quota_exceeded"]);
    // What was taken already is acknowledged all the same.
    expect(await sync(device, { boot_id: "a", lines: lines(1, 5) })).toMatchObject({ stored: 0 });
    await count(DEVICE_LOG_BYTES_MAX + 450_000);
    await forgetIn(0);
    // Five of them, the oldest, of 100 kB each.
    const [boot] = await held(device);
    expect(boot).toMatchObject({ boot_id: "a", lines: 15, lines_stored: 15 });
    expect(await sync(device, more)).toMatchObject({ stored: 5 });
  });
});

const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, index) => from + index);
