// How fast the images of a training are made ready: stills out of the node's cache, decoded,
// resized and written as pixels, with one hand and with as many as there are cores, in turn.
// Run: npm run bench -- training-data [--images 300 --size 640]

import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { prepareDataset } from "../../gpu-node/training/dataset.ts";
import { ExportManifest } from "../../shared/export-manifest.ts";
import { startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";
import { photograph } from "./serving-world.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    images: { type: "string", default: "300" },
    size: { type: "string", default: "640" },
  },
});
const IMAGES = Number(values.images);
const ROUNDS = 3;
const print = (line: string) => process.stdout.write(`${line}\n`);

const dir = mkdtempSync(join(tmpdir(), "vantage-bench-data-"));
const service = await startNodeService();
try {
  const image = await photograph(1_280, 720, { quality: 90 });
  const stills = Array.from({ length: IMAGES + 1 }, (_, index) => {
    const key = `ws/a/images/${index}.jpg`;
    const annotations = [
      { id: crypto.randomUUID(), class_index: 0, bbox: [10, 10, 200, 200], polygon: null },
    ];
    const frames = [{ index: 0, split: index < IMAGES ? "train" : "val", annotations }];
    const video_id = crypto.randomUUID();
    const video = { video_id, filename: `${index}.jpg`, key, width: 1_280, height: 720, frames };
    return { video, source: service.source(key, image) };
  });
  const manifest = ExportManifest.parse({
    name: "stills",
    classes: ["disc"],
    videos: stills.map(({ video }) => video),
  });
  const videos = stills.map(({ source }) => source);
  /** Images a second; all are in the cache of objects, and none is ready. */
  const measure = async (cpuThreads: number) => {
    const trainingDir = mkdtempSync(join(dir, "training-"));
    const machine = { device: "cpu" as const, cpuThreads, trainingDir };
    const context = await taskContext(service, dir, { machine });
    const options = { manifest, sha256: "x", videos, imageSize: Number(values.size) };
    const began = performance.now();
    await prepareDataset({ ...options, onProgress: () => {} }, context);
    return ((IMAGES + 1) * 1_000) / (performance.now() - began);
  };
  print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}`);
  print(`${IMAGES} stills of 1280 × 720 at ${values.size} px`);
  print("| one hand, images/s | all cores, images/s | ratio |");
  print("|---|---|---|");
  await measure(1);
  for (let round = 0; round < ROUNDS; round++) {
    const [one, all] = [await measure(1), await measure(cpus().length)];
    print(`| ${one.toFixed(0)} | ${all.toFixed(0)} | ${(all / one).toFixed(2)}× |`);
  }
} finally {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);
