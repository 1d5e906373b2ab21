// A small dataset of drawn shapes for the trainer's tests: red discs and blue squares on grey, each
// image an object of the store, and the payload of a train task over it.

import sharp from "sharp";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { TaskPayload } from "../../shared/tasks/tasks.ts";
import { TrainSettings } from "../../shared/wire/training.ts";
import type { NodeService } from "./node-service.ts";
import { seeded } from "./weights.ts";

export interface DrawnOptions {
  train?: number;
  val?: number;
  /** Copies of the validation images on the side `test`. */
  isTested?: boolean;
  /** Side of the images. */
  side?: number;
  seed?: number;
  classes?: string[];
  /** Whether the annotations have masks. */
  masks?: boolean;
}

type Annotation = ExportManifest["videos"][number]["frames"][number]["annotations"][number];

/** One image: one or two shapes that do not overlap, and where they are. */
async function draw(random: () => number, side: number, masks: boolean) {
  const annotations: Annotation[] = [];
  const shapes: string[] = [];
  const count = random() < 0.5 ? 1 : 2;
  for (let at = 0; at < count; at++) {
    const size = side * (0.22 + 0.14 * random());
    const room = side / count - size;
    const x = at * (side / count) + random() * Math.max(0, room);
    const y = random() * (side - size);
    const disc = random() < 0.5;
    const half = size / 2;
    shapes.push(
      disc
        ? `<circle cx="${x + half}" cy="${y + half}" r="${half}" fill="#d42020"/>`
        : `<rect x="${x}" y="${y}" width="${size}" height="${size}" fill="#2040d0"/>`,
    );
    annotations.push({
      id: crypto.randomUUID(),
      class_index: disc ? 0 : 1,
      polygon: masks ? outline([x + half, y + half], half, disc) : null,
      bbox: [x, y, x + size, y + size],
    });
  }
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${side}" height="${side}">
    <rect width="100%" height="100%" fill="#888888"/>${shapes.join("")}</svg>`;
  return { png: await sharp(Buffer.from(svg)).png().toBuffer(), annotations };
}

/** The ring of a disc or a square about a centre. */
const outline = ([x, y]: [number, number], half: number, disc: boolean): number[] =>
  Array.from({ length: disc ? 32 : 4 }, (_, corner) => {
    const angle = (2 * Math.PI * (corner + 0.5)) / (disc ? 32 : 4);
    const reach = disc ? half : half * Math.SQRT2;
    return [x + reach * Math.cos(angle), y + reach * Math.sin(angle)];
  }).flat();

export interface DrawnTask {
  manifest: ExportManifest;
  payload: TaskPayload<"train">;
}

/** Puts the images and their list into the store; gives a task's payload. */
export async function drawnDataset(
  service: NodeService,
  settings: Partial<TrainSettings> = {},
  options: DrawnOptions = {},
): Promise<DrawnTask> {
  const { train = 12, val = 4, side = 64, seed = 1, masks = false, isTested = false } = options;
  const { classes = ["disc", "square"] } = options;
  const random = seeded(seed);
  const videos: ExportManifest["videos"] = [];
  const sources = [];
  for (let at = 0; at < train + val; at++) {
    const { png, annotations } = await draw(random, side, masks);
    const key = `ws/a/images/${seed}-${side}-${at}.png`;
    sources.push(service.source(key, png));
    const split: "train" | "val" = at < train ? "train" : "val";
    const frames = [{ index: 0, split, annotations }];
    const named = { video_id: crypto.randomUUID(), filename: `image-${at}.png`, key };
    videos.push({ ...named, width: side, height: side, frames });
    if (!isTested || split !== "val") continue;
    const copy = { ...named, video_id: crypto.randomUUID(), width: side, height: side };
    videos.push({ ...copy, frames: [{ index: 0, split: "test", annotations }] });
  }
  const manifest = ExportManifest.parse({ name: "drawn", classes, left_out_frames: 0, videos });
  const bytes = Buffer.from(JSON.stringify(manifest));
  const run_id = crypto.randomUUID();
  // What is measured depends on the machine; tests compare runs to the bit.
  const precision = "fp32";
  const shape = { image_size: 64, epochs: 2, batch_size: 4 };
  const whole = TrainSettings.parse({ ...shape, precision, ...settings });
  const payload: TaskPayload<"train"> = {
    run_id,
    name: "drawn",
    settings: whole,
    videos: sources,
    pretrained: null,
    resume: null,
    manifest: service.source(`ws/a/manifests/${run_id}.json`, bytes),
  };
  return { manifest, payload };
}
