// Data sets that trainings are measured on: blood cells, and drawn shapes of many classes. Each has
// images to train on and others that are only ever measured; what is chosen is chosen on a part
// of the former. The same on every machine, so that a training goes on in another process.

import { readFileSync } from "node:fs";
import sharp from "sharp";
import { ExportManifest } from "../../shared/tasks/export-manifest.ts";
import type { Bbox, ObjectSource } from "../../shared/tasks/tasks.ts";
import { BLOOD_CLASSES } from "../support/blood-cells.ts";
import { bloodImage, bloodSplit, realData } from "../support/images.ts";
import { seeded } from "../support/weights.ts";

export interface LabeledImage {
  /** Of its file. */
  name: string;
  bytes: Buffer;
  width: number;
  height: number;
  truths: { classIndex: number; bbox: Bbox }[];
}

export interface ImageCollection {
  classes: string[];
  train: LabeledImage[];
  /** TrainingFigures, and never chosen on. */
  val: LabeledImage[];
}

/** Images of a training and of what it is chosen on. */
export interface Split {
  train: LabeledImage[];
  val: LabeledImage[];
}

export const SET_NAMES = ["blood", "shapes"] as const;
export type SetName = (typeof SET_NAMES)[number];

/** One image of so many is held out of those to train on, for choosing. */
const HELD_EVERY = 5;

/** A data set; fails where its images are not on this machine. */
export const imageSet = (name: SetName): Promise<ImageCollection> =>
  name === "blood" ? bloodSet() : shapeSet();

/**
 * The images to train on without every fifth, which the epoch is chosen on; or with all of them,
 * where what it is chosen on was learned too and says no more than which epoch learned most.
 */
export function innerSplit({ train }: ImageCollection, { isWhole }: { isWhole: boolean }): Split {
  const isHeld = (_: LabeledImage, index: number) => index % HELD_EVERY === HELD_EVERY - 1;
  const val = train.filter(isHeld);
  return { train: isWhole ? train : train.filter((one) => !val.includes(one)), val };
}

async function bloodSet(): Promise<ImageCollection> {
  const read = (split: "train" | "val") =>
    Promise.all(
      bloodSplit(split).map(async (id): Promise<LabeledImage> => {
        const file = realData(`bccd/images/${id}.jpg`);
        const blood = await bloodImage(id);
        if (!blood || !file) throw new Error("the images of blood cells are not on this machine");
        const { width, height } = blood.image;
        const truths = blood.truth.map(({ name, bbox }) => {
          return { classIndex: BLOOD_CLASSES.indexOf(name), bbox };
        });
        return { name: `${id}.jpg`, bytes: readFileSync(file), width, height, truths };
      }),
    );
  const [train, val] = [await read("train"), await read("val")];
  if (train.length === 0) throw new Error("the images of blood cells are not on this machine");
  return { classes: BLOOD_CLASSES, train, val };
}

const SIDE = 320;
/** As many as of blood cells. */
const DRAWN = { train: 205, val: 87 };
const COLORS = { red: 0, yellow: 55, green: 120, blue: 215 } as const;
/** Corners of the unit circle's shapes by angle in turns and radius; null is the circle. */
const FORMS: Readonly<Record<string, readonly (readonly [number, number])[] | null>> = {
  disc: null,
  triangle: corners(3),
  square: corners(4),
  hexagon: corners(6),
  star: Array.from({ length: 10 }, (_, at) => [at / 10, at % 2 ? 0.45 : 1] as const),
  bar: [0.06, 0.44, 0.56, 0.94].map((turn) => [turn, 1] as const),
};

function corners(count: number) {
  return Array.from({ length: count }, (_, at) => [at / count, 1] as const);
}

/** Forms in colours, turned, one over the other, on an uneven ground. */
async function shapeSet(): Promise<ImageCollection> {
  const classes = Object.keys(COLORS).flatMap((color) =>
    Object.keys(FORMS).map((form) => `${color} ${form}`),
  );
  const draw = async (split: "train" | "val", seed: number) => {
    const random = seeded(seed);
    const images: LabeledImage[] = [];
    for (let at = 0; at < DRAWN[split]; at++) images.push(await drawn(`${split}-${at}`, random));
    return images;
  };
  return { classes, train: await draw("train", 101), val: await draw("val", 202) };
}

async function drawn(name: string, random: () => number): Promise<LabeledImage> {
  const between = (min: number, max: number) => min + (max - min) * random();
  const shade = () => `hsl(${between(0, 360)} ${between(0, 30)}% ${between(30, 80)}%)`;
  const truths: LabeledImage["truths"] = [];
  const shapes: string[] = [];
  const count = Math.floor(between(3, 10));
  for (let tries = 0; truths.length < count && tries < 100; tries++) {
    const radius = between(10, 42);
    const [x, y] = [between(radius, SIDE - radius), between(radius, SIDE - radius)];
    const color = Math.floor(random() * Object.keys(COLORS).length);
    const form = Math.floor(random() * Object.keys(FORMS).length);
    const turned = random();
    const fill =
      `hsl(${(Object.values(COLORS)[color] ?? 0) + between(-14, 14)} ` +
      `${between(45, 95)}% ${between(35, 60)}%)`;
    const ring = Object.values(FORMS)[form]?.map(([turn, reach]): [number, number] => {
      const angle = 2 * Math.PI * (turn + turned);
      return [x + radius * reach * Math.cos(angle), y + radius * reach * Math.sin(angle)];
    });
    const bbox = ring ? boundsOf(ring) : ([x - radius, y - radius, x + radius, y + radius] as Bbox);
    if (truths.some((other) => coveredShare(other.bbox, bbox) > 0.3)) continue;
    shapes.push(
      ring
        ? `<polygon points="${ring.map((corner) => corner.join()).join(" ")}" fill="${fill}"/>`
        : `<circle cx="${x}" cy="${y}" r="${radius}" fill="${fill}"/>`,
    );
    truths.push({ classIndex: color * Object.keys(FORMS).length + form, bbox });
  }
  const stains = Array.from({ length: 12 }, () => {
    const [rx, ry] = [between(20, 120), between(10, 80)];
    return `<ellipse cx="${between(0, SIDE)}" cy="${between(0, SIDE)}" rx="${rx}" ry="${ry}" fill="${shade()}" opacity="0.4"/>`;
  });
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${SIDE}" height="${SIDE}">` +
    `<rect width="100%" height="100%" fill="${shade()}"/>${stains.join("")}${shapes.join("")}</svg>`;
  const bytes = await sharp(Buffer.from(svg)).flatten().jpeg({ quality: 85 }).toBuffer();
  return { name: `${name}.jpg`, bytes, width: SIDE, height: SIDE, truths };
}

function boundsOf(ring: readonly [number, number][]): Bbox {
  const [xs, ys] = [ring.map(([x]) => x), ring.map(([, y]) => y)];
  return [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
}

/** Share of the smaller of two boxes that lies in the other. */
function coveredShare(one: Bbox, other: Bbox): number {
  const side = (low: 0 | 1) =>
    Math.max(0, Math.min(one[low + 2] ?? 0, other[low + 2] ?? 0) - Math.max(one[low], other[low]));
  const area = ([x1, y1, x2, y2]: Bbox) => (x2 - x1) * (y2 - y1);
  return (side(0) * side(1)) / Math.min(area(one), area(other));
}

interface ObjectStore {
  source(key: string, bytes: Buffer): ObjectSource;
}

/** Puts images and their list where a task reads them; the same bytes each time. */
export function offered(
  store: ObjectStore,
  { classes }: Pick<ImageCollection, "classes">,
  split: Split,
): { manifest: ObjectSource; videos: ObjectSource[] } {
  const listed: ExportManifest["videos"] = [];
  const sources = new Map<string, ObjectSource>();
  for (const side of ["train", "val"] as const) {
    for (const { name, bytes, width, height, truths } of split[side]) {
      const key = `ws/a/images/${name}`;
      sources.set(key, store.source(key, bytes));
      const annotations = truths.map(({ classIndex, bbox }, index) => {
        return { id: `${name}-${index}`, class_index: classIndex, bbox, polygon: null };
      });
      const frames = [{ index: 0, split: side, annotations }];
      listed.push({ video_id: `${side}-${name}`, filename: name, key, width, height, frames });
    }
  }
  const list = ExportManifest.parse({
    name: "images",
    classes,
    left_out_frames: 0,
    videos: listed,
  });
  const manifest = store.source("ws/a/images.json", Buffer.from(JSON.stringify(list)));
  return { manifest, videos: [...sources.values()] };
}

/** Images as COCO lists them, categories and images from 1; pycocotools' truth. */
export const cocoOf = (
  { classes }: Pick<ImageCollection, "classes">,
  images: readonly LabeledImage[],
) => ({
  categories: classes.map((name, index) => ({ id: index + 1, name })),
  images: images.map(({ name, width, height }, index) => {
    return { id: index + 1, file_name: name, width, height };
  }),
  annotations: images
    .flatMap(({ truths }, index) => truths.map((truth) => ({ ...truth, image: index + 1 })))
    .map(({ classIndex, bbox: [x1, y1, x2, y2], image }, index) => ({
      id: index + 1,
      image_id: image,
      category_id: classIndex + 1,
      bbox: [x1, y1, x2 - x1, y2 - y1],
      area: (x2 - x1) * (y2 - y1),
      iscrowd: 0,
    })),
});
