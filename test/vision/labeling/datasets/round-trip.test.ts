// Datasets that leave and come back, made by a node's own program: files as they came, and in every
// format the annotations that were there, masks with all their pieces.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { unzipSync, zipSync } from "fflate";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../../gpu-node/tasks/runners.ts";
import { type ClaimedTask, WriteAddress } from "../../../../shared/tasks/node-protocol.ts";
import { EXPORT_FORMATS, EXPORT_NAMES, type ExportFormat } from "../../../../shared/tasks/tasks.ts";
import {
  AnnotationPage,
  DatasetExport,
  exportStem,
  type ImportRecord,
  type Job,
} from "../../../../shared/wire/labeling.ts";
import type { Video, VideoBatch } from "../../../../shared/wire/vision.ts";
import { rectangles, toolsOrSay } from "../../../support/clips.ts";
import { type NodeService, startNodeService } from "../../../support/node-service.ts";
import {
  newProject,
  type Person,
  register,
  type ScriptedNode,
  scriptedNode,
} from "../../../support/scripted-node.ts";
import { taskContext } from "../../../support/task-context.ts";
import { createWorld, type World } from "../../../support/world.ts";

let world: World;
let admin: Person;
let node: ScriptedNode;
let service: NodeService;
let context: RunnerContext;
let projectId: string;
let jobId: string;
const dir = mkdtempSync(join(tmpdir(), "round-trip-"));
/** The files as they were uploaded, by the ids of their videos. */
const files = new Map<string, { filename: string; bytes: Buffer }>();

const image = (width: number, height: number, red: number) =>
  sharp({ create: { width, height, channels: 3, background: { r: red, g: 90, b: 20 } } });

/** What is uploaded, and the extension under which it leaves; null where it is encoded again. */
const STILLS: [filename: string, bytes: () => Promise<Buffer>, extension: string | null][] = [
  ["photo.jpeg", () => image(200, 100, 10).jpeg({ quality: 71 }).toBuffer(), ".jpg"],
  ["draw ing.png", () => image(120, 90, 60).png().toBuffer(), ".png"],
  ["same.png", () => image(50, 40, 90).png().toBuffer(), ".png"],
  ["web.webp", () => image(64, 64, 130).webp().toBuffer(), ".webp"],
  ["turned.jpg", () => image(80, 60, 160).withMetadata({ orientation: 6 }).jpeg().toBuffer(), null],
  ["SAME.png", () => image(50, 40, 230).png().toBuffer(), ".png"],
  ["cam1/1.png", () => image(40, 40, 30).png().toBuffer(), ".png"],
  ["cam2/1.png", () => image(40, 40, 40).png().toBuffer(), ".png"],
];

beforeAll(async () => {
  world = await createWorld({ services: ["console", "vision"] });
  admin = await register(world);
  service = await startNodeService();
  context = await taskContext(service, dir);
  const really = (task: ClaimedTask, by: ScriptedNode) => {
    const path = `/node/tasks/${task.task_id}/target`;
    // Of targets alone: what these kinds write is all named in their payloads.
    const address: RunnerContext["address"] = async (written, content) => {
      if (!("key" in written)) throw new Error("an object that no payload names");
      const body = { fence: task.fence, key: written.key, ...content };
      return WriteAddress.parse(await by.api.ok("POST", path, body));
    };
    return runTask(task.kind, task.payload, { ...context, address });
  };
  node = await scriptedNode(world, admin, { probe: really, export: really });
  projectId = (await newProject(admin)).project_id;
  for (const [filename, make] of STILLS) {
    const bytes = await make();
    const form = new FormData();
    form.append("project_id", projectId);
    form.append("files", new Blob([new Uint8Array(bytes)]), filename);
    const { videos } = await admin.ok<VideoBatch>("POST", "/upload/images", form);
    files.set(String(videos[0]?.video_id), { filename, bytes });
  }
  await node.work();
  jobId = (await admin.ok<{ job: Job }>("POST", "/import", { project_id: projectId, coco: COCO }))
    .job.job_id;
});

afterAll(async () => {
  await service?.close();
  rmSync(dir, { recursive: true, force: true });
});

const PIECES = [
  [10, 10, 40, 12, 30, 50],
  [60, 20, 90, 20, 90, 70.5, 60, 70],
];
const COCO = {
  images: STILLS.map(([file_name], id) => ({ id, file_name })),
  categories: ["cat", 'a "b" & <c>', "unseen"].map((name, id) => ({ id, name })),
  annotations: [
    { image_id: 0, category_id: 0, bbox: [20.5, 30.25, 60, 40] },
    { image_id: 0, category_id: 1, segmentation: [PIECES[0]] },
    { image_id: 1, category_id: 1, segmentation: PIECES },
    { image_id: 2, category_id: 0, bbox: [0, 0, 50, 40] },
    { image_id: 4, category_id: 0, bbox: [5, 45, 40, 35] },
    { image_id: 5, category_id: 1, bbox: [1, 2, 3, 4] },
    { image_id: 5, category_id: 0, bbox: [0, 10.25, 0.5, 20] },
    { image_id: 5, category_id: 2, bbox: [49.75, 39.5, 0.25, 0.5] },
    { image_id: 6, category_id: 0, bbox: [1, 1, 8, 8] },
    { image_id: 7, category_id: 0, bbox: [20, 20, 8, 8] },
  ],
};

type Row = [
  video: string,
  className: string,
  bbox: number[],
  polygon: number[],
  index: number,
  track: number | null,
];
const orderOf = ([video, name, bbox, , index]: Row) =>
  `${video} ${String(index).padStart(6, "0")} ${name} ${bbox.map((value) => value.toFixed(2))}`;

/** A job's annotations, to be compared. */
async function annotationsOf(id: string): Promise<Row[]> {
  const listed = await admin.ok("GET", `/jobs/${id}/annotations?limit=1000`);
  return AnnotationPage.parse(listed)
    .items.map((one): Row => {
      const [video = "", index] = one.frame_id.split(".");
      return [video, one.class, one.bbox, one.polygon ?? [], Number(index), one.track_id];
    })
    .sort((a, b) => (orderOf(a) < orderOf(b) ? -1 : 1));
}

async function exported(options: object, id = jobId) {
  const stop = node.start();
  const made = DatasetExport.parse(await admin.ok("POST", `/jobs/${id}/export`, options));
  await stop();
  const zip = new Uint8Array(await (await fetch(made.download_url)).arrayBuffer());
  return { zip, entries: unzipSync(zip), summary: made.summary };
}

function importedBack(zip: Uint8Array<ArrayBuffer>) {
  const form = new FormData();
  form.append("project_id", projectId);
  form.append("file", new Blob([zip]), "dataset.zip");
  return admin.ok<{ job: Job } & Record<string, unknown>>("POST", "/import/archive", form);
}

function sameNumbers(found: number[], wanted: number[], tolerance: number) {
  expect(found).toHaveLength(wanted.length);
  for (const [at, value] of wanted.entries()) {
    expect(Math.abs((found[at] ?? 0) - value)).toBeLessThanOrEqual(tolerance);
  }
}

it("files that were sent with their folders keep them", async () => {
  const listed = await admin.ok("GET", `/projects/${projectId}/videos`);
  const names = JSON.stringify(listed);
  expect([names.includes('"cam1/1.png"'), names.includes('"cam2/1.png"')]).toEqual([true, true]);
});

describe("a dataset", () => {
  // Shares of six decimals, of at most 200 pixels; thousandths of a pixel; single precision.
  const TOLERANCES: Record<ExportFormat, number> = {
    yolo: 2e-4,
    "yolo-seg": 2e-4,
    coco: 1e-5,
    voc: 6e-4,
    cvat: 6e-4,
    "cvat-video": 6e-4,
    mot: 1.2e-3,
  };
  /** Those of boxes alone. */
  const MASKLESS: readonly string[] = ["yolo", "mot"];
  /** Those of tracks alone: a still's annotations are tracks of one shape there. */
  const TRACKS: readonly string[] = ["cvat-video", "mot"];

  const cases = EXPORT_FORMATS.flatMap((format) =>
    EXPORT_NAMES.map((names) => [format, names] as const),
  );
  it.each(cases)("comes back as it left: %s, with names of %s", async (format, names) => {
    const { zip } = await exported({ format, names, val_share: 0.4 });
    const back = await importedBack(zip);
    expect(back).toMatchObject({ unmatched: [], unmatched_annotations: 0, left_out: 0 });
    expect(back.notes).toEqual([
      ...(TRACKS.includes(format)
        ? ["10 tracks of one shape taken as a label without a track"]
        : []),
      "8 images of the archive not taken: send images=true",
    ]);
    expect(back.job.video_ids).toHaveLength(STILLS.length);
    const [wanted, found] = [await annotationsOf(jobId), await annotationsOf(back.job.job_id)];
    expect(found.map(([video, name]) => [video, name])).toEqual(
      wanted.map(([video, name]) => [video, name]),
    );
    for (const [at, [, , bbox, polygon]] of found.entries()) {
      const [, , ownBox, ownPolygon] = wanted[at] as Row;
      // Pascal VOC has whole pixels: what is narrower becomes one.
      const [x1 = 0, y1 = 0, x2 = 0, y2 = 0] = ownBox;
      const isThin = x2 - x1 < 1 || y2 - y1 < 1;
      sameNumbers(bbox, ownBox, isThin && format === "voc" ? 1 : TOLERANCES[format]);
      sameNumbers(polygon, MASKLESS.includes(format) ? [] : ownPolygon, TOLERANCES[format]);
    }
  });

  it.each(["yolo", "coco", "cvat", "voc"])("comes back with its sides: %s", async (format) => {
    const sides = ["train", "val", "test", "train", "train", "val", "train", "test"];
    const images = STILLS.map(([name], id) => ({ id, file_name: `${sides[id]}/${name}` }));
    const body = { project_id: projectId, name: format, coco: { ...COCO, images } };
    const told = await admin.ok<ImportRecord>("POST", "/import", body);
    expect(told.sides).toEqual({ train: 4, val: 2, test: 2 });
    const names = { format, names: "original" };
    const { zip, entries, summary } = await exported(names, told.job.job_id);
    expect(summary).toMatchObject({
      train: { images: 4 },
      val: { images: 2 },
      test: { images: 2 },
    });
    if (format === "yolo") {
      expect(new TextDecoder().decode(entries["data.yaml"])).toContain("\ntest: images/test\n");
    }
    // Into this project, whose frames it names, and into one that has none of the images.
    expect((await importedBack(zip)).sides).toEqual(told.sides);
    const form = new FormData();
    form.append("project_id", (await newProject(admin)).project_id);
    form.append("images", "true");
    form.append("file", new Blob([zip]), "dataset.zip");
    const stop = node.start();
    const anew = await admin.ok<ImportRecord>("POST", "/import/archive", form);
    const again = await exported(names, anew.job.job_id);
    await stop();
    const listed = (all: Record<string, Uint8Array>) =>
      Object.keys(all).filter((name) => /\.(jpg|jpeg|png|webp)$/.test(name)).length;
    expect(listed(again.entries)).toBe(listed(entries));
    expect(again.summary).toMatchObject({
      train: { images: 4, annotations: summary?.train?.annotations },
      val: { images: 2, annotations: summary?.val?.annotations },
      test: { images: 2, annotations: summary?.test?.annotations },
    });
  });

  it("holds stills as the bytes that came, upright and readable by all", async () => {
    const { entries, summary } = await exported({ format: "coco", val_share: 0 });
    const names = Object.keys(entries).filter((name) => name.startsWith("images/"));
    expect(names).toHaveLength(STILLS.length);
    let twice = 0;
    for (const [id, { filename, bytes }] of files) {
      const [, , extension] = STILLS.find(([name]) => name === filename) ?? [];
      const stem = exportStem(filename);
      const suffix = names.some((name) => name.includes(`${stem}-${id.slice(0, 8)}_`));
      twice += Number(suffix);
      const name = `${stem}${suffix ? `-${id.slice(0, 8)}` : ""}_000000${extension ?? ".jpg"}`;
      const entry = entries[`images/train/${name}`];
      expect([name, entry && Buffer.from(entry).equals(bytes)]).toEqual([name, extension !== null]);
    }
    expect(twice).toBe(4);
    expect(summary).toMatchObject({ original_images: 7 });
    const turned = Buffer.from(entries["images/train/turned_000000.jpg"] ?? []);
    expect(await sharp(turned).metadata()).toMatchObject({ width: 60, height: 80 });
    expect((await sharp(turned).metadata()).orientation ?? 1).toBe(1);
  });

  it("calls stills as they were called, with their folders, in every format", async () => {
    const idOf = (filename: string) =>
      [...files].find(([, file]) => file.filename === filename)?.[0].slice(0, 8);
    const names = [
      "photo.jpeg",
      "draw ing.png",
      `same-${idOf("same.png")}.png`,
      "web.webp",
      "turned.jpg",
      `SAME-${idOf("SAME.png")}.png`,
      "cam1/1.png",
      "cam2/1.png",
    ].sort();
    const texts = async (format: string) => {
      const { entries } = await exported({ format, names: "original", val_share: 0 });
      const text = (name: string) => new TextDecoder().decode(entries[name]);
      const folder = format === "voc" ? "JPEGImages/" : "images/train/";
      const images = Object.keys(entries).filter((name) => name.startsWith(folder));
      expect(images.map((name) => name.slice(folder.length)).sort()).toEqual(names);
      return { text, paths: Object.keys(entries) };
    };
    const coco = JSON.parse((await texts("coco")).text("annotations/instances_train.json"));
    const { images } = coco as { images: { file_name: string }[] };
    expect(images.map(({ file_name }) => file_name).sort()).toEqual(names);
    const yolo = await texts("yolo");
    const stems = names.map((name) => name.replace(/\.[^.]*$/, ""));
    expect(yolo.paths).toEqual(
      expect.arrayContaining(stems.map((stem) => `labels/train/${stem}.txt`)),
    );
    const voc = await texts("voc");
    expect(voc.text("Annotations/cam1/1.xml")).toContain("<filename>cam1/1.png</filename>");
    expect(voc.text("ImageSets/Main/train.txt").trim().split("\n").sort()).toEqual(stems);
    const cvat = (await texts("cvat")).text("annotations.xml");
    for (const name of names) expect(cvat).toContain(`name="${name}"`);
  });

  it("comes back by the names of its images where its list of frames is gone", async () => {
    for (const format of EXPORT_FORMATS.filter((one) => !TRACKS.includes(one))) {
      const { entries } = await exported({ format, names: "original", val_share: 0.4 });
      const kept = Object.entries(entries).filter(
        ([name]) => name !== "frames.csv" && !/same-/i.test(name),
      );
      const back = await importedBack(new Uint8Array(zipSync(Object.fromEntries(kept))));
      expect([format, back.job.video_ids.length]).toEqual([
        format,
        // COCO tells the frames itself.
        format === "coco" ? STILLS.length : STILLS.length - 2,
      ]);
    }
  });

  it("gives a box its rectangle as polygon, or does not", async () => {
    const linesOf = async (rectangles: boolean) => {
      const { entries } = await exported({ format: "yolo-seg", rectangles, val_share: 0 });
      const text = new TextDecoder().decode(entries["labels/train/photo_000000.txt"]);
      return text
        .trim()
        .split("\n")
        .map((line) => line.split(" ").length)
        .sort();
    };
    expect(await linesOf(true)).toEqual([7, 9]);
    expect(await linesOf(false)).toEqual([5, 7]);
    const { entries } = await exported({ format: "coco", rectangles: false, val_share: 0 });
    const json = new TextDecoder().decode(entries["annotations/instances_train.json"]);
    const { annotations } = JSON.parse(json) as { annotations: { segmentation: unknown[] }[] };
    expect(annotations.filter(({ segmentation }) => segmentation.length === 0)).toHaveLength(8);
  });

  it("has no `path` in its data.yaml, which would be that of another folder", async () => {
    const nulls = ["val_share", "seed", "include", "background", "rectangles", "duplicates"];
    const none = Object.fromEntries(nulls.map((name) => [name, null]));
    const { entries } = await exported({ format: "yolo-seg", ...none });
    expect(new TextDecoder().decode(entries["data.yaml"])).not.toMatch(/^path/m);
  });
});

describe.skipIf(!toolsOrSay())("a clip's tracks", () => {
  /** Boxes by track: without one, of a mask, and with a gap; frames 0 to 8, of which 3 is empty. */
  const BOXES: [frame: number, name: string, track: number | null, bbox: number[]][] = [
    [0, "cat", 7, [10, 20, 30, 20]],
    [2, "cat", 7, [14.5, 20.25, 30, 20]],
    [6, "cat", 7, [22, 20, 30, 20]],
    [8, "cat", 7, [26, 20, 30, 20]],
    [2, "cat", 8, [60, 70, 20, 20]],
    [6, "cat", 8, [60, 71, 20, 20]],
    [0, "dog", null, [100, 90, 20, 20]],
    [8, "dog", null, [100, 90, 20, 20]],
  ];
  const MASK = [60, 70, 80, 70, 80, 90, 70, 95];
  const FRAMES = [0, 2, 3, 6, 8];
  let clipJob: string;

  beforeAll(async () => {
    const form = new FormData();
    form.append("project_id", projectId);
    const bytes = new Uint8Array(readFileSync(rectangles()));
    form.append("file", new Blob([bytes]), "clip one.mp4");
    const { video_id: videoId } = await admin.ok<Video>("POST", "/upload", form);
    await node.work();
    const name = (frame: number) => `clip_one_${String(frame).padStart(6, "0")}.jpg`;
    const coco = {
      images: FRAMES.map((frame) => ({ id: frame, file_name: name(frame) })),
      categories: ["cat", "dog"].map((label, id) => ({ id, name: label })),
      annotations: BOXES.map(([frame, label, track, bbox]) => ({
        image_id: frame,
        category_id: label === "cat" ? 0 : 1,
        bbox,
        ...(track === 8 && frame === 2 ? { bbox: undefined, segmentation: [MASK] } : {}),
      })),
    };
    const body = { project_id: projectId, coco };
    clipJob = (await admin.ok<{ job: Job }>("POST", "/import", body)).job.job_id;
    for (const [frame, , track, [x = 0]] of BOXES) {
      await world.visionDatabase.execute(sql`
        UPDATE annotation SET track_id = ${track}::int WHERE job_id = ${clipJob}::uuid
           AND video_id = ${videoId}::uuid AND frame_index = ${frame}::int AND x1 = ${x}::real`);
    }
  });

  it.each(["cvat-video", "mot"])("come back as they left: %s", async (format) => {
    const { zip, entries } = await exported({ format, val_share: 0.4 }, clipJob);
    const back = await importedBack(zip);
    expect(back).toMatchObject({ unmatched: [], left_out: 0 });
    const [wanted, found] = [await annotationsOf(clipJob), await annotationsOf(back.job.job_id)];
    expect(wanted.map(([, , , , , track]) => track).filter(Boolean)).toHaveLength(6);
    expect(found.map(([video, name, , , index, track]) => [video, name, index, track])).toEqual(
      wanted.map(([video, name, , , index, track]) => [video, name, index, track]),
    );
    for (const [at, [, , bbox, polygon]] of found.entries()) {
      sameNumbers(bbox, wanted[at]?.[2] ?? [], 1.2e-3);
      sameNumbers(polygon, format === "mot" ? [] : (wanted[at]?.[3] ?? []), 1.2e-3);
    }
    const { summary } = await exported({ format: "coco" }, back.job.job_id);
    expect(summary?.total_frames).toBe(FRAMES.length);
    const images = Object.keys(entries).filter((name) => /\.jpg$/.test(name));
    const prefix = format === "mot" ? "img1/" : "images/frame_";
    const numbers = format === "mot" ? [1, 2, 3, 4, 5] : FRAMES;
    expect(images.sort()).toEqual(
      numbers.map((one) => `clip_one/${prefix}${String(one).padStart(6, "0")}.jpg`),
    );
  });

  it("are outside where CVAT would go on drawing them", async () => {
    const { entries } = await exported({ format: "cvat-video" }, clipJob);
    const xml = new TextDecoder().decode(entries["clip_one/annotations.xml"]);
    const points = [
      ...xml.matchAll(/<track id="(\d+)"|frame="(\d+)" keyframe="1" outside="(\d)"/g),
    ];
    expect(points.map(([, id, frame, outside]) => (id ? `#${id}` : `${frame}:${outside}`))).toEqual(
      [
        ...["#7", "0:0", "2:0", "3:1", "6:0", "8:0", "9:1"],
        ...["#8", "2:0", "3:1", "6:0", "8:1"],
        ...["#9", "0:0", "1:1", "#10", "8:0", "9:1"],
      ],
    );
    expect(xml).toContain("<size>20</size><mode>interpolation</mode>");
    expect(xml.match(/<polygon /g)).toHaveLength(4);
  });

  it("are a sequence that MOTChallenge's readers take", async () => {
    const { entries } = await exported({ format: "mot" }, clipJob);
    const text = (name: string) => new TextDecoder().decode(entries[`clip_one/${name}`]);
    expect(text("gt/gt.txt").split("\n").slice(0, 4)).toEqual([
      "1,7,10,20,30,20,1,1,1",
      "1,9,100,90,20,20,1,2,1",
      "2,7,14.5,20.25,30,20,1,1,1",
      "2,8,60,70,20,25,1,1,1",
    ]);
    expect(text("gt/labels.txt")).toBe("cat\ndog\n");
    expect(text("seqinfo.ini")).toBe(
      "[Sequence]\nname=clip_one\nimDir=img1\nframeRate=5\nseqLength=5\nimWidth=160\n" +
        "imHeight=120\nimExt=.jpg\n",
    );
  });
});
