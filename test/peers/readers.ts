// The group `readers`: files of a trained detector as people open them in Python, by Ultralytics
// and by sahi on top of it. Both want torch, whose wheels bring gigabytes for GPUs: Debian's
// packages of it are unpacked beside the environment, by the libtorch that the engine has, too.

import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { measureRanges } from "../../gpu-node/export/calibration.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel } from "../../gpu-node/export/detector-onnx.ts";
import { writeDetector } from "../../gpu-node/export/format-writers.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import { letterbox } from "../../gpu-node/serving/letterbox.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import { BLOOD_CLASSES, BLOOD_SIDE, bloodWeights } from "../support/blood-cells.ts";
import { bloodImage, bloodSplit, realData } from "../support/images.ts";
import { generatedModel } from "../support/weights.ts";
import { execute } from "./environments.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";
import type { Outcome } from "./known.ts";

const PACKAGES = ["python3-torch", "python3-torchvision"] as const;
const LIBRARIES = "/usr/lib/x86_64-linux-gnu";
const IMAGES = 6;
const CALIBRATION_IMAGES = 16;
const CONFIDENCE = 0.3;

export const readers: Group = {
  async run(context) {
    const weights = realData("bccd/val.txt") ? bloodWeights() : null;
    if (!weights) return skipped("no detector of blood cells: npm run bench -- blood-cell-model");
    const torch = await unpackTorch(context);
    if ("missing" in torch) return skipped(torch.missing);
    const list = join(context.folder, "files.json");
    writeFileSync(list, JSON.stringify(await writeFiles(weights, context)));
    const args = [list, torch.path];
    return runScript(context, { script: "readers/read_files.py", case: "readers", args });
  },
};

const skipped = (detail: string): Outcome[] => [{ case: "readers", outcome: "skipped", detail }];

/** The folder of Debian's torch, unpacked once, or why there is none. */
async function unpackTorch({
  python,
  folder,
  msLeft,
}: GroupContext): Promise<{ path: string } | { missing: string }> {
  const root = join(folder, "torch");
  const path = join(root, "usr/lib/python3/dist-packages");
  if (!existsSync(join(path, "torchvision"))) {
    mkdirSync(join(root, "usr/lib"), { recursive: true });
    const fetched = await execute(["apt-get", "download", ...PACKAGES], {
      msMax: msLeft(),
      cwd: root,
    });
    if (fetched.code !== 0) return { missing: `no ${PACKAGES.join(", ")} from apt here` };
    for (const name of readdirSync(root).filter((file) => file.endsWith(".deb"))) {
      const { code, output } = await execute(["dpkg", "-x", join(root, name), root], {
        msMax: msLeft(),
      });
      if (code !== 0) return { missing: `torch was not unpacked: ${output.slice(-300)}` };
    }
    // Its own links lead to the libraries below the same root.
    const libraries = join(root, LIBRARIES);
    if (!existsSync(libraries)) symlinkSync(LIBRARIES, libraries);
  }
  const probe = `import sys; sys.path.insert(0, sys.argv[1]); import torch, torchvision`;
  const { code, output } = await execute([python, "-c", probe, path], { msMax: msLeft() });
  if (code === 0) return { path };
  return { missing: `Debian's torch does not run here: ${output.trim().split("\n").at(-1)}` };
}

/** Writes the files, and the objects that our predictor finds on each image. */
async function writeFiles(weights: Buffer, { folder }: GroupContext) {
  const size = [BLOOD_SIDE, BLOOD_SIDE] as const;
  const model = generatedModel((key, bytes) => ({ url: "", key, bytes: bytes.length }), {
    classes: BLOOD_CLASSES,
    image_size: BLOOD_SIDE,
    file: weights,
  });
  // These readers suppress nothing in a joined file.
  const settings = { cpuThreads: 1, device: "cpu", unsuppressed: true } as const;
  const predictor = await openPredictor(model, weights, settings);
  const images: { path: string; objects: number[][] }[] = [];
  for (const id of bloodSplit("val").slice(0, IMAGES)) {
    const blood = await bloodImage(id);
    const path = realData(`bccd/images/${id}.jpg`);
    if (!blood || !path) continue;
    const found = await predictor.predict(blood.image, { confidence: CONFIDENCE });
    const objects = found.map(({ class: name, confidence, bbox }) => [
      ...bbox,
      confidence,
      BLOOD_CLASSES.indexOf(name),
    ]);
    images.push({ path, objects });
  }
  await predictor.dispose();
  const deployed = { ...deployedModel(model, readTensors(weights)), nmsIou: null };
  const fitted: Float32Array[] = [];
  for (const id of bloodSplit("train").slice(0, CALIBRATION_IMAGES)) {
    const blood = await bloodImage(id);
    if (blood) fitted.push((await letterbox(blood.image, BLOOD_SIDE)).pixels);
  }
  const ranges = await measureRanges(deployed, () => fitted, { size, cpuThreads: 1 });
  const metadata = describeModel(model, { name: "cells", version: "1" });
  const files = (["onnx", "tflite"] as const).flatMap((format) =>
    (["fp32", "fp16", "int8"] as const).map((precision) => {
      const output = format === "onnx" ? "end_to_end" : "joined";
      const wish = { format, precision, output, size, batch: 1, metadata, ranges } as const;
      const path = join(folder, `cells-${precision}.${format}`);
      writeFileSync(path, writeDetector(deployed, { ...wish, classes: BLOOD_CLASSES }));
      return { name: `${format}-${precision}`, path, precision };
    }),
  );
  return { files, images, side: BLOOD_SIDE, classes: BLOOD_CLASSES };
}
