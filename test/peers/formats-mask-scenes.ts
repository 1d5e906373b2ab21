// Masks of detections and truths made from a seed, for average precision by masks: ellipses, of
// which detections are moved, resized and bitten into.

import type { Native } from "../../native/load.ts";
import { seeded } from "../support/weights.ts";

/** Sides of the images. */
export const MASK_SIDE = 64;
const CLASSES = 3;

/** A box as x1, y1, x2, y2, and the mask's cells row by row as a text of 0 and 1. */
interface MaskedBox {
  box: number[];
  classIndex: number;
  mask: string;
}
export interface MaskScene {
  name: string;
  classes: number;
  images: { truths: MaskedBox[]; detections: (MaskedBox & { confidence: number })[] }[];
}

interface Ellipse {
  x: number;
  y: number;
  rx: number;
  ry: number;
  /** The part of it that is left out, from the top. */
  bite: number;
}

function masked({ x, y, rx, ry, bite }: Ellipse, classIndex: number): MaskedBox {
  const cells = Array.from({ length: MASK_SIDE ** 2 }, (_, cell) => {
    const across = ((cell % MASK_SIDE) + 0.5 - x) / rx;
    const down = (Math.floor(cell / MASK_SIDE) + 0.5 - y) / ry;
    return Math.hypot(across, down) < 1 && down >= 2 * bite - 1;
  });
  const mask = cells.map((isSet) => (isSet ? "1" : "0")).join("");
  return { box: [x - rx, y - ry, x + rx, y + ry], classIndex, mask };
}

function scene(name: string, seed: number, spread: number): MaskScene {
  const random = seeded(seed);
  let count = 0;
  const images = Array.from({ length: 12 }, () => {
    const image: MaskScene["images"][0] = { truths: [], detections: [] };
    for (let index = 0; index < 5; index++) {
      const ellipse = {
        x: 10 + 44 * random(),
        y: 10 + 44 * random(),
        rx: 5 + 6 * random(),
        ry: 5 + 6 * random(),
        bite: 0,
      };
      const classIndex = Math.floor(random() * CLASSES);
      image.truths.push(masked(ellipse, classIndex));
      for (let copy = 0; copy < 3; copy++) {
        const near = (value: number) => value + (random() - 0.5) * spread;
        const { x, y, rx, ry } = ellipse;
        const moved = { x: near(x), y: near(y), rx: near(rx), ry: near(ry), bite: random() / 3 };
        // Those of an image differ; equal ones of several images count in the images' order.
        const confidence = ((count++ * 2_029) % 4_093) / 4_096;
        const claimed = random() < 0.9 ? classIndex : (classIndex + 1) % CLASSES;
        image.detections.push({ ...masked(moved, claimed), confidence });
      }
    }
    return image;
  });
  return { name, classes: CLASSES, images };
}

/** Scenes whose figures by pycocotools are in `test/golden/mask-average-precision.json` too. */
export const MASK_SCENES = [scene("close", 11, 2), scene("loose", 12, 5)];

/** A scene as `evaluateDetections` takes it. */
export function maskInput({
  classes,
  images,
}: MaskScene): Parameters<Native["evaluateDetections"]>[0] {
  const bytes = (own: MaskedBox[]) =>
    Uint8Array.from(own.flatMap(({ mask }) => Array.from(mask, Number)));
  return {
    classes,
    truths: images.map(({ truths }) =>
      Float32Array.from(truths.flatMap(({ classIndex, box }) => [classIndex, ...box])),
    ),
    detections: images.map(({ detections }) =>
      Float32Array.from(
        detections.flatMap(({ box, confidence, classIndex }) => [...box, confidence, classIndex]),
      ),
    ),
    masks: {
      height: MASK_SIDE,
      width: MASK_SIDE,
      truths: images.map(({ truths }) => bytes(truths)),
      detections: images.map(({ detections }) => bytes(detections)),
    },
  };
}
