// Files of a detector of blood cells in every format and precision: how long their writing takes,
// how large they are, and how long they look at an image, each beside ONNX in single precision.
// Run: npm run bench -- exports [--sizes 320,640 --rounds 15]; blood-cell-model comes before it.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { measureRanges } from "../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel } from "../../gpu-node/export/detector-onnx.ts";
import { type FileWish, writeDetector } from "../../gpu-node/export/format-writers.ts";
import { openTfliteRunner } from "../../gpu-node/export/tflite-runner.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { float, openSession, run } from "../../gpu-node/onnx/runtime.ts";
import { letterbox } from "../../gpu-node/serving/letterbox.ts";
import { detectorGraph, type Variant } from "../../shared/detector/detector.ts";
import { BLOOD_CLASSES, bloodWeights } from "../support/blood-cells.ts";
import { bloodImage, bloodSplit } from "../support/images.ts";
import { randomWeights, tensorFile } from "../support/weights.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: {
    sizes: { type: "string", default: "320,640" },
    rounds: { type: "string", default: "15" },
    variant: { type: "string", default: "det26n" },
  },
});
const ROUNDS = Number(values.rounds);
const CALIBRATION_IMAGES = 16;
const MB = 1e6;
const print = (line: string) => process.stdout.write(`${line}\n`);
const median = (times: readonly number[]) =>
  times.toSorted((one, other) => one - other)[times.length >> 1] ?? 0;

const FILES = [
  ["ONNX fp32", { format: "onnx", precision: "fp32", output: "raw" }],
  ["ONNX fp16", { format: "onnx", precision: "fp16", output: "raw" }],
  ["ONNX int8", { format: "onnx", precision: "int8", output: "raw" }],
  ["ONNX int8 for TensorRT", { format: "tensorrt", precision: "int8", output: "raw" }],
  ["TFLite fp32", { format: "tflite", precision: "fp32", output: "raw" }],
  ["TFLite fp16", { format: "tflite", precision: "fp16", output: "raw" }],
  ["TFLite int8", { format: "tflite", precision: "int8", output: "raw" }],
  ["Core ML fp16", { format: "coreml", precision: "fp16", output: "raw" }],
] as const;

const variant = values.variant as Variant;
const trained = variant === "det26n" ? bloodWeights() : null;
const weights = trained ?? tensorFile(randomWeights(detectorGraph(variant, BLOOD_CLASSES.length)));
const model = deployedModel(
  { variant, classes: BLOOD_CLASSES, task: "detection" },
  readTensors(weights),
);
const dir = mkdtempSync(join(tmpdir(), "vantage-bench-exports-"));

interface Look {
  look(pixels: Float32Array): Promise<unknown>;
  close(): Promise<void>;
}

/** What runs a file here, on one thread; null for a format that has no runtime of its own. */
async function opened(path: string, { format, size }: FileWish): Promise<Look | null> {
  if (format === "coreml") return null;
  if (format === "tflite") {
    const { signal } = new AbortController();
    const classes = BLOOD_CLASSES.length;
    return openTfliteRunner(path, { size, classes, output: "raw", cpuThreads: 1, signal });
  }
  const session = await openSession(path, { cpuThreads: 1, device: "cpu" });
  return {
    look: (pixels) => run(session, { images: float(pixels, [1, 3, ...size]) }),
    close: () => session.release(),
  };
}

try {
  print(`${cpus().length} × ${cpus()[0]?.model.trim()}, Node ${process.version}, ${variant}`);
  if (!trained) print("weights are random: sizes and times are those of a trained model");
  for (const side of values.sizes.split(",").map(Number)) {
    const size = [side, side] as const;
    const pixels: Float32Array[] = [];
    for (const id of bloodSplit("train").slice(0, CALIBRATION_IMAGES)) {
      const blood = await bloodImage(id);
      if (blood) pixels.push((await letterbox(blood.image, side)).pixels);
    }
    if (pixels.length === 0) throw new Error("the images of blood cells are not on this machine");
    const began = performance.now();
    const ranges = await measureRanges(model, () => pixels, { size, cpuThreads: 1 });
    const seconds = ((performance.now() - began) / 1_000).toFixed(1);
    print(`${side} px: ranges of ${pixels.length} images in ${seconds} s`);
    print("| File | Written in, ms | MB | of fp32 | An image, ms | of fp32 |");
    print("|---|---|---|---|---|---|");
    const described = { model_id: "m", variant, task: "detection", image_size: side } as const;
    const metadata = describeModel({ ...described, classes: BLOOD_CLASSES });
    const wishes = FILES.map(([name, form]): [string, FileWish] => [
      name,
      { ...form, size, batch: 1, classes: BLOOD_CLASSES, metadata, ranges },
    ]);
    const rows: { name: string; ms: number; bytes: number; times: number[]; look: Look | null }[] =
      [];
    for (const [name, wish] of wishes) {
      const started = performance.now();
      const file = writeDetector(model, wish);
      const ms = performance.now() - started;
      const path = join(dir, `${rows.length}`);
      writeFileSync(path, file);
      rows.push({ name, ms, bytes: file.length, times: [], look: await opened(path, wish) });
    }
    // In turn, so that what else the machine does meets all of them.
    for (let round = 0; round <= ROUNDS; round++) {
      for (const { look, times } of rows) {
        const started = performance.now();
        await look?.look(pixels[round % pixels.length] ?? new Float32Array());
        if (look && round > 0) times.push(performance.now() - started);
      }
    }
    const [single] = rows;
    for (const { name, ms, bytes, times, look } of rows) {
      const middle = median(times);
      const timed = look
        ? `${middle.toFixed(1)} | ${(middle / median(single?.times ?? [])).toFixed(2)}`
        : "– | –";
      const share = (bytes / (single?.bytes ?? 1)).toFixed(2);
      print(`| ${name} | ${ms.toFixed(0)} | ${(bytes / MB).toFixed(2)} | ${share} | ${timed} |`);
      await look?.close();
    }
  }
} finally {
  rmSync(dir, { recursive: true, force: true });
}
