// Videos that a node writes. Goal: browsers play them, each frame is at its own time to the tick,
// and a program that fails or hangs is a failure in words.

import { execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { Tools } from "../../../gpu-node/media/ffmpeg.ts";
import { type TimedImage, writeVideo } from "../../../gpu-node/media/video-writer.ts";
import { toolsOrSay } from "../../support/clips.ts";

const found = toolsOrSay();
const tools = found as Tools;
const folder = mkdtempSync(join(tmpdir(), "vantage-written-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const MANY = 64 * 1024 ** 2;
const sides = { width: 64, height: 48 };

/** Images of one colour, a shade lighter each. */
async function* shades(
  ticks: readonly number[],
  { width, height } = sides,
): AsyncGenerator<TimedImage> {
  for (const [at, tick] of ticks.entries()) {
    const data = new Uint8Array(width * height * 3).fill(40 + 20 * at);
    yield { image: { data, width, height }, ticks: tick };
  }
}

/** What ffprobe says of a file: its stream, and ticks of its frames. */
function probed(path: string) {
  const shown = "stream=codec_name,pix_fmt,width,height,time_base,color_space,duration:frame=pts";
  const args = ["-v", "error", "-show_entries", shown, "-of", "json", path];
  const { streams, frames } = JSON.parse(execFileSync(tools.ffprobe, args).toString());
  return {
    streams,
    ticks: (frames as { pts: number }[]).map(({ pts }) => pts),
  };
}

/** Pixels of all frames. */
const decoded = (path: string) =>
  execFileSync(tools.ffmpeg, [
    ...["-v", "error", "-i", path, "-fps_mode", "passthrough"],
    ...["-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"],
  ]);

/** Tools whose ffmpeg is a script of the shell. */
function scripted(name: string, script: string): Tools {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return { ...tools, ffmpeg: path };
}

describe.skipIf(!found)("a written video", () => {
  it.each([
    [
      [0, 1001, 2002, 6000, 36_000, 36_001],
      [1, 30_000],
    ],
    [
      [0, 3_003, 90_000, 90_001],
      [1, 90_000],
    ],
    [
      [0, 1, 2, 40],
      [1, 25],
    ],
    [
      [0, 7, 1_000, 3_600_000],
      [1, 1_000],
    ],
    [
      [0, 1, 2, 5],
      [1001, 30_000],
    ],
  ] as const)("has frames at %j ticks of %j s", async (ticks, timeBase) => {
    const path = join(folder, `${ticks.at(-1)}-${timeBase.join("-")}.mp4`);
    const options = { ...sides, timeBase, frameSeconds: 0.2, path, bytesMax: MANY };
    const { frames, bytes } = await writeVideo(tools, shades(ticks), options);
    expect([frames, bytes]).toEqual([ticks.length, readFileSync(path).length]);
    const { streams, ticks: written } = probed(path);
    expect(streams).toHaveLength(1);
    expect(streams[0]).toMatchObject({
      codec_name: "h264",
      pix_fmt: "yuv420p",
      ...sides,
      time_base: `1/${timeBase[1]}`,
      color_space: "bt709",
    });
    expect(written).toEqual(ticks.map((tick) => tick * timeBase[0]));
    // The last frame is seen, too, for as long as was said.
    const end = (ticks.at(-1) as number) * timeBase[0] + 0.2 * timeBase[1];
    expect(Math.abs(Number(streams[0].duration) * timeBase[1] - end)).toBeLessThan(2);
    const pixels = decoded(path);
    const size = sides.width * sides.height * 3;
    expect(pixels.length).toBe(ticks.length * size);
    for (const at of ticks.keys()) {
      expect(Math.abs((pixels[at * size] as number) - 40 - 20 * at)).toBeLessThan(6);
    }
    // The index comes before the frames: a browser plays it while it loads.
    const file = readFileSync(path);
    expect(file.indexOf("moov")).toBeLessThan(file.indexOf("mdat"));
  });

  it("has an even side where the frames' is odd, and shows frames of one time in turn", async () => {
    const path = join(folder, "odd.mp4");
    const odd = { width: 63, height: 47 };
    const options = {
      ...odd,
      timeBase: [1, 25] as const,
      frameSeconds: 0.04,
      path,
      bytesMax: MANY,
    };
    await writeVideo(tools, shades([0, 4, 4, 4, 6], odd), options);
    const { streams, ticks } = probed(path);
    expect(streams[0]).toMatchObject({ width: 64, height: 48 });
    expect(ticks).toEqual([0, 4, 5, 6, 7]);
  });
});

describe.skipIf(!found)("a video that cannot be written", () => {
  const options = (name: string) => ({
    ...sides,
    timeBase: [1, 25] as const,
    frameSeconds: 0.04,
    path: join(folder, name),
    bytesMax: MANY,
  });
  /** Frames without end, as of a long clip. */
  async function* endless(): AsyncGenerator<TimedImage> {
    for (let tick = 0; ; tick++) yield* shades([tick]);
  }

  it("is a failure where the program ends early, with what it said", async () => {
    const broken = scripted("broken", "echo 'no space left on device' >&2; exit 1");
    await expect(writeVideo(broken, endless(), options("a.mp4"))).rejects.toMatchObject({
      code: "video_not_written",
      message: expect.stringContaining("exit status 1; no space left on device"),
    });
  });

  it("names the encoder that an ffmpeg lacks", async () => {
    const bare = scripted(
      "bare",
      "echo \"Unknown encoder 'libx264'\" >&2; cat > /dev/null; exit 1",
    );
    await expect(writeVideo(bare, shades([0, 1]), options("b.mp4"))).rejects.toMatchObject({
      code: "video_not_written",
      message: "this node's ffmpeg has no H.264 encoder (libx264)",
    });
  });

  it("is a failure where the program hangs, before its end or at it", async () => {
    const hung = scripted("hung", "exec sleep 600");
    const soon = { ...options("c.mp4"), stallMs: 600 };
    await expect(writeVideo(hung, endless(), soon)).rejects.toMatchObject({
      message: expect.stringContaining("no progress"),
    });
    const late = scripted("late", "cat > /dev/null; exec sleep 600");
    await expect(writeVideo(late, shades([0, 1]), soon)).rejects.toMatchObject({
      message: expect.stringContaining("no progress"),
    });
  });

  it("waits for frames that are slow in coming", async () => {
    async function* slow(): AsyncGenerator<TimedImage> {
      for (const tick of [0, 1]) {
        await new Promise((resolve) => setTimeout(resolve, 1_500));
        yield* shades([tick]);
      }
    }
    const made = await writeVideo(tools, slow(), { ...options("d.mp4"), stallMs: 600 });
    expect(made.frames).toBe(2);
  });

  it("is a failure where it gets too large, and when it is canceled", async () => {
    async function* noise(): AsyncGenerator<TimedImage> {
      for (let tick = 0; tick < 3_000; tick++) {
        const data = new Uint8Array(sides.width * sides.height * 3);
        for (let at = 0; at < data.length; at++)
          data[at] = Math.imul(at + tick, 2_654_435_761) >> 8;
        yield { image: { data, ...sides }, ticks: tick };
      }
    }
    const small = { ...options("e.mp4"), bytesMax: 100_000 };
    await expect(writeVideo(tools, noise(), small)).rejects.toMatchObject({
      code: "file_too_large",
    });
    const cancel = AbortSignal.timeout(300);
    const canceled = writeVideo(tools, endless(), { ...options("f.mp4"), signal: cancel });
    await expect(canceled).rejects.toMatchObject({ name: "TimeoutError" });
  });
});
