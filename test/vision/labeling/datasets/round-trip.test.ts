// Datasets that leave and come back, made by a node's own program: files as they came, and in every
// format the annotations that were there, masks with all their pieces.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { unzipSync } from "fflate";
import sharp from "sharp";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../../../gpu-node/tasks/runners.ts";
import { type ClaimedTask, WriteAddress } from "../../../../shared/tasks/node-protocol.ts";
import { EXPORT_FORMATS } from "../../../../shared/tasks/tasks.ts";
import {
  AnnotationPage,
  DatasetExport,
  exportStem,
  type Job,
} from "../../../../shared/wire/labeling.ts";
import type { VideoBatch } from "../../../../shared/wire/vision.ts";
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

type Row = [video: string, className: string, bbox: number[], polygon: number[]];
/** A job's annotations, to be compared. */
async function annotationsOf(id: string): Promise<Row[]> {
  const listed = await admin.ok("GET", `/jobs/${id}/annotations?limit=1000`);
  return AnnotationPage.parse(listed)
    .items.map((one): Row => {
      const [video = ""] = one.frame_id.split(".");
      return [video, one.class, one.bbox, one.polygon ?? []];
    })
    .sort((a, b) => (`${a[0]}${a[1]}${a[2]}` < `${b[0]}${b[1]}${b[2]}` ? -1 : 1));
}

async function exported(options: object) {
  const stop = node.start();
  const made = DatasetExport.parse(await admin.ok("POST", `/jobs/${jobId}/export`, options));
  await stop();
  const zip = new Uint8Array(await (await fetch(made.download_url)).arrayBuffer());
  return { zip, entries: unzipSync(zip), summary: made.summary };
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
  const TOLERANCES = { yolo: 2e-4, "yolo-seg": 2e-4, coco: 1e-5, voc: 6e-4, cvat: 6e-4 };
  /** Those of boxes alone. */
  const MASKLESS: readonly string[] = ["yolo"];

  it.each(EXPORT_FORMATS)("comes back as it left: %s", async (format) => {
    const { zip } = await exported({ format, val_share: 0.4 });
    const form = new FormData();
    form.append("project_id", projectId);
    form.append("file", new Blob([zip]), "dataset.zip");
    const back = await admin.ok<{ job: Job } & Record<string, unknown>>(
      "POST",
      "/import/archive",
      form,
    );
    expect(back).toMatchObject({ unmatched: [], unmatched_annotations: 0, left_out: 0 });
    expect(back.notes).toEqual(["8 images of the archive not taken: send images=true"]);
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
