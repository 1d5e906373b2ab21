// Sides of the split that archives of other tools tell. Goal: each layout that tools write is read,
// in their words, and what tells two sides is either the more held-out one or none, and said.

import { describe, expect, it } from "vitest";
import { archiveLabels } from "../../../../edge/vision/labeling/datasets/archive-labels.ts";
import {
  sideOfDocument,
  sideOfPath,
} from "../../../../edge/vision/labeling/datasets/archive-sides.ts";

const LINE = "0 0.5 0.5 0.25 0.25";
const YAML = "names: [cat]\n";
const coco = (...images: string[]) =>
  JSON.stringify({
    images: images.map((file_name, id) => ({ id, file_name })),
    categories: [{ id: 0, name: "cat" }],
    annotations: images.map((_, image_id) => ({ image_id, category_id: 0, bbox: [1, 1, 5, 5] })),
  });
const voc = (filename: string) =>
  `<annotation><filename>${filename}</filename><object><name>cat</name><bndbox><xmin>2</xmin>` +
  "<ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object></annotation>";
const cvat = (images: Record<string, string>) =>
  `<annotations>${Object.entries(images)
    .map(
      ([name, subset], id) =>
        `<image id="${id}" name="${name}" subset="${subset}" width="9" height="9">` +
        '<box label="cat" xtl="1" ytl="1" xbr="5" ybr="5"/></image>',
    )
    .join("")}</annotations>`;

function read(files: Record<string, string>) {
  const texts = Object.entries(files).map(([name, text]) => ({ name, text }));
  const content = { texts, images: 0, others: [] };
  const labels = archiveLabels(content, { format: undefined, isKnown: () => true });
  return { sides: Object.fromEntries(labels.sides ?? []), notes: labels.notes };
}

const yolo = (...paths: string[]) => ({
  "data.yaml": YAML,
  ...Object.fromEntries(paths.map((path) => [path, LINE])),
});

const ARCHIVES: [tool: string, files: Record<string, string>, sides: Record<string, string>][] = [
  [
    "YOLO, images/train",
    yolo("labels/train/a.txt", "labels/val/b.txt", "labels/test/c.txt"),
    { "train/a": "train", "val/b": "val", "test/c": "test" },
  ],
  [
    "YOLO of Roboflow, train/images",
    yolo("train/labels/a.txt", "valid/labels/b.txt", "test/labels/c.txt"),
    { "train/a": "train", "valid/b": "val", "test/c": "test" },
  ],
  [
    "YOLO with folders of other names, by data.yaml",
    {
      "set/data.yaml": `${YAML}train: [../set/images/day, images/dusk]\nval: ./images/night\ntest:\n`,
      "set/labels/day/a.txt": LINE,
      "set/labels/dusk/b.txt": LINE,
      "set/labels/night/c.txt": LINE,
      "set/labels/dawn/d.txt": LINE,
    },
    { "set/day/a": "train", "set/dusk/b": "train", "set/night/c": "val" },
  ],
  [
    "YOLO whose data.yaml has one folder for both sides",
    {
      "data.yaml": `${YAML}train: images/all\nval: images/all\n`,
      "labels/all/a.txt": LINE,
    },
    {},
  ],
  [
    "YOLO 1.1 of CVAT, by its lists",
    {
      "obj.names": "cat\n",
      "train.txt": "data/obj_train_data/a.jpg\n",
      "valid.txt": "data/obj_train_data/b.jpg\r\n\n",
      "obj_train_data/a.txt": LINE,
      "obj_train_data/b.txt": LINE,
    },
    { a: "train", b: "val" },
  ],
  [
    "COCO by its documents",
    {
      "annotations/instances_train2017.json": coco("a.jpg"),
      "annotations/instances_val2017.json": coco("b.jpg"),
      "annotations/test.json": coco("c.jpg"),
    },
    { "a.jpg": "train", "b.jpg": "val", "c.jpg": "test" },
  ],
  [
    "COCO of Roboflow",
    {
      "train/_annotations.coco.json": coco("a.jpg"),
      "valid/_annotations.coco.json": coco("b.jpg"),
    },
    { "train/a.jpg": "train", "valid/b.jpg": "val" },
  ],
  [
    "Pascal VOC by its image sets",
    {
      "Annotations/2007_01.xml": voc("2007_01.jpg"),
      "Annotations/2007_02.xml": voc("2007_02.jpg"),
      "Annotations/2007_03.xml": voc("2007_03.jpg"),
      "ImageSets/Main/train.txt": "2007_01\n",
      "ImageSets/Main/val.txt": "2007_02\n",
      "ImageSets/Main/trainval.txt": "2007_01\n2007_02\n",
      "ImageSets/Main/cat_test.txt": "2007_01  1\n2007_02 -1\n",
    },
    { "2007_01.jpg": "train", "2007_02.jpg": "val" },
  ],
  [
    "CVAT by its subsets",
    {
      "annotations.xml": cvat({
        "a.jpg": "Train",
        "b.jpg": "VALIDATION",
        "c.jpg": "test",
        "d.jpg": "default",
      }),
    },
    { "a.jpg": "train", "b.jpg": "val", "c.jpg": "test" },
  ],
  ["no side at all", yolo("labels/a.txt", "cam/labels/train_7.txt"), {}],
];

it.each(ARCHIVES)("are read of %s", (_, files, sides) => {
  expect(read(files).sides).toEqual(sides);
});

describe("an image of two sides", () => {
  it("is on none by its folders, and that is said", () => {
    const { sides, notes } = read(yolo("test/labels/train/a.txt", "val/labels/b.txt"));
    expect(sides).toEqual({ "val/b": "val" });
    expect(notes).toEqual(["1 image in folders of two sides: on none"]);
  });

  it("is on the more held-out one by lists, and that is said", () => {
    const lists = { "train.txt": "a\n", "test.txt": "a\n" };
    const { sides, notes } = read({ ...yolo("labels/a.txt"), ...lists });
    expect(sides).toEqual({ a: "test" });
    expect(notes).toEqual(["1 image listed for two sides: on the more held-out one"]);
  });

  it("is on the more held-out one by documents", () => {
    const documents = {
      "instances_train.json": coco("a.jpg"),
      "instances_val.json": coco("a.jpg"),
    };
    expect(read(documents).sides).toEqual({ "a.jpg": "val" });
  });
});

it("are words of their own in a path, whatever else it holds", () => {
  const paths = [
    "trains/a.jpg",
    "valley/test.jpg",
    "crash_test/a.jpg",
    "__proto__/a.jpg",
    "a/b.jpg",
  ];
  expect(paths.map(sideOfPath)).toEqual(paths.map(() => null));
  const folders = ["Train", "x/train2017", "train_images", "Testing", "images-test", "valid"];
  expect(folders.map((folder) => sideOfPath(`${folder}/a.jpg`))).toEqual([
    ...["train", "train", "train", "test", "test", "val"],
  ]);
  const documents = ["instances_val.json", "__proto__.json", "a_constructor.json", "latest.json"];
  expect(documents.map(sideOfDocument)).toEqual(["val", null, null, null]);
  const named = ["train_annotations.json", "test_coco.json", "train.coco.json", "train_val.json"];
  expect(named.map(sideOfDocument)).toEqual(["train", "test", "train", null]);
});

it("are those of the folders of data.yaml, whatever folders lie within", () => {
  // Our own export with original names: files whose folders were called after other sides.
  const folders = "train: images/train\nval: images/val\ntest: images/test\n";
  const { sides, notes } = read({
    "data.yaml": `${YAML}${folders}`,
    "labels/test/train/x.txt": LINE,
    "labels/val/test/y.txt": LINE,
    "labels/train/val/z.txt": LINE,
  });
  expect(sides).toEqual({ "test/train/x": "test", "val/test/y": "val", "train/val/z": "train" });
  expect(notes).toEqual([expect.stringMatching(/^3 images on another side than a folder's name/)]);
});

it("are read of a list that data.yaml names, whose folders lie further outside", () => {
  const { sides } = read({
    "data.yaml": `${YAML}train: ./first.txt\nval: second.txt\n`,
    "first.txt": "/home/me/set/images/a.jpg\n",
    "second.txt": "./images/b.jpg\n",
    "labels/a.txt": LINE,
    "labels/b.txt": LINE,
  });
  expect(sides).toEqual({ a: "train", b: "val" });
});

it("of a line in one folder are not those of its name in another", () => {
  const { sides } = read({
    ...yolo("labels/test/0001.txt", "labels/train/0002.txt"),
    "train.txt": "images/train/0001.jpg\nimages/train/0002.jpg\n",
  });
  expect(sides).toEqual({ "test/0001": "test", "train/0002": "train" });
});

it("are found at once, however many paths data.yaml names", () => {
  const many = Array.from({ length: 3_000 }, (_, at) => `  - images/folder${at}`).join("\n");
  const images = Array.from({ length: 500 }, (_, at) => `labels/folder${at}/a.txt`);
  const { sides } = read({ ...yolo(...images), "data.yaml": `${YAML}train:\n${many}\n` });
  expect(Object.keys(sides)).toHaveLength(500);
});
