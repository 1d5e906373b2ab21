// The image that a new model is tried on: one that the device saw itself, and before it saw any, a
// drawn one.

import { existsSync } from "node:fs";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { RgbImage } from "../media/image.ts";
import { readStill, toJpeg } from "../media/stills.ts";

const DRAWN_SIDE = 320;

const fileOf = (dir: string) => join(dir, "trial.jpg");

/** A gradient with a disc in its middle: no model is at a loss of something to look at. */
function drawn(): RgbImage {
  const data = new Uint8Array(3 * DRAWN_SIDE * DRAWN_SIDE);
  const middle = DRAWN_SIDE / 2;
  for (let y = 0; y < DRAWN_SIDE; y++) {
    for (let x = 0; x < DRAWN_SIDE; x++) {
      const isDisc = Math.hypot(x - middle, y - middle) < middle / 2;
      const at = 3 * (y * DRAWN_SIDE + x);
      data[at] = isDisc ? 220 : Math.round((255 * x) / DRAWN_SIDE);
      data[at + 1] = isDisc ? 60 : Math.round((255 * y) / DRAWN_SIDE);
      data[at + 2] = isDisc ? 40 : 128;
    }
  }
  return { data, width: DRAWN_SIDE, height: DRAWN_SIDE };
}

/** The image to try a model on; one that was spoilt is as none. */
export const trialImage = (dir: string): Promise<RgbImage> =>
  existsSync(fileOf(dir)) ? readStill(fileOf(dir)).catch(drawn) : Promise.resolve(drawn());

/** Keeps an image of the device's own for trials, where there is none yet. */
export async function keepTrialImage(dir: string, image: RgbImage): Promise<void> {
  const path = fileOf(dir);
  if (existsSync(path)) return;
  await writeFile(`${path}.new`, await toJpeg(image), { mode: 0o600 });
  await rename(`${path}.new`, path);
}
