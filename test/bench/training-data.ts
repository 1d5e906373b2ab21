// How fast the images of a training are made ready: stills out of the node's cache, decoded at the
// size of the training and written as pixels, by this process on one core and on two, in turn
// (`taskset`). The main thread's share of the processor time bounds what more cores can gain.
// Run: npm run bench -- training-data [--images 300 --size 640 --rounds 3]

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { prepareDataset } from "../../gpu-node/training/dataset.ts";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";
import { photograph } from "./serving-world.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    images: { type: "string", default: "300" },
    size: { type: "string", default: "640" },
    rounds: { type: "string", default: "3" },
  },
});
const IMAGES = Number(values.images);
/** A frame of a video, and a photograph that the decoder itself makes smaller. */
const SIDES = [
  { width: 1_280, height: 720 },
  { width: 2_560, height: 1_440 },
] as const;
const print = (line: string) => process.stdout.write(`${line}\n`);

interface Speed {
  imagesPerSecond: number;
  /** Processor time of an image, milliseconds, and the main thread's share of it. */
  cpuMs: number;
  mainShare: number;
}

/** Has all threads of this process run on so many cores. */
function pin(cores: number) {
  const list = cores === 1 ? "0" : `0-${cores - 1}`;
  const { status } = spawnSync("taskset", ["-a", "-p", "-c", list, String(process.pid)]);
  if (status !== 0) throw new Error("taskset (util-linux) is needed, and as many cores");
}

const median = (values: readonly number[]) =>
  values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? 0;

const dir = mkdtempSync(join(tmpdir(), "vantage-bench-data-"));
const service = await startNodeService();

async function measureStills({ width, height }: (typeof SIDES)[number]) {
  const image = await photograph(width, height, { quality: 90 });
  const stills = Array.from({ length: IMAGES + 1 }, (_, index) => {
    const key = `ws/a/images/${width}-${index}.jpg`;
    const annotations = [
      { id: crypto.randomUUID(), class_index: 0, bbox: [10, 10, 200, 200], polygon: null },
    ];
    const frames = [{ index: 0, split: index < IMAGES ? "train" : "val", annotations }];
    const video_id = crypto.randomUUID();
    const video = { video_id, filename: `${index}.jpg`, key, width, height, frames };
    return { video, source: service.source(key, image) };
  });
  const manifest = ExportManifest.parse({
    name: "stills",
    classes: ["disc"],
    left_out_frames: 0,
    videos: stills.map(({ video }) => video),
  });
  const videos = stills.map(({ source }) => source);
  /** All are in the cache of objects, and none is ready. */
  const measure = async (cpuThreads: number): Promise<Speed> => {
    pin(cpuThreads);
    const trainingDir = mkdtempSync(join(dir, "training-"));
    const machine = { device: "cpu" as const, cpuThreads, trainingDir };
    const context = await taskContext(service, dir, { machine });
    const options = { manifest, sha256: "x", videos, imageSize: Number(values.size) };
    const [all, main] = [process.cpuUsage(), process.threadCpuUsage()];
    const began = performance.now();
    await prepareDataset({ ...options, onProgress: () => {} }, context);
    const ms = performance.now() - began;
    const sum = ({ user, system }: NodeJS.CpuUsage) => (user + system) / 1_000;
    const cpuMs = sum(process.cpuUsage(all));
    return {
      imagesPerSecond: ((IMAGES + 1) * 1_000) / ms,
      cpuMs: cpuMs / (IMAGES + 1),
      mainShare: sum(process.threadCpuUsage(main)) / cpuMs,
    };
  };
  await measure(1);
  const ratios: number[] = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    const [one, two] = [await measure(1), await measure(2)];
    const ratio = two.imagesPerSecond / one.imagesPerSecond;
    ratios.push(ratio);
    const figures = [
      `${width} × ${height}`,
      one.imagesPerSecond.toFixed(0),
      two.imagesPerSecond.toFixed(0),
      `${ratio.toFixed(2)}×`,
      `${one.cpuMs.toFixed(1)} ms`,
      `${(100 * two.mainShare).toFixed(0)} %`,
    ];
    print(`| ${figures.join(" | ")} |`);
  }
  return median(ratios);
}

try {
  print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
  print(`${IMAGES} stills at ${values.size} px, load ${loadavg()[0]?.toFixed(1)}`);
  print(
    "| stills | one core, images/s | two, images/s | ratio | processor time of an image | of it on the main thread |",
  );
  print("|---|---|---|---|---|---|");
  for (const sides of SIDES) {
    print(`Median ratio: ${(await measureStills(sides)).toFixed(2)}×`);
  }
} finally {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);
