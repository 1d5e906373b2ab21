// A drawn set that has to be learned well, from scratch, by the settings that nobody chose: reddish
// discs, greenish squares and bluish triangles of any size on uneven grounds. It takes some ten
// minutes on two idle cores: LARGE=1 asks for it; the small set of train.test.ts is what every run
// learns. EPOCHS may be given; CURVES names a folder for the images.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ExportManifest } from "../../../shared/tasks/export-manifest.ts";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import { TrainSettings } from "../../../shared/wire/training.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { engineOrSay, machine } from "../../support/training.ts";
import { seeded } from "../../support/weights.ts";

const { LARGE, EPOCHS = "40", CURVES } = process.env;
const SIDE = 320;
const CLASSES = ["disc", "square", "triangle"];
const IMAGES = { train: 160, val: 40 };

type Annotation = ExportManifest["videos"][number]["frames"][number]["annotations"][number];

const colour = (random: () => number, low: number, high: number) =>
  `rgb(${[0, 1, 2].map(() => Math.round(low + (high - low) * random())).join()})`;
/** Most of one channel, some of the others. */
const ofClass = (random: () => number, classIndex: number) => {
  const channel = (at: number) => (at === classIndex ? 170 + 85 * random() : 110 * random());
  return `rgb(${[0, 1, 2].map((at) => Math.round(channel(at))).join()})`;
};

/** One to four shapes in the quarters of an image, and where they are. */
async function draw(random: () => number) {
  const annotations: Annotation[] = [];
  const quarters = [0, 1, 2, 3].filter(() => random() < 0.6);
  if (quarters.length === 0) quarters.push(Math.floor(random() * 4));
  const shapes = quarters.map((quarter) => {
    const size = 30 + 110 * random();
    const room = SIDE / 2 - size - 4;
    const x = (quarter % 2) * (SIDE / 2) + 2 + room * random();
    const y = Math.floor(quarter / 2) * (SIDE / 2) + 2 + room * random();
    const class_index = Math.floor(random() * CLASSES.length);
    const bbox: Annotation["bbox"] = [x, y, x + size, y + size];
    annotations.push({ id: crypto.randomUUID(), class_index, polygon: null, bbox });
    const half = size / 2;
    const fill = `fill="${ofClass(random, class_index)}"`;
    if (class_index === 0) return `<circle cx="${x + half}" cy="${y + half}" r="${half}" ${fill}/>`;
    if (class_index === 1) {
      return `<rect x="${x}" y="${y}" width="${size}" height="${size}" ${fill}/>`;
    }
    const [right, bottom] = [x + size, y + size];
    return `<polygon points="${x + half},${y} ${right},${bottom} ${x},${bottom}" ${fill}/>`;
  });
  const [dark, darker] = [colour(random, 40, 110), colour(random, 0, 90)];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${SIDE}" height="${SIDE}">
    <defs><linearGradient id="g"><stop offset="0" stop-color="${dark}"/>
    <stop offset="1" stop-color="${darker}"/></linearGradient></defs>
    <rect width="100%" height="100%" fill="url(#g)"/>${shapes.join("")}</svg>`;
  return { png: await sharp(Buffer.from(svg)).png().toBuffer(), annotations };
}

async function payloadOf(service: NodeService): Promise<TaskPayload<"train">> {
  const random = seeded(7);
  const videos: ExportManifest["videos"] = [];
  const sources = [];
  for (let at = 0; at < IMAGES.train + IMAGES.val; at++) {
    const { png, annotations } = await draw(random);
    const key = `ws/a/shapes/${at}.png`;
    sources.push(service.source(key, png));
    const split: "train" | "val" = at < IMAGES.train ? "train" : "val";
    const frames = [{ index: 0, split, annotations }];
    const named = { video_id: crypto.randomUUID(), filename: `shapes-${at}.png`, key };
    videos.push({ ...named, width: SIDE, height: SIDE, frames });
  }
  const manifest = ExportManifest.parse({
    name: "shapes",
    classes: CLASSES,
    left_out_frames: 0,
    videos,
  });
  const settings = TrainSettings.parse({ epochs: Number(EPOCHS), image_size: SIDE });
  return {
    run_id: crypto.randomUUID(),
    name: "shapes",
    settings,
    videos: sources,
    manifest: service.source("ws/a/shapes.json", Buffer.from(JSON.stringify(manifest))),
    pretrained: null,
    resume: null,
  };
}

let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

describe.skipIf(!LARGE || !engineOrSay())("drawn shapes at 320 px", () => {
  it("are learned to mAP50 0.95 from scratch", { timeout: 3_600_000 }, async () => {
    const here = machine(service);
    const started = performance.now();
    const result = await here.finish(await payloadOf(service));
    process.stderr.write(`${here.lines().join("\n")}\n`);
    process.stderr.write(`${Math.round((performance.now() - started) / 1_000)} s in all\n`);
    if (CURVES) {
      for (const { name, key } of result.artifacts) {
        writeFileSync(join(CURVES, name), service.objects.get(key) as Buffer);
      }
    }
    expect(result.model?.metrics.mAP50).toBeGreaterThanOrEqual(0.95);
  });
});
