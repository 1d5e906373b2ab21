// Hashes of images. Goal: copies of one image are near, whatever was done to their file, and
// images of different things are far apart; a plain image is like none.

import sharp, { type Sharp } from "sharp";
import { expect, it } from "vitest";
import { imageHashes } from "../../../gpu-node/media/image-hash.ts";
import { seeded } from "../../support/weights.ts";

const [WIDTH, HEIGHT] = [320, 240];

/** An image of soft blobs, other ones for each seed. */
function scene(seed: number): Sharp {
  const random = seeded(seed);
  const blobs = Array.from({ length: 40 }, () => {
    const [x, y, r, tone] = [
      random() * WIDTH,
      random() * HEIGHT,
      8 + random() * 40,
      random() * 255,
    ];
    return `<circle cx="${x}" cy="${y}" r="${r}" fill="rgb(${tone},${255 - tone},90)"/>`;
  });
  const svg = `<svg width="${WIDTH}" height="${HEIGHT}"><rect width="100%" height="100%" fill="#888"/>${blobs.join("")}</svg>`;
  return sharp(Buffer.from(svg)).removeAlpha().blur(2);
}
async function hashesOf(image: Sharp) {
  const { data, info } = await image.removeAlpha().raw().toBuffer({ resolveWithObject: true });
  return imageHashes({ data, width: info.width, height: info.height });
}
function distance(one: string | null, other: string | null): number {
  const [a, b] = [Buffer.from(one ?? "", "hex"), Buffer.from(other ?? "", "hex")];
  expect([a.length, b.length]).toEqual([32, 32]);
  return [...a].reduce((sum, byte, at) => {
    const differing = (byte ^ (b[at] as number)).toString(2).replaceAll("0", "").length;
    return sum + differing;
  }, 0);
}

it("are near for copies of one image, and far apart for different ones", async () => {
  const originals = await Promise.all(
    Array.from({ length: 12 }, (_, seed) => hashesOf(scene(seed + 1))),
  );
  for (const [seed, original] of originals.entries()) {
    const file = await scene(seed + 1)
      .png()
      .toBuffer();
    const copies: Record<string, Sharp> = {
      "a low quality": sharp(await sharp(file).jpeg({ quality: 30 }).toBuffer()),
      "another size": sharp(await sharp(file).resize(200).png().toBuffer()),
      brighter: sharp(file).modulate({ brightness: 1.15 }),
      cut: sharp(
        await sharp(file).extract({ left: 4, top: 3, width: 312, height: 234 }).png().toBuffer(),
      ),
    };
    for (const [name, copy] of Object.entries(copies)) {
      const { dhash, pixels_sha256 } = await hashesOf(copy);
      expect([name, distance(dhash, original.dhash) <= 40]).toEqual([name, true]);
      expect(pixels_sha256).not.toBe(original.pixels_sha256);
    }
    for (const other of originals.slice(0, seed)) {
      expect(distance(original.dhash, other.dhash)).toBeGreaterThan(60);
    }
  }
});

it("are equal for equal pixels, and differ by the shape of the image", async () => {
  const [png, webp] = await Promise.all([
    scene(5).png().toBuffer(),
    scene(5).webp({ lossless: true }).toBuffer(),
  ]);
  expect(await hashesOf(sharp(webp))).toEqual(await hashesOf(sharp(png)));
  const pixels = new Uint8Array(12 * 3);
  const wide = await imageHashes({ data: pixels, width: 12, height: 1 });
  const high = await imageHashes({ data: pixels, width: 1, height: 12 });
  expect(wide.pixels_sha256).not.toBe(high.pixels_sha256);
});

it("say nothing of the look of a plain image", async () => {
  const create = { width: WIDTH, height: HEIGHT, channels: 3 as const, background: "#a40" };
  const dot = Buffer.from('<svg width="40" height="40"><circle cx="20" cy="20" r="18"/></svg>');
  const dotted = sharp(
    await sharp({ create })
      .composite([{ input: dot }])
      .png()
      .toBuffer(),
  );
  expect((await hashesOf(sharp({ create }))).dhash).toBeNull();
  expect((await hashesOf(dotted)).dhash).toBeNull();
});
