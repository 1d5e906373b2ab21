// A device that nobody can reach for five weeks of its clock: it predicts on with its model, keeps
// what its disk has room for and counts the rest; when it is reached again it takes a new token,
// hands everything over and follows what is wanted.

import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { DAY } from "../../../shared/time.ts";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge } from "../../support/device-judge.ts";
import { deviceFolder, imageFolder, startDevice } from "../../support/device-process.ts";

const WEEKS = 5;

it("works on while it is away for weeks, and comes back whole", async () => {
  const judge = await new DeviceJudge().open();
  const dir = deviceFolder("weeks");
  const clock = join(deviceFolder("clock"), "ahead");
  writeFileSync(clock, "0");
  const first = judge.want(deviceFile(1));
  const device = startDevice({
    ...judge.environment(dir, await imageFolder(1)),
    // Less than five weeks of lines.
    VANTAGE_DEVICE_LOG_BYTES: "65536",
    TEST_CLOCK: clock,
  });
  try {
    await expect.poll(() => judge.stateOf(first.version)?.status).toBe("confirmed");
    await expect.poll(() => judge.lines).toBeGreaterThan(0);
    const { token } = judge;
    const begun = Date.now();
    judge.isAway = true;
    const logs = join(dir, "logs");
    /** When the newest line on the disk was written, by the device's clock. */
    const newest = () => {
      const name = readdirSync(logs)
        .filter((one) => one.endsWith(".ndjson"))
        .sort()
        .at(-1);
      const times = readFileSync(join(logs, name ?? ""), "utf8").matchAll(/"time":"([^"]+)"/g);
      return Math.max(0, ...[...times].map(([, time = ""]) => Date.parse(time)));
    };
    for (let week = 1; week <= WEEKS; week++) {
      writeFileSync(clock, String(week * 7 * DAY));
      await expect.poll(newest).toBeGreaterThan(begun + week * 7 * DAY);
    }
    // It goes on until the ring has let go of lines.
    const segments = () => readdirSync(logs).filter((one) => one.endsWith(".ndjson"));
    const [oldest = ""] = segments().sort();
    await expect.poll(() => segments().includes(oldest)).toBe(false);
    judge.isAway = false;
    // A token is a month old by then.
    await expect.poll(() => judge.token).not.toBe(token);
    const second = judge.want(deviceFile(2));
    await expect.poll(() => judge.stateOf(second.version)?.status).toBe("confirmed");
    const [boot = ""] = judge.logs.keys();
    const missing = () => {
      const known = new Set([
        ...(judge.logs.get(boot)?.keys() ?? []),
        ...(judge.dropped.get(boot) ?? []),
      ]);
      return Math.max(...known) - known.size;
    };
    await expect.poll(missing).toBe(0);
    expect(judge.dropped.get(boot)?.size).toBeGreaterThan(0);
    const times = [...(judge.logs.get(boot)?.values() ?? [])].map((line) =>
      Date.parse((line as { time: string }).time),
    );
    expect(Math.max(...times) - Math.min(...times)).toBeGreaterThan(WEEKS * 7 * DAY);
    device.signal("SIGTERM");
    expect(await device.ended).toEqual({ code: 0, signal: null });
    expect(judge.complaints).toEqual([]);
  } finally {
    device.signal("SIGKILL");
    await device.ended;
    await judge.close();
  }
});
