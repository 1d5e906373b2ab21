// `node test/bench/vision-media.ts [clip]`: what reading frames and writing archives costs on this
// machine. Without a clip, ones that ffmpeg draws: 640×360 and 1920×1080, H.264, B-frames, GOP 250.

import { mkdtempSync, rmSync, statSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import type { Tools } from "../../gpu-node/media/ffmpeg.ts";
import { readFrames } from "../../gpu-node/media/frame-reader.ts";
import { toJpeg } from "../../gpu-node/media/stills.ts";
import { probeVideo, type VideoIndex } from "../../gpu-node/media/video.ts";
import { createZip } from "../../gpu-node/objects/zip-writer.ts";
import { clip, TOOLS } from "../support/clips.ts";

const print = (line: string) => process.stdout.write(`${line}\n`);
const report = (name: string, figure: number, unit: string) =>
  print(`${name.padEnd(62)} ${figure.toFixed(figure < 10 ? 2 : 0).padStart(8)} ${unit}`);

if (!TOOLS) {
  print("no ffmpeg here: apt-get install ffmpeg");
  process.exit(1);
}
const tools: Tools = TOOLS;

async function seconds(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return (performance.now() - started) / 1_000;
}

async function read(path: string, index: VideoIndex, wanted: number[], longestSide?: number) {
  for await (const _ of readFrames(tools, { path, index }, wanted, {
    longestSide: longestSide ?? null,
  }));
}

const drawn = (size: string) =>
  clip(
    `bench-${size}.mp4`,
    ...["-f", "lavfi", "-i", `testsrc2=s=${size}:r=30000/1001:d=40`, "-c:v", "libx264"],
    ...["-preset", "veryfast", "-bf", "3", "-g", "250", "-pix_fmt", "yuv420p"],
  );

const given = process.argv[2];
const [cpu] = cpus();
print(`${cpus().length} × ${cpu?.model.trim()}, Node ${process.version}, ffmpeg ${tools.version}`);
for (const path of given ? [given] : [drawn("640x360"), drawn("1920x1080")]) {
  let index: VideoIndex | undefined;
  const probe = await seconds(async () => {
    index = (await probeVideo(tools, path)).index;
  });
  if (!index) throw new Error("not probed");
  const { width, height, pts } = index;
  const size = `${width}×${height}`;
  const all = pts.length;
  report(`${size}, ${all} frames: probe (every frame decoded)`, all / probe, "frames/s");
  const known = index;
  const range = (from: number, step: number) =>
    Array.from({ length: Math.ceil((all - from) / step) }, (_, at) => from + at * step);
  const dense = await seconds(() => read(path, known, range(0, 1)));
  report(`${size}: read every frame`, all / dense, "frames/s");
  const small = await seconds(() => read(path, known, range(0, 1), 320));
  report(`${size}: read every frame, longest side 320`, all / small, "frames/s");
  const fifteen = range(7, 15);
  const sampled = await seconds(() => read(path, known, fifteen));
  report(`${size}: read every 15th frame (2 a second)`, fifteen.length / sampled, "frames/s");
  const alone = [0.13, 0.37, 0.61, 0.89].map((share) => Math.floor(all * share));
  const single = await seconds(async () => {
    for (const frame of alone) await read(path, known, [frame]);
  });
  report(`${size}: read one frame anywhere`, (single / alone.length) * 1_000, "ms");
}

const dir = mkdtempSync(join(tmpdir(), "vantage-bench-"));
try {
  const size = { width: 1920, height: 1080 };
  const data = Buffer.alloc(size.width * size.height * 3);
  for (let at = 0; at < data.length; at++) data[at] = (at * 7 + (at >> 9)) & 0xff;
  const images = 10;
  let jpeg: Buffer = Buffer.alloc(0);
  const encode = await seconds(async () => {
    for (let one = 0; one < images; one++) jpeg = await toJpeg({ data, ...size });
  });
  report("1920×1080 to JPEG, quality 90", images / encode, "images/s");
  const path = join(dir, "bench.zip");
  const write = await seconds(async () => {
    const zip = await createZip(path);
    const count = Math.ceil((512 * 1024 * 1024) / jpeg.length);
    for (let entry = 0; entry < count; entry++) await zip.add(`images/${entry}.jpg`, jpeg);
    await zip.end();
  });
  report("zip of images, stored, to disk", statSync(path).size / 1e6 / write, "MB/s");
} finally {
  rmSync(dir, { recursive: true, force: true });
}
