// The COCO layout: images/<split> and annotations/instances_<split>.json. Ids count from 1.

import type { ExportManifest } from "../../shared/tasks.ts";
import type { Annotation, ExportedImage, Layout } from "./layout.ts";

interface Instances {
  images: { id: number; file_name: string; width: number; height: number }[];
  annotations: {
    id: number;
    image_id: number;
    category_id: number;
    bbox: [number, number, number, number];
    area: number;
    segmentation: number[][];
    iscrowd: 0;
  }[];
}

/** Of a ring, by the shoelace formula. */
function ringArea(ring: readonly number[]): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const next = (at + 2) % ring.length;
    twice += (ring[at] ?? 0) * (ring[next + 1] ?? 0) - (ring[next] ?? 0) * (ring[at + 1] ?? 0);
  }
  return Math.abs(twice) / 2;
}

function shapeOf({ bbox: [x1, y1, x2, y2], polygon }: Annotation) {
  const ring = polygon && polygon.length >= 6 ? polygon : null;
  const area = ring ? ringArea(ring) : 0;
  return {
    bbox: [x1, y1, x2 - x1, y2 - y1] as [number, number, number, number],
    area: area > 0 ? area : (x2 - x1) * (y2 - y1),
    segmentation: ring && area > 0 ? [ring] : [],
  };
}

export function cocoLayout(manifest: ExportManifest): Layout {
  const splits = { train: emptyInstances(), val: emptyInstances() };
  return {
    imagePath: ({ split, name }) => `images/${split}/${name}`,
    add: async (image: ExportedImage) => {
      const { images, annotations } = splits[image.split];
      const { name: file_name, width, height } = image;
      const image_id = images.length + 1;
      images.push({ id: image_id, file_name, width, height });
      for (const one of image.annotations) {
        annotations.push({
          id: annotations.length + 1,
          image_id,
          category_id: one.class_index + 1,
          ...shapeOf(one),
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
