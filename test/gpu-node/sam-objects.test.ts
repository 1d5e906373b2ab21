// What a node finds on uploaded images and clips by prompts: by the direct line's way and as tasks.
// Goal: every kind of prompt finds its object, a mask is the same in either form, what is too much
// is left out and counted, and what cannot be is refused in words.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { decodeRle, encodeRle, type Rle } from "../../gpu-node/segmenters/masks.ts";
import type { Detection } from "../../gpu-node/segmenters/segmenter.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { lookAtImage } from "../../gpu-node/tasks/sam-objects.ts";
import { boxAround } from "../../shared/detector/rings.ts";
import type { TaskProgress } from "../../shared/tasks/node-protocol.ts";
import {
  IMAGE_BOUNDS,
  type SamFinding,
  type SamPrompt,
  type SamRequest,
  SamResult,
} from "../../shared/tasks/sam.ts";
import type { ObjectSource } from "../../shared/tasks/tasks.ts";
import { rectangles, toolsOrSay } from "../support/clips.ts";
import { dice } from "../support/dice.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { openRectangles, type Rectangles } from "../support/rectangles.ts";
import { taskContext } from "../support/task-context.ts";

const [WIDTH, HEIGHT] = [160, 120];

const found = toolsOrSay();
let service: NodeService;
let dir: string;
let context: RunnerContext;
let segmenter: Rectangles;
let file: Buffer;
let image: RgbImage;

beforeAll(async () => {
  service = await startNodeService();
  dir = mkdtempSync(join(tmpdir(), "vantage-sam-"));
  // Two red squares with a hole in the first, a green disc, and a blue bar.
  const svg =
    `<svg width="${WIDTH}" height="${HEIGHT}"><rect width="100%" height="100%" fill="#000"/>` +
    '<path fill="#f00" fill-rule="evenodd" d="M10 10h40v40h-40z M20 20h10v10h-10z M60 10h20v20h-20z"/>' +
    '<circle cx="110" cy="70" r="30" fill="#0f0"/><rect x="5" y="100" width="60" height="9" fill="#00f"/></svg>';
  file = await sharp(Buffer.from(svg)).png().toBuffer();
  image = await readStill(file);
});
afterAll(async () => {
  rmSync(dir, { recursive: true, force: true });
  await service.close();
});
beforeEach(async () => {
  segmenter = openRectangles();
  const useSegmenter: RunnerContext["useSegmenter"] = (_, work) => work(segmenter);
  context = { ...(await taskContext(service, dir)), useSegmenter };
});

const text = (word: string): SamPrompt => ({ kind: "text", class_name: word, text: word });
const request = (prompts: SamPrompt[], more: Partial<SamRequest> = {}): SamRequest => ({
  prompts,
  threshold: 0.5,
  mask: "rle",
  segmenter: null,
  ...more,
});
const { signal } = new AbortController();
const look = async (prompts: SamPrompt[], more: Partial<SamRequest> = {}) => {
  const { useSegmenter } = context;
  return SamResult.parse(
    await lookAtImage(image, request(prompts, more), { useSegmenter, signal }),
  );
};
const foundBy = async (...prompts: SamPrompt[]) => (await look(prompts)).frames[0]?.findings ?? [];

/** Square pixels of a ring, by the shoelace formula; holes on bridges count against it. */
function areaOf(ring: readonly number[]): number {
  let twice = 0;
  for (let at = 0; at < ring.length; at += 2) {
    const next = (at + 2) % ring.length;
    twice += (ring[at] ?? 0) * (ring[next + 1] ?? 0) - (ring[next] ?? 0) * (ring[at + 1] ?? 0);
  }
  return Math.abs(twice) / 2;
}
function runsOf(finding: SamFinding | undefined): Rle {
  const { mask } = finding ?? {};
  if (mask && "rle" in mask) return mask.rle;
  throw new Error("no mask as runs");
}
function ringOf(finding: SamFinding | undefined): number[] {
  const { mask } = finding ?? {};
  if (mask && "polygon" in mask) return mask.polygon;
  throw new Error("no mask as a ring");
}
const pixelsOf = (rle: Rle) => decodeRle(rle).reduce((sum, on) => sum + on, 0);

describe("prompts", () => {
  it("of words find what they name, surest first, with their own masks", async () => {
    const result = await look([text("green"), text("red")]);
    expect(result).toMatchObject({
      segmenter: "rectangles",
      warnings: [],
      width: WIDTH,
      height: HEIGHT,
      left_out: { frames: 0, objects: 0, masks: 0 },
    });
    expect(result.frames).toMatchObject([{ frame_index: 0, time: 0 }]);
    const [green, red] = result.frames[0]?.findings ?? [];
    expect(green).toMatchObject({ prompt: 0, confidence: 0.9, bbox: [80, 40, 140, 100] });
    expect(red).toMatchObject({ prompt: 1, bbox: [10, 10, 80, 50] });
    const rle = runsOf(red);
    expect([rle.size, pixelsOf(rle)]).toEqual([[HEIGHT, WIDTH], 40 * 40 - 100 + 400]);
  });

  it("of clicks, boxes and examples find the object that they mean", async () => {
    const points = [{ x: 110, y: 70, label: 1 as const }];
    const found = await foundBy(
      { kind: "points", class_name: "thing", points, bbox: null },
      { kind: "box", class_name: "thing", bbox: [5, 100, 65, 109] },
      { kind: "box", class_name: "thing", bbox: [82, 42, 138, 98] },
      {
        kind: "exemplar",
        class_name: "thing",
        exemplars: [{ frame_index: 0, bbox: [12, 34, 48, 48] }],
      },
    );
    const boxes = Object.fromEntries(found.map(({ prompt, bbox }) => [prompt, bbox]));
    expect(boxes).toEqual({
      0: [80, 40, 140, 100],
      1: [5, 100, 65, 109],
      2: [80, 40, 140, 100],
      3: [10, 10, 80, 50],
    });
    // What was pointed at is told, whatever the threshold.
    const sure = await look([{ kind: "points", class_name: "thing", points, bbox: null }], {
      threshold: 1,
    });
    expect(sure.frames[0]?.findings).toMatchObject([{ confidence: 0.8 }]);
  });

  it("of a crop find what looks like it", async () => {
    const blue = { width: 9, height: 9, channels: 3, background: "#00f" } as const;
    const crop = (await sharp({ create: blue }).png().toBuffer()).toString("base64");
    const [finding] = await foundBy({
      kind: "exemplar",
      class_name: "bar",
      exemplars: [{ crop }],
    });
    expect(finding).toMatchObject({ prompt: 0, bbox: [5, 100, 65, 109] });
  });

  it("that no object answers find nothing", async () => {
    const nowhere = { kind: "points" as const, class_name: "x", bbox: null };
    const points = [{ x: 1, y: 1, label: 1 as const }];
    expect(await foundBy({ ...nowhere, points })).toEqual([]);
    expect((await look([text("red")], { threshold: 0.95 })).frames[0]?.findings).toEqual([]);
  });
});

describe("a mask", () => {
  it("is the same to the pixel as run lengths and as a ring, with its holes and pieces", async () => {
    const prompts = [text("red"), text("green"), text("blue")];
    const asRuns = (await look(prompts)).frames[0]?.findings ?? [];
    const asRings = (await look(prompts, { mask: "polygon" })).frames[0]?.findings ?? [];
    expect(asRuns).toHaveLength(3);
    for (const [index, asked] of asRuns.entries()) {
      const ring = ringOf(asRings[index]);
      expect([asRings[index]?.prompt, areaOf(ring)]).toEqual([
        asked.prompt,
        pixelsOf(runsOf(asked)),
      ]);
      expect(boxAround(ring)).toEqual(asked.bbox);
    }
  });

  it("is none where boxes are enough", async () => {
    const boxes = await look([text("red")], { mask: "none" });
    expect(boxes.frames[0]?.findings).toMatchObject([{ bbox: [10, 10, 80, 50], mask: null }]);
    expect(boxes.left_out).toEqual({ frames: 0, objects: 0, masks: 0 });
  });
});

describe("what is too much", () => {
  const single = encodeRle(Uint8Array.of(1, 0, 0, 0), 2, 2);
  const long = { size: single.size, counts: Array(IMAGE_BOUNDS.maskNumbers - 4).fill(1) };
  /** So many detections, the first the surest. */
  const detecting = (detections: Partial<Detection>[]) => {
    segmenter.detect = async () => [
      detections.map((one, index) => ({
        bbox: [0, 0, 1, 1],
        confidence: 1 - index / 10_000,
        polygon: null,
        ...one,
      })),
    ];
  };

  it("of objects is left out, the least sure first, and counted", async () => {
    detecting(Array.from({ length: IMAGE_BOUNDS.objects + 3 }, () => ({ rle: single })));
    const { frames, left_out } = await look([text("red")], { threshold: 0 });
    expect(frames[0]?.findings).toHaveLength(IMAGE_BOUNDS.objects);
    expect(frames[0]?.findings.at(-1)?.confidence).toBeCloseTo(
      1 - (IMAGE_BOUNDS.objects - 1) / 1e4,
    );
    expect(left_out).toEqual({ frames: 0, objects: 3, masks: 0 });
  });

  it("of masks is left out, and keeps no smaller one out", async () => {
    detecting([{ rle: long }, { rle: { ...long } }, { rle: single }]);
    const { frames, left_out } = await look([text("red")]);
    expect(frames[0]?.findings.map(({ mask }) => mask !== null)).toEqual([true, false, true]);
    expect(left_out).toEqual({ frames: 0, objects: 0, masks: 1 });
  });

  it("of work on rings is left out: masks of noise hold up nobody for longer than seconds", async () => {
    const [side, roll] = [2_000, dice(7)];
    const noise = encodeRle(
      Uint8Array.from({ length: side * side }, () => Number(roll() < 0.5)),
      side,
      side,
    );
    detecting([{ rle: single }, ...Array.from({ length: 40 }, () => ({ rle: noise }))]);
    const began = process.cpuUsage();
    const { frames, left_out } = await look([text("red")], { mask: "polygon", threshold: 0 });
    const { user } = process.cpuUsage(began);
    // Microseconds, of the minutes that forty of them take.
    expect(user).toBeLessThan(15_000_000);
    expect(frames[0]?.findings[0]?.mask).toEqual({ polygon: [0, 1, 0, 0, 1, 0, 1, 1] });
    expect(left_out).toEqual({ frames: 0, objects: 0, masks: 40 });
  });
});

it("leaves out a ring of more numbers than anybody draws, whatever its run lengths are", async () => {
  const [width, height] = [300, 300];
  const dots = Uint8Array.from({ length: width * height }, (_, at) =>
    at % 2 === 0 && Math.floor(at / width) % 2 === 0 ? 1 : 0,
  );
  const rle = encodeRle(dots, width, height);
  segmenter.detect = async () => [[{ bbox: [0, 0, 9, 9], confidence: 0.9, polygon: null, rle }]];
  const told = async (mask: SamRequest["mask"]) => (await look([text("red")], { mask })).left_out;
  expect(await told("polygon")).toEqual({ frames: 0, objects: 0, masks: 1 });
  expect(await told("rle")).toEqual({ frames: 0, objects: 0, masks: 0 });
});

describe("what cannot be", () => {
  it.each<[string, SamPrompt[], RegExp]>([
    ["a word", [text("kangaroo")], /no word for "kangaroo".*Nearest are "red"/],
    ["two words for the same", [text("red"), text("crimson")], /as "red" does/],
    [
      "a click beside the image",
      [
        {
          kind: "points",
          class_name: "x",
          points: [{ x: 161, y: 3, label: 1 }],
          bbox: null,
        },
      ],
      /^points: the image is 160 × 120 pixels/,
    ],
    [
      "a box beside the image",
      [{ kind: "box", class_name: "x", bbox: [200, 0, 300, 10] }],
      /^boxes: the image is 160 × 120/,
    ],
    [
      "an example beside the image",
      [
        {
          kind: "exemplar",
          class_name: "x",
          exemplars: [{ frame_index: 0, bbox: [200, 0, 210, 9] }],
        },
      ],
      /^exemplars: the image is 160 × 120/,
    ],
    [
      "an example on another frame",
      [
        {
          kind: "exemplar",
          class_name: "x",
          exemplars: [{ frame_index: 1, bbox: [0, 0, 10, 9] }],
        },
      ],
      /one frame, which is 0/,
    ],
    [
      "a crop that is no image",
      [{ kind: "exemplar", class_name: "x", exemplars: [{ crop: "aGVsbG8=" }] }],
      /no image of a kind/,
    ],
  ])("%s is refused for good, in words", async (_, prompts, message) => {
    await expect(look(prompts)).rejects.toMatchObject({
      retryable: false,
      message: expect.stringMatching(message),
    });
  });

  it("costs nothing once nobody waits", async () => {
    const { useSegmenter } = context;
    const gone = AbortSignal.abort(new Error("gone"));
    const looking = lookAtImage(image, request([text("red")]), { useSegmenter, signal: gone });
    await expect(looking).rejects.toThrow("gone");
    expect(segmenter.encoded).toBe(0);
  });

  it("leaves no encoding behind", async () => {
    await foundBy(text("red"));
    segmenter.detect = () => Promise.reject(new Error("broke"));
    await expect(look([text("red")])).rejects.toThrow("broke");
    expect([segmenter.encoded, segmenter.disposed]).toEqual([2, 2]);
  });
});

describe.skipIf(!found)("a task", () => {
  const stored = (bytes: Buffer): ObjectSource =>
    service.source(`ws/a/predictions/${crypto.randomUUID()}`, bytes);
  const payload = (prompts: SamPrompt[], video: ObjectSource, more = {}) => ({
    ...request(prompts),
    video,
    fps: null,
    frames_max: 300,
    ...more,
  });
  const finished = async (kind: string, task: object, more: Partial<RunnerContext> = {}) => {
    const outcome = await runTask(kind, task, { ...context, ...more });
    if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
    return SamResult.parse(outcome.result);
  };

  it("on an image finds what the direct line does", async () => {
    const prompts = [text("red"), text("blue")];
    const { seconds: _, ...direct } = await look(prompts);
    const { seconds, ...byTask } = await finished("sam", payload(prompts, stored(file)));
    expect(byTask).toEqual(direct);
    expect(seconds).toBeGreaterThan(0);
  });

  it("on a clip looks at frames by their true times, and tells of those beyond", async () => {
    const told: TaskProgress[] = [];
    const clip = stored(readFileSync(rectangles()));
    const exemplars = [
      { frame_index: 5, bbox: [62, 72, 78, 88] as [number, number, number, number] },
    ];
    const prompts: SamPrompt[] = [text("red"), { kind: "exemplar", class_name: "x", exemplars }];
    const result = await finished("sam_video", payload(prompts, clip, { fps: 5, frames_max: 4 }), {
      progress: (one) => void told.push(one),
    });
    const times = result.frames.map(({ frame_index, time }) => [frame_index, time]);
    expect(times).toEqual([
      [0, 0],
      [2, 0.2],
      [4, 0.4],
      [6, 0.6],
    ]);
    expect(result).toMatchObject({ width: 160, height: 120, left_out: { frames: 6 } });
    for (const { frame_index, findings } of result.frames) {
      const boxes = new Map(findings.map(({ prompt, bbox }) => [prompt, bbox]));
      expect(Math.abs((boxes.get(0)?.[0] ?? 0) - (10 + 2 * frame_index))).toBeLessThan(3);
      expect(Math.abs((boxes.get(1)?.[0] ?? 0) - 60)).toBeLessThan(3);
    }
    expect(told.map(({ done, total }) => [done, total])).toEqual([1, 2, 3, 4].map((n) => [n, 4]));
  });

  it("on an uncut clip of too many frames is refused", async () => {
    const clip = stored(readFileSync(rectangles()));
    const asked = payload([text("red")], clip, { frames_max: 19, uncut: true });
    expect(await runTask("sam_video", asked, context)).toMatchObject({
      outcome: "failed",
      code: "too_many_frames",
    });
  });

  it("that is canceled gives the frames that were done", async () => {
    const cancel = new AbortController();
    const clip = stored(readFileSync(rectangles()));
    const outcome = await runTask("sam_video", payload([text("red")], clip), {
      ...context,
      cancel: cancel.signal,
      progress: ({ done }) => done === 2 && cancel.abort(),
    });
    const { frames } = SamResult.parse("result" in outcome ? outcome.result : null);
    expect([outcome.outcome, frames.length]).toEqual(["cancelled", 2]);
  });

  it.each([
    ["an example beyond the clip", 99, "invalid_request"],
    ["a file that is none", null, "unsupported_media"],
  ])("on %s fails for good", async (_, frame_index, code) => {
    const bytes = frame_index === null ? Buffer.from("no video") : readFileSync(rectangles());
    const exemplars = [
      { frame_index: frame_index ?? 0, bbox: [0, 0, 9, 9] as [number, number, number, number] },
    ];
    const prompt: SamPrompt = { kind: "exemplar", class_name: "x", exemplars };
    const outcome = await runTask("sam_video", payload([prompt], stored(bytes)), context);
    expect(outcome).toMatchObject({ outcome: "failed", code, retryable: false });
  });
});
