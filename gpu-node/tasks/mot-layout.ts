// The layout "MOT 1.1" as CVAT and Datumaro have it: a sequence for each video with gt/gt.txt,
// gt/labels.txt, img1 and seqinfo.ini. A sequence has all its frames, so those of the dataset are
// numbered from 1 on. Coordinates count from 0 as there, where MOTChallenge's own files have 1.

import type { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import { tracksOf } from "./export-tracks.ts";
import { type ExportedImage, type Layout, pixels } from "./layout.ts";

const extensionOf = ({ name }: ExportedImage): string => name.slice(name.lastIndexOf("."));

/** `frame,id,x,y,w,h,1,class,visibility`, by frame and then by track. */
function groundTruth(images: readonly ExportedImage[]): string {
  const numbers = new Map(images.map((image) => [image.index, image.position + 1]));
  const rows = tracksOf(images).flatMap(({ id, classIndex, shapes }) =>
    [...shapes].map(([index, { bbox }]) => {
      const [x1, y1, x2, y2] = bbox;
      const box = [x1, y1, x2 - x1, y2 - y1].map(pixels);
      return { number: numbers.get(index) ?? 0, id, end: [...box, 1, classIndex + 1, 1] };
    }),
  );
  return rows
    .toSorted((one, other) => one.number - other.number || one.id - other.id)
    .map(({ number, id, end }) => `${[number, id, ...end].join(",")}\n`)
    .join("");
}

function sequenceInfo(images: readonly ExportedImage[]): string {
  const [first] = images;
  if (!first) return "";
  const { sequence, width, height } = first;
  const { frames, fps } = sequence;
  const span = (frames.at(-1) ?? 0) - (frames[0] ?? 0);
  // The rate of the frames that are in it; readers take whole numbers alone.
  const rate = span > 0 ? ((frames.length - 1) / span) * fps : fps;
  return [
    "[Sequence]",
    `name=${sequence.name}`,
    "imDir=img1",
    `frameRate=${Math.max(1, Math.round(rate))}`,
    `seqLength=${images.length}`,
    `imWidth=${width}`,
    `imHeight=${height}`,
    `imExt=${extensionOf(first)}`,
    "",
  ].join("\n");
}

/** The layout of MOT. A video's labels are held in memory until the end. */
export function motLayout({ classes }: ExportManifest): Layout {
  const videos = new Map<string, ExportedImage[]>();
  return {
    imagePath: (image) => {
      const number = String(image.position + 1).padStart(6, "0");
      return `${image.sequence.name}/img1/${number}${extensionOf(image)}`;
    },
    add: async (image) => {
      const images = videos.get(image.sequence.name);
      if (images) images.push(image);
      else videos.set(image.sequence.name, [image]);
    },
    end: async (zip) => {
      const labels = classes.map((name) => `${name.replace(/[\r\n]/g, " ")}\n`).join("");
      for (const [name, images] of videos) {
        await zip.add(`${name}/gt/gt.txt`, groundTruth(images));
        await zip.add(`${name}/gt/labels.txt`, labels);
        await zip.add(`${name}/seqinfo.ini`, sequenceInfo(images));
      }
    },
  };
}
