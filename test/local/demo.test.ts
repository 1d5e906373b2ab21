// The demo before it starts anything: what it refuses, and the clip that it falls back to.

import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { demoClip } from "../../edge/local/clip.ts";
import { ROOT } from "../../edge/local/state.ts";
import { readFrames } from "../../gpu-node/media/frame-reader.ts";
import { probeVideo } from "../../gpu-node/media/video.ts";
import { toolsOrSay } from "../support/clips.ts";

const found = toolsOrSay();
let dir: string;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-demo-"));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(dir, { recursive: true, force: true });
});

/** How the program ends, and its last words. */
function demo(args: readonly string[], path = process.env.PATH) {
  const program = [join(ROOT, "edge/local/demo.ts"), ...args];
  const env = { PATH: path, VANTAGE_STATE: join(dir, "state") };
  const { status, stderr } = spawnSync(process.execPath, program, {
    encoding: "utf8",
    env,
    timeout: 300_000,
  });
  return { status, stderr };
}

describe("npm run demo", () => {
  it.each([["--what"], ["--seconds", "many"], ["--fps", "0"], ["one.mp4", "two.mp4"]])(
    "explains itself for %s",
    (...args) => {
      const { status, stderr } = demo(args);
      expect([status, stderr]).toEqual([
        2,
        expect.stringMatching(/What there is: npm run demo -- --help/),
      ]);
      expect(stderr).not.toMatch(/ at .*:\d+:\d+/);
    },
  );

  it("wants ffmpeg before anything else", () => {
    expect(demo([], dir)).toEqual({ status: 1, stderr: expect.stringMatching(/needs ffmpeg/) });
  });

  it.skipIf(!found)("wants a file where it is given one", () => {
    const message = expect.stringMatching(/no such file/);
    expect(demo([join(dir, "nowhere.mp4")])).toEqual({ status: 1, stderr: message });
    expect(demo([dir])).toEqual({ status: 1, stderr: message });
  });
});

it.skipIf(!found)("draws a clip where the real one cannot be had, and says so", async () => {
  writeFileSync(join(dir, "apt-get"), "#!/bin/sh\necho 'no network' >&2\nexit 100\n", {
    mode: 0o755,
  });
  vi.stubEnv("PATH", `${dir}:${process.env.PATH}`);
  const said: string[] = [];
  const folder = join(dir, "clips");
  const { path, origin, example } = await demoClip(folder, undefined, (line) => said.push(line));
  expect(said.at(-1)).toMatch(/could not be had \(apt-get ended with 100: no network\); drawing/);
  expect(origin).toMatch(/drawn by the demo itself/);
  expect(existsSync(join(folder, "vtest.avi"))).toBe(false);
  if (!found) return;
  const { index } = await probeVideo(found, path);
  expect(index.pts.length).toBe(60);
  const [frame] = await Array.fromAsync(readFrames(found, { path, index }, [0]));
  const { data = [], width = 0 } = frame?.image ?? {};
  const [x1, y1, x2, y2] = example ?? [0, 0, 0, 0];
  // Red on the disc whose box it is, the ground's grey just outside.
  const redder = (x: number, y: number) =>
    (data[(y * width + x) * 3] ?? 0) - (data[(y * width + x) * 3 + 2] ?? 0);
  expect(redder((x1 + x2) / 2, (y1 + y2) / 2)).toBeGreaterThan(100);
  expect(
    [redder(x1 + 4, (y1 + y2) / 2), redder(x2 - 5, (y1 + y2) / 2)].every((one) => one > 100),
  ).toBe(true);
  expect(
    [redder(x1 - 5, (y1 + y2) / 2), redder(x2 + 4, (y1 + y2) / 2)].every((one) => one < 60),
  ).toBe(true);
});
