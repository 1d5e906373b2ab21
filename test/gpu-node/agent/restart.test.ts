// What a restart takes nothing from: which images of a folder were looked at, and what the model
// came to, by which the gates of the next rollout judge.

import { copyFileSync, readdirSync, renameSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge } from "../../support/device-judge.ts";
import { deviceFolder, imageFolder, startDevice } from "../../support/device-process.ts";

it("goes on in its folder where it was, and counts on", async () => {
  const judge = await new DeviceJudge().open();
  const [drawn, source] = [await imageFolder(3), deviceFolder("folder")];
  for (const name of readdirSync(drawn)) copyFileSync(join(drawn, name), join(source, name));
  const confirm = { inferences: 1, seconds: 600 };
  const first = judge.want(deviceFile(1), { confirm });
  const environment = {
    ...judge.environment(deviceFolder("restart"), source),
    VANTAGE_DEVICE_REPEAT: "false",
  };
  let device = startDevice(environment);
  /** What the newest heartbeat says of the model, and the lines that came. */
  const told = () => {
    const model = judge.beats.at(-1)?.model;
    return [model?.version, model?.status, model?.inferences, judge.lines];
  };
  try {
    // Images wait for the first model, so none is lost.
    await expect.poll(told).toEqual([first.version, "confirmed", 3, 3]);
    const scores = judge.beats.at(-1)?.model?.scores;
    device.signal("SIGTERM");
    await device.ended;
    const beats = judge.beats.length;
    device = startDevice(environment);
    await expect.poll(() => judge.beats.length).toBeGreaterThan(beats + 2);
    expect([...told(), judge.beats.at(-1)?.model?.scores]).toEqual([
      ...[first.version, "confirmed", 3, 3],
      scores,
    ]);
    // One that comes from elsewhere, at once, and is older than all of them.
    const part = join(source, "late.part");
    copyFileSync(join(drawn, "0.jpg"), part);
    utimesSync(part, 1_000_000, 1_000_000);
    renameSync(part, join(source, "late.jpg"));
    await expect.poll(told).toEqual([first.version, "confirmed", 4, 4]);
    // Killed, it looks at nothing twice, either.
    const killed = judge.beats.length;
    device.signal("SIGKILL");
    await device.ended;
    device = startDevice(environment);
    await expect.poll(() => judge.beats.length).toBeGreaterThan(killed + 2);
    expect(judge.lines).toBe(4);
    expect(judge.complaints).toEqual([]);
  } finally {
    device.signal("SIGKILL");
    await device.ended;
    await judge.close();
  }
});
