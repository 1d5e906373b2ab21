// Datasets as the engine maps them. Goal: every box lies where its object is, at any size; frames
// of videos and stills are decoded once; what cannot be made is said and leaves nothing behind.

import { mkdirSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RunnerContext } from "../../../gpu-node/tasks/runner-context.ts";
import {
  prepareDataset,
  scaledBoxes,
  sweepDatasets,
  whyUnfit,
} from "../../../gpu-node/training/dataset.ts";
import { fitted } from "../../../gpu-node/training/pixels.ts";
import type { ExportManifest } from "../../../shared/tasks/export-manifest.ts";
import type { ObjectSource } from "../../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../../support/clips.ts";
import { drawnDataset } from "../../support/drawn-dataset.ts";
import type { NodeService } from "../../support/node-service.ts";
import { beforeEachTask } from "../../support/node-tasks.ts";
import { taskContext } from "../../support/task-context.ts";

let service: NodeService;
let dir: string;
let context: RunnerContext;
beforeEachTask("dataset", (own) => {
  ({ service, dir, context } = own);
});

const annotation = (bbox: [number, number, number, number], class_index = 0) => ({
  id: crypto.randomUUID(),
  class_index,
  bbox,
  polygon: null,
});

describe("a picture's size", () => {
  it.each([
    [1920, 1080, 640, 640, 360],
    [1080, 1920, 640, 360, 640],
    [64, 64, 640, 640, 640],
    [10_000, 3, 320, 320, 1],
    [641, 480, 640, 640, 479],
  ])("%d × %d at %d is %d × %d", (width, height, longest, wide, high) => {
    expect(fitted({ width, height }, longest)).toEqual({ width: wide, height: high });
  });
});

describe("boxes", () => {
  const source = { width: 100, height: 50 };
  const size = { width: 200, height: 100 };

  it("are scaled with their picture and cut to it", () => {
    const annotations = [annotation([10, 5, 20, 15], 1), annotation([-5, 40, 105, 60])];
    const { boxes, left } = scaledBoxes({ annotations }, source, size);
    expect([...boxes]).toEqual([1, 20, 10, 40, 30, 0, 0, 80, 200, 100]);
    expect(left).toBe(0);
  });

  it("are left out and counted where nothing of them is to be seen", () => {
    const annotations = [annotation([101, 5, 120, 15]), annotation([10, 10, 10.2, 30])];
    expect(scaledBoxes({ annotations }, source, size)).toEqual({
      boxes: new Float32Array(),
      rings: new Float32Array(),
      ringStarts: new Int32Array(),
      left: 2,
    });
  });

  it("have the rings of their masks beside them, scaled and whole, where they have masks", () => {
    const annotations = [
      { ...annotation([101, 5, 120, 15]), polygon: [101, 5, 120, 5, 120, 15] },
      annotation([10, 5, 20, 15], 1),
      { ...annotation([-5, 40, 30, 60]), polygon: [-5, 40, 30, 40, 30, 60, -5, 60] },
      { ...annotation([10, 5, 20, 15]), polygon: [10, 5, 20, 15] },
      { ...annotation([40, 5, 60, 15]), polygon: [40, 5, 60, 5, 50, 15] },
    ];
    const { boxes, rings, ringStarts, left } = scaledBoxes({ annotations }, source, size);
    expect([boxes.length / 5, left]).toEqual([4, 1]);
    expect([...ringStarts]).toEqual([0, 0, 4, 4]);
    expect([...rings]).toEqual([
      ...[-10, 80, 60, 80, 60, 120, -10, 120],
      ...[80, 10, 120, 10, 100, 30],
    ]);
  });
});

describe("preparing", () => {
  const prepare = (
    manifest: ExportManifest,
    videos: readonly ObjectSource[],
    more: { imageSize?: number; context?: RunnerContext; outlines?: boolean } = {},
  ) => {
    const told: [number, number][] = [];
    const { imageSize = 96, outlines = false } = more;
    const options = { manifest, videos, sha256: "x", imageSize, outlines };
    const onProgress = (done: number, total: number) => void told.push([done, total]);
    const made = prepareDataset({ ...options, onProgress }, more.context ?? context);
    return made.then((prepared) => ({ ...prepared, told }));
  };
  const folder = () => join(dir, "training/datasets");

  it("puts each picture where its entry says, smaller or larger than it was", async () => {
    const drawn = await drawnDataset(service, {}, { train: 3, val: 2, side: 64 });
    for (const imageSize of [32, 96]) {
      const { splits, told } = await prepare(drawn.manifest, drawn.payload.videos, { imageSize });
      expect(told.at(-1)).toEqual([5, 5]);
      for (const split of ["train", "val"] as const) {
        const { path, images } = splits[split];
        const pixels = readFileSync(path);
        expect(pixels.length).toBe(images.length * imageSize ** 2 * 3);
        for (const { offset, width, boxes } of images) {
          for (let at = 0; at < boxes.length; at += 5) {
            const [cls = 0, x1 = 0, y1 = 0, x2 = 0, y2 = 0] = boxes.subarray(at, at + 5);
            const [x, y] = [Math.floor((x1 + x2) / 2), Math.floor((y1 + y2) / 2)];
            const pixel = [...pixels.subarray(offset + (y * width + x) * 3).subarray(0, 3)];
            // Discs are red, squares blue.
            expect(pixel.indexOf(Math.max(...pixel))).toBe(cls === 0 ? 0 : 2);
          }
        }
      }
    }
  });

  it("takes outlines along for pasting, and leaves what is measured to the boxes", async () => {
    const { manifest, payload } = await drawnDataset(service, {}, { train: 2, val: 2, seed: 25 });
    for (const { annotations } of manifest.videos.flatMap(({ frames }) => frames))
      for (const one of annotations) {
        const [left, top, right] = one.bbox;
        one.polygon = [left, top, right, top, right, top + 4];
      }
    const { splits } = await prepare(manifest, payload.videos, { outlines: true });
    expect(splits.train.images.every(({ rings = [] }) => rings.length > 0)).toBe(true);
    expect(splits.val.images.map(({ rings }) => rings)).toEqual([undefined, undefined]);
  });

  it.skipIf(!toolsOrSay())("takes frames of videos by their number, in any order", async () => {
    const key = "ws/a/videos/clip";
    const source = service.source(key, readFileSync(rectangles()));
    const frame = (index: number, split: "train" | "val") => ({
      index,
      split,
      annotations: [annotation([10 + 2 * index, 20, 40 + 2 * index, 40])],
    });
    const video = { video_id: "v", filename: "clip.mp4", key, width: 160, height: 120 };
    const frames = [frame(15, "train"), frame(0, "train"), frame(9, "val"), frame(3, "train")];
    const manifest = {
      name: "clip",
      classes: ["red"],
      left_out_frames: 0,
      videos: [{ ...video, frames }],
    };
    const { splits } = await prepare(manifest, [source], { imageSize: 160 });
    expect(splits.train.images.map(({ name }) => name)).toEqual(
      [0, 3, 15].map((index) => `clip.mp4 #${index}`),
    );
    const pixels = readFileSync(splits.train.path);
    for (const { offset, width, boxes } of splits.train.images) {
      const [, x1 = 0, y1 = 0, x2 = 0, y2 = 0] = boxes;
      const at = offset + (((y1 + y2) / 2) * width + (x1 + x2) / 2) * 3;
      expect(pixels[at]).toBeGreaterThan(200);
      expect(pixels[offset + (((y1 + y2) / 2) * width + x1 - 4) * 3]).toBeLessThan(50);
    }
  });

  it("decodes nothing again, and begins anew where the file is not what it was", async () => {
    const { manifest, payload } = await drawnDataset(service, {}, { train: 2, val: 1, seed: 21 });
    const first = await prepare(manifest, payload.videos);
    const before = readFileSync(first.splits.train.path);
    for (const { key } of payload.videos) service.objects.delete(key);
    expect((await prepare(manifest, payload.videos)).told.at(-1)).toEqual([3, 3]);
    writeFileSync(first.splits.train.path, before.subarray(1));
    rmSync(join(dir, "cache"), { recursive: true });
    const bare = await taskContext(service, dir);
    await expect(prepare(manifest, payload.videos, { context: bare })).rejects.toMatchObject({
      code: "store_unavailable",
    });
    expect(readdirSync(folder()).filter((name) => name.includes("part"))).toEqual([]);
  });

  it("decodes of another dataset what no dataset here has, whatever its splits are", async () => {
    const { manifest, payload } = await drawnDataset(service, {}, { train: 3, val: 2, seed: 24 });
    const part = { ...manifest, videos: manifest.videos.slice(1) };
    await prepare(part, payload.videos);
    for (const { key } of part.videos) service.objects.delete(key);
    rmSync(join(dir, "cache"), { recursive: true });
    const bare = await taskContext(service, dir);
    const [first, ...others] = manifest.videos.toReversed();
    const frames = first?.frames.map((frame) => ({ ...frame, split: "train" as const })) ?? [];
    const turned = { ...manifest, videos: [...others, { ...first, frames }] as typeof others };
    const { splits, told } = await prepare(turned, payload.videos, { context: bare });
    expect(told.at(-1)).toEqual([5, 5]);
    const again = await drawnDataset(service, {}, { train: 3, val: 2, seed: 24 });
    const fresh = await taskContext(service, dir, {
      machine: { ...context.machine, trainingDir: join(dir, "elsewhere") },
    });
    const made = await prepare(turned, again.payload.videos, { context: fresh });
    for (const split of ["train", "val"] as const) {
      expect(readFileSync(splits[split].path)).toEqual(readFileSync(made.splits[split].path));
      expect(splits[split].images).toEqual(made.splits[split].images);
    }
  });

  it("ends when it is asked to, and leaves nothing half done", async () => {
    const { manifest, payload } = await drawnDataset(service, {}, { train: 4, val: 1, seed: 22 });
    const stop = new AbortController();
    const options = { manifest, videos: payload.videos, sha256: "x", imageSize: 96 };
    const made = prepareDataset(
      { ...options, onProgress: () => stop.abort() },
      { ...context, cancel: stop.signal },
    );
    await expect(made).rejects.toThrow();
    expect(readdirSync(folder())).toEqual([]);
  });

  it("names a disk that is full", async () => {
    const { manifest, payload } = await drawnDataset(service, {}, { train: 2, val: 1, seed: 23 });
    // As many pixels as no disk has.
    for (const video of manifest.videos) Object.assign(video, { width: 1, height: 1 });
    await expect(prepare(manifest, payload.videos, { imageSize: 2 ** 30 })).rejects.toMatchObject({
      code: "node_disk_full",
      retryable: true,
      message: expect.stringMatching(/disk is full: the dataset needs \d+\.\d GiB/),
    });
  });
});

describe("datasets of before", () => {
  const folder = () => join(dir, "training/datasets");
  /** Three of a hundred bytes each: `a` was used longest ago. */
  function three() {
    mkdirSync(folder(), { recursive: true });
    for (const [age, name] of ["c", "b", "a"].entries()) {
      writeFileSync(join(folder(), `${name}.rgb`), Buffer.alloc(100));
      writeFileSync(join(folder(), `${name}.rgb.json`), "[]");
      utimesSync(join(folder(), `${name}.rgb`), 1_000_000, 1_000_000 - age);
    }
  }

  it.each([
    ["stay where there is room", ["d"], { bytes: 50, free: 50 }, ["a", "b", "c"]],
    ["make room, the one used longest ago first", ["d"], { bytes: 50, free: 0 }, ["b", "c"]],
    ["make room, as many as it takes", ["d"], { bytes: 150, free: 0 }, ["c"]],
    ["that are needed stay", ["a"], { bytes: 150, free: 0 }, ["a", "c"]],
    ["stay where even all of them would not do", ["d"], { bytes: 301, free: 0 }, ["a", "b", "c"]],
  ])("%s", async (_name, needed, room, left) => {
    three();
    await sweepDatasets(folder(), needed, room);
    expect(readdirSync(folder()).sort()).toEqual(
      left.flatMap((name) => [`${name}.rgb`, `${name}.rgb.json`]),
    );
  });
});

describe("what nobody can learn from", () => {
  const frame = (split: "train" | "val", boxes: number) => ({
    index: 0,
    split,
    annotations: Array.from({ length: boxes }, () => annotation([0, 0, 5, 5])),
  });
  const dataset = (frames: ReturnType<typeof frame>[], classes = ["a"]) => ({
    name: "x",
    classes,
    left_out_frames: 0,
    videos: frames.map((one) => ({
      video_id: "v",
      filename: "f",
      key: "k",
      width: 9,
      height: 9,
      frames: [one],
    })),
  });

  it.each([
    [[frame("train", 1), frame("val", 1)], null],
    [[frame("train", 1), frame("val", 0)], null],
    [[frame("train", 1)], /validate on/],
    [[frame("val", 1)], /train on/],
    [[frame("train", 0), frame("val", 0)], /no annotation/],
    [[frame("train", 0), frame("val", 1)], /to train on has an annotation/],
  ] as const)("is told in a sentence (%#)", (frames, said) => {
    const why = whyUnfit(dataset([...frames]));
    if (said === null) expect(why).toBeNull();
    else expect(why).toMatch(said);
  });

  it("has a class", () => {
    expect(whyUnfit(dataset([frame("train", 0)], []))).toMatch(/no class/);
  });
});
