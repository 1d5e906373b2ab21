// Datasets as zip archives, laid out by the node's own task from drawn clips and an object store,
// opened by a program of others. Goal: what each format promises, byte for byte the same again.

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Tools } from "../../gpu-node/media/ffmpeg.ts";
import type { Cache } from "../../gpu-node/objects/cache.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import type { ObjectSource, TaskResult } from "../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { hasProgram } from "../support/programs.ts";
import { taskContext } from "../support/task-context.ts";

const found = toolsOrSay();
let service: NodeService;
let dir: string;
let cache: Cache;
let context: RunnerContext;

beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-export-"));
  context = { ...(await taskContext(service, dir)), tools: found as Tools };
  cache = context.cache;
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const stored = (path: string): ObjectSource =>
  service.source(`ws/a/videos/${crypto.randomUUID()}/source`, readFileSync(path));

describe.skipIf(!found || !hasProgram("unzip"))("an export", () => {
  const annotation = (class_index: number, bbox: number[], polygon: number[] | null = null) => ({
    id: crypto.randomUUID(),
    class_index,
    bbox,
    polygon,
  });

  function manifest({ key }: ObjectSource) {
    const clip = { video_id: "v", key, width: 160, height: 120 };
    const ring = [10, 20, 40, 20, 40, 40, 10, 40];
    return {
      name: "A set",
      classes: ["red thing", 'say "hi"'],
      left_out_frames: 0,
      videos: [
        {
          ...clip,
          filename: "a clip/../Früh 1.mp4",
          frames: [
            { index: 0, split: "train", annotations: [annotation(0, [10, 20, 40, 40], ring)] },
            { index: 4, split: "train", annotations: [] },
            { index: 9, split: "val", annotations: [annotation(1, [150, 70, 200, 90])] },
          ],
        },
        {
          ...clip,
          video_id: "w",
          filename: "früh 1.MOV",
          frames: [{ index: 1, split: "train", annotations: [annotation(0, [500, 1, 600, 2])] }],
        },
      ],
    };
  }

  it("fails for now where the node's disk is full", async () => {
    const archive = join(dir, "full");
    symlinkSync("/dev/full", archive);
    const video = stored(rectangles());
    const bytes = Buffer.from(JSON.stringify(manifest(video)));
    const payload = {
      export_id: "e",
      format: "yolo",
      rectangles: true,
      archive: service.target("never.zip"),
      videos: [video],
      manifest: service.source(crypto.randomUUID(), bytes),
    };
    const full: Cache = {
      open: (...given) => cache.open(...given),
      forget: (key) => cache.forget(key),
      readDerived: (...given) => cache.readDerived(...given),
      writeDerived: (...given) => cache.writeDerived(...given),
      temporary: () => archive,
    };
    expect(await runTask("export", payload, { ...context, cache: full })).toMatchObject({
      outcome: "failed",
      code: "node_disk_full",
      retryable: true,
    });
    expect(service.objects.has("never.zip")).toBe(false);
  });

  async function exported(format: string, options: { rectangles?: boolean } = {}) {
    const video = stored(rectangles());
    const bytes = Buffer.from(JSON.stringify(manifest(video)));
    const archive = service.target(`${crypto.randomUUID()}.zip`, "application/zip");
    const payload = {
      export_id: "e",
      format,
      rectangles: options.rectangles ?? true,
      archive,
      manifest: service.source(crypto.randomUUID(), bytes),
      videos: [video],
    };
    const outcome = await runTask("export", payload, context);
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    const result = outcome.result as TaskResult<"export">;
    const zip = service.objects.get(archive.key) as Buffer;
    expect(result.bytes).toBe(zip.length);
    const path = join(dir, "archive.zip");
    writeFileSync(path, zip);
    const names = execFileSync("unzip", ["-Z1", path], { encoding: "utf8" }).trim().split("\n");
    execFileSync("unzip", ["-tq", path]);
    const entry = (name: string) => execFileSync("unzip", ["-p", path, name]);
    return { result, names, entry, zip };
  }

  it("lays YOLO out: pictures, labels with six decimals, background, classes in order", async () => {
    const { result, names, entry, zip } = await exported("yolo");
    expect(names.sort()).toEqual([
      "data.yaml",
      "frames.csv",
      "images/train/Früh_1-v_000000.jpg",
      "images/train/Früh_1-v_000004.jpg",
      "images/train/früh_1-w_000001.jpg",
      "images/val/Früh_1-v_000009.jpg",
      "labels/train/Früh_1-v_000000.txt",
      "labels/train/Früh_1-v_000004.txt",
      "labels/train/früh_1-w_000001.txt",
      "labels/val/Früh_1-v_000009.txt",
    ]);
    expect(String(entry("labels/train/Früh_1-v_000000.txt"))).toBe(
      "0 0.156250 0.250000 0.187500 0.166667\n",
    );
    expect(String(entry("labels/train/Früh_1-v_000004.txt"))).toBe("");
    // Cut to the image's right side.
    expect(String(entry("labels/val/Früh_1-v_000009.txt"))).toBe(
      "1 0.968750 0.666667 0.062500 0.166667\n",
    );
    expect(String(entry("data.yaml"))).toBe(
      'train: images/train\nval: images/val\nnc: 2\nnames:\n  0: "red thing"\n  1: "say \\"hi\\""\n',
    );
    expect(await sharp(entry("images/train/Früh_1-v_000000.jpg")).metadata()).toMatchObject({
      width: 160,
    });
    expect(result.summary).toMatchObject({
      train: { images: 3, background_images: 2, annotations: 1 },
      val: { images: 1, per_class: [{ count: 0 }, { class: 'say "hi"', count: 1 }] },
      annotations_outside_picture: 1,
    });
    expect((await exported("yolo")).zip.equals(zip)).toBe(true);
  });

  it("lays COCO out, one file a split, with areas and rings", async () => {
    const { entry } = await exported("coco");
    const train = JSON.parse(String(entry("annotations/instances_train.json")));
    expect(train.categories).toEqual([
      { id: 1, name: "red thing", supercategory: "" },
      { id: 2, name: 'say "hi"', supercategory: "" },
    ]);
    expect(train.images).toHaveLength(3);
    expect(train.annotations).toEqual([
      {
        id: 1,
        image_id: 1,
        category_id: 1,
        bbox: [10, 20, 30, 20],
        area: 600,
        iscrowd: 0,
        segmentation: [[10, 20, 40, 20, 40, 40, 10, 40]],
      },
    ]);
    const val = JSON.parse(String(entry("annotations/instances_val.json")));
    // Ids of no image of the other split; the box's rectangle stands for its mask.
    expect(train.images.map(({ id }: { id: number }) => id)).toEqual([1, 2, 4]);
    expect(val.images).toMatchObject([{ id: 3 }]);
    expect(val.annotations).toMatchObject([
      { id: 2, image_id: 3, segmentation: [[150, 70, 160, 70, 160, 90, 150, 90]], area: 200 },
    ]);
    const bare = (await exported("coco", { rectangles: false })).entry;
    const [box] = JSON.parse(String(bare("annotations/instances_val.json"))).annotations;
    expect(box).toMatchObject({ segmentation: [], area: 200 });
  });
});
