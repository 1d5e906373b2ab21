// Detections and truths made from a seed, and the average precision that our engine gives them;
// that of scenes with crowds, which it does not know, is by the evaluator that its tests hold it
// against. The engine is loaded in a process of its own, as the product does.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ENGINE_ENVIRONMENT, loadEngine } from "../../native/load.ts";
import { type Input, plainEvaluation } from "../native/plain-metrics.ts";
import { seeded } from "../support/weights.ts";
import { execute } from "./environments.ts";
import { MASK_SCENES, type MaskScene, maskInput } from "./formats-mask-scenes.ts";
import { runScene } from "./formats-run-scene.ts";

/** Boxes are x1, y1, x2, y2 in quarters of a pixel, which both sides hold exactly. */
interface SceneImage {
  /** Class index, then the box. */
  truths: number[][];
  /** The box, then confidence and class index. */
  detections: number[][];
}
export interface Scene {
  name: string;
  classes: number;
  images: SceneImage[];
  /** Indices of truths by image that are crowds, and of those that are ignored. */
  crowds?: number[][];
  ignored?: number[][];
}

const CLASSES = 3;
const ENGINE_MS_MAX = 60_000;

interface SceneOptions {
  seed: number;
  /** Pixels between neighbours; objects are 30 to 40 wide, and overlap where this is less. */
  stride: number;
  /** Detections an object. */
  copies: number;
  /** Whether all but the first of them are hardly sure, as those of a head without suppression. */
  faint?: boolean;
}

/** Images of nine objects of a few classes, each with detections near it. */
function scene(name: string, options: SceneOptions): Scene {
  const { seed, stride, copies, faint = false } = options;
  const random = seeded(seed);
  const quarter = (value: number) => Math.round(value * 4) / 4;
  let detectionCount = 0;
  const images = Array.from({ length: 20 }, (): SceneImage => {
    const image: SceneImage = { truths: [], detections: [] };
    for (let index = 0; index < 9; index++) {
      const [x, y] = [(index % 3) * stride, Math.floor(index / 3) * stride];
      const side = 30 + 10 * random();
      const box = [x, y, x + side, y + side].map(quarter);
      const classIndex = Math.floor(random() * CLASSES);
      image.truths.push([classIndex, ...box]);
      for (let copy = 0; copy < copies; copy++) {
        const shift = () => (random() - 0.5) * 16;
        const [dx, dy] = [shift(), shift()];
        // Those of an image differ; equal ones of several images count in the images' order.
        const unique = ((detectionCount++ * 2_029) % 4_093) / 4_096;
        const confidence = faint ? (copy === 0 ? 0.5 + unique / 2 : unique / 8) : unique;
        const near = box.map((value, at) => quarter(value + (at % 2 ? dy : dx)));
        const claimed = random() < 0.85 ? classIndex : (classIndex + 1) % CLASSES;
        image.detections.push([...near, confidence, claimed]);
      }
    }
    return image;
  });
  return { name, classes: CLASSES, images };
}

/** Scenes whose figures by pycocotools are in `test/golden/average-precision.json` too. */
export const SCENES = [
  // Nothing can be paired otherwise here: the figure itself is compared.
  scene("single", { seed: 3, stride: 100, copies: 1 }),
  scene("apart", { seed: 1, stride: 100, copies: 3 }),
  scene("crowded", { seed: 2, stride: 18, copies: 3 }),
  // More detections of a class in an image than COCO counts.
  scene("faint", { seed: 4, stride: 60, copies: 40, faint: true }),
];

/** The scene with crowds before and after its objects, and one truth of so many ignored. */
function marked(one: Scene, { isCrowded = false, ignoredEvery = Infinity }): Scene {
  const regions = isCrowded
    ? Array.from({ length: CLASSES }, (_, classIndex) => [
        classIndex,
        ...[20 * classIndex, 0, 20 * classIndex + 90, 70],
      ])
    : [];
  const images = one.images.map(({ truths, detections }) => {
    const [first = [], ...others] = regions;
    return { detections, truths: isCrowded ? [first, ...truths, ...others] : truths };
  });
  const indicesOf = (is: (index: number, count: number) => boolean) =>
    images.map(({ truths }) => [...truths.keys()].filter((index) => is(index, truths.length)));
  return {
    ...one,
    images,
    crowds: indicesOf(
      (index, count) => isCrowded && (index === 0 || index > count - regions.length),
    ),
    ignored: indicesOf((index) => index % ignoredEvery === 2),
  };
}

const faint = { stride: 60, copies: 8, faint: true };
/** Scenes of what our datasets do not have: for the evaluator that ours is held against. */
export const CROWD_SCENES = [
  marked(scene("crowd regions", { seed: 5, ...faint }), { isCrowded: true }),
  marked(scene("ignored objects", { seed: 6, ...faint }), { ignoredEvery: 3 }),
  marked(scene("crowds and ignored", { seed: 7, stride: 18, copies: 3 }), {
    isCrowded: true,
    ignoredEvery: 4,
  }),
];

const flat = (rows: number[][]) => Float32Array.from(rows.flat());
/** A scene as evaluators take it. */
export const sceneInput = ({ classes, images, crowds = [], ignored = [] }: Scene): Input => ({
  classes,
  detections: images.map(({ detections }) => flat(detections)),
  truths: images.map(({ truths }) => flat(truths)),
  crowds,
  ignored,
});

/** Writes the scenes with our figures beside them, or tells why there is no engine. */
export async function writeScenes(
  folder: string,
): Promise<{ path: string; masksPath: string } | { missing: string }> {
  const [path, masksPath] = [join(folder, "scenes.json"), join(folder, "mask-scenes.json")];
  writeFileSync(path, JSON.stringify([...SCENES, ...CROWD_SCENES]));
  writeFileSync(masksPath, JSON.stringify(MASK_SCENES));
  const command = [process.execPath, import.meta.filename, path, masksPath] as const;
  const { code, output } = await execute(command, {
    msMax: ENGINE_MS_MAX,
    env: { ...ENGINE_ENVIRONMENT },
  });
  if (code === 0) return { path, masksPath };
  return { missing: output.trim().split("\n").at(-1) ?? "" };
}

/** As a program: adds the engine's figures to a file of scenes, and to one of scenes of masks. */
async function measure(path: string, masksPath: string) {
  const loaded = loadEngine();
  if ("missing" in loaded) {
    process.stderr.write(`${loaded.missing}\n`);
    process.exit(1);
  }
  const scenes = JSON.parse(readFileSync(path, "utf8")) as Scene[];
  const measured = scenes.map((one) => {
    const input = sceneInput(one);
    const { mAP50, mAP50_95, perClass } = one.crowds
      ? plainEvaluation(input)
      : loaded.native.evaluateDetections(input);
    const curves = perClass.map((own) => [...(own?.curves.precisionByRecall ?? [])]);
    return { ...one, ours: { mAP50, mAP50_95, precision_by_recall: curves } };
  });
  writeFileSync(path, JSON.stringify([...measured, await runScene(loaded.native)]));
  const masked = JSON.parse(readFileSync(masksPath, "utf8")) as MaskScene[];
  const byMasks = masked.map((one) => {
    const result = loaded.native.evaluateDetections(maskInput(one));
    return { ...one, ours: { mAP50: result.maskMAP50, mAP50_95: result.maskMAP50_95 } };
  });
  writeFileSync(masksPath, JSON.stringify(byMasks));
}

if (process.argv[1] === import.meta.filename)
  await measure(process.argv[2] ?? "", process.argv[3] ?? "");
