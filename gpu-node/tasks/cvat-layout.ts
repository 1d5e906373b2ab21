// The layout "CVAT for images 1.1" of a project: images/<split> and annotations.xml, with a task
// for each split, the classes as labels, a box for what has no mask and a polygon for what has one.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { type Annotation, type Layout, pixels, ringOf, xmlText } from "./layout.ts";

function shapeOf(one: Annotation, classes: readonly string[]): string {
  const [x1, y1, x2, y2] = one.bbox.map(pixels);
  const head = `label="${xmlText(classes[one.class_index] ?? "")}" source="manual" occluded="0"`;
  const ring = ringOf(one)?.map(pixels);
  if (!ring) {
    return `    <box ${head} xtl="${x1}" ytl="${y1}" xbr="${x2}" ybr="${y2}" z_order="0"></box>`;
  }
  const points = ring.flatMap((x, at) => (at % 2 === 0 ? [`${x},${ring[at + 1]}`] : []));
  return `    <polygon ${head} points="${points.join(";")}" z_order="0"></polygon>`;
}

/** The layout of CVAT. Its one file of labels is held in memory until the end. */
export function cvatLayout(manifest: ExportManifest): Layout {
  const lines: string[] = [];
  const splits = new Set<string>();
  let imageCount = 0;
  return {
    imagePath: ({ split, name }) => `images/${split}/${name}`,
    add: async ({ name, split, width, height, annotations }) => {
      splits.add(split);
      const size = `width="${width}" height="${height}"`;
      lines.push(
        `  <image id="${imageCount}" name="${xmlText(name)}" subset="${split}" ${size}>`,
        ...annotations.map((one) => shapeOf(one, manifest.classes)),
        "  </image>",
      );
      imageCount += 1;
    },
    end: async (zip) => {
      const labels = manifest.classes.map(
        (name) => `<label><name>${xmlText(name)}</name><attributes></attributes></label>`,
      );
      const name = `<name>${xmlText(manifest.name)}</name>`;
      const tasks = [...splits].map((split) => `<task>${name}<subset>${split}</subset></task>`);
      const meta = [
        name,
        `<labels>${labels.join("")}</labels>`,
        `<tasks>${tasks.join("")}</tasks>`,
      ];
      const document = [
        '<?xml version="1.0" encoding="utf-8"?>',
        "<annotations>",
        "  <version>1.1</version>",
        `  <meta><project>${meta.join("")}</project></meta>`,
        ...lines,
        "</annotations>",
        "",
      ];
      await zip.add("annotations.xml", document.join("\n"));
    },
  };
}
