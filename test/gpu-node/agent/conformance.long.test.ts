// What any agent has to do, held against one: ours, or the program that `DEVICE_AGENT` names. The
// judge plays the service, breaks what can break, and writes down what goes against the protocol.

import { createHash } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { describedFile } from "../../support/described-files.ts";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge, judgeKey } from "../../support/device-judge.ts";
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
  images = await imageFolder();
});

beforeEach(async () => {
  judge = await new DeviceJudge().open();
  dir = deviceFolder("device");
});

afterEach(() => judge.dismiss(device));

/** Waits for a state of a version; says how the agent fared where it does not come. */
const reached = (version: string, state: string) =>
  expect.poll(() => judge.stateOf(version)?.status, { message: `version ${version}` }).toBe(state);
/** The newest heartbeat's model. */
const reported = () => judge.beats.at(-1)?.model;
/** Waits until a file predicts, by what the device says. */
const runs = (version: string) => judge.hears(version);

/** What files of a folder take; one that is gone by now takes nothing. */
const bytesOf = (folder: string, names: readonly string[]) =>
  names
    .map((name) => statSync(join(folder, name), { throwIfNoEntry: false })?.size ?? 0)
    .reduce((sum, size) => sum + size, 0);

describe("enrolment", () => {
  it("whose answer is lost is asked for again, and answered as before", async () => {
    judge.fault(/enrol/, "drop_after");
    const first = judge.want(deviceFile(1));
    device = start();
    await reached(first.version, "confirmed");
    expect(judge.enrolments).toBe(2);
  });

  it("whose answer was lost is made by a device that was cut off meanwhile", async () => {
    judge.fault(/enrol/, "drop_after");
    const first = judge.want(deviceFile(1));
    device = start();
    await expect.poll(() => judge.enrolments).toBe(1);
    device.signal("SIGKILL");
    await device.ended;
    device = start();
    await reached(first.version, "confirmed");
    expect(judge.enrolments).toBe(2);
  });
});

describe("an update", () => {
  it("goes through every state, over a line that breaks, and is confirmed", async () => {
    const first = judge.want(deviceFile(1));
    judge.file = { cutAfter: 4_000_000 };
    judge.fault(/enrol/, 500, "page");
    judge.fault(/manifest/, "drop", 500);
    judge.fault(/artifact/, "drop", 429);
    device = start();
    await reached(first.version, "confirmed");
    const states: string[] = judge.states.map(({ status }) => status);
    const order = ["pending", "downloading", "verifying", "staged", "active", "confirmed"];
    expect(states).toEqual(order.filter((state) => states.includes(state)));
    expect(judge.enrolments).toBe(1);
    // What had come was not asked for again, but for what a broken line lost on its way.
    const given = judge.given.reduce((sum, { bytes }) => sum + bytes, 0);
    expect(given).toBeGreaterThanOrEqual(first.file.size);
    expect(given - first.file.size).toBeLessThan(1_000_000);
    const ranges = judge.given.map(({ range }) => range);
    expect(ranges[0]).toBeNull();
    expect(ranges.slice(1).every((range) => /^bytes=[1-9]\d*-$/.test(range ?? ""))).toBe(true);
    await runs(first.version);
    expect(reported()).toMatchObject({ failures: 0, crashes: 0 });
    expect(reported()?.latency_p50_ms).toBeGreaterThan(0);
    expect(reported()?.scores?.length).toBe(10);
  });

  it("is believed by a device that enrolled before there was a key", async () => {
    judge.isKeyless = true;
    const first = judge.want(deviceFile(1));
    device = start();
    await reached(first.version, "confirmed");
  });

  it("starts anew where the store knows no ranges, and ends with the right file", async () => {
    const first = judge.want(deviceFile(1));
    judge.file = { cutAfter: 4_000_000 };
    device = start();
    await expect.poll(() => judge.given.length).toBeGreaterThan(0);
    judge.file = { wholeOnly: true };
    await reached(first.version, "confirmed");
    await runs(first.version);
  });

  it("fetches a file anew once that was put together wrongly", async () => {
    const { bytes } = deviceFile(1);
    const first = judge.want(deviceFile(1));
    const damaged = Buffer.from(bytes).fill(0, 1_000, 2_000);
    judge.file = { cutAfter: 4_000_000, instead: damaged };
    device = start();
    await expect.poll(() => judge.given.length).toBeGreaterThan(0);
    judge.file = {};
    await reached(first.version, "confirmed");
    expect(judge.given.filter(({ range }) => range === null).length).toBe(2);
    await runs(first.version);
  });

  it("of another model follows, and the way back needs no download", async () => {
    const first = judge.want(deviceFile(1));
    device = start();
    await reached(first.version, "confirmed");
    const second = judge.want(deviceFile(2));
    await reached(second.version, "confirmed");
    const downloads = judge.given.length;
    // As the service does when it calls a rollout off: the former file by a newer manifest.
    const back = judge.want(deviceFile(1));
    await runs(back.version);
    expect(judge.given.length).toBe(downloads);
    const again = judge.want(deviceFile(1), { confidence: 0.9 });
    await runs(again.version);
    expect(judge.given.length).toBe(downloads);
  });

  it("waits for nothing: a newer one takes the place of one that is under way", async () => {
    const first = judge.want(deviceFile(1));
    judge.file = { cutAfter: 1_000 };
    device = start();
    await reached(first.version, "downloading");
    judge.file = {};
    const second = judge.want(deviceFile(2));
    await runs(second.version);
  });
});

describe("what an agent refuses, and goes on with what it has", () => {
  const forgeries: [string, () => { version: string }, RegExp][] = [
    [
      "a manifest that was changed after it was signed",
      () =>
        judge.want(deviceFile(2), {}, (signed) => ({
          ...signed,
          manifest: signed.manifest.replace('"confidence":0.25', '"confidence":0.26'),
        })),
      /^bad_signature/,
    ],
    [
      "one that another key signed, under the name of ours",
      () => {
        const thief = judgeKey();
        const own = { ...thief, wire: { ...thief.wire, key_id: judge.key.wire.key_id } };
        const manifest = judge.want(deviceFile(2));
        judge.want(deviceFile(2), manifest, () => judge.signed(manifest, own));
        return manifest;
      },
      /^bad_signature/,
    ],
    [
      "another device's manifest",
      () => judge.want(deviceFile(2), { device_id: crypto.randomUUID() }),
      /^wrong_device/,
    ],
    [
      "a manifest that it is too old for",
      () => judge.want(deviceFile(2), { min_agent: "999.0.0" }),
      /^agent_too_old/,
    ],
    [
      "a file of another hash",
      () => {
        const file = { ...deviceFile(2).file, sha256: "0".repeat(64) };
        return judge.want({ ...deviceFile(2), file });
      },
      /^hash_mismatch/,
    ],
    [
      "a file that was cut",
      () => {
        const { bytes, file } = deviceFile(2);
        judge.file = { instead: bytes.subarray(0, bytes.length - 100) };
        return judge.want({ bytes, file });
      },
      /^size_mismatch/,
    ],
    [
      "bytes that are no model",
      () => {
        const bytes = Buffer.alloc(50_000, "no model");
        return judge.want({ bytes, file: describedFile(bytes) });
      },
      /^trial_failed/,
    ],
    [
      "a model that gives no numbers",
      () => judge.want(deviceFile(2, { blind: true })),
      /^trial_failed/,
    ],
    [
      "a model for other classes than it says",
      () => {
        const { bytes, file } = deviceFile(2);
        return judge.want({ bytes, file: { ...file, classes: ["disc"] } });
      },
      /^trial_failed/,
    ],
    [
      "a file that there is no room for",
      () => {
        const bytes = Buffer.alloc(30_000_000);
        return judge.want({ bytes, file: describedFile(bytes) });
      },
      /^disk_full/,
    ],
  ];

  it("each of them says why, and none replaces the model that works", async () => {
    const good = judge.want(deviceFile(1));
    device = start({ VANTAGE_DEVICE_MODEL_BYTES: "25000000" });
    await runs(good.version);
    for (const [what, forge, failure] of forgeries) {
      judge.file = {};
      const { version } = forge();
      await reached(version, "failed");
      expect([what, judge.stateOf(version)?.failure]).toEqual([
        what,
        expect.stringMatching(failure),
      ]);
    }
    // What it has still predicts, and is what a newer manifest of it finds.
    judge.file = {};
    const lines = judge.lines;
    await expect.poll(() => judge.lines).toBeGreaterThan(lines);
    const downloads = judge.given.length;
    const back = judge.want(deviceFile(1));
    await runs(back.version);
    expect(judge.given.length).toBe(downloads);
  });

  it("a manifest older than the last, which somebody kept", async () => {
    const old = judge.want(deviceFile(2));
    const kept = judge.signed(old);
    const newer = judge.want(deviceFile(1));
    device = start();
    await runs(newer.version);
    const replayed = judge.want(deviceFile(2), {}, () => kept);
    await reached(replayed.version, "failed");
    expect(judge.stateOf(replayed.version)?.failure).toMatch(/^stale_manifest/);
  });
});

describe("a device that is sent to another service", () => {
  it("tells nothing of the former one there, and takes what is wanted of it", async () => {
    judge.want(deviceFile(1));
    judge.want(deviceFile(2));
    const third = judge.want(deviceFile(1));
    device = start();
    await runs(third.version);
    await expect.poll(() => judge.lines).toBeGreaterThan(0);
    device.signal("SIGKILL");
    await device.ended;
    const former = new Set(judge.logs.keys());
    await judge.close();
    expect(judge.complaints).toEqual([]);
    judge = await new DeviceJudge().open();
    const first = judge.want(deviceFile(2));
    device = start();
    await runs(first.version);
    await expect.poll(() => judge.lines).toBeGreaterThan(0);
    expect([...judge.logs.keys()].filter((boot) => former.has(boot))).toEqual([]);
  });
});

describe("keys", () => {
  it("are learnt from manifests: what a new one alone signed is believed later", async () => {
    const former = judge.key;
    const next = judgeKey();
    const both = judge.want(deviceFile(1), { keys: [next.wire, former.wire] });
    device = start();
    await reached(both.version, "confirmed");
    judge.key = next;
    const second = judge.want(deviceFile(2));
    await reached(second.version, "confirmed");
    // The former key is none any more.
    judge.key = former;
    const third = judge.want(deviceFile(1));
    await reached(third.version, "failed");
    expect(judge.stateOf(third.version)?.failure).toMatch(/^bad_signature/);
  });
});

describe("the log", () => {
  it("comes whole over a line that breaks, and of a time when nobody listened", async () => {
    const first = judge.want(deviceFile(1));
    device = start({ VANTAGE_DEVICE_FPS: "20" });
    await runs(first.version);
    judge.fault(/sync-logs/, "drop_after", 500, "drop", "page", "drop_after");
    await expect.poll(() => judge.lines).toBeGreaterThan(40);
    judge.isAway = true;
    const before = judge.lines;
    const beats = judge.beats.length;
    // It predicts on: its log grows on its disk while nobody hears of it.
    const logs = join(dir, "logs");
    const held = () => bytesOf(logs, readdirSync(logs));
    const size = held();
    if (!process.env.DEVICE_AGENT) await expect.poll(held).toBeGreaterThan(size + 2_000);
    judge.isAway = false;
    await expect.poll(() => judge.beats.length).toBeGreaterThan(beats);
    await expect.poll(() => judge.lines).toBeGreaterThan(before + 10);
    device.signal("SIGTERM");
    expect(await device.ended).toEqual({ code: 0, signal: null });
    // Started again, it hands over what was left, under its former boot.
    const [boot = ""] = judge.logs.keys();
    device = start({ VANTAGE_DEVICE_SOURCE: "" });
    await expect.poll(() => judge.beats.at(-1)?.boot_id).not.toBe(boot);
    await expect
      .poll(() => [...(judge.logs.get(boot)?.keys() ?? [])].length)
      .toBeGreaterThan(before);
    const count = judge.logs.get(boot)?.size ?? 0;
    const numbers = Array.from({ length: count }, (_, index) => index + 1);
    expect([...(judge.logs.get(boot)?.keys() ?? [])].sort((one, other) => one - other)).toEqual(
      numbers,
    );
    expect(judge.duplicates).toBeGreaterThan(0);
  });

  it("goes on behind lines that are refused for good, and says that they are gone", async () => {
    for (const seq of [5, 6, 31]) judge.refused.add(seq);
    const first = judge.want(deviceFile(1));
    device = start({ VANTAGE_DEVICE_FPS: "20" });
    await runs(first.version);
    await expect.poll(() => judge.lines).toBeGreaterThan(60);
    const [boot = ""] = judge.logs.keys();
    await expect.poll(() => [...(judge.dropped.get(boot) ?? [])]).toEqual([5, 6, 31]);
    const stored = [...(judge.logs.get(boot)?.keys() ?? [])].sort((one, other) => one - other);
    const all = Array.from({ length: stored.at(-1) ?? 0 }, (_, index) => index + 1);
    expect(stored).toEqual(all.filter((seq) => !judge.refused.has(seq)));
  });

  it("loses nothing to a proxy that refuses for the service, whatever it refuses", async () => {
    const first = judge.want(deviceFile(1));
    device = start({ VANTAGE_DEVICE_FPS: "20" });
    await runs(first.version);
    // Of one batch: more than it takes to halve it down to a line, and to give that up.
    judge.fault(/sync-logs/, ...Array<"refusing_page">(15).fill("refusing_page"));
    await expect.poll(() => judge.faultsLeft(/sync-logs/)).toBe(0);
    const before = judge.lines;
    await expect.poll(() => judge.lines).toBeGreaterThan(before + 10);
    const [boot = ""] = judge.logs.keys();
    expect([...(judge.dropped.get(boot) ?? [])]).toEqual([]);
  });

  it("of a line that is slower than it grows keeps no heartbeat waiting", async () => {
    const first = judge.want(deviceFile(1));
    device = start();
    await runs(first.version);
    // Some lines are written while one batch of them comes.
    judge.syncMs = 500;
    await expect.poll(() => judge.lines).toBeGreaterThan(0);
    const [beats, lines] = [judge.beats.length, judge.lines];
    await expect.poll(() => judge.beats.length).toBeGreaterThan(beats + 5);
    expect(judge.lines).toBeGreaterThan(lines + 5);
  });
});

describe("images of uncertain predictions", () => {
  it("are sent along, each of a line of the log, over a line that breaks", async () => {
    // Whatever it sees is uncertain.
    const first = judge.want(deviceFile(1), { confidence: 0.001 });
    judge.fault(/images/, "drop", 500, "drop_after", 429, "page");
    const uncertain = { VANTAGE_DEVICE_UNCERTAIN: "0-1", VANTAGE_DEVICE_IMAGE_SECONDS: "0.1" };
    device = start(uncertain);
    await runs(first.version);
    await expect.poll(() => judge.images.length).toBeGreaterThan(5);
    const logged = () =>
      new Set(
        [...judge.logs].flatMap(([boot, lines]) =>
          [...lines.keys()].map((seq) => `${boot} ${seq}`),
        ),
      );
    const sent = judge.images.map(({ line }) => line);
    await expect.poll(() => sent.filter((line) => !logged().has(line))).toEqual([]);
  });

  it("wait while nobody listens, in a folder of bounded size, and come then", async () => {
    const first = judge.want(deviceFile(1), { confidence: 0.001 });
    device = start({
      VANTAGE_DEVICE_UNCERTAIN: "0-1",
      VANTAGE_DEVICE_IMAGE_SECONDS: "0",
      VANTAGE_DEVICE_IMAGE_BYTES: "100000",
    });
    await runs(first.version);
    judge.isAway = true;
    const folder = join(dir, "images");
    if (!process.env.DEVICE_AGENT) {
      const held = () => readdirSync(folder).sort();
      await expect.poll(() => held().length).toBeGreaterThan(3);
      // The oldest go: what is there is replaced by and by.
      const [oldest = ""] = held();
      await expect.poll(() => held().includes(oldest)).toBe(false);
      expect(bytesOf(folder, held())).toBeLessThanOrEqual(100_000);
    }
    const before = judge.images.length;
    judge.isAway = false;
    await expect.poll(() => judge.images.length).toBeGreaterThan(before);
  });

  it("are none unless they are asked for", async () => {
    const first = judge.want(deviceFile(1), { confidence: 0.001 });
    device = start();
    await runs(first.version);
    await expect.poll(() => judge.lines).toBeGreaterThan(20);
    expect(judge.images).toEqual([]);
  });
});

it("keeps its token to itself, and its files within bounds", async () => {
  const first = judge.want(deviceFile(1));
  device = start({ VANTAGE_DEVICE_LOG_BYTES: "65536", VANTAGE_DEVICE_MODEL_BYTES: "25000000" });
  await runs(first.version);
  if (process.env.DEVICE_AGENT) return;
  expect(statSync(join(dir, "device.json")).mode & 0o777).toBe(0o600);
  expect(device.output()).not.toContain(judge.token);
  expect(device.output()).not.toContain(judge.code);
  expect(device.output()).not.toContain("signature=");
  judge.isAway = true;
  const logs = join(dir, "logs");
  const segments = () => readdirSync(logs).filter((name) => name.endsWith(".ndjson"));
  // Until there is no room for lines that nobody heard of: an answer that was under way may let go
  // of the first of these segments, and of no other.
  for (let turn = 0; turn < 2; turn++) {
    await expect.poll(() => segments().length).toBeGreaterThan(0);
    const newest = segments().sort().at(-1) ?? "";
    await expect.poll(() => segments().includes(newest)).toBe(false);
  }
  expect(bytesOf(logs, segments())).toBeLessThanOrEqual(65_536);
  judge.isAway = false;
  const since = judge.beats.length;
  await expect.poll(() => judge.beats.length).toBeGreaterThan(since + 1);
  // What it let go of is counted and told, so that nothing is missing unheard of.
  const [boot = ""] = judge.logs.keys();
  await expect.poll(() => judge.dropped.get(boot)?.size ?? 0).toBeGreaterThan(0);
  const beat = judge.beats.at(-1) as { log_dropped?: number };
  expect(beat.log_dropped).toBeGreaterThan(0);
  const missing = () => {
    const stored = [...(judge.logs.get(boot)?.keys() ?? [])];
    const known = new Set([...stored, ...(judge.dropped.get(boot) ?? [])]);
    return Math.max(...known) - known.size;
  };
  await expect.poll(missing).toBe(0);
  const files = readdirSync(join(dir, "slots"));
  const hashes = files.map((name) => createHash("sha256").update(name).digest("hex").slice(0, 4));
  expect(hashes.length).toBeLessThanOrEqual(2);
});
