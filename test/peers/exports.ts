// The group `exports`: models as files, as our nodes write them, through the tools of those who run
// them elsewhere. What each file has to give is what our predictor gives for the same pixels.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel, writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import { sampleImages } from "../../gpu-node/export/sample-images.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import type { ModelExportOutput } from "../../shared/exports.ts";
import type { ModelSource } from "../../shared/tasks.ts";
import { generatedModel } from "../support/weights.ts";
import { type Group, runScript } from "./group.ts";

const IMAGES = 4;
/** Names that a careless writer or reader gets wrong. */
const NAMES = ['say "hi"', "it's", "back\\slash", "new\nline", "\u2028", "é漢字", "😀"];

interface PeerFile {
  name: string;
  output: ModelExportOutput;
  size: [number, number];
  batch: number | null;
  more?: Partial<ModelSource>;
}

const FILES: readonly PeerFile[] = [
  { name: "end_to_end", output: "end_to_end", size: [96, 96], batch: 1 },
  { name: "raw", output: "raw", size: [96, 96], batch: 1 },
  { name: "dynamic", output: "end_to_end", size: [96, 160], batch: null },
  { name: "raw_dynamic", output: "raw", size: [160, 96], batch: null },
  { name: "batch", output: "end_to_end", size: [64, 64], batch: 4 },
  { name: "large", output: "end_to_end", size: [640, 640], batch: 1 },
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
    const files: unknown[] = [];
    for (const file of FILES) files.push(await writeFile(file, context.folder));
    const list = join(context.folder, "files.json");
    writeFileSync(list, JSON.stringify(files));
    const script = { script: "exports/read_onnx.py", case: "exports/onnx", args: [list] } as const;
    return runScript(context, script);
  },
};

/** Writes a file, pixels to run it on, and the rows that our predictor gives for them. */
async function writeFile({ name, output, size, batch, more = {} }: PeerFile, folder: string) {
  let weights = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      weights = Buffer.from(bytes);
      return { url: "", key, bytes: bytes.length };
    },
    { model_id: "m", classes: NAMES, ...more },
  );
  const path = join(folder, `${name}.onnx`);
  const file = writeOnnx(deployedModel(model, readTensors(weights)), {
    output: output === "raw" ? "raw" : "detections",
    size,
    batch,
    metadata: describeModel(model, { name: "cells", version: "1" }),
  });
  writeFileSync(path, file);
  const settings = { cpuThreads: 1, device: "cpu" } as const;
  const predictor = await openPredictor(model, weights, settings, size);
  const [pixels, rows]: [Buffer[], number[][][]] = [[], []];
  for (const image of sampleImages(IMAGES)) {
    const laid = await predictor.lay(image);
    pixels.push(Buffer.from(laid.pixels.buffer));
    const { values, width } = await predictor.rows(laid);
    rows.push(
      Array.from({ length: values.length / width }, (_, row) => [
        ...values.subarray(row * width, (row + 1) * width),
      ]),
    );
  }
  await predictor.dispose();
  const images = join(folder, `${name}.f32`);
  writeFileSync(images, Buffer.concat(pixels));
  const { classes, task } = model;
  return { name, path, images, rows, output, size, batch, classes, task };
}
