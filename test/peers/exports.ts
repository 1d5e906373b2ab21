// The group `exports`: models as files, as our nodes write them, through the tools of those who run
// them elsewhere. A file has to give what our predictor gives for the same pixels; one of lower
// precision, what our own runtime gives for it.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { measureRanges } from "../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel } from "../../gpu-node/export/detector-onnx.ts";
import { writeDetector } from "../../gpu-node/export/format-writers.ts";
import { sampleImages } from "../../gpu-node/export/sample-images.ts";
import { rowsOfHeads } from "../../gpu-node/export/verification.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { float, floats, openSession, run } from "../../gpu-node/onnx/runtime.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import type { ExportPrecision, ModelExportOutput } from "../../shared/detector/export-formats.ts";
import type { DetectionRows } from "../../shared/detector/letterbox.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { generatedModel } from "../support/weights.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";

const IMAGES = 4;
/** Names that a careless writer or reader gets wrong. */
const NAMES = ['say "hi"', "it's", "back\\slash", "new\nline", "\u2028", "é漢字", "😀"];

interface PeerFile {
  name: string;
  output: ModelExportOutput;
  size: [number, number];
  batch: number | null;
  precision?: ExportPrecision;
  more?: Partial<ModelSource>;
}

const FILES: readonly PeerFile[] = [
  { name: "end_to_end", output: "end_to_end", size: [96, 96], batch: 1 },
  { name: "raw", output: "raw", size: [96, 96], batch: 1 },
  { name: "dynamic", output: "end_to_end", size: [96, 160], batch: null },
  { name: "raw_dynamic", output: "raw", size: [160, 96], batch: null },
  { name: "batch", output: "end_to_end", size: [64, 64], batch: 4 },
  { name: "large", output: "end_to_end", size: [640, 640], batch: 1 },
  { name: "half", output: "end_to_end", size: [96, 160], batch: 1, precision: "fp16" },
  { name: "raw_half", output: "raw", size: [96, 96], batch: 1, precision: "fp16" },
  { name: "int8", output: "end_to_end", size: [96, 160], batch: 1, precision: "int8" },
  { name: "raw_int8", output: "raw", size: [96, 96], batch: 1, precision: "int8" },
  // The cells of each map are a multiple of eight, as they are at 640 pixels: see opencv_int8.py.
  { name: "even_int8", output: "end_to_end", size: [128, 256], batch: 1, precision: "int8" },
  {
    name: "medium",
    output: "end_to_end",
    size: [64, 64],
    batch: 1,
    more: { variant: "det26m", classes: ["only one"] },
  },
  {
    name: "segmentation",
    output: "end_to_end",
    size: [64, 96],
    batch: null,
    more: { task: "segmentation" },
  },
];

export const exports: Group = {
  async run(context) {
    const args = [await writeFiles(context)];
    return runScript(context, { script: "exports/read_onnx.py", case: "exports/onnx", args });
  },
};

/** The same files in other runtimes, by hand because of their size. */
export const elsewhere: Group = {
  async run(context) {
    const args = [await writeFiles(context)];
    return [
      ...(await runScript(context, {
        script: "elsewhere/opencv_int8.py",
        case: "elsewhere/opencv_int8",
        args: [context.folder],
      })),
      ...(await runScript(context, { script: "elsewhere/read_files.py", case: "elsewhere", args })),
    ];
  },
};

/** Writes all of them; returns the path of their list. */
async function writeFiles({ folder }: GroupContext): Promise<string> {
  const files: unknown[] = [];
  for (const file of FILES) files.push(await writeFile(file, folder));
  const list = join(folder, "files.json");
  writeFileSync(list, JSON.stringify(files));
  return list;
}

/** Writes a file, pixels to run it on, and the rows that it has to give for them. */
async function writeFile(wanted: PeerFile, folder: string) {
  const { name, output, size, batch, precision = "fp32", more = {} } = wanted;
  let weights = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      weights = Buffer.from(bytes);
      return { url: "", key, bytes: bytes.length };
    },
    { model_id: "m", classes: NAMES, ...more },
  );
  const settings = { cpuThreads: 1, device: "cpu" } as const;
  const predictor = await openPredictor(model, weights, settings, size);
  const [pixels, rows]: [Float32Array[], DetectionRows[]] = [[], []];
  for (const image of sampleImages(IMAGES)) {
    const laid = await predictor.lay(image);
    pixels.push(laid.pixels);
    rows.push(await predictor.rows(laid));
  }
  await predictor.dispose();
  const deployed = deployedModel(model, readTensors(weights));
  const ranges = await measureRanges(deployed, () => pixels, { size, cpuThreads: 1 });
  const { classes, task } = model;
  const metadata = describeModel(model, { name: "cells", version: "1" });
  const wish = { format: "onnx", precision, output, size, batch, classes, metadata } as const;
  const path = join(folder, `${name}.onnx`);
  writeFileSync(path, writeDetector(deployed, { ...wish, ranges }));
  const own = precision === "fp32" ? rows : await rowsHere(path, pixels, wanted);
  const images = join(folder, `${name}.f32`);
  writeFileSync(images, Buffer.concat(pixels.map((one) => Buffer.from(one.buffer))));
  const told = own.map(({ values, width }) =>
    Array.from({ length: values.length / width }, (_, row) => [
      ...values.subarray(row * width, (row + 1) * width),
    ]),
  );
  return { name, path, images, rows: told, output, size, batch, precision, classes, task };
}

/** What our own runtime gives for a file that takes one image. */
async function rowsHere(
  path: string,
  images: readonly Float32Array[],
  { output, size }: PeerFile,
): Promise<DetectionRows[]> {
  const session = await openSession(path, { cpuThreads: 1, device: "cpu" });
  const rows: DetectionRows[] = [];
  for (const pixels of images) {
    const outputs = await run(session, { images: float(pixels, [1, 3, ...size]) });
    const own = (name: string) => floats(outputs, name).slice();
    rows.push(
      output === "raw"
        ? rowsOfHeads({ boxes: own("boxes"), scores: own("scores") }, NAMES.length)
        : { values: own("output0"), width: 6 },
    );
  }
  await session.release();
  return rows;
}
