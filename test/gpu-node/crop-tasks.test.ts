// Crops on a node, of a drawn clip whose boxes are known. Goal: a crop shows the pixels of its box,
// a label task writes one pack of what it detects, and no fault of crops fails labels.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { toCrop } from "../../gpu-node/media/stills.ts";
import { CropPacker } from "../../gpu-node/tasks/crop-packer.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import {
  CROP_PACK_BYTES_MAX,
  type CropBox,
  cropEntries,
  cropRegion,
  cropSize,
} from "../../shared/crop-pack.ts";
import { type Bbox, type ObjectSource, TASK_KINDS } from "../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { noiseImage } from "../support/noise.ts";
import { taskContext } from "../support/task-context.ts";

const found = toolsOrSay();
/** The red rectangle of the clip on a frame, and the green one. */
const red = (frame: number): Bbox => [10 + 2 * frame, 20, 40 + 2 * frame, 40];
const GREEN: Bbox = [60, 70, 80, 90];
const SIZE = { width: 160, height: 120 };

let service: NodeService;
let dir: string;
let context: RunnerContext;
let video: ObjectSource;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-crops-"));
  context = await taskContext(service, dir);
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const decoded = async (jpeg: Uint8Array) => {
  const { data, info } = await sharp(jpeg).raw().toBuffer({ resolveWithObject: true });
  return { data, width: info.width, height: info.height };
};
/** The colour of a crop's middle. */
const middleOf = ({ data, width, height }: Awaited<ReturnType<typeof decoded>>) => {
  const at = ((height >> 1) * width + (width >> 1)) * 3;
  return [...data.subarray(at, at + 3)];
};
const isRed = ([r = 0, g = 0, b = 0]: number[]) => r > 180 && g < 90 && b < 90;
const isGreen = ([r = 0, g = 0, b = 0]: number[]) => g > 180 && r < 90 && b < 90;

/** The crops of a pack, by frame and box. */
const packOf = (key: string) => {
  const pack = service.objects.get(key);
  const entries = pack && cropEntries(pack, pack.length);
  return (entries ?? []).map(({ offset, length, ...of }) => ({
    ...of,
    jpeg: (pack as Buffer).subarray(offset, offset + length),
  }));
};
const run = (kind: string, payload: unknown, more: Partial<RunnerContext> = {}) =>
  runTask(kind, payload, { ...context, ...more });
/** The frames of a label task that finished. */
async function labeledFrames(payload: unknown, more: Partial<RunnerContext> = {}) {
  const outcome = await run("label", payload, more);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return TASK_KINDS.label.result.parse(outcome.result).frames;
}
const labelTask = (more: Record<string, unknown> = {}) => ({
  video,
  video_id: "v",
  job_id: "j",
  prompts: [
    { kind: "text", class_name: "red", text: "red" },
    { kind: "text", class_name: "green", text: "green" },
  ],
  frames: [0, 5, 10],
  resolution: null,
  images: [null, null, null],
  segmenter: null,
  model: null,
  crops: service.target("crops/label"),
  ...more,
});

it("cuts the pixels of a frame, made smaller or up to twice as large", async () => {
  const noise = await noiseImage(500, 400).raw().toBuffer();
  const image: RgbImage = { data: noise, width: 500, height: 400 };
  for (const bbox of [
    [100, 100, 140, 130],
    [0, 0, 500, 400],
    [480, 390, 500, 400],
    [-5, -5, 3, 3],
    [10.4, 20.6, 310.2, 40.1],
  ] as const satisfies CropBox[]) {
    const region = cropRegion(bbox, image);
    const size = cropSize(region);
    const crop = await decoded(await toCrop(image, bbox));
    expect({ width: crop.width, height: crop.height }).toEqual(size);
    const cut = await sharp(noise, { raw: { width: 500, height: 400, channels: 3 } })
      .extract(region)
      .resize(size.width, size.height, { fit: "fill" })
      .raw()
      .toBuffer();
    const apart = cut.reduce((sum, value, at) => sum + Math.abs(value - (crop.data[at] ?? 0)), 0);
    // Noise is what a JPEG keeps worst: of another region each channel is 85 apart.
    expect([bbox, apart / cut.length < 30]).toEqual([bbox, true]);
  }
});

describe.skipIf(found === null)("a task of a clip", () => {
  beforeEach(() => {
    video = service.source(crypto.randomUUID(), readFileSync(rectangles()));
  });

  it("gives the boxes of a `crops` task, those of two videos in two packs", async () => {
    const still = await noiseImage(300, 200).png().toBuffer();
    const boxes = [10, 0, 10].flatMap((frame) => [
      { frame_index: frame, bbox: GREEN },
      { frame_index: frame, bbox: red(frame) },
    ]);
    const wanted = (name: string, more: Record<string, unknown>) => ({
      video_id: name,
      video,
      boxes,
      pack: service.target(`crops/${name}`),
      ...more,
    });
    const gone = {
      ...video,
      key: "gone",
      url: video.url.replace(/objects\/[^?]+/, "objects/gone"),
    };
    const outcome = await run("crops", {
      videos: [
        wanted("clip", {}),
        wanted("gone", { video: gone }),
        wanted("beyond", { boxes: [{ frame_index: 99, bbox: GREEN }] }),
        wanted("still", {
          video: service.source(crypto.randomUUID(), still),
          boxes: [{ frame_index: 0, bbox: [0, 0, 30, 30] }],
        }),
      ],
    });
    expect(outcome).toEqual({
      outcome: "finished",
      result: { packed: ["clip", "still"], left_out: boxes.length + 1 },
    });
    const crops = packOf("crops/clip");
    expect(crops.map(({ frame, bbox }) => [frame, ...bbox])).toEqual([
      [0, ...red(0)],
      [0, ...GREEN],
      [10, ...red(10)],
      [10, ...GREEN],
    ]);
    for (const { bbox, jpeg } of crops) {
      const image = await decoded(jpeg);
      const isOwn = bbox[0] === GREEN[0] && bbox[1] === GREEN[1] ? isGreen : isRed;
      expect(isOwn(middleOf(image))).toBe(true);
      const { width, height } = cropSize(cropRegion(bbox, SIZE));
      expect([image.width, image.height]).toEqual([width, height]);
    }
    expect(packOf("crops/still")).toHaveLength(1);
  });

  it("writes one pack of what a label task detected, with its boxes as they are reported", async () => {
    const frames = await labeledFrames(labelTask());
    const crops = packOf("crops/label");
    const reported = frames.flatMap(({ frame_index, detections }) =>
      detections.map(({ bbox }) => JSON.stringify([frame_index, ...bbox.map(Math.fround)])),
    );
    expect(reported.length).toBe(6);
    expect(crops.map(({ frame, bbox }) => JSON.stringify([frame, ...bbox])).toSorted()).toEqual(
      reported.toSorted(),
    );
    const colours = await Promise.all(crops.map(async ({ jpeg }) => middleOf(await decoded(jpeg))));
    expect(colours.filter(isRed)).toHaveLength(3);
    expect(colours.filter(isGreen)).toHaveLength(3);
  });

  it("writes no pack where none is wanted, and none without detections", async () => {
    const before = service.objects.size;
    const { crops: _, ...unwanted } = labelTask();
    expect((await run("label", unwanted)).outcome).toBe("finished");
    const prompts = [{ kind: "text", class_name: "blue", text: "blue" }];
    expect((await run("label", labelTask({ prompts }))).outcome).toBe("finished");
    expect(service.objects.size).toBe(before);
  });

  it("labels all the same when the pack cannot be written", async () => {
    const frames = await labeledFrames(labelTask(), {
      address: async () => {
        throw new Error("no address");
      },
    });
    expect(frames).toHaveLength(3);
  });

  it("fails a `crops` task, to be tried again, when the store is away", async () => {
    const wanted = {
      video_id: "clip",
      video,
      boxes: [{ frame_index: 0, bbox: GREEN }],
      pack: service.target("crops/none"),
    };
    const outcome = await run(
      "crops",
      { videos: [wanted] },
      {
        address: async () => {
          throw new Error("no address");
        },
      },
    );
    expect(outcome).toMatchObject({ outcome: "failed", retryable: true });
  });
});

it("stops at the bound of a pack, and counts what it left out", async () => {
  const noise = await noiseImage(400, 400).raw().toBuffer();
  const image: RgbImage = { data: noise, width: 400, height: 400 };
  const boxes = Array.from({ length: 900 }, (_, at): CropBox => {
    const [x, y] = [at % 30, Math.floor(at / 30)];
    return [x, y, x + 90, y + 90];
  });
  const packer = new CropPacker();
  await packer.add(3, image, boxes);
  const pack = packer.pack();
  expect(pack.length).toBeLessThanOrEqual(CROP_PACK_BYTES_MAX);
  expect(pack.length).toBeGreaterThan(0.9 * CROP_PACK_BYTES_MAX);
  expect(packer.leftOut).toBeGreaterThan(0);
  expect(packer.count + packer.leftOut).toBe(boxes.length);
  expect(cropEntries(pack, pack.length)).toHaveLength(packer.count);
});
