// Bundles around an ONNX file: what TensorRT is built from where it will run, with a check that
// tells a right engine from a wrong one, and the folder that Roboflow's server takes.

import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, it } from "vitest";
import { writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { writeRoboflowBundle } from "../../../gpu-node/export/roboflow-bundle.ts";
import {
  type TensorrtBundleOptions,
  writeTensorrtBundle,
} from "../../../gpu-node/export/tensorrt-bundle.ts";
import { rowsOfHeads } from "../../../gpu-node/export/verification.ts";
import { hasProgram } from "../../support/programs.ts";
import { sha256 } from "../../support/weights.ts";
import {
  CLASSES,
  generatedDetector,
  generatedPixels,
  onnxHeads,
} from "../../support/written-detectors.ts";
import { zipFiles } from "../../support/zip-files.ts";

const dir = await mkdtemp(join(tmpdir(), "vantage-bundles-"));
const SIZE = [64, 96] as const;
const model = generatedDetector();
const pixels = generatedPixels(SIZE);
const heads = await onnxHeads(model, SIZE, pixels);
const rows = rowsOfHeads(heads, CLASSES.length);
const metadata = { name: "cells", names: '{"0":"disc"}' };
const onnx = writeOnnx(model, { output: "raw", size: SIZE, batch: 1, metadata });

/** The files of an archive, which are also laid into a folder. */
async function unpacked(
  bytes: Uint8Array,
): Promise<{ folder: string; files: Map<string, Buffer> }> {
  const folder = await mkdtemp(join(dir, "bundle-"));
  const files = await zipFiles(bytes);
  for (const [name, content] of files) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
  }
  return { folder, files };
}

const optionsOf = (more: Partial<TensorrtBundleOptions> = {}): TensorrtBundleOptions => ({
  onnx,
  precision: "fp16",
  size: SIZE,
  batch: 1,
  output: "raw",
  example: { pixels, rows: rows.values, width: rows.width },
  ...more,
});

/** A `trtexec` that writes what it was asked and the outputs that a test lays beside it. */
async function runScript(folder: string, script: string, outputs: unknown) {
  const bin = join(folder, "bin");
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(folder, "answer.json"), JSON.stringify(outputs));
  const text = [
    "#!/bin/sh",
    `printf '%s\\n' "$@" > ${join(folder, "asked.txt")}`,
    'for argument in "$@"; do case $argument in',
    `  --exportOutput=*) cp ${join(folder, "answer.json")} "$(echo "$argument" | cut -d= -f2-)";;`,
    '  --saveEngine=*) echo plan > "$(echo "$argument" | cut -d= -f2-)";;',
    "esac; done",
    "",
  ];
  writeFileSync(join(bin, "trtexec"), text.join("\n"), { mode: 0o755 });
  const env = { ...process.env, PATH: `${bin}:${process.env.PATH}` };
  return promisify(execFile)("sh", [join(folder, script)], { env }).then(
    ({ stdout }) => ({ code: 0, stdout }),
    (thrown: { code: number; stdout: string }) => ({ code: thrown.code, stdout: thrown.stdout }),
  );
}

const asked = (folder: string) =>
  readFileSync(join(folder, "asked.txt"), "utf8").trim().split("\n");

describe("a TensorRT bundle", () => {
  it("holds the file, its recipe and an example, and depends on nothing else", async () => {
    const bytes = writeTensorrtBundle(optionsOf());
    expect(sha256(writeTensorrtBundle(optionsOf()))).toBe(sha256(bytes));
    const { files } = await unpacked(bytes);
    expect(files.get("model.onnx")?.equals(onnx)).toBe(true);
    expect(files.get("example/image.f32")?.length).toBe(4 * 3 * 64 * 96);
    const said = JSON.parse(String(files.get("metadata.json")));
    expect(said).toEqual({ ...metadata, imgsz: "[64,96]", batch: "1", end2end: "False" });
    const readme = String(files.get("README.md"));
    expect(readme).toMatch(/never run/);
    expect(readme).not.toMatch(/OPENVINO/);
  });

  it("says of int8 that it is not for OpenVINO or OpenCV", async () => {
    const { files } = await unpacked(writeTensorrtBundle(optionsOf({ precision: "int8" })));
    expect(String(files.get("README.md"))).toMatch(/NOT FOR OPENVINO OR OPENCV/);
  });

  it.each<[string, Partial<TensorrtBundleOptions>, string[]]>([
    ["fp32", { precision: "fp32" }, []],
    ["fp16", {}, ["--fp16"]],
    ["int8", { precision: "int8" }, ["--int8", "--fp16"]],
    [
      "any batch",
      { batch: null },
      [
        "--fp16",
        "--minShapes=images:1x3x64x96",
        "--optShapes=images:4x3x64x96",
        "--maxShapes=images:16x3x64x96",
      ],
    ],
  ])("asks trtexec for an engine of %s", async (_, more, wanted) => {
    const { folder } = await unpacked(writeTensorrtBundle(optionsOf(more)));
    expect(await runScript(folder, "build.sh", [])).toMatchObject({ code: 0 });
    expect(asked(folder)).toEqual([
      "--onnx=model.onnx",
      "--saveEngine=model.plan",
      "--timingCacheFile=timing.cache",
      ...wanted,
      "--skipInference",
    ]);
  });

  const hasPython = hasProgram("python3");
  const tensor = (name: string, sides: readonly number[], values: Iterable<number>) => ({
    name,
    dimensions: sides.join("x"),
    values: [...values],
  });
  const anchors = heads.boxes.length / 4;
  const raw = (boxes: Iterable<number>) => [
    tensor("boxes", [1, anchors, 4], boxes),
    tensor("scores", [1, anchors, 3], heads.scores),
  ];

  it.skipIf(!hasPython)("checks that an engine finds the objects of the fp32 model", async () => {
    const { folder } = await unpacked(writeTensorrtBundle(optionsOf()));
    const right = await runScript(folder, "check.sh", raw(heads.boxes));
    expect(right).toMatchObject({ code: 0 });
    const [, found, all] = /(\d+) of (\d+) objects/.exec(right.stdout) ?? [];
    expect(Number(all)).toBeGreaterThan(3);
    expect(found).toBe(all);
    const wrong = await runScript(folder, "check.sh", raw(heads.boxes.map((side) => side / 2)));
    expect(wrong.code).toBe(1);
  });

  it.skipIf(!hasPython)("checks end-to-end files for a batch, too", async () => {
    const more = { output: "end_to_end", batch: 2 } as const;
    const { folder } = await unpacked(writeTensorrtBundle(optionsOf(more)));
    const count = rows.values.length / rows.width;
    const sides = [2, count, rows.width];
    const outputs = [tensor("output0", sides, [...rows.values, ...rows.values])];
    expect(await runScript(folder, "check.sh", outputs)).toMatchObject({ code: 0 });
    expect(asked(folder)).toContain("--loadInputs=images:input.f32");
    const nothing = [tensor("output0", sides, new Float32Array(2 * rows.values.length))];
    expect((await runScript(folder, "check.sh", nothing)).code).toBe(1);
  });

  it.skipIf(!hasPython)("checks that an engine finds each object once, and no other", async () => {
    const row = (x: number, score: number) => [x, 10, x + 20, 30, score, 0];
    const none = row(0, 0);
    const example = {
      pixels,
      rows: Float32Array.from([row(10, 0.9), none, none].flat()),
      width: 6,
    };
    const more = { output: "end_to_end", example } as const;
    const { folder } = await unpacked(writeTensorrtBundle(optionsOf(more)));
    const check = (...list: number[][]) =>
      runScript(folder, "check.sh", [tensor("output0", [1, 3, 6], list.flat())]);
    expect(await check(row(10, 0.88), row(50, 0.26), none)).toMatchObject({ code: 0 });
    expect((await check(row(10, 0.9), row(50, 0.7), none)).code).toBe(1);
    expect((await check(row(10, 0.9), row(10, 0.9), none)).code).toBe(1);
  });
});

describe("a Roboflow bundle", () => {
  it("is a folder of the file, the classes line by line, and how images are laid", async () => {
    const classes = ["disc", "new\nline", "é漢字"];
    const bundle = writeRoboflowBundle({ onnx, size: SIZE, classes, task: "segmentation" });
    const { files } = await unpacked(bundle);
    expect([...files.keys()]).toEqual([
      "weights.onnx",
      "class_names.txt",
      "inference_config.json",
      "model_config.json",
    ]);
    expect(String(files.get("class_names.txt"))).toBe("disc\nnew line\né漢字\n");
    expect(JSON.parse(String(files.get("inference_config.json")))).toMatchObject({
      network_input: {
        training_input_size: { height: 64, width: 96 },
        resize_mode: "letterbox",
        padding_value: 114,
        color_mode: "rgb",
        scaling_factor: 255,
      },
      post_processing: { type: "nms", fused: true },
    });
    const about = JSON.parse(String(files.get("model_config.json")));
    expect(about).toMatchObject({ task_type: "instance-segmentation", backend_type: "onnx" });
  });
});
