// Each kind of task, from its payload to its result, over real clips and a real object store. Goal:
// the results are of the protocol's shapes and right, the same each time, and a cancel keeps what
// is done.

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import sharp from "sharp";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Tools } from "../../gpu-node/media/ffmpeg.ts";
import type { RunnerContext } from "../../gpu-node/tasks/runner-context.ts";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import type { TaskProgress } from "../../shared/tasks/node-protocol.ts";
import type { Bbox, ObjectSource, TaskResult } from "../../shared/tasks/tasks.ts";
import { longGop, rectangles, toolsOrSay } from "../support/clips.ts";
import { type NodeService, startNodeService } from "../support/node-service.ts";
import { openRectangles, type Rectangles } from "../support/rectangles.ts";
import { taskContext } from "../support/task-context.ts";

const found = toolsOrSay();
let service: NodeService;
let dir: string;
let context: RunnerContext;
let segmenter: Rectangles;
let told: TaskProgress[];

beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-tasks-"));
  context = await taskContext(service, dir);
  segmenter = openRectangles();
  told = [];
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const contextOf = (more: Partial<RunnerContext> = {}): RunnerContext => ({
  ...context,
  tools: found as Tools,
  useSegmenter: (_, work) => work(segmenter),
  progress: (progress) => void told.push(progress),
  ...more,
});

const stored = (path: string): ObjectSource =>
  service.source(`ws/a/videos/${crypto.randomUUID()}/source`, readFileSync(path));
const video = (source: ObjectSource) => ({ video: source, video_id: crypto.randomUUID() });
const text = (word: string) => ({ kind: "text", class_name: word, text: word });
const jpegTarget = () => service.target(`frames/${crypto.randomUUID()}.jpg`, "image/jpeg");

/** The result of a task that must finish. */
async function finish<Result>(kind: string, payload: unknown, more?: Partial<RunnerContext>) {
  const outcome = await runTask(kind, payload, contextOf(more));
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  return outcome.result as Result;
}

const label = (source: ObjectSource, more: Record<string, unknown> = {}) => {
  const frames = (more.frames as number[] | undefined) ?? [0, 5, 10, 15];
  return {
    ...video(source),
    job_id: "j",
    prompts: [text("red"), text("green")],
    frames,
    resolution: null,
    images: frames.map(() => null),
    segmenter: null,
    model: null,
    ...more,
  };
};

const pixelAt = async (jpeg: Buffer, x: number, y: number) => {
  const { data, info } = await sharp(jpeg).raw().toBuffer({ resolveWithObject: true });
  return [...data.subarray((y * info.width + x) * 3, (y * info.width + x) * 3 + 3)];
};

describe.skipIf(!found)("probe", () => {
  const probe = (source: ObjectSource, still = false) => ({
    ...video(source),
    filename: "name says nothing.jpg",
    still,
    pts: service.target("pts"),
    thumbnail: service.target("thumbnail.jpg", "image/jpeg"),
  });

  it("says what a video is, stores its frames' times and a thumbnail", async () => {
    const result = await finish<TaskResult<"probe">>("probe", probe(stored(longGop())));
    expect(result).toMatchObject({
      broken: null,
      content_type: "video/mp4",
      width: 320,
      height: 180,
      frame_count: 360,
      time_base: [1, 30_000],
      probe: { codec: "h264", rotation: 0, variable_frame_rate: false, warnings: [] },
    });
    const pts = service.objects.get("pts") as Buffer;
    expect(pts.length).toBe(360 * 4);
    expect([0, 1, 359].map((index) => pts.readInt32LE(index * 4))).toEqual([0, 1_001, 359_359]);
    const thumbnail = await sharp(service.objects.get("thumbnail.jpg")).metadata();
    expect(thumbnail).toMatchObject({ format: "jpeg", width: 320, height: 180 });
    expect(told.length).toBeGreaterThan(0);
  });

  it("takes an image for a video of one frame", async () => {
    const png = await sharp({ create: { width: 40, height: 30, channels: 3, background: "#00f" } })
      .png()
      .toBuffer();
    const source = service.source(crypto.randomUUID(), png);
    const result = await finish<TaskResult<"probe">>("probe", probe(source, true), { tools: null });
    expect(result).toMatchObject({ broken: null, content_type: "image/png", frame_count: 1 });
    expect(service.objects.get("pts")).toEqual(Buffer.alloc(4));
  });

  it("answers with a reason for what is broken, and for a video given as an image", async () => {
    const text = service.source(crypto.randomUUID(), Buffer.from("nothing of the kind"));
    expect(await finish("probe", probe(text))).toEqual({
      broken: expect.stringMatching(/no video or image of a kind we take/),
    });
    expect(await finish("probe", probe(stored(rectangles()), true))).toEqual({
      broken: "the file is a video, not an image",
    });
  });
});

describe.skipIf(!found)("label", () => {
  it("finds what the prompts say on each frame, in pixels of the video", async () => {
    const result = await finish<TaskResult<"label">>("label", label(stored(rectangles())));
    expect(result.segmenter).toBe("rectangles");
    expect(result.frames.map(({ frame_index }) => frame_index)).toEqual([0, 5, 10, 15]);
    for (const { frame_index, detections } of result.frames) {
      expect(detections.map(({ class_name }) => class_name)).toEqual(["red", "green"]);
      const [red] = detections;
      // Chroma has half the resolution: edges may be off by a pixel or two.
      const wanted = [10 + 2 * frame_index, 20, 40 + 2 * frame_index, 40];
      red?.bbox.forEach((corner, at) => {
        expect(Math.abs(corner - (wanted[at] ?? 0))).toBeLessThanOrEqual(2);
      });
      expect(red?.duplicate_of).toBeNull();
    }
    expect(told.at(-1)).toMatchObject({ done: 4, total: 4, detail: { annotations: 8 } });
    expect(segmenter).toMatchObject({ encoded: 4, disposed: 4 });
  });

  it("gives the same for the same payload, also smaller pictures and frames out of order", async () => {
    const payload = label(stored(rectangles()), { frames: [15, 0, 10, 5], resolution: 80 });
    const first = await finish<TaskResult<"label">>("label", payload);
    const again = await finish<TaskResult<"label">>("label", payload);
    expect(again.frames).toEqual(first.frames);
    expect(first.frames.map(({ frame_index }) => frame_index)).toEqual([0, 5, 10, 15]);
    const red = first.frames[0]?.detections[0];
    expect(Math.abs((red?.bbox[2] ?? 0) - 40)).toBeLessThanOrEqual(4);
  });

  it("flags what two prompts found twice", async () => {
    const source = stored(rectangles());
    const box = { video: source, frame_index: 0, bbox: [10, 20, 40, 40] as Bbox };
    const example = { kind: "exemplar" as const, class_name: "like it", exemplars: [box] };
    const payload = label(source, { prompts: [text("red"), example], frames: [3] });
    const { frames } = await finish<TaskResult<"label">>("label", payload);
    expect(frames[0]?.detections.map(({ duplicate_of }) => duplicate_of)).toEqual([null, 0]);
  });

  it("finds what looks like an example: a box on a frame, or a crop", async () => {
    const source = stored(rectangles());
    const crop = await sharp({ create: { width: 8, height: 8, channels: 3, background: "#0f0" } })
      .png()
      .toBuffer();
    const prompts = [
      {
        kind: "exemplar",
        class_name: "moving",
        exemplars: [{ video: source, frame_index: 0, bbox: [12, 22, 38, 38] }],
      },
      { kind: "exemplar", class_name: "standing", exemplars: [{ crop: crop.toString("base64") }] },
    ];
    const { frames } = await finish<TaskResult<"label">>(
      "label",
      label(source, { prompts, frames: [7] }),
    );
    expect(frames[0]?.detections.map(({ class_name }) => class_name)).toEqual([
      "moving",
      "standing",
    ]);
  });

  it("writes the JPEGs that the store lacks, of the very frames", async () => {
    const targets = [jpegTarget(), null, jpegTarget()];
    await finish("label", label(stored(rectangles()), { frames: [12, 3, 0], images: targets }));
    const [late, early] = [targets[0]?.key, targets[2]?.key].map(
      (key) => service.objects.get(key ?? "") as Buffer,
    );
    expect(await sharp(late).metadata()).toMatchObject({ width: 160, height: 120 });
    // At frame 12 the red rectangle covers x = 60; at frame 0 it does not.
    const [red = 0, green = 255] = await pixelAt(late as Buffer, 60, 30);
    expect(red).toBeGreaterThan(150);
    expect(green).toBeLessThan(80);
    expect((await pixelAt(early as Buffer, 60, 30))[0]).toBeLessThan(60);
  });

  it("fails at once, for good, on a word that the segmenter does not know", async () => {
    const payload = label(stored(rectangles()), { prompts: [text("red"), text("walrus")] });
    const outcome = await runTask("label", payload, contextOf());
    expect(outcome).toMatchObject({ outcome: "failed", code: "prompt_unknown", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/no word for "walrus"/));
    expect(segmenter.encoded).toBe(0);
  });

  it("fails at once, for good, on an example that is no image", async () => {
    const exemplars = [{ crop: Buffer.from("<svg/>").toString("base64") }];
    const prompts = [{ kind: "exemplar", class_name: "a", exemplars }];
    const payload = label(stored(rectangles()), { prompts });
    const outcome = await runTask("label", payload, contextOf());
    expect(outcome).toMatchObject({ code: "unsupported_media", retryable: false });
    expect(outcome).toHaveProperty("detail", expect.stringMatching(/no image of a kind we take/));
  });

  it("keeps what is done when it is cancelled between frames", async () => {
    const cancel = new AbortController();
    const context = contextOf({
      cancel: cancel.signal,
      progress: ({ done }) => {
        if (done === 2) cancel.abort();
      },
    });
    const target = jpegTarget();
    const payload = label(stored(rectangles()), { images: [target, null, null, null] });
    const outcome = await runTask("label", payload, context);
    if (outcome.outcome !== "cancelled") throw new Error(JSON.stringify(outcome));
    const frames = (outcome.result as TaskResult<"label">).frames;
    expect(frames.map(({ frame_index }) => frame_index)).toEqual([0, 5]);
    expect(service.objects.has(target.key)).toBe(true);
  });

  it("fails for good on frames that are not there and files that are no video", async () => {
    const far = await runTask("label", label(stored(rectangles()), { frames: [999] }), contextOf());
    expect(far).toMatchObject({ outcome: "failed", code: "invalid_request", retryable: false });
    const junk = service.source(crypto.randomUUID(), Buffer.from("junk"));
    expect(await runTask("label", label(junk), contextOf())).toMatchObject({
      outcome: "failed",
      code: "unsupported_media",
      retryable: false,
    });
  });

  it("fails for now when the store is away, without an address in its words", async () => {
    const source = stored(rectangles());
    service.objects.delete(source.key);
    const outcome = await runTask("label", label(source), contextOf());
    expect(outcome).toMatchObject({ outcome: "failed", code: "store_unavailable" });
    expect(JSON.stringify(outcome)).not.toMatch(/http|Signature/);
  });
});

describe.skipIf(!found)("preview", () => {
  it("draws what it found at or above the threshold, and says what it did not understand", async () => {
    const payload = {
      ...video(stored(rectangles())),
      prompts: [{ ...text("red car"), class_name: `<b>&"\u0001` }],
      frames: [0, 10],
      resolution: null,
      threshold: 0.5,
      segmenter: null,
      model: null,
    };
    const result = await finish<TaskResult<"preview">>("preview", payload);
    expect(result.warnings).toEqual(["car"]);
    expect(result.frames).toMatchObject([{ detections: [{}] }, {}]);
    const jpeg = Buffer.from(result.frames[0]?.image ?? "", "base64");
    expect(await sharp(jpeg).metadata()).toMatchObject({ format: "jpeg", width: 160, height: 120 });
    // The mask's colour lies over the red.
    const [, green = 0] = await pixelAt(jpeg, 25, 30);
    expect(green).toBeGreaterThan(30);
    const strict = await finish<TaskResult<"preview">>("preview", { ...payload, threshold: 0.95 });
    // What is not drawn is not named either.
    expect(strict.frames.flatMap(({ detections }) => detections)).toEqual([]);
    const plain = Buffer.from(strict.frames[0]?.image ?? "", "base64");
    expect((await pixelAt(plain, 25, 30))[1]).toBeLessThan(30);
  });
});

describe.skipIf(!found)("segment", () => {
  const click = (source: ObjectSource, more: Record<string, unknown> = {}) => ({
    ...video(source),
    frame_index: 0,
    points: [{ x: 20, y: 30, label: 1 }],
    box: null,
    segmenter: null,
    ...more,
  });

  it("gives the clicked object's mask in all its forms", async () => {
    const result = await finish<TaskResult<"segment">>("segment", click(stored(rectangles())));
    const [mask] = result.masks;
    expect(mask?.score).toBe(0.8);
    expect(mask?.rle.size).toEqual([120, 160]);
    expect(mask?.rle.counts.reduce((sum, run) => sum + run, 0)).toBe(120 * 160);
    expect(await sharp(Buffer.from(mask?.png ?? "", "base64")).metadata()).toMatchObject({
      format: "png",
      width: 160,
      height: 120,
      channels: 1,
    });
  });

  it("encodes a frame once for many clicks, and keeps the last eight", async () => {
    const source = stored(rectangles());
    const context = contextOf();
    for (const x of [15, 20, 25]) {
      await runTask("segment", click(source, { points: [{ x, y: 30, label: 1 }] }), context);
    }
    expect(segmenter.encoded).toBe(1);
    expect(service.reads.get(source.key)).toBe(1);
    for (let frame_index = 1; frame_index <= 8; frame_index++) {
      await runTask("segment", click(source, { frame_index }), context);
    }
    expect(segmenter).toMatchObject({ encoded: 9, disposed: 1 });
    await runTask("segment", click(source), context);
    expect(segmenter.encoded).toBe(10);
  });
});

describe.skipIf(!found)("frames", () => {
  it("writes a JPEG for each wanted frame, asked for once or twice", async () => {
    const images = [jpegTarget(), jpegTarget(), jpegTarget()];
    const payload = { ...video(stored(rectangles())), frames: [9, 2, 9], images };
    await finish("frames", payload);
    const [one, other, same] = images.map(({ key }) => service.objects.get(key) as Buffer);
    expect(one?.equals(same as Buffer)).toBe(true);
    expect(one?.equals(other as Buffer)).toBe(false);
  });

  it("writes them of a width, and none larger than the frame", async () => {
    const images = [jpegTarget(), jpegTarget()];
    const small = { ...video(stored(rectangles())), frames: [9, 2], images, width: 80 };
    await finish("frames", small);
    const sizes = await Promise.all(
      images.map(({ key }) => sharp(service.objects.get(key) as Buffer).metadata()),
    );
    expect(sizes).toMatchObject(images.map(() => ({ format: "jpeg", width: 80, height: 60 })));
    await finish("frames", { ...small, width: 640 });
    const { width } = await sharp(service.objects.get(images[0]?.key ?? "") as Buffer).metadata();
    expect(width).toBe(160);
  });
});

describe("a task", () => {
  it("of a kind that is not known goes to another node", async () => {
    expect(await runTask("train", {}, contextOf())).toMatchObject({
      outcome: "failed",
      retryable: true,
    });
  });
});
