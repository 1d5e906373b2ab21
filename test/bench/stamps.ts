// Images of single animals whose boxes are known exactly: photographs cut out for Debian's
// tuxpaint-stamps-default (`apt-get download`, then `dpkg -x`), pasted onto frames of real videos.

import { existsSync } from "node:fs";
import { join } from "node:path";
import sharp from "sharp";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import type { Bbox } from "../../shared/tasks/tasks.ts";
import { dice } from "../support/dice.ts";
import { decodeImage } from "../support/images.ts";

/** The first four are among COCO's classes, the others are not. */
const KINDS: Readonly<Record<string, { folder: string; stamps: string }>> = {
  bird: { folder: "birds", stamps: "hen rooster drake duck silver-gull crow pigeon blackbird" },
  cow: { folder: "mammals/bovines", stamps: "cow cow_white bull zebu" },
  horse: { folder: "mammals/equines", stamps: "horse donkey donkey_eating" },
  sheep: { folder: "mammals/bovines", stamps: "sheep sheep_lamb ram" },
  "big cat": { folder: "mammals/cats", stamps: "lion lion-2 tiger tiger_sumatran" },
  deer: { folder: "mammals/deer", stamps: "deer caribou doe wapiti" },
  gnu: { folder: "mammals/bovines", stamps: "gnu-stand gnu-baby-stand gnu-baby" },
  pig: { folder: "mammals", stamps: "pig pig_golden pig_golden2" },
};
const SIZE = { width: 640, height: 480 };

export interface AnimalImage {
  kind: string;
  image: RgbImage;
  bbox: Bbox;
}

/** Two images of each stamp: at 140 to 380 pixels, anywhere on a background, half turned. */
export async function animalImages(
  stamps: string,
  backgrounds: readonly RgbImage[],
): Promise<AnimalImage[]> {
  const next = dice(7);
  const grounds = await Promise.all(
    backgrounds.map(({ data, width, height }) =>
      sharp(data, { raw: { width, height, channels: 3 } })
        .resize(SIZE)
        .png()
        .toBuffer(),
    ),
  );
  const images: AnimalImage[] = [];
  for (const [kind, { folder, stamps: names }] of Object.entries(KINDS))
    for (const name of names.split(" ").flatMap((each) => [each, each])) {
      const path = join(stamps, "animals", folder, `${name}.png`);
      if (!existsSync(path)) throw new Error(`no stamp ${path}`);
      const longest = Math.round(140 + next() * 240);
      const cut = await sharp(path).ensureAlpha().trim().png().toBuffer();
      const { data, info } = await sharp(cut)
        .resize(longest, longest, { fit: "inside" })
        .flop(next() < 0.5)
        .png()
        .toBuffer({ resolveWithObject: true });
      const left = Math.floor(next() * (SIZE.width - info.width));
      const top = Math.floor(next() * (SIZE.height - info.height));
      const ground = grounds[images.length % grounds.length];
      const drawn = await sharp(ground)
        .composite([{ input: data, left, top }])
        .png()
        .toBuffer();
      const bbox: Bbox = [left, top, left + info.width, top + info.height];
      images.push({ kind, image: await decodeImage(drawn), bbox });
    }
  return images;
}
