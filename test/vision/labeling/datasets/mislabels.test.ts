// Imports whose names and shapes are easily taken for others: labels go where they belong, or are
// refused or left out in words.

import { describe, expect, it } from "vitest";
import { frameFinder } from "../../../../edge/vision/labeling/datasets/image-names.ts";
import { ImportRecord } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import {
  coco,
  detail,
  only,
  projectWith,
  send,
  sendZip,
  stored,
  zipOf,
} from "../../../support/import-world.ts";

describe("a label is of the image", () => {
  it("whose whole name it tells, before any that is like it", async () => {
    const both = await projectWith("a.jpg", "a.png");
    expect(await only(both, await send(both, { coco: coco("a.png") }))).toMatchObject({
      on: "a.png 0",
    });
    const voc =
      "<annotation><filename>a.png</filename><object><name>x</name><bndbox><xmin>5</xmin>" +
      "<ymin>5</ymin><xmax>50</xmax><ymax>50</ymax></bndbox></object></annotation>";
    expect(await only(both, await sendZip(both, { "Annotations/a.xml": voc }))).toMatchObject({
      on: "a.png 0",
    });
    const spaced = await projectWith("a b.jpg", "a_b.jpg");
    expect(await only(spaced, await send(spaced, { coco: coco("a_b.jpg") }))).toMatchObject({
      on: "a_b.jpg 0",
    });
  });

  it("that lies in its folder", async () => {
    const target = await projectWith("cam1/1.jpg", "cam2/1.jpg");
    const two = {
      images: [
        { id: 1, file_name: "cam1/1.jpg" },
        { id: 2, file_name: "images\\cam2\\1.jpg" },
      ],
      annotations: [
        { image_id: 1, category_id: 1, bbox: [0, 0, 10, 10] },
        { image_id: 2, category_id: 1, bbox: [100, 50, 10, 10] },
      ],
    };
    const { annotations } = await stored(target, await send(target, { coco: coco("", two) }));
    expect(annotations.map(({ on, bbox }) => [on, bbox[0]]).toSorted()).toEqual([
      ["cam1/1.jpg 0", 0],
      ["cam2/1.jpg 0", 100],
    ]);
    const yolo = { "classes.txt": "x\n", "labels/cam2/1.txt": "0 .5 .5 .2 .2\n" };
    expect(await only(target, await sendZip(target, yolo))).toMatchObject({ on: "cam2/1.jpg 0" });
  });

  it("or none, where it may be of several, which are named", async () => {
    const both = await projectWith("a.jpg", "a.png", { name: "a.mp4", frames: 9 });
    const yolo = (name: string) => ({
      yolo: { names: ["x"], labels: { [name]: "0 .5 .5 .2 .2" } },
    });
    expect(detail(await send(both, yolo("a")))).toEqual([
      422,
      "which image is meant: a may be a.jpg and a.png",
    ]);
    expect(await only(both, await send(both, yolo("a.jpg")))).toMatchObject({ on: "a.jpg 0" });
    const folders = await projectWith("cam1/1.jpg", "cam2/1.jpg");
    expect(detail(await send(folders, { coco: coco("1.jpg") }))).toEqual([
      422,
      "which image is meant: 1.jpg may be cam1/1.jpg and cam2/1.jpg",
    ]);
    const one = await projectWith("1.jpg");
    const two = { images: ["cam1", "cam2"].map((of, id) => ({ id, file_name: `${of}/1.jpg` })) };
    const answer = await send(one, { coco: coco("", { ...two, annotations: [] }) });
    const meant = "which image is meant: cam1/1.jpg and cam2/1.jpg are one image of the project";
    expect(detail(answer)).toEqual([422, meant]);
    // The bare names of documents in folders of their own.
    const box =
      "<object><name>x</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></object>";
    const bare = `<annotation><filename>1.jpg</filename>${box}</annotation>`;
    const voc = { "cam1/1.xml": bare, "cam2/1.xml": bare };
    expect(detail(await sendZip(one, voc))).toEqual([422, meant]);
    const found = await stored(folders, await sendZip(folders, voc));
    expect(found.annotations.map(({ on }) => on).toSorted()).toEqual([
      "cam1/1.jpg 0",
      "cam2/1.jpg 0",
    ]);
    const clip = await projectWith("clip_000003.png", { name: "clip.mp4", frames: 9 });
    expect(detail(await send(clip, yolo("clip_000003")))[0]).toBe(422);
  });

  it("of the same path, before one that lies deeper, and of no folder that contradicts it", async () => {
    const target = await projectWith("1.jpg", "cam1/1.jpg", "x/cam1/1.jpg");
    for (const name of ["1.jpg", "cam1/1.jpg", "x/cam1/1.jpg"]) {
      const { on } = await only(target, await send(target, { coco: coco(name) }));
      expect(on).toBe(`${name} 0`);
    }
    const apart = await projectWith("site2/cam1/1.jpg", "site1/cam2/1.jpg");
    expect(detail(await send(apart, { coco: coco("site1/cam1/1.jpg") }))).toEqual([
      422,
      "which image is meant: site1/cam1/1.jpg may be site2/cam1/1.jpg and site1/cam2/1.jpg",
    ]);
    const sets = await projectWith("train/images/1.jpg", "valid/images/1.jpg");
    const text = "0 .5 .5 .2 .2\n";
    const yolo = {
      "data.yaml": "names: [x]\n",
      "train/labels/1.txt": text,
      "valid/labels/1.txt": text,
    };
    const { annotations } = await stored(sets, await sendZip(sets, yolo));
    expect(annotations.map(({ on }) => on).toSorted()).toEqual([
      "train/images/1.jpg 0",
      "valid/images/1.jpg 0",
    ]);
    const twice = await projectWith("scan.tif.jpg", "scan.jpg");
    const double = { "classes.txt": "x\n", "labels/scan.tif.txt": text };
    expect(detail(await sendZip(twice, double))[0]).toBe(422);
  });

  it("that is surest meant, while a name that is only like it is of none", async () => {
    const target = await projectWith("a.jpg");
    const images = ["a.jpg", "a.png"].map((file_name, id) => ({ id, file_name }));
    const annotations = [
      { image_id: 0, category_id: 1, bbox: [1, 1, 9, 9] },
      { image_id: 1, category_id: 1, bbox: [50, 50, 9, 9] },
    ];
    const answer = await send(target, { coco: coco("", { images, annotations }) });
    expect(await only(target, answer)).toMatchObject({ bbox: [1, 1, 10, 10] });
    expect(ImportRecord.parse(answer.body)).toMatchObject({
      unmatched: ["a.png"],
      unmatched_annotations: 1,
    });
  });

  it("of its own export, where two of them come together", async () => {
    const target = await projectWith(
      { name: "a/clip.mp4", frames: 9 },
      { name: "b/clip.mp4", frames: 9 },
    );
    const exported = (video: string) => {
      const frame_id = frameId(target.ids.get(video) ?? "", 3);
      return JSON.stringify(
        coco("", { images: [{ id: 1, file_name: "clip_000003.jpg", frame_id }] }),
      );
    };
    const zip = {
      "A/annotations/instances_train.json": exported("a/clip.mp4"),
      "B/annotations/instances_train.json": exported("b/clip.mp4"),
    };
    const { annotations } = await stored(target, await sendZip(target, zip));
    expect(annotations.map(({ on }) => on).toSorted()).toEqual(["a/clip.mp4 3", "b/clip.mp4 3"]);
    const one = {
      "A/annotations/a.json": exported("a/clip.mp4"),
      "A/annotations/b.json": exported("b/clip.mp4"),
    };
    expect(detail(await sendZip(target, one))).toEqual([
      422,
      expect.stringMatching(/^A\/clip_000003\.jpg has two frame_ids: /),
    ]);
  });

  it("of many thousand that are called alike", async () => {
    const many = Array.from({ length: 3_000 }, (_, index) => `cam${index}/1.jpg`);
    const videos = many.map((filename, index) => ({
      id: `00000000-0000-4000-8000-${String(index).padStart(12, "0")}`,
      filename,
      frame_count: 1,
      width: 1,
      height: 1,
    }));
    const find = frameFinder(videos);
    const found = many.map((name) => find(`x/images/${name}`));
    expect(found).toMatchObject(videos.map((video) => ({ video })));
    expect(find("1.jpg")).toMatchObject({ among: many.slice(0, 6) });
  });

  it("whose frame an export of ours tells, whatever else is called so", async () => {
    const target = await projectWith({ name: "clip.mp4", frames: 9 }, "clip_000003.jpg");
    const clip = frameId(target.ids.get("clip.mp4") ?? "", 3);
    const images = [{ id: 1, file_name: "clip_000003.jpg", frame_id: clip }];
    expect(await only(target, await send(target, { coco: coco("", { images }) }))).toMatchObject({
      on: "clip.mp4 3",
    });
    const yolo = {
      "data.yaml": "names: [x]\n",
      "labels/train/clip_000003.txt": "0 .5 .5 .2 .2\n",
      "frames.csv": `image,frame_id\nimages/train/clip_000003.jpg,${clip}\n`,
    };
    expect(await only(target, await sendZip(target, yolo))).toMatchObject({ on: "clip.mp4 3" });
    const other = await projectWith({ name: "clip.mp4", frames: 9 });
    expect(await only(other, await sendZip(other, yolo))).toMatchObject({ on: "clip.mp4 3" });
  });

  it("whatever way its name is written: marks apart, UTF-8 without a flag, rare extensions", async () => {
    const target = await projectWith("caf\u00e9.jpg", "photo.jfif", "frame.0001", "x.jpe");
    const text = "0 .5 .5 .2 .2\n";
    const apart = { "classes.txt": "x\n", "labels/cafe\u0301.txt": text };
    expect(await only(target, await sendZip(target, apart))).toMatchObject({
      on: "caf\u00e9.jpg 0",
    });
    const zip = zipOf({ "classes.txt": "x\n", "labels/caf\u00e9.txt": text });
    const view = new DataView(zip.buffer);
    for (let at = 0; at + 10 < zip.length; at++) {
      const signature = view.getUint32(at, true);
      const flags = signature === 0x04034b50 ? at + 6 : signature === 0x02014b50 ? at + 8 : null;
      if (flags !== null) view.setUint16(flags, view.getUint16(flags, true) & ~0x800, true);
    }
    expect(await only(target, await sendZip(target, zip))).toMatchObject({ on: "caf\u00e9.jpg 0" });
    for (const name of ["photo.jfif", "frame.0001", "x.jpe", "x.jpg"]) {
      const { on } = await only(target, await send(target, { coco: coco(name) }));
      expect([name, on]).toEqual([name, name === "x.jpg" ? "x.jpe 0" : `${name} 0`]);
    }
    const yolo = { yolo: { names: ["x"], labels: { "frame.0001.txt": text } } };
    expect(await only(target, await send(target, yolo))).toMatchObject({ on: "frame.0001 0" });
  });
});

describe("a class is the one", () => {
  it("that the list in the label's own folder numbers", async () => {
    const target = await projectWith("a.jpg", "b.jpg");
    const text = "0 .5 .5 .2 .2\n";
    const lists = [
      ["classes.txt", "cat\ndog\n", "dog\ncat\n"],
      ["data.yaml", "names: [cat, dog]\n", "names: [dog, cat]\n"],
    ] as const;
    for (const [name, one, two] of lists) {
      const files = {
        [`one/${name}`]: one,
        [`two/${name}`]: two,
        "one/labels/a.txt": text,
        "two/labels/b.txt": text,
      };
      const { annotations } = await stored(target, await sendZip(target, files));
      expect(annotations.map((found) => `${found.on} ${found.class}`).toSorted()).toEqual([
        "a.jpg 0 cat",
        "b.jpg 0 dog",
      ]);
      const stray = { ...files, "three/labels/a.txt": text };
      expect(detail(await sendZip(target, stray))).toEqual([
        422,
        `three/labels/a.txt: which of these names its classes: one/${name}, two/${name}?`,
      ]);
      // Lists that agree are one.
      const { annotations: agreed } = await stored(
        target,
        await sendZip(target, { [`one/${name}`]: one, [`two/${name}`]: one, "three/a.txt": text }),
      );
      expect(agreed.map((found) => found.class)).toEqual(["cat"]);
    }
    const nearer = {
      "data.yaml": "names: [cat, dog]\n",
      "labels/train/classes.txt": "dog\ncat\n",
      "labels/train/a.txt": text,
    };
    expect(detail(await sendZip(target, nearer))).toEqual([
      422,
      "labels/train/a.txt: which of these names its classes: labels/train/classes.txt, data.yaml?",
    ]);
  });

  it("or the import is refused in words that name the file, the line and the rule", async () => {
    const target = await projectWith("a.jpg");
    const twice = { categories: ["a", "b"].map((name) => ({ id: 1, name })) };
    const refused = async (more: object) =>
      detail(await send(target, { coco: coco("a.jpg", more) }));
    expect(await refused(twice)).toEqual([422, 'coco.categories: id 1 is "a" and "b"']);
    const beyond = { "classes.txt": "x\n", "labels/a.txt": "0 .5 .5 .2 .2\n1 .5 .5 .2 .2\n" };
    expect(detail(await sendZip(target, beyond))).toEqual([
      422,
      "labels: labels/a.txt, line 2: class 1 is none of the 1 that are named",
    ]);
    const flat = [{ image_id: 1, category_id: 1, segmentation: [10, 10, 50, 10, 50, 50] }];
    expect(await refused({ annotations: flat })).toEqual([
      422,
      expect.stringContaining("segmentation: must be polygons, [[x1, y1, x2, y2, …], …]"),
    ]);
    const images = [{ id: 1, file_name: "a.jpg", width: 100, height: 200 }];
    expect(await refused({ images })).toEqual([
      422,
      "a.jpg: its labels are of 100 × 200 pixels, and the image has 200 × 100",
    ]);
    const nan = { "a.json": JSON.stringify(coco("a.jpg")).replace("40", "NaN") };
    expect(detail(await sendZip(target, nan))).toEqual([
      422,
      expect.stringMatching(/^a\.json: is no JSON: .*N/),
    ]);
  });
});

describe("a shape", () => {
  const TURNED = { bbox: [90, 0, 110, 100], polygon: [110, 0, 110, 100, 90, 100, 90, 0] };

  it("that is a turned box is its polygon", async () => {
    const target = await projectWith("a.jpg");
    const cvat = `<annotations><version>1.1</version><image id="0" name="a.jpg" width="200" height="100">
      <box label="x" xtl="50" ytl="40" xbr="150" ybr="60" rotation="90.00"></box></image></annotations>`;
    expect(await only(target, await sendZip(target, { "annotations.xml": cvat }))).toMatchObject(
      TURNED,
    );
    const annotations = [
      { image_id: 1, category_id: 1, bbox: [50, 40, 100, 20], attributes: { rotation: 90 } },
    ];
    expect(
      await only(target, await send(target, { coco: coco("a.jpg", { annotations }) })),
    ).toMatchObject(TURNED);
    const voc =
      "<annotation><filename>a.jpg</filename><object><name>x</name><bndbox><xmin>51</xmin>" +
      "<ymin>41</ymin><xmax>150</xmax><ymax>60</ymax></bndbox><attributes><attribute>" +
      "<name>rotation</name><value>90.0</value></attribute></attributes></object>" +
      "<object><name>x</name><robndbox><cx>1</cx></robndbox></object></annotation>";
    const found = await stored(target, await sendZip(target, { "a.xml": voc }));
    expect(found.annotations).toMatchObject([TURNED]);
    expect([found.left_out, found.notes]).toEqual([1, ["1 turned box left out (robndbox)"]]);
  });

  it("with key points is its box, and the key points are counted", async () => {
    const target = await projectWith("a.jpg");
    const pose = "0 0.6 0.5 0.1 0.2 0.59 0.51 2 0.64 0.52 2\n";
    const yolo = { "data.yaml": "kpt_shape: [2, 3]\nnames: [x]\n", "labels/a.txt": pose };
    const found = await stored(target, await sendZip(target, yolo));
    expect(found.annotations).toMatchObject([{ bbox: [110, 40, 130, 60], polygon: null }]);
    expect(found.notes).toEqual(["key points of 1 object not taken: boxes and masks are"]);
    // The names beside the labels tell nothing of key points.
    const named = await stored(
      target,
      await sendZip(target, { ...yolo, "labels/classes.txt": "x\n" }),
    );
    expect(named.annotations).toMatchObject([{ polygon: null }]);
    const short = { ...yolo, "labels/a.txt": "0 0.6 0.5 0.1 0.2 0.59 0.51\n" };
    expect(detail(await sendZip(target, short))).toEqual([
      422,
      "labels: labels/a.txt, line 1: must be class cx cy w h, and 6 numbers of key points",
    ]);
  });

  it("of a kind that is not taken is named and counted", async () => {
    const target = await projectWith("a.jpg");
    const shapes = ["points", "skeleton", "cuboid", "cuboid", "tag"].map(
      (kind) => `<${kind} label="x"/>`,
    );
    const cvat = `<annotations><image id="0" name="a.jpg">${shapes.join("")}</image></annotations>`;
    const found = await stored(target, await sendZip(target, { "a.xml": cvat }));
    expect([found.left_out, found.notes]).toEqual([
      4,
      ["left out, as neither boxes nor polygons: 1 points, 1 skeleton, 2 cuboid"],
    ]);
  });

  it("is cut at the frame, not bent, and gone where nothing of it is inside", async () => {
    const target = await projectWith("a.jpg");
    const imported = async (annotation: object) => {
      const annotations = [{ image_id: 1, category_id: 1, ...annotation }];
      return stored(target, await send(target, { coco: coco("a.jpg", { annotations }) }));
    };
    const cut = await imported({ segmentation: [[-100, 50, 50, 0, 50, 100]] });
    expect(cut.annotations).toMatchObject([{ bbox: [0, 0, 50, 100] }]);
    expect(new Set(cut.annotations[0]?.polygon)).toEqual(new Set([0, 83.3, 16.7, 50, 100]));
    const outside = [[-50, -50, -10, -50, -10, -10]];
    const boxed = await imported({ segmentation: outside, bbox: [5, 5, 20, 20] });
    expect(boxed.annotations).toMatchObject([{ bbox: [5, 5, 25, 25], polygon: null }]);
    const gone = ["1 label without an area in the frame left out"];
    expect(await imported({ segmentation: outside })).toMatchObject({ left_out: 1, notes: gone });
    expect(await imported({ bbox: [50, 40, 0, 20] })).toMatchObject({ left_out: 1, notes: gone });
    const ring = { "classes.txt": "x\n", "a.txt": "0 0.1 0.1 0.2 0.2 0.3 0.3\n" };
    const flat = await stored(target, await sendZip(target, ring));
    expect(flat).toMatchObject({ annotations: [], left_out: 1, notes: gone });
    const line = [[10, 10, 20, 20, 30, 30]];
    expect(await imported({ segmentation: line })).toMatchObject({ left_out: 1, notes: gone });
    const cvat =
      '<annotations><image name="a.jpg" width="200" height="100">' +
      '<polygon label="x" points="10,10;20,20;30,30"/></image></annotations>';
    expect(await stored(target, await sendZip(target, { "a.xml": cvat }))).toMatchObject({
      annotations: [],
      left_out: 1,
      notes: gone,
    });
    const posed = await imported({ keypoints: [1, 2, 2] });
    expect(posed).toMatchObject({ annotations: [], left_out: 1 });
    expect(posed.notes).toContain("key points of 1 object not taken: boxes and masks are");
  });

  it("of several pieces, one of them outside, has the box of the others", async () => {
    const target = await projectWith("a.jpg");
    const pieces = [
      [100, 40, 120, 40, 120, 60, 100, 60],
      [300, 40, 310, 40, 310, 50, 300, 50],
    ];
    const annotations = [{ image_id: 1, category_id: 1, segmentation: pieces }];
    const answer = await send(target, { coco: coco("a.jpg", { annotations }) });
    expect(await only(target, answer)).toMatchObject({ bbox: [100, 40, 120, 60] });
  });

  it("is taken beside what other tools write where ours writes something", async () => {
    const target = await projectWith("a.jpg");
    const more = {
      images: [{ id: 1, file_name: "a.jpg", frame_id: 7 }],
      annotations: [
        {
          image_id: 1,
          category_id: 1,
          bbox: [1, 1, 9, 9],
          score: 87,
          attributes: ["red"],
          keypoints: null,
        },
      ],
    };
    const found = await stored(target, await send(target, { coco: coco("a.jpg", more) }));
    expect(found.annotations).toMatchObject([{ bbox: [1, 1, 10, 10], confidence: null }]);
    expect(found.notes).toEqual(["1 score not taken: not from 0 to 1"]);
  });

  it("has the score of COCO as its confidence, and images of no told size their own", async () => {
    const target = await projectWith("a.jpg");
    const more = {
      images: [{ id: 1, file_name: "a.jpg", width: 0, height: 0 }],
      annotations: [{ image_id: 1, category_id: 1, bbox: [1, 1, 9, 9], score: 0.75 }],
    };
    expect(await only(target, await send(target, { coco: coco("a.jpg", more) }))).toMatchObject({
      bbox: [1, 1, 10, 10],
      confidence: 0.75,
    });
  });
});

describe("a folder of COCO", () => {
  it("gives its instances once, beside key points, captions and segments", async () => {
    const target = await projectWith("a.jpg");
    const instances = coco("a.jpg");
    const person = { image_id: 1, category_id: 1, bbox: [50, 40, 100, 20], keypoints: [1, 2, 2] };
    const files = {
      "annotations/instances_train.json": JSON.stringify(instances),
      "annotations/person_keypoints_train.json": JSON.stringify({
        ...instances,
        annotations: [person],
      }),
      "annotations/captions_train.json": JSON.stringify({
        images: instances.images,
        annotations: [{ image_id: 1, caption: "a cat" }],
      }),
      "annotations/panoptic_train.json": JSON.stringify({
        ...instances,
        annotations: [{ image_id: 1, segments_info: [] }],
      }),
    };
    const found = await stored(target, await sendZip(target, files));
    expect(found.annotations).toHaveLength(1);
    expect(found.notes).toEqual([
      "1 image labeled by another file or entry of their name too: taken together",
      "1 object with key points taken once, as the instances beside have them too",
      "2 files not read: annotations/captions_train.json, annotations/panoptic_train.json",
    ]);
    // Other objects with key points are their own.
    const hand = { ...person, bbox: [1, 1, 9, 9] };
    const hands = JSON.stringify({ ...instances, annotations: [hand] });
    const two = await stored(target, await sendZip(target, { ...files, "hands.json": hands }));
    expect(two.annotations).toHaveLength(2);
    const alone = {
      "person_keypoints_train.json": files["annotations/person_keypoints_train.json"],
    };
    const posed = await stored(target, await sendZip(target, alone));
    expect(posed.annotations).toHaveLength(1);
    expect(posed.notes).toEqual(["key points of 1 object not taken: boxes and masks are"]);
    const captions = { "captions_train.json": files["annotations/captions_train.json"] };
    expect(detail(await sendZip(target, captions))).toEqual([
      422,
      "the archive holds no labels: coco, voc, cvat, cvat-video, mot, yolo, labelme, label-studio",
    ]);
  });
});
