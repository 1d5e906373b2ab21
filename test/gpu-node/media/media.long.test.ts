// Frames by number, from files that are as bad as they come. Goal: frame n is the same bytes by
// every way of reading it, and a hostile or broken file is refused with a reason.

import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { start, type Tools } from "../../../gpu-node/media/ffmpeg.ts";
import { planReads, readFrames, selection, sizeOf } from "../../../gpu-node/media/frame-reader.ts";
import { readStill } from "../../../gpu-node/media/stills.ts";
import { probeVideo, sniff, typeOf, type VideoProbe } from "../../../gpu-node/media/video.ts";
import { decodeIndex, encodeIndex, ptsTable } from "../../../gpu-node/media/video-index.ts";
import { clip, clipPath, longGop, toolsOrSay, variableRate } from "../../support/clips.ts";

const found = toolsOrSay();
const tools = found as Tools;
const REAL = join(import.meta.dirname, "../../../../shared/data/video");

const digest = (data: Uint8Array) => createHash("sha256").update(data).digest("hex");

async function hashes(path: string, { index }: VideoProbe, wanted: number[], neverSeek = false) {
  const read = new Map<number, string>();
  for await (const { index: at, image } of readFrames(tools, { path, index }, wanted, {
    neverSeek,
  })) {
    read.set(at, digest(image.data));
  }
  return read;
}

/** Every frame in one pass, some alone, some in sparse sets: all the same. */
async function expectSameByEveryPath(path: string, probed: VideoProbe) {
  const count = probed.index.pts.length;
  const all = Array.from({ length: count }, (_, index) => index);
  const dense = await hashes(path, probed, all, true);
  expect([...dense.keys()]).toEqual(all);
  const sparse = all.filter((index) => index % 37 === 5 || index > count - 3);
  const sought = await hashes(path, probed, sparse);
  expect([...sought]).toEqual(sparse.map((index) => [index, dense.get(index)]));
  for (const index of [Math.floor(count * 0.7), count - 1]) {
    expect((await hashes(path, probed, [index])).get(index)).toBe(dense.get(index));
  }
  return dense;
}

const broken = (path: string) =>
  probeVideo(tools, path).then(
    () => "taken",
    (thrown: Error) => `${thrown.name}: ${thrown.message}`,
  );

describe.skipIf(!found)("frames of a video", () => {
  it("are the same by every path at 29.97 fps with B-frames and one key frame in 250", async () => {
    const path = longGop();
    const probed = await probeVideo(tools, path);
    expect(probed.index.pts.length).toBe(360);
    expect(probed.fps).toBeCloseTo(30_000 / 1_001, 6);
    expect(probed.durationSeconds).toBeCloseTo(12.012, 6);
    expect([...probed.index.keys]).toEqual([0, 250]);
    expect(probed.facts.variable_frame_rate).toBe(false);
    const dense = await expectSameByEveryPath(path, probed);
    // The pattern shows the time: no two frames are alike, so an off-by-one would show.
    expect(new Set(dense.values()).size).toBe(360);
  });

  it("are the same by every path at a variable rate, and keep their own times", async () => {
    const path = variableRate();
    const probed = await probeVideo(tools, path);
    expect(probed.facts.variable_frame_rate).toBe(true);
    const { pts, timeBase } = probed.index;
    const times = [...pts.slice(0, 6)].map((ticks) => (ticks * timeBase[0]) / timeBase[1]);
    const wanted = [0, 1, 2, 3, 4, 5].map((n) => n * 0.04 + (n % 5) * 0.006);
    for (const [n, time] of times.entries()) {
      expect(time - (times[0] ?? 0)).toBeCloseTo(wanted[n] ?? NaN, 3);
    }
    await expectSameByEveryPath(path, probed);
  });

  it.each(["mkv", "webm", "avi"])("are the same by every path in %s", async (container) => {
    const source = ["-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=6"];
    const codec = { mkv: "libx265", webm: "libvpx-vp9", avi: "mpeg4" }[container] as string;
    const path = clip(`one.${container}`, ...source, "-c:v", codec, "-g", "40");
    const probed = await probeVideo(tools, path);
    expect(probed.index.pts.length).toBe(150);
    expect(probed.index.keys.length).toBeGreaterThan(3);
    await expectSameByEveryPath(path, probed);
  });

  it("are as shown, turned by the file's rotation", async () => {
    const plain = clip(
      "plain.mp4",
      ...["-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=1", "-c:v", "libx264"],
      ...["-pix_fmt", "yuv420p"],
    );
    const turned = clip("turned.mp4", "-i", plain, "-c", "copy", "-metadata:s:v", "rotate=90");
    const [one, other] = [await probeVideo(tools, plain), await probeVideo(tools, turned)];
    expect([one.index.width, one.index.height]).toEqual([320, 180]);
    expect([other.index.width, other.index.height]).toEqual([180, 320]);
    await expectSameByEveryPath(turned, other);
  });

  it("keep one size where the video changes its own", async () => {
    const parts = ["320x180", "160x120"].map((size) =>
      clip(`${size}.ts`, "-f", "lavfi", "-i", `testsrc2=s=${size}:r=25:d=1`, "-c:v", "mpeg2video"),
    );
    const joined = clipPath("joined.ts");
    writeFileSync(joined, Buffer.concat(parts.map((part) => readFileSync(part))));
    const path = clip("sizes.mkv", "-fflags", "+genpts", "-i", joined, "-c", "copy");
    const probed = await probeVideo(tools, path);
    expect(probed.index.pts.length).toBeGreaterThan(40);
    await expectSameByEveryPath(path, probed);
  });

  it("can be one alone", async () => {
    const path = clip(
      "single.mp4",
      ...["-f", "lavfi", "-i", "testsrc2=s=64x48:r=25:d=1", "-frames:v", "1"],
    );
    const probed = await probeVideo(tools, path);
    expect(probed).toMatchObject({ fps: 25, durationSeconds: 0.04 });
    expect((await hashes(path, probed, [0])).size).toBe(1);
    await expect(hashes(path, probed, [1])).rejects.toThrow("the video has 1 frames; none is 1");
  });

  it("end the program when the reader stops early or is cancelled", async () => {
    const path = longGop();
    const probed = await probeVideo(tools, path);
    for await (const { index } of readFrames(
      tools,
      { path, index: probed.index },
      [0, 1, 2, 100],
    )) {
      expect(index).toBe(0);
      break;
    }
    const cancel = new AbortController();
    const reading = readFrames(tools, { path, index: probed.index }, [0, 1, 2], {
      signal: cancel.signal,
    });
    await reading.next();
    cancel.abort();
    await expect(Array.fromAsync(reading)).rejects.toThrow();
  });

  it("are read from a file whose clock starts days after zero", async () => {
    const codec = ["-c:v", "libx264", "-g", "25", "-output_ts_offset", "250000"];
    const source = ["-f", "lavfi", "-i", "testsrc2=s=160x120:r=25:d=3"];
    const path = clip("late.mkv", ...source, ...codec);
    const probed = await probeVideo(tools, path);
    expect(probed.durationSeconds).toBeCloseTo(3, 3);
    await expectSameByEveryPath(path, probed);
  });

  it("are read from a file whose tags are larger than all that we read of it", async () => {
    const tags = clipPath("tags.txt");
    writeFileSync(tags, `;FFMETADATA1\ntitle=${"x".repeat(5_000_000)}\n`);
    const path = clip("tags.mkv", "-i", longGop(), "-i", tags, "-map_metadata", "1", "-c", "copy");
    expect((await probeVideo(tools, path)).index.pts.length).toBe(360);
  });

  it.skipIf(!existsSync(REAL)).each(["bottle-detection.mp4", "car-detection.mp4"])(
    "are the same by every path in the real %s",
    async (name) => {
      const path = join(REAL, name);
      await expectSameByEveryPath(path, await probeVideo(tools, path));
    },
  );

  it("are found again by an index that was kept, and refused by one that does not fit", async () => {
    const path = longGop();
    const probed = await probeVideo(tools, path);
    const kept = decodeIndex(encodeIndex(probed.index));
    expect(kept).toEqual(probed.index);
    expect(decodeIndex(Buffer.from("{}"))).toBeNull();
    // Were seeking to give another image, its checksum would show, and all is decoded instead.
    const pts = probed.index.pts.map((time, at) => (at > 200 ? time + 400 : time));
    const off = { ...probed, index: { ...probed.index, pts } };
    const dense = await hashes(path, probed, [300], true);
    expect(await hashes(path, off, [300])).toEqual(dense);
  });
});

describe.skipIf(!found)("a file that is not taken", () => {
  const file = (name: string, content: string | Buffer) => {
    const path = clipPath(name);
    writeFileSync(path, content);
    return path;
  };

  it("is refused when it is empty, or no video at all", async () => {
    expect(await broken(file("empty.mp4", ""))).toBe("BrokenMedia: the file is empty");
    expect(await broken(file("text.mp4", "not a video"))).toMatch(/no video or image of a kind/);
    expect(await broken(file("elf.mp4", "\x7fELF\x02\x01\x01"))).toMatch(/no video or image/);
  });

  it("is refused when it broke off before its index", async () => {
    const whole = readFileSync(longGop());
    expect(await broken(file("half.mp4", whole.subarray(0, whole.length >> 1)))).toMatch(
      /BrokenMedia: the file is not whole: its index is missing/,
    );
  });

  it("gives the frames it has when it broke off after its index, with a warning", async () => {
    const fast = clip("fast.mp4", "-i", longGop(), "-c", "copy", "-movflags", "+faststart");
    const whole = readFileSync(fast);
    const path = file("cut.mp4", whole.subarray(0, Math.floor(whole.length * 0.6)));
    const probed = await probeVideo(tools, path);
    expect(probed.index.pts.length).toBeGreaterThan(100);
    expect(probed.index.pts.length).toBeLessThan(300);
    expect(String(probed.facts.warnings)).toMatch(/parts of the file are damaged/);
    expect(String(probed.facts.warnings)).not.toContain(path);
    await expectSameByEveryPath(path, probed);
  });

  it("is refused when its pictures are too large or it has no video", async () => {
    const huge = clip(
      "huge.avi",
      ...["-f", "lavfi", "-i", "color=s=64x64:d=1:r=1", "-c:v", "rawvideo"],
    );
    // The header claims what no decoder should try.
    const bytes = Buffer.from(readFileSync(huge));
    for (let at = bytes.indexOf("strf"); at >= 0; at = bytes.indexOf("strf", at + 4)) {
      bytes.writeUInt32LE(12_000, at + 12);
      bytes.writeUInt32LE(12_000, at + 16);
    }
    expect(await broken(file("claims.avi", bytes))).toMatch(
      /BrokenMedia: pictures of 12000×12000 are too/,
    );
    const sound = clip("sound.mp4", "-f", "lavfi", "-i", "sine=d=1", "-c:a", "aac");
    expect(await broken(sound)).toBe("BrokenMedia: the file has no video stream");
  });

  it("reaches nothing but itself: playlists of every form are refused unread", async () => {
    let reached = 0;
    const server = createServer((_, response) => {
      reached += 1;
      response.end();
    });
    await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/x.ts`;
    const forms = {
      "a.m3u8": `#EXTM3U\n#EXTINF:10,\n${url}\n#EXT-X-ENDLIST\n`,
      "b.mp4": `#EXTM3U\n#EXTINF:10,\n${url}\n#EXT-X-ENDLIST\n`,
      "c.avi": `ffconcat version 1.0\nfile '${url}'\n`,
      "d.mkv": `<?xml version="1.0"?><MPD><BaseURL>${url}</BaseURL></MPD>`,
      "e.mov": ";FFMETADATA1\n",
      "f.mp4":
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\nc=IN IP4 127.0.0.1\r\nm=video 5004 RTP/AVP 96\r\n",
      "g.svg": `<svg xmlns="http://www.w3.org/2000/svg"><image href="${url}"/></svg>`,
      // The first bytes of an MP4, a playlist behind them.
      "h.mp4": `\0\0\0\x18ftypisom#EXTM3U\n#EXTINF:10,\n${url}\n`,
    };
    for (const [name, content] of Object.entries(forms)) {
      expect(await broken(file(name, content)), name).toMatch(/^BrokenMedia/);
    }
    expect(reached).toBe(0);
    await new Promise((done) => server.close(done));
  });
});

describe("a run of a program", () => {
  const silent = (script: string) =>
    start({ ...tools, ffmpeg: process.execPath, wrap: [] }, "ffmpeg", ["-e", script], {
      wallSeconds: 120,
      // Longer than a process waits for a core that it shares with others.
      stallMs: 3_000,
    });

  it("lasts while its input is read, as on the way to a late frame, and ends where it is not", async () => {
    const file = JSON.stringify(import.meta.filename);
    const reading = silent(
      `const end = setInterval(() => require("fs").readFileSync(${file}), 40);` +
        "setTimeout(() => clearInterval(end), 6_000)",
    );
    expect(await reading.ended).toBeNull();
    const idle = silent("setTimeout(() => {}, 600_000)");
    expect(await idle.ended).toMatch(/made no progress/);
  });
});

describe("a still image", () => {
  it("is turned as its EXIF says, flattened, and bounded", async () => {
    const base = sharp({ create: { width: 40, height: 20, channels: 3, background: "#ff0000" } });
    const turned = await base.clone().withMetadata({ orientation: 6 }).jpeg().toBuffer();
    expect(await readStill(turned)).toMatchObject({ width: 20, height: 40 });
    const clear = await base.clone().ensureAlpha(0).png().toBuffer();
    expect([...(await readStill(clear)).data.subarray(0, 3)]).toEqual([255, 255, 255]);
    expect(await readStill(turned, { longestSide: 20 })).toMatchObject({ width: 10, height: 20 });
    await expect(readStill(Buffer.from("GIF89a nonsense"))).rejects.toThrow(/cannot be decoded/);
    const deep = base.clone().resize(8, 8).toColourspace("rgb16");
    for (const bytes of [await deep.clone().png().toBuffer(), await deep.clone().tiff().toBuffer()])
      expect((await readStill(bytes)).data[0]).toBeGreaterThan(250);
    const grey = await readStill(await base.clone().greyscale().png().toBuffer());
    expect([grey.data.length, new Set(grey.data).size]).toEqual([40 * 20 * 3, 1]);
    const cmyk = await readStill(await base.clone().toColourspace("cmyk").jpeg().toBuffer());
    expect(cmyk.data.length).toBe(40 * 20 * 3);
  });

  it("is decoded only where its bytes are of a kind we take", async () => {
    const drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>';
    await expect(readStill(Buffer.from(drawing))).rejects.toThrow(/no image of a kind we take/);
    await expect(readStill(Buffer.from(""))).rejects.toThrow(/no image of a kind we take/);
  });

  it("is known by its bytes, and SVG is none", async () => {
    const path = clipPath("picture.bin");
    writeFileSync(
      path,
      await sharp({ create: { width: 4, height: 4, channels: 3, background: "#000" } })
        .webp()
        .toBuffer(),
    );
    expect(await typeOf(path)).toEqual({ kind: "still", contentType: "image/webp" });
    expect(sniff(Buffer.from("<svg xmlns='http://www.w3.org/2000/svg'/>"))).toBeNull();
    expect(sniff(Buffer.from("\0\0\0\x18ftypqt  ", "latin1"))).toMatchObject({
      contentType: "video/quicktime",
    });
  });
});

describe("a plan of reads", () => {
  const keys = Uint32Array.from([0, 250, 500, 750]);

  it("decodes on where that is cheaper, and seeks where it is not", () => {
    expect(planReads([0, 15, 30], keys)).toEqual([{ from: 0, wanted: [0, 15, 30] }]);
    expect(planReads([3, 760], keys)).toEqual([
      { from: 0, wanted: [3] },
      { from: 760, wanted: [760] },
    ]);
    expect(planReads([760], keys)).toEqual([{ from: 760, wanted: [760] }]);
    expect(planReads([3, 760], keys, { neverSeek: true })).toEqual([{ from: 0, wanted: [3, 760] }]);
    expect(planReads([700], Uint32Array.from([]))).toEqual([{ from: 0, wanted: [700] }]);
  });

  it("never makes a selection too long for one argument of a program", () => {
    const uneven = Array.from({ length: 20_000 }, (_, at) => 1_000_000 + 15 * at + (at % 2));
    for (const options of [{}, { neverSeek: true }]) {
      const stretches = planReads(uneven, keys, options);
      expect(stretches.flatMap(({ wanted }) => wanted)).toEqual(uneven);
      const longest = Math.max(...stretches.map((stretch) => selection(stretch).length));
      // Linux takes 128 KiB.
      expect(longest).toBeLessThan(100_000);
    }
  });

  it("names frames in few words, counted from where it starts", () => {
    expect(selection({ from: 0, wanted: [5] })).toBe("eq(n,5)");
    expect(selection({ from: 10, wanted: [10, 12, 14, 16, 21] })).toBe(
      "between(n,0,6)*not(mod(n-0,2))+eq(n,11)",
    );
    expect(selection({ from: 0, wanted: [1, 2, 3, 4] })).toBe("between(n,1,4)");
  });

  it("makes pictures smaller, never larger, and never empty", () => {
    expect(sizeOf({ width: 1920, height: 1080 }, 640)).toEqual({ width: 640, height: 360 });
    expect(sizeOf({ width: 320, height: 180 }, 640)).toEqual({ width: 320, height: 180 });
    expect(sizeOf({ width: 8000, height: 2 }, 100)).toEqual({ width: 100, height: 1 });
  });
});

describe("the service's table of times", () => {
  it("counts from the first frame, in ticks coarse enough for 32 bits", () => {
    const near = ptsTable({ pts: Float64Array.from([-2, 0, 5]), timeBase: [1, 25] });
    expect([0, 1, 2].map((at) => near.bytes.readInt32LE(at * 4))).toEqual([0, 2, 7]);
    expect(near.timeBase).toEqual([1, 25]);
    const far = ptsTable({ pts: Float64Array.from([0, 1e10]), timeBase: [1, 10_000_000] });
    const seconds = (far.bytes.readInt32LE(4) * far.timeBase[0]) / far.timeBase[1];
    expect(seconds).toBeCloseTo(1_000, 4);
  });
});
