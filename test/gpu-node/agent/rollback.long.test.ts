// What an agent leaves by itself once it predicts, or does not even answer, held against one as in
// conformance.test.ts: ours, or the program that `DEVICE_AGENT` names.

import { copyFileSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, it } from "vitest";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge } from "../../support/device-judge.ts";
import {
  type DeviceProcess,
  deviceFolder,
  imageFolder,
  startDevice,
} from "../../support/device-process.ts";
import { oddModel } from "../../support/odd-models.ts";

let images: string;
let judge: DeviceJudge;
let dir: string;
let device: DeviceProcess;

const start = (more: Record<string, string> = {}) =>
  startDevice({ ...judge.environment(dir, images), ...more });

beforeEach(async () => {
  // The first, which new models are tried on, is dark; the others are bright.
  images = await imageFolder(6);
  judge = await new DeviceJudge().open();
  dir = deviceFolder("device");
});

afterEach(() => judge.dismiss(device));

/** Gives the device a model that works, and waits until it is what the device goes back to. */
async function startOnGoodModel(more: Record<string, string> = {}) {
  const good = judge.want(deviceFile(1));
  device = start(more);
  await isConfirmed(good.version);
}

/** Waits until a version saw enough: one that is replaced before is left for good. */
const isConfirmed = (version: string) =>
  expect.poll(() => judge.stateOf(version)?.status).toBe("confirmed");

/** Lines of a version's that came so far. */
const linesOf = (version: string) =>
  [...judge.logs.values()]
    .flatMap((lines) => [...lines.values()])
    .filter((line) => (line as { version: string }).version === version).length;

/** Waits for more lines of a version's. */
async function predicts(version: string) {
  const before = linesOf(version);
  await expect.poll(() => linesOf(version)).toBeGreaterThan(before);
}

/** Lays one more image into the folder, whole at once. */
function arrives(name: string) {
  const part = join(images, `${name}.part`);
  copyFileSync(join(images, "0.jpg"), part);
  renameSync(part, join(images, `${name}.jpg`));
}

/** Waits for the end of a version; what was there before it predicts on. */
async function ends(version: string, status: "failed" | "rolled_back", failure: RegExp) {
  await expect.poll(() => judge.stateOf(version)?.status).toBe(status);
  expect(judge.stateOf(version)?.failure).toMatch(failure);
  await predicts("1");
}

/** Never confirmed while a test runs. */
const confirm = { inferences: 1_000_000, seconds: 600_000 };

it("leaves a model that fails on what comes after its trial", async () => {
  await startOnGoodModel();
  const bad = judge.want(oddModel({ fault: "fails", on: "bright" }), { confirm });
  await ends(bad.version, "rolled_back", /^inference_failed: /);
});

it("leaves a model that did not see enough in time, also where nothing more comes", async () => {
  const good = judge.want(deviceFile(1));
  device = start({ VANTAGE_DEVICE_REPEAT: "false" });
  await expect.poll(() => judge.lines).toBe(6);
  await isConfirmed(good.version);
  const idle = judge.want(deviceFile(2), { confirm: { inferences: 2, seconds: 1 } });
  // It has a second: where the machine is busy its time is over before anybody looks.
  await expect.poll(() => judge.stateOf(idle.version)?.status).toMatch(/^(active|rolled_back)$/);
  arrives("late");
  await expect.poll(() => judge.stateOf(idle.version)?.status).toBe("rolled_back");
  expect(judge.stateOf(idle.version)?.failure).toMatch(/^not_confirmed: /);
  // One that comes as the model is changed may still be the other's.
  const before = linesOf(good.version);
  let count = 0;
  const afterMore = () => {
    arrives(`later-${count++}`);
    return linesOf(good.version);
  };
  await expect.poll(afterMore, { interval: 500 }).toBeGreaterThan(before);
});

it("leaves a model with which it was killed three times", async () => {
  await startOnGoodModel();
  const bad = judge.want(deviceFile(2), { confirm });
  for (let crash = 0; crash < 3; crash++) {
    const beats = judge.beats.length;
    const isActive = () =>
      judge.beats
        .slice(beats)
        .some(({ model }) => model?.version === bad.version && model.status === "active");
    await expect.poll(isActive).toBe(true);
    device.signal("SIGKILL");
    await device.ended;
    device = start();
  }
  await ends(bad.version, "rolled_back", /^crash_loop: /);
});

const HASTY = { VANTAGE_DEVICE_LOOK_SECONDS: "5" };

it("ends where a model does not come back from its trial, and does not try it again", async () => {
  await startOnGoodModel(HASTY);
  const bad = judge.want(oddModel({ fault: "hangs", on: "all" }));
  expect((await device.ended).code).not.toBe(0);
  device = start(HASTY);
  await ends(bad.version, "failed", /^model_hung: .* within 5 s/);
});

it("ends where a model does not come back from an image, and leaves it", async () => {
  await startOnGoodModel(HASTY);
  const bad = judge.want(oddModel({ fault: "hangs", on: "bright" }), { confirm });
  expect((await device.ended).code).not.toBe(0);
  device = start(HASTY);
  await ends(bad.version, "rolled_back", /^model_hung: .* within 5 s/);
});

it("ends on SIGTERM while a model hangs", async () => {
  await startOnGoodModel(HASTY);
  const bad = judge.want(oddModel({ fault: "hangs", on: "all" }));
  // Counted just before it is tried.
  const isTried = () => {
    const { update } = JSON.parse(readFileSync(join(dir, "state.json"), "utf8"));
    return update.manifest.version === bad.version && update.starts === 1;
  };
  if (!process.env.DEVICE_AGENT) await expect.poll(isTried).toBe(true);
  device.signal("SIGTERM");
  expect((await device.ended).code).not.toBe(0);
  device = start(HASTY);
  await ends(bad.version, "failed", /^model_hung: /);
});
