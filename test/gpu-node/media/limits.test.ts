// Videos whose headers lie: what is counted is what lies in the file, and a limit that is crossed
// ends the work there and then, with a reason for the file's owner.

import { readFileSync, writeFileSync } from "node:fs";
import sharp from "sharp";
import { describe, expect, it, vi } from "vitest";
import { BrokenMedia } from "../../../gpu-node/base/failure.ts";
import type { Tools } from "../../../gpu-node/media/ffmpeg.ts";
import { VIDEO_LIMITS } from "../../../gpu-node/media/packets.ts";
import { type ProbeOptions, probeVideo } from "../../../gpu-node/media/video.ts";
import { clip, clipPath, toolsOrSay } from "../../support/clips.ts";

const found = toolsOrSay();
const tools = found as Tools;

const file = (name: string, bytes: Uint8Array) => {
  const path = clipPath(name);
  writeFileSync(path, bytes);
  return path;
};
const SOURCE = ["-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=10"];
const X264 = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "0"];
/** 250 frames in 10 seconds, no edit list, the index behind the frames. */
const plain = () => clip("honest.mp4", ...SOURCE, ...X264, "-use_editlist", "0");

/** The file with a box's bytes replaced, and the sizes of all around it put right. */
function withBox(bytes: Buffer, names: readonly string[], content: Buffer): Buffer {
  const [name = "", ...inner] = names;
  for (let at = 0; at < bytes.length; at += bytes.readUInt32BE(at)) {
    const end = at + bytes.readUInt32BE(at);
    if (bytes.toString("latin1", at + 4, at + 8) !== name) continue;
    const body = bytes.subarray(at + 8, end);
    const changed = inner.length === 0 ? content : withBox(body, inner, content);
    const head = Buffer.alloc(8);
    head.writeUInt32BE(changed.length + 8);
    head.write(name, 4, "latin1");
    return Buffer.concat([bytes.subarray(0, at), head, changed, bytes.subarray(end)]);
  }
  throw new Error(`no box ${name}`);
}

/** Patches each header box of these names, at an offset behind the name. */
function patched(path: string, boxes: Record<string, number>, value: number): Buffer {
  const bytes = Buffer.from(readFileSync(path));
  for (const [name, offset] of Object.entries(boxes))
    bytes.writeUInt32BE(value, bytes.indexOf(name) + offset);
  return bytes;
}
const DURATIONS = { mvhd: 20, tkhd: 24, mdhd: 20 };

/** An edit list that shows the whole video, of 10 seconds, over and over. */
function repeated(times: number, rate = 25): string {
  const list = Buffer.alloc(8 + 12 * times);
  list.writeUInt32BE(times, 4);
  for (let at = 8; at < list.length; at += 12) {
    list.writeUInt32BE(10_000, at);
    list.writeUInt32BE(0x1_0000, at + 8);
  }
  const source = ["-f", "lavfi", "-i", `testsrc2=s=160x120:r=${rate}:d=10`];
  const once = readFileSync(clip(`once-${rate}.mp4`, ...source, ...X264));
  return file("repeated.mp4", withBox(once, ["moov", "trak", "edts", "elst"], list));
}

const probe = (path: string, options: ProbeOptions = {}) => probeVideo(tools, path, options);
const refusal = async (path: string, options: ProbeOptions = {}) => {
  const thrown = await probe(path, options).then(
    ({ index }) => `taken, with ${index.pts.length} frames`,
    (error) => error,
  );
  return thrown instanceof BrokenMedia ? thrown.message : thrown;
};

describe.skipIf(!found)("a video whose header lies", () => {
  it("about its length is counted and timed by its frames", async () => {
    const short = file("says-a-second.mp4", patched(plain(), DURATIONS, 1_000));
    const { index, durationSeconds } = await probe(short);
    expect([index.pts.length, durationSeconds]).toEqual([250, 10]);
    const limits = { ...VIDEO_LIMITS, hours: 5 / 3600 };
    expect(await refusal(short, { limits })).toMatch(/^the video is longer than .* hours by the/);
    // Two months, it says; what is there is taken.
    const long = file("says-months.mp4", patched(plain(), DURATIONS, 0xf000_0000));
    expect((await probe(long)).durationSeconds).toBeCloseTo(10, 6);
  });

  it("and shows few frames millions of times is refused before it is decoded", async () => {
    expect((await probe(repeated(3))).index.pts.length).toBeGreaterThan(500);
    const onFrames = vi.fn();
    // 60 KB and 10 frames, shown for twelve and a half hours.
    const long = repeated(4_500, 1);
    expect(await refusal(long, { onFrames })).toMatch(/^the video is longer than 12 hours/);
    const frames = { ...VIDEO_LIMITS, frames: 2_000 };
    expect(await refusal(long, { limits: frames, onFrames })).toBe(
      "the video has more than 2000 frames",
    );
    const pixels = { ...VIDEO_LIMITS, pixels: 160 * 120 * 100 };
    expect(await refusal(plain(), { limits: pixels, onFrames })).toBe(
      "the video has more than 100 frames of 160×120",
    );
    expect(onFrames).not.toHaveBeenCalled();
  });

  it("is given up when a sample of it foretells a decoding without end", async () => {
    const limits = { ...VIDEO_LIMITS, sampleSeconds: 0.2, decodeSeconds: 2 };
    expect(await refusal(repeated(400), { limits })).toMatch(
      /^decoding it would take longer than the .* hours it may/,
    );
  });

  it("about its times is refused for what they span", async () => {
    const years = "settb=1/1000,setpts='N*40+gt(N,5)*6e11'";
    const jump = clip(
      "jump.mkv",
      ...[...SOURCE, "-frames:v", "12", "-vf", years, "-fps_mode", "passthrough"],
      ...["-enc_time_base", "1:1000", "-c:v", "mjpeg"],
    );
    expect(await refusal(jump)).toMatch(/^the video is longer than 12 hours by the times/);
    const avi = clip("slow.avi", ...SOURCE, "-c:v", "mjpeg", "-frames:v", "5");
    const bytes = Buffer.from(readFileSync(avi));
    // A frame a day.
    bytes.writeUInt32LE(86_400, bytes.indexOf("strh") + 28);
    bytes.writeUInt32LE(1, bytes.indexOf("strh") + 32);
    expect(await refusal(file("days.avi", bytes))).toMatch(/^the video is longer than 12 hours/);
  });

  it("about its frames' size decodes none that outgrow it, and says so", async () => {
    const still = (width: number, height: number) =>
      sharp({ create: { width, height, channels: 3, background: "#456" } })
        .jpeg()
        .toBuffer();
    const [small, big] = [await still(64, 48), await still(4_000, 3_000)];
    const joined = (name: string, stills: Buffer[]) => {
      const stream = file(`${name}.mjpeg`, Buffer.concat(stills));
      return clip(`${name}.mkv`, "-f", "mjpeg", "-i", stream, "-c", "copy");
    };
    const grown = await probe(joined("grown", [small, small, small, big, big, small]));
    expect([grown.index.width, grown.index.height, grown.index.pts.length]).toEqual([64, 48, 4]);
    expect(String(grown.facts.warnings)).toContain("a frame in it is 4000×3000, far larger");
    // The container says 64×48, its frames otherwise from the first on.
    const first = Buffer.from(readFileSync(joined("first", [await still(9_000, 8_000)])));
    first.writeUInt16BE(64, first.indexOf(Buffer.from([0xb0, 0x82, 9_000 >> 8, 9_000 & 255])) + 2);
    first.writeUInt16BE(48, first.indexOf(Buffer.from([0xba, 0x82, 8_000 >> 8, 8_000 & 255])) + 2);
    expect(await refusal(file("first-lies.mkv", first))).toMatch(/^pictures of 9000×8000 are too/);
    // One that grows as a call's does is taken.
    const call = await probe(joined("call", [small, small, await still(1_920, 1_080)]));
    expect(call.index.pts.length).toBe(3);
    expect(call.facts.warnings).toEqual([]);
  });
});
