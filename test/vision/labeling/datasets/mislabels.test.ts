// Imports whose names and shapes are easily taken for others: labels go where they belong, or are
// refused or left out in words.

import { sql } from "drizzle-orm";
import { zipSync } from "fflate";
import { beforeAll, describe, expect, it } from "vitest";
import { AnnotationPage, ImportRecord } from "../../../../shared/wire/labeling.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import { type Person, register } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
const [WIDTH, HEIGHT] = [200, 100];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world.urls.vision);
});

/** A project with stills and videos of these names; the ids are by their names. */
async function projectWith(...files: (string | { name: string; frames: number })[]) {
  const { body } = await admin.ask("POST", "/projects", { name: "Names" });
  const [projectId, workspaceId] = [String(body.project_id), String(body.workspace_id)];
  const ids = new Map<string, string>();
  for (const file of files) {
    const { name, frames } = typeof file === "string" ? { name: file, frames: 1 } : file;
    const id = crypto.randomUUID();
    ids.set(name, id);
    await world.visionDatabase.execute(sql`
      INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
        content_type, width, height, fps, duration_seconds, frame_count, time_base)
      VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${name}, 'none', 'image',
        'ready', 1, 'image/jpeg', ${WIDTH}::int, ${HEIGHT}::int, 1, 0, ${frames}::int, '{1,1}')`);
  }
  const names = new Map([...ids].map(([name, id]) => [id, name]));
  return { projectId, ids, names };
}
type Target = Awaited<ReturnType<typeof projectWith>>;

const coco = (file_name: string, more: object = {}) => ({
  images: [{ id: 1, file_name }],
  categories: [{ id: 1, name: "x" }],
  annotations: [{ image_id: 1, category_id: 1, bbox: [50, 40, 100, 20] }],
  ...more,
});
const send = ({ projectId }: Target, labels: object) =>
  admin.ask("POST", "/import", { project_id: projectId, ...labels });
type Answer = Awaited<ReturnType<typeof send>>;

const bytesOf = (text: string) => new TextEncoder().encode(text);
const zipOf = (files: Record<string, string>) =>
  zipSync(Object.fromEntries(Object.entries(files).map(([name, text]) => [name, bytesOf(text)])));
function sendZip({ projectId }: Target, zip: Uint8Array | Record<string, string>) {
  const form = new FormData();
  form.append("project_id", projectId);
  const bytes = zip instanceof Uint8Array ? zip : zipOf(zip);
  form.append("file", new Blob([new Uint8Array(bytes)]), "labels.zip");
  return admin.ask("POST", "/import/archive", form);
}

/** What an import stored: the file and frame, the class, the box and the polygon of each. */
async function stored({ names }: Target, { status, body }: Answer) {
  expect([status, body.detail]).toEqual([201, undefined]);
  const { job, notes, left_out } = ImportRecord.parse(body);
  const listed = await admin.ask("GET", `/jobs/${job.job_id}/annotations?limit=1000`);
  const round = (values: readonly number[]) => values.map((value) => Math.round(value * 10) / 10);
  const annotations = AnnotationPage.parse(listed.body).items.map((one) => {
    const [video = "", frame = ""] = one.frame_id.split(".");
    return {
      on: `${names.get(video)} ${frame}`,
      class: one.class,
      bbox: round(one.bbox),
      polygon: one.polygon && round(one.polygon),
      confidence: one.confidence,
    };
  });
  return { notes, left_out, annotations };
}
const only = async (target: Target, answer: Answer) => {
  const { annotations } = await stored(target, answer);
  expect(annotations).toHaveLength(1);
  return annotations[0] as NonNullable<(typeof annotations)[0]>;
};
const detail = ({ status, body }: Answer) => [status, String(body.detail)];

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
    expect(detail(answer)).toEqual([
      422,
      "which image is meant: cam1/1.jpg and cam2/1.jpg are one image of the project",
    ]);
    const clip = await projectWith("clip_000003.png", { name: "clip.mp4", frames: 9 });
    expect(detail(await send(clip, yolo("clip_000003")))[0]).toBe(422);
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
    // Of a dataset that came from elsewhere the names tell.
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
    }
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
    const [instances] = [coco("a.jpg")];
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
      "annotations/person_keypoints_train.json not read: its objects are those of the instances " +
        "beside it",
      "2 files not read: annotations/captions_train.json, annotations/panoptic_train.json",
    ]);
    const alone = {
      "person_keypoints_train.json": files["annotations/person_keypoints_train.json"],
    };
    const posed = await stored(target, await sendZip(target, alone));
    expect(posed.annotations).toHaveLength(1);
    expect(posed.notes).toEqual(["key points of 1 object not taken: boxes and masks are"]);
    const captions = { "captions_train.json": files["annotations/captions_train.json"] };
    expect(detail(await sendZip(target, captions))).toEqual([
      422,
      "the archive holds no labels: coco, voc, cvat, yolo",
    ]);
  });
});
