// Zips of labels: those of other tools, those of our own exports, and those that were made to harm.

import { sql } from "drizzle-orm";
import { type Zippable, zipSync } from "fflate";
import { beforeAll, describe, expect, it, vi } from "vitest";
import type { Parts } from "../../../../edge/vision/base/parts.ts";
import { forgetArchives } from "../../../../edge/vision/labeling/datasets/archive-form.ts";
import { archiveLabels } from "../../../../edge/vision/labeling/datasets/archive-labels.ts";
import { HOUR, MINUTE } from "../../../../shared/time.ts";
import { AnnotationPage, ImportRecord } from "../../../../shared/wire/labeling.ts";
import { type Person, register } from "../../../support/vision.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let projectId: string;
let workspaceId: string;

const [WIDTH, HEIGHT] = [200, 100];
const STILLS = ["one.jpg", "two.png", "three.webp"];

beforeAll(async () => {
  world = await createWorld({ services: ["vision"] });
  admin = await register(world.urls.vision);
  const project = await admin.ask("POST", "/projects", { name: "Labels" });
  projectId = String(project.body.project_id);
  workspaceId = String(project.body.workspace_id);
  for (const filename of STILLS) await addVideo(filename, 1);
  await addVideo("clip.mp4", 10);
});

async function addVideo(filename: string, frames: number): Promise<string> {
  const id = crypto.randomUUID();
  await world.visionDatabase.execute(sql`
    INSERT INTO video (id, workspace_id, project_id, filename, storage_key, source, state, bytes,
      content_type, width, height, fps, duration_seconds, frame_count, time_base)
    VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, ${filename}, 'none', 'image',
      'ready', 1, 'image/jpeg', ${WIDTH}::int, ${HEIGHT}::int, 1, 0, ${frames}::int, '{1,1}')`);
  return id;
}

const bytesOf = (text: string) => new TextEncoder().encode(text);
/** A zip of texts. */
const zipOf = (files: Record<string, string>) =>
  zipSync(Object.fromEntries(Object.entries(files).map(([name, text]) => [name, bytesOf(text)])));

function formOf(zip: Uint8Array, fields: Record<string, string> = {}): FormData {
  const form = new FormData();
  // The file first: a form's fields come in any order.
  form.append("file", new Blob([new Uint8Array(zip)]), "labels.zip");
  for (const [name, value] of Object.entries({ project_id: projectId, ...fields }))
    form.append(name, value);
  return form;
}

async function imported(
  zip: Uint8Array,
  fields: Record<string, string> = {},
): Promise<ImportRecord> {
  const { status, body } = await admin.ask("POST", "/import/archive", formOf(zip, fields));
  expect([status, body.detail]).toEqual([201, undefined]);
  return ImportRecord.parse(body);
}

async function annotationsOf({ job }: ImportRecord) {
  const { body } = await admin.ask("GET", `/jobs/${job.job_id}/annotations?limit=1000`);
  return AnnotationPage.parse(body).items.map((one) => ({
    class: one.class,
    bbox: one.bbox,
    polygon: one.polygon,
  }));
}

async function refused(zip: Uint8Array, fields: Record<string, string> = {}) {
  const { status, body } = await admin.ask("POST", "/import/archive", formOf(zip, fields));
  return [status, body.code, body.detail];
}
const invalid = (detail: RegExp | string) => [
  422,
  "invalid_request",
  expect.stringMatching(detail),
];

const VOC = (file: string, objects: string) => `<?xml version="1.0"?>
<annotation><folder>x</folder><filename>${file}</filename>
<size><width>${WIDTH}</width><height>${HEIGHT}</height><depth>3</depth></size>${objects}</annotation>`;
const OBJECT = `<object><name>a &amp; b</name><part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>
<bndbox><xmin>11</xmin><ymin>21</ymin><xmax>30</xmax><ymax>40</ymax></bndbox></object>`;

describe("an archive", () => {
  it("of Pascal VOC is read with pixels that count from 1", async () => {
    const found = await imported(
      zipOf({
        "VOC/Annotations/one.xml": VOC("renamed.jpg", OBJECT),
        "VOC/Annotations/gone.xml": VOC("gone.jpg", OBJECT + OBJECT),
        "VOC/ImageSets/Main/train.txt": "one\n",
        "VOC/JPEGImages/one.jpg": "no image",
        "__MACOSX/VOC/Annotations/._one.xml": "\0",
        "VOC/notes.doc": "words",
      }),
    );
    expect(found).toMatchObject({
      stored_annotations: 1,
      unmatched: ["VOC/gone.jpg"],
      unmatched_annotations: 2,
      left_out: 0,
      notes: [
        "1 image of the archive not taken: send images=true",
        "1 file not read: VOC/notes.doc",
      ],
    });
    expect(await annotationsOf(found)).toEqual([
      { class: "a & b", bbox: [10, 20, 30, 40], polygon: null },
    ]);
  });

  it("of Pascal VOC whose boxes begin at 0 is read so, and says it", async () => {
    const box = OBJECT.replace("<xmin>11", "<xmin>0");
    const found = await imported(zipOf({ "one.xml": VOC("one.jpg", OBJECT + box) }));
    expect(found.notes).toEqual(["pixels of the VOC boxes count from 0, since some begin there"]);
    expect((await annotationsOf(found)).map(({ bbox }) => bbox).sort()).toEqual(
      [
        [11, 21, 30, 40],
        [0, 21, 30, 40],
      ].sort(),
    );
  });

  it("of YOLO holds boxes and masks, with the names of data.yaml", async () => {
    const found = await imported(
      zipOf({
        "data.yaml": "path: ../somewhere\nnc: 3\nnames:\n  0: cat\n  2: 'a: b'\n",
        "labels/train/one.txt": "0 0.5 0.5 0.1 0.2\n2 0.1 0.1 0.2 0.1 0.2 0.3\n",
        "labels/val/two.txt": "",
        "labels/train/clip_000004.txt": "0 0.5 0.5 0.1 0.2\n0 2.5 0.5 0.1 0.2\n",
        "README.txt": "not a label",
      }),
    );
    expect(found).toMatchObject({ stored_annotations: 3, unmatched: [], left_out: 1 });
    expect(found.notes).toEqual(["1 label without an area in the frame left out"]);
    expect(found.job.video_ids).toHaveLength(3);
    const mask = (await annotationsOf(found)).find((one) => one.polygon);
    expect(mask).toEqual({
      class: "a: b",
      bbox: [20, 10, 40, 30],
      polygon: [20, 10, 40, 10, 40, 30],
    });
    const named = zipOf({ "classes.txt": "x\ny\n", "one.txt": "1 0.5 0.5 0.1 0.2" });
    expect((await annotationsOf(await imported(named)))[0]?.class).toBe("y");
  });

  it("of COCO keeps all pieces of a mask, and its holes", async () => {
    // A frame of 3 by 3 pixels with a hole, as run lengths, and as pycocotools packs those.
    const counts = [101, 3, 97, 1, 1, 1, 97, 3, 19_696];
    const size = [HEIGHT, WIDTH];
    const shapes = [
      {
        segmentation: [
          [0, 0, 10, 0, 10, 10, 5, 5],
          [20, 0, 30, 0, 30, 9],
        ],
      },
      { segmentation: { size, counts }, bbox: [1, 1, 3, 3] },
      { segmentation: { size, counts: "U33Q3NPM0P32_Tc0" }, bbox: [1, 1, 3, 3] },
      { segmentation: [[5, 5, 15, 5, 15, 15, 5, 15]], bbox: [5, 5, 10, 10] },
      { segmentation: { size, counts: [20_000] }, bbox: [1, 1, 2, 2], iscrowd: 1 },
      // As pycocotools takes it, which knows no such mark of a file's.
      { bbox: [60, 60, 2, 2], iscrowd: 0, ignore: 1 },
    ];
    const document = (file_name: string) => ({
      images: [{ id: 7, file_name, width: WIDTH, height: HEIGHT }],
      categories: [{ id: 3, name: "thing" }],
      annotations: shapes.map((shape) => ({ image_id: 7, category_id: 3, ...shape })),
    });
    const found = await imported(
      zipOf({ "annotations/instances_train.json": JSON.stringify(document("x/one.jpg")) }),
    );
    expect(found).toMatchObject({ stored_annotations: 5, left_out: 1 });
    expect(found.notes).toEqual([
      "1 crowd region left out: no single objects, so a comparison counts what is found there as " +
        "wrong",
    ]);
    const kept = await annotationsOf(found);
    expect(kept).toContainEqual({
      class: "thing",
      bbox: [0, 0, 30, 10],
      polygon: [0, 0, 10, 0, 20, 0, 30, 0, 30, 9, 20, 0, 10, 0, 10, 10, 5, 5],
    });
    expect(kept).toContainEqual({ class: "thing", bbox: [5, 5, 15, 15], polygon: null });
    const holes = kept.filter(({ bbox }) => bbox[0] === 1);
    expect(holes.map(({ polygon }) => polygon?.length)).toEqual([20, 20]);
  });

  it("of several formats is read as the one that is named", async () => {
    const zip = zipOf({
      "one.xml": VOC("one.jpg", OBJECT),
      "classes.txt": "x",
      "labels/one.txt": "0 0.5 0.5 0.1 0.2\n0 0.5 0.5 0.3 0.2",
    });
    expect(await refused(zip)).toEqual(invalid(/format: name one: .* voc and yolo/));
    expect((await imported(zip, { format: "yolo" })).stored_annotations).toBe(2);
    expect((await imported(zip, { format: "voc" })).stored_annotations).toBe(1);
    expect(await refused(zip, { format: "coco" })).toEqual(invalid("no coco labels"));
    expect(await refused(zip, { format: "x" })).toEqual(invalid("format"));
  });

  it("says which file of it cannot be read", async () => {
    // Each another, or the zip would shrink too much.
    const elements = Array.from(
      { length: 200_000 },
      (_, at) => `<a${(at * 7_919) % 99_991}/>`,
    ).join();
    // A number may be short; what is none takes no longer to read than it is long.
    const digits = (length: number) =>
      Array.from({ length }, (_, at) => (at * 7_919) % 9_973)
        .join("")
        .slice(0, length);
    const voc = (xmin: string) => VOC("one.jpg", OBJECT.replace("<xmin>11", `<xmin>${xmin}`));
    const lines = Array.from({ length: 60_000 }, (_, at) => `0 .5 .5 .1 0.${at + 10_000}1`);
    const cases: [Record<string, string>, RegExp][] = [
      [{ "a.xml": voc(`1${digits(64)}`) }, /a\.xml: a box must be four numbers/],
      [{ "a.xml": voc(`${digits(400_000)}x`) }, /a\.xml: a box must be four numbers/],
      [{ "a.txt": lines.join("\n"), "classes.txt": "x" }, /a\.txt: has over 1000000 char/],
      [{ "a.json": "{" }, /a\.json: is no JSON/],
      [{ "a.json": '{"images": [], "annotations": [{}]}' }, /a\.json: categories/],
      [{ "a.xml": "<annotation>" }, /a\.xml: is no XML/],
      [
        { "a.xml": '<!DOCTYPE a [<!ENTITY b "c">]><annotation>&b;</annotation>' },
        /a\.xml: is no XML/,
      ],
      [{ "a.xml": VOC("one.jpg", "<object><name>x</name></object>") }, /neither a bndbox/],
      [{ "a.xml": "<annotations><track/></annotations>" }, /each track must have an id/],
      [{ "a.xml": `<annotation>${elements}</annotation>` }, /over 200000 elements/],
      [{ "a.txt": "0 1 1 1 1" }, /no names/],
      [{ "a.txt": "5 1 1 1 1", "classes.txt": "x" }, /a\.txt, line 1/],
      [{ "data.yaml": "names: [\n", "labels/a.txt": "" }, /data\.yaml/],
      [{ "a.doc": "x" }, /holds no labels/],
    ];
    for (const [files, detail] of cases)
      expect(await refused(zipOf(files))).toEqual(invalid(detail));
    const odd = zipSync({ "a.txt": Uint8Array.of(0xff, 0xfe), "classes.txt": bytesOf("x") });
    expect(await refused(odd)).toEqual(invalid("not UTF-8"));
  });
});

it("prints nothing of a tenant's YAML among the log's lines", () => {
  const warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
  const texts = [
    { name: "data.yaml", text: "names: !secret-of-a-tenant\n  0: cat\n" },
    { name: "labels/a.txt", text: "0 0.5 0.5 0.1 0.2" },
  ];
  const content = { texts, images: 0, others: [] };
  archiveLabels(content, { format: undefined, isKnown: () => true });
  expect(warned).not.toHaveBeenCalled();
  warned.mockRestore();
});

/** A zip with some bytes of the names in it replaced. */
function renamed(zip: Uint8Array, from: string, to: string): Uint8Array {
  const text = Buffer.from(zip).toString("latin1").replaceAll(from, to);
  return new Uint8Array(Buffer.from(text, "latin1"));
}

describe("an archive that was made to harm", () => {
  const label = { "classes.txt": "x", "aaaaa.txt": "0 0.5 0.5 0.1 0.2" };

  it("is refused for what its directory says", async () => {
    const zip = zipOf(label);
    for (const name of ["../aa.txt", "/aaaa.txt", "aa\\a.txt", "C:/aa.txt"].map((one) =>
      one.slice(0, 9),
    ))
      expect([name, ...(await refused(renamed(zip, "aaaaa.txt", name)))]).toEqual([
        name,
        ...invalid("the archive is not taken"),
      ]);
    const twice = zipOf({ ...label, "aaaab.txt": "0 0.5 0.5 0.1 0.2" });
    expect(await refused(renamed(twice, "aaaab.txt", "aaaaa.txt"))).toEqual(invalid("there twice"));
    const link = zipSync({ "a.txt": [bytesOf("/etc/passwd"), { os: 3, attrs: 0o120777 << 16 }] });
    expect(await refused(link)).toEqual(invalid("a link"));
    // The first bit of the flags, in the local header and in the directory.
    const locked = Uint8Array.from(zip);
    for (let at = 0; at + 4 < locked.length; at++) {
      const head = String.fromCharCode(...locked.subarray(at, at + 4));
      if (head === "PK\x03\x04") locked[at + 6] = (locked[at + 6] ?? 0) | 1;
      if (head === "PK\x01\x02") locked[at + 8] = (locked[at + 8] ?? 0) | 1;
    }
    expect(await refused(locked)).toEqual(invalid("encrypted"));
  });

  it("is refused for what it unpacks to", async () => {
    const bomb = zipSync({ "a.txt": [new Uint8Array(8_000_000), { level: 9 }] });
    expect(await refused(bomb)).toEqual(invalid("more than 200 times"));
    const noise = Uint8Array.from({ length: 1_000_000 }, (_, at) => (at * 7919) % 251);
    const many: Zippable = Object.fromEntries(
      Array.from({ length: 34 }, (_, at) => [`${at}.txt`, [noise, { level: 0 }]]),
    );
    expect(await refused(zipSync(many))).toEqual(invalid("bytes of texts"));
    // The directory says less than there is.
    const lying = zipSync({ "a.txt": [bytesOf("x".repeat(50_000)), { level: 6 }] });
    const view = new DataView(lying.buffer, lying.byteOffset, lying.length);
    for (let at = 0; at + 4 < lying.length; at++) {
      if (view.getUint32(at, true) === 0x02014b50) view.setUint32(at + 24, 10, true);
    }
    expect(await refused(lying)).toEqual(invalid("a.txt"));
  });

  it("is refused where it is none, or cut off, or there are two", async () => {
    expect(await refused(bytesOf("words and words"))).toEqual(invalid("no zip"));
    expect(await refused(zipOf(label).slice(0, 100))).toEqual(invalid("not taken"));
    const form = formOf(zipOf(label));
    form.append("file", new Blob([new Uint8Array(zipOf(label))]), "b.zip");
    const { body } = await admin.ask("POST", "/import/archive", form);
    expect(body).toMatchObject({ code: "invalid_request", detail: "file: only one is taken" });
  });

  it("leaves nothing in the store, and what a crash left goes within the hour", async () => {
    const count = async () => (await world.media.list({ prefix: "imports/" })).objects.length;
    expect(await count()).toBe(0);
    for (const name of ["left", "begun"]) await world.media.put(`imports/${name}.zip`, "x");
    const id = crypto.randomUUID();
    await world.visionDatabase.execute(sql`
      INSERT INTO dataset_import (id, workspace_id, project_id, name, storage_key, bytes, created_by)
      VALUES (${id}::uuid, ${workspaceId}::uuid, ${projectId}::uuid, 'begun', 'imports/begun.zip',
        1, ${id}::uuid)`);
    const { media: bucket, visionDatabase: database } = world;
    const minute = (now: number) =>
      // What forgets them has just these of the service's parts.
      forgetArchives({ bucket, database, clock: () => now } as unknown as Parts);
    const hour = Math.ceil((Date.now() + HOUR + 1) / HOUR) * HOUR;
    for (const now of [hour - HOUR, hour + MINUTE]) await minute(now);
    expect(await count()).toBe(2);
    await minute(hour);
    // An import that runs keeps its archive.
    expect(await count()).toBe(1);
  });
});
