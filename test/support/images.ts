// Images for the tests of the segmenters: drawn ones, whose truth is known, and real ones where
// this machine has them.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import sharp from "sharp";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";

const DATA = resolve(import.meta.dirname, "../../../shared/data");

/** A file of the shared real data, or null, said aloud, where it is not there. */
export function realData(path: string): string | null {
  const file = join(DATA, path);
  if (existsSync(file)) return file;
  process.stderr.write(`SKIPPED: the test needs real data that is not here: ${file}\n`);
  return null;
}

export async function decodeImage(source: string | Buffer): Promise<RgbImage> {
  const { data, info } = await sharp(source)
    .removeAlpha()
    .toColourspace("srgb")
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height };
}

/** Frames of a video at these seconds; null where there is no video or no ffmpeg. */
export async function videoFrames(
  path: string,
  seconds: readonly number[],
): Promise<RgbImage[] | null> {
  const file = realData(path);
  if (!file) return null;
  const frames: RgbImage[] = [];
  for (const second of seconds) {
    const input = ["-ss", String(second), "-i", file, "-frames:v", "1"];
    const output = ["-f", "image2pipe", "-c:v", "png", "-"];
    try {
      const options = { maxBuffer: 64_000_000 };
      const png = execFileSync("ffmpeg", ["-v", "error", ...input, ...output], options);
      frames.push(await decodeImage(png));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      process.stderr.write("SKIPPED: the test needs ffmpeg, which is not here\n");
      return null;
    }
  }
  return frames;
}

export interface Disc {
  x: number;
  y: number;
  radius: number;
}

export const boxOf = ({ x, y, radius }: Disc): Bbox => [
  x - radius,
  y - radius,
  x + radius,
  y + radius,
];

/** Red discs on a grey ground with a little seeded grain. */
export function discs(
  size: { width: number; height: number },
  shapes: readonly Disc[],
  seed = 1,
): RgbImage {
  const { width, height } = size;
  const data = new Uint8Array(width * height * 3);
  let state = seed;
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
      const grain = (state >> 16) % 9;
      const on = shapes.some(
        (disc) => Math.hypot(x + 0.5 - disc.x, y + 0.5 - disc.y) < disc.radius,
      );
      data.set(
        on ? [225 + grain, 40 + grain, 35] : [120 + grain, 122 + grain, 124 + grain],
        (y * width + x) * 3,
      );
    }
  return { data, width, height };
}

export interface BloodImage {
  id: string;
  image: RgbImage;
  truth: { name: string; bbox: Bbox }[];
}

/** One image of the blood cells with its boxes. */
export async function bloodImage(id: string): Promise<BloodImage | null> {
  const image = realData(`bccd/images/${id}.jpg`);
  const annotation = realData(`bccd/annotations/${id}.xml`);
  if (!image || !annotation) return null;
  const xml = readFileSync(annotation, "utf8");
  const truth = [...xml.matchAll(/<object>([\s\S]*?)<\/object>/g)].flatMap(([, object = ""]) => {
    const text = (tag: string) => object.match(new RegExp(`<${tag}>\\s*([^<]*?)\\s*<`))?.[1] ?? "";
    const sides = ["xmin", "ymin", "xmax", "ymax"].map((tag) => Number(text(tag)));
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = sides;
    return x2 > x1 && y2 > y1 ? [{ name: text("name"), bbox: [x1, y1, x2, y2] as Bbox }] : [];
  });
  return { id, image: await decodeImage(image), truth };
}

export const bloodSplit = (split: "train" | "val"): string[] => {
  const file = realData(`bccd/${split}.txt`);
  return file ? readFileSync(file, "utf8").trim().split("\n") : [];
};
