// The YOLO layout: images/<split>, labels/<split>, and data.yaml with the classes in index order.

import type { ExportManifest } from "../../shared/tasks.ts";
import type { Annotation, ExportedImage, Layout } from "./layout.ts";

/** `class cx cy w h`, shares of the image, six decimals. */
function line({ class_index, bbox }: Annotation, { width, height }: ExportedImage): string {
  const [x1, y1, x2, y2] = bbox;
  const shares = [
    (x1 + x2) / 2 / width,
    (y1 + y2) / 2 / height,
    (x2 - x1) / width,
    (y2 - y1) / height,
  ];
  return `${class_index} ${shares.map((share) => share.toFixed(6)).join(" ")}\n`;
}

export function yoloLayout(manifest: ExportManifest): Layout {
  const splits = new Set<string>();
  return {
    imagePath: ({ split, name }) => `images/${split}/${name}`,
    add: async (image, zip) => {
      splits.add(image.split);
      const lines = image.annotations.map((one) => line(one, image));
      // An image without objects has an empty file: it is background, not unlabeled.
      const name = image.name.replace(/\.jpg$/, ".txt");
      await zip.add(`labels/${image.split}/${name}`, lines.join(""));
    },
    end: async (zip) => {
      const folder = (split: string, other: string) => (splits.has(split) ? split : other);
      const names = manifest.classes.map((name, index) => `  ${index}: ${JSON.stringify(name)}`);
      const yaml = [
        "path: .",
        `train: images/${folder("train", "val")}`,
        `val: images/${folder("val", "train")}`,
        `nc: ${manifest.classes.length}`,
        "names:",
        ...names,
        "",
      ];
      await zip.add("data.yaml", yaml.join("\n"));
    },
  };
}
