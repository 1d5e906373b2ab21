// A device whose disk is full: it is heard of and predicts on, whatever finds no room, and its log
// goes on when there is some again.

import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { DeviceStateFile } from "../../../gpu-node/agent/device-state.ts";
import { LogRing } from "../../../gpu-node/agent/log-ring.ts";
import { deviceFile } from "../../support/device-files.ts";
import { DeviceJudge } from "../../support/device-judge.ts";
import { type DeviceProcess, imageFolder, startDevice } from "../../support/device-process.ts";
import { mountSmallDisk, type SmallDisk } from "../../support/small-disk.ts";

const DISK_BYTES = 48 * 1024 ** 2;
const disk = mountSmallDisk(DISK_BYTES);
if (!disk) process.stderr.write("skipped: no disk of its own can be mounted here\n");
const cleanups: (() => unknown)[] = [];

describe.skipIf(!disk)("on a full disk", () => {
  const { dir, fill, empty, unmount } = disk as SmallDisk;
  afterEach(async () => {
    for (const cleanup of cleanups.splice(0)) await cleanup();
    empty();
  });

  it("the log takes what the service says, and counts what it cannot write", () => {
    const ring = new LogRing(join(dir, "ring"), 200_000);
    const line = { time: "2026-01-01T00:00:00.000Z", kind: "note", message: "x" };
    for (let count = 0; count < 10; count++) ring.append(line);
    fill();
    const part = ring.next(5);
    ring.ack(part ?? { bootId: "", lines: [], dropped: [] }, { ackedSeq: 5, gaps: [] });
    expect(ring.next(100)?.lines[0]?.seq).toBe(6);
    ring.append({ ...line, message: "y".repeat(2_000) });
    for (let count = 0; count < 3; count++) ring.append({ ...line, message: "y".repeat(2_000) });
    ring.flush();
    expect(ring.dropped).toBeGreaterThan(0);
    empty();
    const seq = ring.append(line);
    const rest = ring.next(100) ?? { bootId: "", lines: [], dropped: [] };
    ring.ack(rest, { ackedSeq: seq - 1, gaps: [] });
    expect(ring.next(100)?.lines.map((one) => one.seq)).toEqual([seq]);
    ring.close();
  });

  it("a change that would be found again is kept in memory until there is room", () => {
    const state = new DeviceStateFile(dir);
    state.keep({ seen: "1" }, "first");
    fill();
    expect(() => state.keep({ seen: "2" }, "next")).toThrow(/ENOSPC/);
    expect(state.models.seen).toBe("1");
    state.keepInAnyCase({ seen: "3" }, "next");
    state.catchUp();
    expect(state.models.seen).toBe("3");
    expect(new DeviceStateFile(dir).models.seen).toBe("1");
    empty();
    state.catchUp();
    expect(new DeviceStateFile(dir).models.seen).toBe("3");
  });

  it("a device is heard of, starts, and hands over its log when there is room", async () => {
    const judge = await new DeviceJudge().open();
    let device: DeviceProcess | null = null;
    cleanups.push(async () => {
      device?.signal("SIGKILL");
      await device?.ended;
      await judge.close();
    });
    // Never confirmed: each start on it is to be counted on the disk.
    const confirm = { inferences: 1_000_000, seconds: 600_000 };
    const wanted = judge.want(deviceFile(1), { confirm });
    const environment = {
      ...judge.environment(join(dir, "device"), await imageFolder(1)),
    };
    const predicts = (since: number) =>
      expect
        .poll(() => judge.beats.slice(since).map(({ model }) => [model?.status, model?.inferences]))
        .toContainEqual(["active", expect.toSatisfy((count: number) => count > 3)]);
    device = startDevice(environment);
    await expect.poll(() => judge.stateOf(wanted.version)?.status).toBe("active");
    await expect.poll(() => judge.lines).toBeGreaterThan(0);
    fill();
    const since = judge.beats.length;
    await expect.poll(() => judge.beats.length).toBeGreaterThan(since + 10);
    await predicts(since);
    device.signal("SIGTERM");
    expect(await device.ended).toEqual({ code: 0, signal: null });
    // There is room for its lock, and none to count its start.
    fill(4_096);
    const started = judge.beats.length;
    device = startDevice(environment);
    await predicts(started);
    const { lines } = judge;
    empty();
    await expect.poll(() => judge.lines).toBeGreaterThan(lines + 10);
    expect(judge.complaints).toEqual([]);
  });

  it("leaves no disk behind", () => unmount());
});
