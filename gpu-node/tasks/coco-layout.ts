// The COCO layout: images/<split> and annotations/instances_<split>.json. Ids count from 1 through
// both splits, so that the files can be joined.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { Annotation, ExportedImage, Layout, LayoutOptions } from "./layout.ts";
import { outlineOf } from "./layout.ts";

interface Instances {
  images: { id: number; file_name: string; width: number; height: number; frame_id: string }[];
  annotations: {
    id: number;
    image_id: number;
    category_id: number;
    bbox: [number, number, number, number];
    area: number;
    segmentation: (readonly number[])[];
    iscrowd: 0;
  }[];
}

/** The area within a ring, by the shoelace formula. */
function ringArea(ring: readonly number[]): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const next = (at + 2) % ring.length;
    twice += (ring[at] ?? 0) * (ring[next + 1] ?? 0) - (ring[next] ?? 0) * (ring[at + 1] ?? 0);
  }
  return Math.abs(twice) / 2;
}

function shapeOf(one: Annotation, options: LayoutOptions) {
  const [x1, y1, x2, y2] = one.bbox;
  const own = outlineOf(one, options);
  const flat = own !== null && ringArea(own) === 0;
  const ring = flat ? outlineOf({ ...one, polygon: null }, options) : own;
  return {
    bbox: [x1, y1, x2 - x1, y2 - y1] as [number, number, number, number],
    area: ring ? ringArea(ring) : (x2 - x1) * (y2 - y1),
    segmentation: ring ? [ring] : [],
  };
}

/** The layout of COCO, as pycocotools and torchvision read it. */
export function cocoLayout(manifest: ExportManifest, options: LayoutOptions): Layout {
  const splits = { train: emptyInstances(), val: emptyInstances(), test: emptyInstances() };
  let imageCount = 0;
  let annotationCount = 0;
  return {
    imagePath: ({ split, name }) => `images/${split}/${name}`,
    add: async (image: ExportedImage) => {
      const { images, annotations } = splits[image.split];
      const { name: file_name, width, height, frameId: frame_id } = image;
      imageCount += 1;
      images.push({ id: imageCount, file_name, width, height, frame_id });
      for (const one of image.annotations) {
        annotationCount += 1;
        annotations.push({
          id: annotationCount,
          image_id: imageCount,
          category_id: one.class_index + 1,
          ...shapeOf(one, options),
          iscrowd: 0,
        });
      }
    },
    end: async (zip) => {
      const info = { description: manifest.name, version: "1.0" };
      const categories = manifest.classes.map((name, index) => ({
        id: index + 1,
        name,
        supercategory: "",
      }));
      for (const [split, instances] of Object.entries(splits)) {
        if (instances.images.length === 0) continue;
        const document = { info, licenses: [], ...instances, categories };
        await zip.add(`annotations/instances_${split}.json`, JSON.stringify(document));
      }
    },
  };
}

const emptyInstances = (): Instances => ({ images: [], annotations: [] });
