// The YOLO layouts: images/<split>, labels/<split>, and data.yaml with the classes in index order.
// It names no `path`: readers then take the folder that the file lies in, from wherever they run.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import {
  type Annotation,
  type ExportedImage,
  type Layout,
  type LayoutOptions,
  outlineOf,
  renamed,
} from "./layout.ts";

const written = (class_index: number, shares: readonly number[]) =>
  `${class_index} ${shares.map((share) => share.toFixed(6)).join(" ")}\n`;

/** `class cx cy w h`, shares of the image, six decimals. */
function boxLine({ class_index, bbox }: Annotation, { width, height }: ExportedImage): string {
  const [x1, y1, x2, y2] = bbox;
  return written(class_index, [
    (x1 + x2) / 2 / width,
    (y1 + y2) / 2 / height,
    (x2 - x1) / width,
    (y2 - y1) / height,
  ]);
}

/** `class x1 y1 x2 y2 …` of the mask, or of the box; a line of its box where that is not wanted. */
function ringLine(one: Annotation, image: ExportedImage, options: LayoutOptions): string {
  const ring = outlineOf(one, options);
  if (!ring) return boxLine(one, image);
  const share = (value: number, at: number) => value / (at % 2 === 0 ? image.width : image.height);
  return written(one.class_index, ring.map(share));
}

/** The layout of YOLO for detection: boxes only. */
export const yoloLayout = (manifest: ExportManifest): Layout => layoutOf(manifest, boxLine);

/** The layout of YOLO for segmentation. */
export const yoloSegLayout = (manifest: ExportManifest, options: LayoutOptions): Layout =>
  layoutOf(manifest, (one, image) => ringLine(one, image, options));

function layoutOf(
  manifest: ExportManifest,
  line: (one: Annotation, image: ExportedImage) => string,
): Layout {
  const splits = new Set<string>();
  return {
    imagePath: ({ split, name }) => `images/${split}/${name}`,
    add: async (image, zip) => {
      splits.add(image.split);
      const lines = image.annotations.map((one) => line(one, image));
      // An image without objects has an empty file: it is background, not unlabeled.
      await zip.add(`labels/${image.split}/${renamed(image, ".txt")}`, lines.join(""));
    },
    end: async (zip) => {
      const folder = (split: string, other: string) => (splits.has(split) ? split : other);
      const names = manifest.classes.map((name, index) => `  ${index}: ${JSON.stringify(name)}`);
      const yaml = [
        `train: images/${folder("train", "val")}`,
        `val: images/${folder("val", "train")}`,
        ...(splits.has("test") ? ["test: images/test"] : []),
        `nc: ${manifest.classes.length}`,
        "names:",
        ...names,
        "",
      ];
      await zip.add("data.yaml", yaml.join("\n"));
    },
  };
}
