// An agent that is cut off at every move of an update: whenever it is started again it ends with a
// model that works, the new one in the end, and never without one that it had.

import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, expect, it } from "vitest";
import { describedFile } from "../../support/described-files.ts";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge } from "../../support/device-judge.ts";
import {
  type DeviceProcess,
  deviceFolder,
  imageFolder,
  startDevice,
} from "../../support/device-process.ts";

let images: string;
let judge: DeviceJudge;
let dir: string;
let device: DeviceProcess;

const start = (more: Record<string, string> = {}) =>
  startDevice({ ...judge.environment(dir, images), ...more });

beforeAll(async () => {
  images = await imageFolder(1);
});
beforeEach(async () => {
  judge = await new DeviceJudge().open();
  dir = deviceFolder("killed");
});
afterEach(() => judge.dismiss(device));

const runs = (version: string) => judge.hears(version);

/** Every move of an update whose file is new, as the agent itself tells them. */
const MOVES = [
  ...["before:pending", "after:pending", "before:downloading", "after:downloading", "part"],
  ...["before:verifying", "after:verifying", "renamed", "before:staged", "after:staged"],
  ...["before:active", "after:active", "before:confirmed", "after:confirmed"],
  // From the third model on there is a former one, whose slot is taken.
  ...["before:former_forgotten", "after:former_forgotten"],
];

const logFiles = () => readdirSync(join(dir, "logs")).filter((name) => name.endsWith(".ndjson"));
const modelsOf = () =>
  JSON.parse(readFileSync(join(dir, "state.json"), "utf8")) as {
    current: { slot: string; manifest: { version: string } } | null;
  };

/** Starts it while nobody can be reached: it predicts all the same, with whichever model it has. */
async function predictsAway(what: string) {
  judge.isAway = true;
  const before = new Set(logFiles());
  device = start();
  const lines = () =>
    logFiles().filter((name) => !before.has(name) && statSync(join(dir, "logs", name)).size > 0);
  await expect.poll(() => lines().length, { message: what }).toBeGreaterThan(0);
  expect([what, modelsOf().current]).toEqual([what, expect.anything()]);
  judge.isAway = false;
}

/** Ends it in order, starts it so that a move cuts it off, and does what leads to the move. */
async function cutAt(move: string, cause: () => void) {
  device.signal("SIGTERM");
  await device.ended;
  cause();
  device = start({ TEST_KILL_AT: move });
  expect([move, await device.ended]).toEqual([move, { code: null, signal: "SIGKILL" }]);
  await predictsAway(move);
}

it("ends with a model that works, wherever it was cut off", async () => {
  const first = judge.want(deviceFile(1));
  device = start();
  await runs(first.version);
  const steps = join(dir, "steps");
  let seed = 2;
  for (const move of MOVES) {
    device.signal("SIGTERM");
    await device.ended;
    const before = judge.lines;
    device = start({ TEST_KILL_AT: move, TEST_STEPS: steps });
    await expect.poll(() => judge.lines).toBeGreaterThan(before);
    const next = judge.want(deviceFile(seed));
    // Of three, the next one is always that which neither slot holds.
    seed = seed === 4 ? 2 : seed + 1;
    expect([move, await device.ended]).toEqual([move, { code: null, signal: "SIGKILL" }]);
    await predictsAway(move);
    await runs(next.version);
  }
  const seen = new Set(readFileSync(steps, "utf8").trim().split("\n"));
  expect(MOVES.filter((move) => !seen.has(move))).toEqual([]);
});

it.each(["before", "after"])(
  "ends with a model that works, cut off %s it leaves one",
  async (when) => {
    const first = judge.want(deviceFile(1));
    device = start();
    await runs(first.version);
    const bytes = Buffer.alloc(50_000, "no model");
    const refused = { version: "" };
    await cutAt(`${when}:failed`, () => {
      Object.assign(refused, judge.want({ bytes, file: describedFile(bytes) }));
    });
    await expect.poll(() => judge.stateOf(refused.version)?.status).toBe("failed");
    const left = { version: "" };
    await cutAt(`${when}:rolled_back`, () => {
      const confirm = { inferences: 1_000_000, seconds: 1 };
      Object.assign(left, judge.want(deviceFile(2), { confirm }));
    });
    await expect.poll(() => judge.stateOf(left.version)?.status).toBe("rolled_back");
    // What it had goes on under a newer manifest, without a download.
    const downloads = judge.given.length;
    const back = { version: "" };
    await cutAt(`${when}:adopted`, () => {
      Object.assign(back, judge.want(deviceFile(1)));
    });
    await runs(back.version);
    expect(judge.given.length).toBe(downloads);
  },
);

it.each([...["before:spoilt", "after:spoilt", "before:former_taken", "after:former_taken"]])(
  "predicts with the former model where the current one is spoilt, cut off %s",
  async (move) => {
    const first = judge.want(deviceFile(1));
    device = start();
    await runs(first.version);
    const second = judge.want(deviceFile(2));
    await runs(second.version);
    await cutAt(move, () => {
      writeFileSync(join(dir, "slots", `${modelsOf().current?.slot}.onnx`), "spoilt");
    });
    expect(modelsOf().current?.manifest.version).toBe(first.version);
    await runs(second.version);
  },
);

it("gives a model up after three starts that it did not outlive, and goes back", async () => {
  const first = judge.want(deviceFile(1));
  device = start();
  await runs(first.version);
  device.signal("SIGTERM");
  await device.ended;
  // Never confirmed, so that each start is one on trial.
  const bad = judge.want(deviceFile(2), { confirm: { inferences: 1_000_000, seconds: 600_000 } });
  for (let crash = 0; crash < 3; crash++) {
    device = start({ TEST_KILL_AT: "after:active" });
    expect(await device.ended).toEqual({ code: null, signal: "SIGKILL" });
  }
  device = start();
  await expect.poll(() => judge.stateOf(bad.version)?.status).toBe("rolled_back");
  expect(judge.stateOf(bad.version)?.failure).toMatch(/^crash_loop: /);
  const lines = judge.lines;
  await expect.poll(() => judge.lines).toBeGreaterThan(lines);
  const back = judge.want(deviceFile(1));
  await runs(back.version);
});

it("ended in order, a start counts for no crash", async () => {
  const first = judge.want(deviceFile(1), { confirm: { inferences: 1_000_000, seconds: 600_000 } });
  for (let turn = 0; turn < 5; turn++) {
    device = start();
    const beats = judge.beats.length;
    await expect
      .poll(() => judge.beats.slice(beats).some(({ model }) => model?.status === "active"))
      .toBe(true);
    device.signal("SIGTERM");
    expect(await device.ended).toEqual({ code: 0, signal: null });
  }
  expect(judge.stateOf(first.version)?.status).toBe("active");
});

it("fetches a confirmed model again whose file was spoilt on the disk", async () => {
  const first = judge.want(deviceFile(1));
  device = start();
  await runs(first.version);
  device.signal("SIGTERM");
  await device.ended;
  writeFileSync(join(dir, "slots", "a.onnx"), "spoilt");
  const downloads = judge.given.length;
  device = start();
  await expect.poll(() => judge.given.length).toBeGreaterThan(downloads);
  const lines = judge.lines;
  await expect.poll(() => judge.lines).toBeGreaterThan(lines);
});
