// Stills that are read at the size at which a detector looks at them. Goal: the pixels are those of
// the whole image made smaller, in whatever file and however it is turned, or it is refused alike;
// of a JPEG that a training reads at a part of its size, they are the training's.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp, { type Sharp } from "sharp";
import { expect, it } from "vitest";
import { resize } from "../../../gpu-node/media/image.ts";
import { readStill, readStillAt, readStillWithin } from "../../../gpu-node/media/stills.ts";
import { type ImageSize, placementOf } from "../../../shared/detector/letterbox.ts";
import { noiseImage } from "../../support/noise.ts";

const SIDE = 96;
const sizeOf = (own: ImageSize) => placementOf(own, { width: SIDE, height: SIDE }).laid;
const drawn = () => noiseImage(371, 231).blur(1.5);
const turned = (orientation: number): Sharp => drawn().jpeg().withMetadata({ orientation });

it.each<[string, Sharp]>([
  ["a JPEG", drawn().jpeg({ quality: 92 })],
  ["a progressive JPEG of whole colours", drawn().jpeg({ progressive: true, mozjpeg: true })],
  ["a PNG many times as large", noiseImage(1_600, 900).blur(2).png()],
  ["one that is smaller", noiseImage(50, 31).jpeg()],
  ["one of that size", noiseImage(SIDE, 54).jpeg()],
  ["a JPEG on its side", turned(6)],
  ["a JPEG on its head", turned(3)],
  ["a JPEG in a mirror, on its side", turned(5)],
  ["a JPEG of a wider range of colours", drawn().jpeg().withIccProfile("p3")],
  ["a JPEG for print", drawn().toColourspace("cmyk").jpeg()],
  ["a grey JPEG", drawn().greyscale().jpeg()],
  ["a PNG", drawn().png()],
  ["a PNG of 16 bits", drawn().toColourspace("rgb16").png()],
  ["a PNG that shows what is behind it", drawn().ensureAlpha(0.4).png()],
  ["such a one of 16 bits", drawn().ensureAlpha(0.4).toColourspace("rgb16").png()],
  ["a PNG of a palette", drawn().png({ palette: true })],
  ["a WebP", drawn().webp()],
  ["a WebP that shows what is behind it", drawn().ensureAlpha(0.3).webp()],
  ["a GIF", noiseImage(200, 150).gif()],
  ["a TIFF", drawn().tiff()],
  ["an AVIF", noiseImage(200, 150).avif()],
])("%s", async (_, image) => {
  const file = await image.toBuffer();
  const whole = await readStill(file);
  const expected = await resize(whole, sizeOf(whole));
  const { image: sized, of } = await readStillAt(file, sizeOf);
  expect(of).toEqual({ width: whole.width, height: whole.height });
  expect([sized.width, sized.height]).toEqual([expected.width, expected.height]);
  expect(Buffer.compare(sized.data, expected.data)).toBe(0);
});

it.each<[string, Sharp]>([
  [
    "four times",
    noiseImage(4 * SIDE, 216)
      .blur(2)
      .jpeg(),
  ],
  ["many times", noiseImage(1_600, 900).blur(2).jpeg()],
  ["many times, and upright", noiseImage(500, 1_111).jpeg({ progressive: true })],
  ["many times, in grey", noiseImage(1_000, 700).greyscale().jpeg()],
  ["many times, of a wider range of colours", noiseImage(900, 900).jpeg().withIccProfile("p3")],
])("has a training's pixels where it is a JPEG %s as large", async (_, image) => {
  const dir = mkdtempSync(join(tmpdir(), "vantage-stills-"));
  try {
    const file = await image.toBuffer();
    writeFileSync(join(dir, "image"), file);
    const trained = await readStillWithin(join(dir, "image"), SIDE);
    const served = await readStillAt(file, sizeOf);
    expect(served.of).toEqual(trained.of);
    expect(Buffer.compare(served.image.data, trained.image.data)).toBe(0);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

it("is refused in the same words as the whole one", async () => {
  const jpeg = await drawn().jpeg().toBuffer();
  const drawing = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>');
  const bomb = await sharp({
    create: { width: 20_000, height: 5_001, channels: 3, background: "#000" },
  })
    .png({ compressionLevel: 9 })
    .toBuffer();
  const files = [jpeg.subarray(0, jpeg.length >> 1), jpeg.subarray(0, 90), drawing, bomb];
  const said = (read: Promise<unknown>) =>
    read.then(
      () => "taken",
      (thrown: Error) => `${thrown.name}: ${thrown.message}`,
    );
  for (const file of files) {
    const words = await said(readStillAt(file, sizeOf));
    expect(words).not.toBe("taken");
    expect(words).toBe(await said(readStill(file)));
  }
});
