// The Pascal VOC layout: JPEGImages, Annotations with a file an image, ImageSets/Main with the
// splits, and the classes in labelmap.txt, as CVAT and Datumaro want those that are not VOC's own.
// Pixels are counted from 1 and the last one belongs to a box, as the VOC devkit has it: a box
// begins one later here than in our coordinates and ends at the same number. A box that is narrower
// than a pixel becomes one pixel wide: readers refuse one that ends before it begins.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import {
  type Annotation,
  type ExportedImage,
  type Layout,
  pixels,
  renamed,
  ringOf,
  xmlText,
} from "./layout.ts";

function objectOf(one: Annotation, image: ExportedImage, classes: readonly string[]): string[] {
  const [x1, y1, x2, y2] = one.bbox;
  const [left, top] = [Math.min(x1 + 1, image.width), Math.min(y1 + 1, image.height)];
  const corners = [
    ["xmin", left],
    ["ymin", top],
    ["xmax", Math.max(x2, left)],
    ["ymax", Math.max(y2, top)],
  ] as const;
  // A point of a mask is a position, and both its numbers count from 1.
  const points = (ringOf(one) ?? []).map((value, at) => {
    const name = `${at % 2 === 0 ? "x" : "y"}${Math.floor(at / 2) + 1}`;
    return `<${name}>${pixels(value + 1)}</${name}>`;
  });
  return [
    "  <object>",
    `    <name>${xmlText(classes[one.class_index] ?? "")}</name>`,
    "    <pose>Unspecified</pose>",
    "    <truncated>0</truncated>",
    "    <difficult>0</difficult>",
    `    <bndbox>${corners.map(([name, at]) => `<${name}>${pixels(at)}</${name}>`).join("")}</bndbox>`,
    ...(points.length > 0 ? [`    <polygon>${points.join("")}</polygon>`] : []),
    "  </object>",
  ];
}

/** The layout of Pascal VOC; a mask is a `polygon` in its object, which readers of boxes skip. */
export function vocLayout(manifest: ExportManifest): Layout {
  const stems: Record<ExportedImage["split"], string[]> = { train: [], val: [], test: [] };
  return {
    imagePath: ({ name }) => `JPEGImages/${name}`,
    add: async (image, zip) => {
      const { name, width, height, annotations } = image;
      stems[image.split].push(renamed(image, ""));
      const size = `<width>${width}</width><height>${height}</height><depth>3</depth>`;
      const lines = [
        "<annotation>",
        "  <folder>JPEGImages</folder>",
        `  <filename>${xmlText(name)}</filename>`,
        `  <source><database>${xmlText(manifest.name)}</database></source>`,
        `  <size>${size}</size>`,
        `  <segmented>${annotations.some(ringOf) ? 1 : 0}</segmented>`,
        ...annotations.flatMap((one) => objectOf(one, image, manifest.classes)),
        "</annotation>",
        "",
      ];
      await zip.add(`Annotations/${renamed(image, ".xml")}`, lines.join("\n"));
    },
    end: async (zip) => {
      const map = manifest.classes.map((name) => `${name.replace(/[:\r\n]/g, "_")}:::\n`);
      await zip.add("labelmap.txt", `# label:color_rgb:parts:actions\n${map.join("")}`);
      for (const [split, names] of Object.entries(stems)) {
        if (split === "test" && names.length === 0) continue;
        const lines = names.map((name) => `${name}\n`);
        await zip.add(`ImageSets/Main/${split}.txt`, lines.join(""));
      }
    },
  };
}
