// The programs of `runners/` as users run them: Node's, and the page in Chromium with
// onnxruntime-web and LiteRT, on files as they are exported. Each has to find what our own
// predictor finds.

import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { measureRanges } from "../../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { writeDetector } from "../../../gpu-node/export/format-writers.ts";
import { halveOnnx } from "../../../gpu-node/export/half.ts";
import { writeTflite } from "../../../gpu-node/export/tflite.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { readStill } from "../../../gpu-node/media/stills.ts";
import { float, floats, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { letterbox } from "../../../gpu-node/serving/letterbox.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import type { DeployedModel } from "../../../shared/detector/deployed-weights.ts";
import { detectorGraph } from "../../../shared/detector/detector.ts";
import type { DetectionRows, ImageSize, Placement } from "../../../shared/detector/letterbox.ts";
import { suppress } from "../../../shared/detector/suppression.ts";
import { iou } from "../../../shared/detector/tracks.ts";
import type { Bbox, ModelSource } from "../../../shared/tasks/tasks.ts";
import { hasChromium } from "../../support/browser.ts";
import { type DetectedObject, objectsPrinted, openRunnerPage } from "../../support/runner-page.ts";
import { generatedModel, randomWeights, seeded, tensorFile } from "../../support/weights.ts";

const RUNNERS = resolve(import.meta.dirname, "../../../runners/javascript");
const SIZE = [96, 128] as const;
const [HEIGHT, WIDTH] = SIZE;
const CONFIDENCE = 0.25;
const ON_ONE_THREAD = { cpuThreads: 1, device: "cpu" } as const;
const dir = await mkdtemp(join(tmpdir(), "vantage-runners-"));

interface Subject {
  source: ModelSource;
  weights: Buffer;
  deployed: DeployedModel;
}

function subjectOf(more: Parameters<typeof generatedModel>[1] = {}): Subject {
  let weights: Buffer = Buffer.alloc(0);
  const source = generatedModel((key, bytes) => {
    weights = bytes;
    return { url: "", key, bytes: bytes.length };
  }, more);
  return { source, weights, deployed: deployedModel(source, readTensors(weights)) };
}

const box = ({ box: [x1 = 0, y1 = 0, x2 = 0, y2 = 0] }: DetectedObject): Bbox => [x1, y1, x2, y2];

const detector = subjectOf();
const segmenter = subjectOf({ task: "segmentation" });
/** Its weights say that it is served with suppression. */
const suppressing = subjectOf({
  file: tensorFile(randomWeights(detectorGraph("det26n", 3)), { nms_iou: "0.3" }),
});
const { classes } = detector.source;
const onnx = (output: "detections" | "raw", batch: number | null = 1, { deployed } = detector) =>
  writeOnnx(deployed, { output, size: SIZE, batch, metadata: {} });
const tflite = (output: "joined" | "raw") =>
  writeTflite(detector.deployed, {
    size: SIZE,
    output,
    precision: "fp32",
    classes,
    metadata: { names: JSON.stringify(Object.fromEntries(classes.entries())) },
  });

/** Draws an image, writes it as a file of this name, and reads it as a node does. */
async function imageOf(name: string, { width, height }: ImageSize, channels: 3 | 4 = 3) {
  const random = seeded(width);
  const data = Uint8Array.from({ length: channels * width * height }, (_, at) => {
    const [row, column] = [Math.floor(at / channels / width), Math.floor(at / channels) % width];
    // Opaque at the left, transparent at the right, and everything between them.
    if (at % channels === 3) return 255 * Math.min(1, Math.max(0, 1.5 - (2 * column) / width));
    return 128 + 90 * Math.sin(row / 9 + column / 13) + 60 * (random() - 0.5);
  });
  const path = join(dir, name);
  await sharp(data, { raw: { width, height, channels } })
    .jpeg({ quality: 95, force: name.endsWith(".jpg") })
    .toFile(path);
  return { path, image: await readStill(path) };
}

type DrawnImage = Awaited<ReturnType<typeof imageOf>>;

/** Laid without being scaled, so that every tool sees the same pixels. */
const whole = await imageOf("whole.png", { width: WIDTH, height: HEIGHT });
/** Grey is left on both of its sides. */
const narrow = await imageOf("narrow.png", { width: 51, height: HEIGHT });
/** Encoded once more it would be another image. */
const jpeg = await imageOf("photo.jpg", { width: WIDTH, height: HEIGHT });
const transparent = await imageOf("transparent.png", { width: WIDTH, height: HEIGHT }, 4);
/** Laid at a width of 42.5 pixels, which are 43. */
const odd = await imageOf("odd.png", { width: 85, height: 2 * HEIGHT });

/** Rows of an image in pixels of the input, as objects in those of the image, without rounding. */
function objectsIn(
  { values, width: columns }: DetectionRows,
  { left, top, scaleX, scaleY, width, height }: Placement,
): DetectedObject[] {
  const inside = (value: number, max: number) => Math.min(max, Math.max(0, value));
  const objects: DetectedObject[] = [];
  for (let row = 0; row < values.length; row += columns) {
    const [x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, index = 0] = values.subarray(row);
    const [left1 = 0, left2 = 0] = [x1, x2].map((x) => inside((x - left) / scaleX, width));
    const [top1 = 0, top2 = 0] = [y1, y2].map((y) => inside((y - top) / scaleY, height));
    const isOnImage = left2 > left1 && top2 > top1;
    if (score >= CONFIDENCE && isOnImage)
      objects.push({ class: index, score, box: [left1, top1, left2, top2] });
  }
  return objects;
}

/** What our predictor finds. */
async function predicted(
  { image }: DrawnImage,
  { source, weights } = detector,
): Promise<DetectedObject[]> {
  const predictor = await openPredictor(source, weights, ON_ONE_THREAD, SIZE);
  try {
    const laid = await predictor.lay(image);
    return objectsIn(await predictor.rows(laid), laid.placement);
  } finally {
    await predictor.dispose();
  }
}

/** What an end-to-end file of lower precision gives in the node's own runtime. */
async function givenBy(file: Uint8Array, { image }: DrawnImage): Promise<DetectedObject[]> {
  const session = await openSession(file, ON_ONE_THREAD);
  try {
    const { pixels, placement } = await letterbox(image, { width: WIDTH, height: HEIGHT });
    const outputs = await run(session, { images: float(pixels, [1, 3, HEIGHT, WIDTH]) });
    return objectsIn({ values: floats(outputs, "output0"), width: 6 }, placement);
  } finally {
    await session.release();
  }
}

/** As integers, by the ranges of one image. */
async function quantized(): Promise<Uint8Array> {
  const { pixels } = await letterbox(whole.image, { width: WIDTH, height: HEIGHT });
  const measured = { size: SIZE, cpuThreads: 1 };
  const ranges = await measureRanges(detector.deployed, () => [pixels], measured);
  return writeDetector(detector.deployed, {
    format: "onnx",
    precision: "int8",
    output: "end_to_end",
    size: SIZE,
    batch: 1,
    classes,
    metadata: {},
    ranges,
  });
}

/**
 * Where an image is read, scaled and looked at by the same libraries: a JPEG of this kind that was
 * encoded once more moves boxes by 0.0005 pixels, since generated weights see little of pixels.
 */
const EXACTLY = 1e-4;

/**
 * Each object has one of its own in the other list; one at the cut may fall to either side. The
 * tolerance is of boxes in pixels; scores have a tenth of it.
 */
function expectSame(
  found: readonly DetectedObject[],
  wanted: readonly DetectedObject[],
  tolerance = 0.02,
) {
  const isClear = ({ score }: DetectedObject) => score > CONFIDENCE + tolerance / 10;
  expect(wanted.filter(isClear).length).toBeGreaterThan(4);
  const left = [...found];
  for (const one of wanted.filter(isClear)) {
    const index = left.findIndex(
      (other) =>
        other.class === one.class &&
        Math.abs(other.score - one.score) <= tolerance / 10 &&
        other.box.every((side, at) => Math.abs(side - (one.box[at] ?? 0)) <= tolerance),
    );
    expect([one, index >= 0]).toEqual([one, true]);
    left.splice(index, 1);
  }
  expect(left.filter(isClear)).toEqual([]);
}

describe("Node's runner", () => {
  const detect = async (
    file: Uint8Array,
    image: string,
    ...more: string[]
  ): Promise<DetectedObject[]> => {
    const path = join(dir, `${crypto.randomUUID()}.onnx`);
    writeFileSync(path, file);
    const args = [join(RUNNERS, "node.mjs"), path, image, String(CONFIDENCE), ...more];
    return objectsPrinted((await promisify(execFile)(process.execPath, args)).stdout);
  };

  it.each([
    ["end to end", onnx("detections")],
    ["raw", onnx("raw")],
    ["for any batch", onnx("detections", null)],
  ])("finds what the predictor finds: %s", async (_, file) => {
    expectSame(await detect(file, whole.path), await predicted(whole), EXACTLY);
  });

  it.each([
    ["by the file, end to end", "detections", []],
    ["by itself, raw", "raw", ["0.3"]],
  ] as const)("suppresses what the predictor suppresses: %s", async (_, output, more) => {
    const found = await detect(onnx(output, 1, suppressing), whole.path, ...more);
    const wanted = await predicted(whole, suppressing);
    expectSame(found, wanted, EXACTLY);
    expect(wanted.length).toBeLessThan((await predicted(whole)).length);
  });

  it("lays an image of other proportions, and brings boxes back to it", async () => {
    expectSame(await detect(onnx("raw"), narrow.path), await predicted(narrow), EXACTLY);
  });

  it.each([
    ["a JPEG, of which no pixel changes before the model sees it", jpeg],
    ["an image whose laid size is half a pixel more", odd],
    ["a transparent image, on white", transparent],
  ])("sees what the predictor sees: %s", async (_, one) => {
    expectSame(await detect(onnx("detections"), one.path), await predicted(one), EXACTLY);
  });

  it.each(["fp16", "int8"])("gives what the file gives in %s", async (precision) => {
    const halved = () => halveOnnx(onnx("detections"), detector.deployed.graph);
    const file = precision === "int8" ? await quantized() : halved();
    expectSame(await detect(file, whole.path), await givenBy(file, whole), EXACTLY);
    expect(await detect(file, whole.path)).not.toEqual(await predicted(whole));
  });

  it.each(["detections", "raw"] as const)(
    "finds the objects of a segmentation model: %s",
    async (output) => {
      const found = await detect(onnx(output, 1, segmenter), whole.path);
      expectSame(found, await predicted(whole, segmenter), EXACTLY);
    },
  );

  it("says how it is called", async () => {
    const ended = promisify(execFile)(process.execPath, [join(RUNNERS, "node.mjs")]);
    await expect(ended).rejects.toMatchObject({ code: 2, stderr: expect.stringMatching(/image/) });
  });
});

describe.skipIf(!hasChromium)("the page", () => {
  it("finds what the predictor finds, by both runtimes and in every output", async () => {
    const { detect, complaints } = await openRunnerPage();
    const wanted = await predicted(whole);
    expectSame(await detect("m.onnx", onnx("detections"), whole.path), wanted);
    expectSame(await detect("m.onnx", onnx("raw", null), whole.path), wanted);
    expectSame(await detect("m.tflite", tflite("raw"), whole.path), wanted);
    expectSame(await detect("m.tflite", tflite("joined"), whole.path), wanted);
    expectSame(await detect("m.tflite", tflite("joined"), narrow.path), await predicted(narrow));
    const half = halveOnnx(onnx("detections"), detector.deployed.graph);
    expectSame(await detect("m.onnx", half, whole.path), await givenBy(half, whole));
    const integers = await quantized();
    const again = await givenBy(integers, whole);
    const found = await detect("m.onnx", integers, whole.path);
    // Integers that lie between two steps are rounded otherwise by these kernels.
    const same = again.filter((one) =>
      found.some((other) => other.class === one.class && iou(box(other), box(one)) >= 0.9),
    );
    expect(same.length / again.length).toBeGreaterThan(0.9);
    const suppressed = await detect("m.onnx", onnx("detections", 1, suppressing), whole.path);
    expectSame(suppressed, await predicted(whole, suppressing));
    const segments = await detect("m.onnx", onnx("detections", 1, segmenter), whole.path);
    expectSame(segments, await predicted(whole, segmenter));
    // LiteRT tells of itself, and of a GPU that this browser lacks.
    const own = complaints.filter((one) => !/^(INFO|WARNING): |WebGPU|adapters/.test(one));
    expect(own).toEqual([]);
  });

  it("sees JPEGs, transparent images on white, and those that are laid at half a pixel", async () => {
    const { detect } = await openRunnerPage();
    const file = onnx("detections");
    expectSame(await detect("m.onnx", file, jpeg.path), await predicted(jpeg));
    expectSame(await detect("m.onnx", file, transparent.path), await predicted(transparent));
    // The browser scales otherwise than the node; a column less would move boxes by a pixel.
    expectSame(await detect("m.onnx", file, odd.path), await predicted(odd), 0.2);
  });

  it("says what is wrong with a file, and takes the next one", async () => {
    const { page, detect } = await openRunnerPage();
    const broken = { name: "m.onnx", mimeType: "", buffer: Buffer.from("no model") };
    await page.setInputFiles("[name=model]", broken);
    await page.setInputFiles("[name=image]", whole.path);
    await page.click("button");
    await page.locator("[role=status]", { hasText: /^It failed: / }).waitFor();
    expect(await detect("m.onnx", onnx("raw"), whole.path)).not.toEqual([]);
  });
});

describe("the two top-k steps of the runners", () => {
  it("give the rows of the engine, classes of one anchor and fewer than 300 anchors included", async () => {
    const { rowsOfHeads } = await import(String(new URL(`file://${RUNNERS}/detections.mjs`)));
    const { rowsOfHeads: wanted } = await import("../../../gpu-node/export/verification.ts");
    const random = seeded(7);
    for (const [anchors, kinds] of [
      [2_100, 3],
      [84, 80],
      [5, 1],
    ] as const) {
      const boxes = Float32Array.from({ length: 4 * anchors }, random);
      const scores = Float32Array.from({ length: kinds * anchors }, random);
      // Anchors that are alike: the first of them comes first.
      scores.copyWithin(kinds, 0, kinds);
      const { values } = wanted({ boxes, scores }, kinds);
      expect(rowsOfHeads(boxes, scores)).toEqual(values);
      // Corners in their order, so that boxes overlap.
      for (const at of boxes.keys()) if (at % 4 > 1) boxes[at] = (boxes[at] ?? 0) + 0.8;
      const all = wanted({ boxes, scores }, kinds);
      const suppressed = suppress(all, 0.6).values.filter(
        (_value, at, { [at - (at % 6) + 4]: score }) => (score ?? 0) > 0,
      );
      expect(rowsOfHeads(boxes, scores, 0.6)).toEqual(suppressed);
      if (anchors > 84) expect(suppressed.length).toBeLessThan(all.values.length);
    }
  });
});
