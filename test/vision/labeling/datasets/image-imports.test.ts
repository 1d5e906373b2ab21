// One zip with images and labels, as other tools write it, in one step: the stills, the classes and
// the job, with each label on its own image. A node decodes the images and exports them again.

import { createHash } from "node:crypto";
import { unzipSync } from "fflate";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DatasetExport, ImportRecord } from "../../../../shared/wire/labeling.ts";
import {
  annotationsOf,
  archiveForm,
  createImageImportWorld,
  type Files,
  HEIGHT,
  type ImageImportWorld,
  importOf,
  jpegOf,
  stillsOf,
  WIDTH,
  zipOf,
} from "../../../support/image-import-world.ts";
import { newProject } from "../../../support/scripted-node.ts";

let { world, admin, node } = {} as ImageImportWorld;
let stop: () => Promise<void>;
/** Three images of different colors. */
const images: Uint8Array[] = [];

beforeAll(async () => {
  ({ world, admin, node } = await createImageImportWorld());
  stop = node.start();
  for (const red of [10, 90, 170]) images.push(await jpegOf(red));
});

afterAll(() => stop?.());

const image = (index: number) => images[index] as Uint8Array;

async function imported(projectId: string, files: Files, fields: Record<string, string> = {}) {
  const body = archiveForm(projectId, files, fields);
  const response = await admin.send("POST", "/import/archive", body);
  const text = await response.text();
  expect([response.status, text]).toEqual([201, text]);
  return ImportRecord.parse(JSON.parse(text));
}

const hashOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** The stills of a project, by the hash of what the store holds of them. */
async function contentsOf(projectId: string): Promise<Map<string, string>> {
  const contents = new Map<string, string>();
  for (const [path, { video_id }] of await stillsOf(admin, projectId)) {
    const { objects } = await world.media.list();
    const key = objects.find((one) => one.key.endsWith(`videos/${video_id}/source`))?.key ?? "";
    const object = await world.media.get(key);
    contents.set(path, hashOf(new Uint8Array((await object?.arrayBuffer()) ?? [])));
  }
  return contents;
}

const VOC = (filename: string, name: string) => `<annotation><filename>${filename}</filename>
  <size><width>${WIDTH}</width><height>${HEIGHT}</height><depth>3</depth></size>
  <object><name>${name}</name><bndbox><xmin>11</xmin><ymin>11</ymin><xmax>30</xmax><ymax>20</ymax>
  </bndbox></object></annotation>`;
const COCO = (file_name: string, name: string) =>
  JSON.stringify({
    images: [{ id: 0, file_name, width: WIDTH, height: HEIGHT }],
    categories: [
      { id: 1, name: "cat" },
      { id: 2, name: "dog" },
    ],
    annotations: [{ image_id: 0, category_id: name === "cat" ? 1 : 2, bbox: [10, 10, 20, 10] }],
  });
const CVAT = `<annotations><version>1.1</version>
  <image id="0" name="Train/a.jpg" width="${WIDTH}" height="${HEIGHT}">
    <box label="cat" xtl="10" ytl="10" xbr="30" ybr="20"/></image>
  <image id="1" name="Validation/a.jpg" width="${WIDTH}" height="${HEIGHT}">
    <box label="dog" xtl="10" ytl="10" xbr="30" ybr="20"/></image></annotations>`;
const LINE = "0.25 0.375 0.25 0.25";

/** Each holds a cat on the first image and a dog on the second, by the paths of these. */
const ARCHIVES: [tool: string, paths: [string, string], files: () => Files][] = [
  [
    "YOLO of Roboflow",
    ["train/images/a.rf.1.jpg", "valid/images/a.rf.2.jpg"],
    () => ({
      "data.yaml": "train: ../train/images\nnc: 2\nnames: ['cat', 'dog']\n",
      "README.roboflow.txt": "provided by a user",
      "train/images/a.rf.1.jpg": image(0),
      "train/labels/a.rf.1.txt": `0 ${LINE}`,
      "valid/images/a.rf.2.jpg": image(1),
      "valid/labels/a.rf.2.txt": `1 ${LINE}\n`,
    }),
  ],
  [
    "COCO of Roboflow",
    ["train/a.jpg", "valid/a.jpg"],
    () => ({
      "train/_annotations.coco.json": COCO("a.jpg", "cat"),
      "train/a.jpg": image(0),
      "valid/_annotations.coco.json": COCO("a.jpg", "dog"),
      "valid/a.jpg": image(1),
    }),
  ],
  [
    "CVAT for images",
    ["images/Train/a.jpg", "images/Validation/a.jpg"],
    () => ({
      "annotations.xml": CVAT,
      "images/Train/a.jpg": image(0),
      "images/Validation/a.jpg": image(1),
    }),
  ],
  [
    "Pascal VOC",
    ["set/JPEGImages/a.jpg", "set/JPEGImages/b.jpg"],
    () => ({
      "set/Annotations/a.xml": VOC("a.jpg", "cat"),
      "set/Annotations/b.xml": VOC("b.jpg", "dog"),
      "set/ImageSets/Main/train.txt": "a\n",
      "set/JPEGImages/a.jpg": image(0),
      "set/JPEGImages/b.jpg": image(1),
      "set/SegmentationClass/a.png": image(2),
    }),
  ],
];

describe.each(ARCHIVES)("a zip of %s", (_, [first, second], files) => {
  it("becomes stills and a finished job, in one request", async () => {
    const { project_id: projectId } = await newProject(admin);
    const found = await imported(projectId, files(), { name: "Mine" });
    expect(found).toMatchObject({
      stored_annotations: 2,
      unmatched: [],
      left_out: 0,
      notes: [],
      job: { name: "Mine", kind: "import", status: "completed" },
    });
    const stills = await stillsOf(admin, projectId);
    expect([...stills.keys()].sort()).toEqual([first, second]);
    for (const { source, status, width, height, frame_count } of stills.values()) {
      expect({ source, status, width, height, frame_count }).toEqual({
        source: "image",
        status: "ready",
        width: WIDTH,
        height: HEIGHT,
        frame_count: 1,
      });
    }
    expect(await contentsOf(projectId)).toEqual(
      new Map([
        [first, hashOf(image(0))],
        [second, hashOf(image(1))],
      ]),
    );
    const wanted = [
      [first, "cat", [10, 10, 30, 20]],
      [second, "dog", [10, 10, 30, 20]],
    ];
    expect(await annotationsOf(admin, projectId, found.job.job_id)).toEqual(wanted);
    const record = await importOf(admin, found.job.job_id);
    expect(record).toMatchObject({
      import_id: found.job.job_id,
      status: "completed",
      failure: null,
      images: { total: 2, stored: 2, existing: 0, failed: 0, pending: 0 },
      failed_images: [],
      result: found,
    });
    expect((await world.media.list({ prefix: "imports/" })).objects).toEqual([]);
  });
});

describe("an import with images", () => {
  const [, paths, files] = ARCHIVES[0] as (typeof ARCHIVES)[0];

  it("once more makes another job, and no image twice", async () => {
    const { project_id: projectId } = await newProject(admin);
    const one = await imported(projectId, files());
    const stills = await stillsOf(admin, projectId);
    const other = await imported(projectId, files());
    expect(await stillsOf(admin, projectId)).toEqual(stills);
    expect(other.job.job_id).not.toBe(one.job.job_id);
    expect(await annotationsOf(admin, projectId, other.job.job_id)).toEqual(
      await annotationsOf(admin, projectId, one.job.job_id),
    );
    const { images: counts } = await importOf(admin, other.job.job_id);
    expect(counts).toEqual({ total: 2, stored: 0, existing: 2, failed: 0, pending: 0 });
  });

  it("leaves as our export, which comes back into this project and into another", async () => {
    const { project_id: projectId } = await newProject(admin);
    const { job } = await imported(projectId, files());
    const made = DatasetExport.parse(
      await admin.ok("POST", `/jobs/${job.job_id}/export`, { format: "coco", val_share: 0.5 }),
    );
    let url = "";
    await expect
      .poll(
        async () => {
          const now = DatasetExport.parse(await admin.ok("GET", `/exports/${made.export_id}`));
          url = now.download_url;
          return now.status;
        },
        { timeout: 20_000 },
      )
      .toBe("completed");
    const zip = new Uint8Array(await (await fetch(url)).arrayBuffer());
    // Here each image is a frame of the project, as the export tells.
    const back = ImportRecord.parse(
      await admin.ok("POST", "/import/archive", archiveForm(projectId, zip)),
    );
    expect((await stillsOf(admin, projectId)).size).toBe(2);
    const own = await annotationsOf(admin, projectId, job.job_id);
    expect(await annotationsOf(admin, projectId, back.job.job_id)).toEqual(own);
    const { project_id: elsewhere } = await newProject(admin);
    const moved = await imported(elsewhere, unzipSync(zip));
    const there = await annotationsOf(admin, elsewhere, moved.job.job_id);
    const contents = await contentsOf(elsewhere);
    const told = there.map(([path, ...more]) => [contents.get(path), ...more]);
    const wanted = own.map(([path, ...more]) => [hashOf(image(paths.indexOf(path))), ...more]);
    expect(told.sort()).toEqual(wanted.sort());
  });

  it("names the images that are not taken, and imports the others", async () => {
    const { project_id: projectId } = await newProject(admin);
    const upload = new FormData();
    upload.append("project_id", projectId);
    upload.append("files", new Blob([new Uint8Array(image(2))]), "images/other.jpg");
    await admin.ok("POST", "/upload/images", upload);
    const cut = image(1).slice(0, image(1).length - 200);
    const found = await imported(projectId, {
      "classes.txt": "cat",
      "images/good.jpg": image(0),
      "images/GOOD.jpg": image(1),
      "images/text.jpg": "no image at all",
      "images/tiff.tif": "II*\0",
      "images/empty.png": "",
      "images/cut.jpg": cut.slice(0, 300),
      "images/other.jpg": image(0),
      ...Object.fromEntries(
        ["good", "GOOD", "text", "cut", "other"].map((name) => [`labels/${name}.txt`, `0 ${LINE}`]),
      ),
    });
    expect(found.unmatched.sort()).toEqual(["cut", "other", "text"]);
    expect(found).toMatchObject({ stored_annotations: 2, unmatched_annotations: 3 });
    expect(found.notes.join()).toMatch(/5 images not taken: /);
    const boxes = await annotationsOf(admin, projectId, found.job.job_id);
    expect(boxes.map(([path]) => path)).toEqual(["images/GOOD.jpg", "images/good.jpg"]);
    const record = await importOf(admin, found.job.job_id);
    expect(record.images).toEqual({ total: 7, stored: 2, existing: 0, failed: 5, pending: 0 });
    const failures = new Map(record.failed_images.map((one) => [one.filename, one.code]));
    expect(failures).toEqual(
      new Map([
        ["images/text.jpg", "unsupported_media"],
        ["images/tiff.tif", "unsupported_media"],
        ["images/empty.png", "unsupported_media"],
        ["images/cut.jpg", "unsupported_media"],
        ["images/other.jpg", "state_conflict"],
      ]),
    );
  });

  it("takes labels of images that the project has beside those of the zip", async () => {
    const { project_id: projectId } = await newProject(admin);
    await imported(projectId, files());
    const found = await imported(projectId, {
      "classes.txt": "cat",
      "new/images/b.jpg": image(2),
      "new/labels/b.txt": `0 ${LINE}`,
      "train/labels/a.rf.1.txt": `0 ${LINE}`,
    });
    const boxes = await annotationsOf(admin, projectId, found.job.job_id);
    expect(boxes.map(([path]) => path)).toEqual(["new/images/b.jpg", "train/images/a.rf.1.jpg"]);
  });

  it("is refused before anything is stored where labels or names are in doubt", async () => {
    const { project_id: projectId } = await newProject(admin);
    const refusal = async (content: Files) => {
      const body = archiveForm(projectId, content);
      const response = await admin.send("POST", "/import/archive", body);
      const { code, detail } = (await response.json()) as { code: string; detail: string };
      return [response.status, code, detail];
    };
    const label = { "classes.txt": "cat", "labels/a.txt": `0 ${LINE}` };
    expect(
      await refusal({ ...label, "images/a.jpg": image(0), "images/a.jpeg": image(1) }),
    ).toEqual([422, "invalid_request", expect.stringMatching(/which image is meant/)]);
    expect(
      await refusal({ ...label, "images/a.jpg": image(0), "./images/a.jpg": image(1) }),
    ).toEqual([422, "invalid_request", expect.stringMatching(/would be videos of one name/)]);
    expect(
      await refusal({ "classes.txt": "cat\nCat", "a.txt": "0 1 1 1 1", "a.jpg": image(0) }),
    ).toEqual([422, "invalid_request", expect.stringMatching(/one class/)]);
    expect(await refusal({ "classes.txt": "cat", "b.txt": "", "a.jpg": image(0) })).toEqual([
      404,
      "not_found",
      expect.stringMatching(/none of the images/),
    ]);
    expect(await refusal({ "a.jpg": image(0) })).toEqual([
      422,
      "invalid_request",
      expect.stringMatching(/no labels/),
    ]);
    expect((await stillsOf(admin, projectId)).size).toBe(0);
    expect((await world.media.list({ prefix: "imports/" })).objects).toEqual([]);
  });

  it("is not what a zip gets without `images`: its images stay unread", async () => {
    const { project_id: projectId } = await newProject(admin);
    const body = archiveForm(projectId, zipOf(files()), { images: "false" });
    expect(await admin.refused("POST", "/import/archive", body)).toEqual([404, "not_found"]);
    expect((await stillsOf(admin, projectId)).size).toBe(0);
  });
});
