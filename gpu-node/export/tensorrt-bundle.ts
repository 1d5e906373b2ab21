// An ONNX file with all that is needed to make a TensorRT engine of it where it will run: an engine
// is for one GPU and one version of TensorRT, so no file fits everybody. The recipe checks what it
// made on an image that is drawn for it: nobody's frames leave with a model.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { INPUT } from "../../shared/detector/detector-onnx.ts";
import { zipBytes } from "../objects/zip-writer.ts";
import { decodeModel } from "../onnx/model-file.ts";
import { BATCHES, type EngineOptions, engineArguments, inputShape } from "./tensorrt-options.ts";

export interface TensorrtBundleOptions extends EngineOptions {
  /** int8: in TensorRT's manner. */
  onnx: Uint8Array;
  output: "end_to_end" | "raw";
  /**
   * A drawn image, planes [3, height, width], and what the fp32 model gives for it: rows by falling
   * score, of `width` numbers each.
   */
  example: { pixels: Float32Array; rows: Float32Array; width: number };
}

const CHECK = join(import.meta.dirname, "tensorrt-check.py");
const FOREIGN_INT8 =
  "NOT FOR OPENVINO OR OPENCV: its int8 are laid out for TensorRT. OpenVINO reads it and finds " +
  "other objects; OpenCV refuses it. Take the format `onnx` for those.";

/** The bundle as a zip; the same arguments give the same bytes. */
export function writeTensorrtBundle(options: TensorrtBundleOptions): Uint8Array {
  const { onnx, example } = options;
  const metadata = metadataOf(onnx);
  const { buffer, byteOffset, byteLength } = example.pixels;
  return zipBytes([
    ["README.md", readme(options, metadata)],
    ["model.onnx", onnx],
    ["build.sh", buildScript(options)],
    ["check.sh", checkScript(options)],
    ["check.py", readFileSync(CHECK, "utf8")],
    ["metadata.json", `${JSON.stringify(metadata, null, 2)}\n`],
    ["example/image.f32", new Uint8Array(buffer, byteOffset, byteLength)],
    ["example/expected.json", `${JSON.stringify(expected(options))}\n`],
  ]);
}

/** What the file says of itself and its model. */
const metadataOf = (onnx: Uint8Array): Record<string, string> =>
  Object.fromEntries(decodeModel(onnx).metadataProps.map(({ key, value }) => [key, value]));

/** What `check.py` compares with: the objects that people see by default, or the ten best rows. */
function expected({ example: { rows, width }, output }: TensorrtBundleOptions) {
  const all = Array.from({ length: rows.length / width }, (_, row) => [
    ...rows.subarray(row * width, row * width + 6),
  ]);
  const sure = all.filter(([, , , , score = 0]) => score >= 0.25);
  return { output, rows: sure.length > 0 ? sure : all.slice(0, 10) };
}

/** Arguments of a shell's line: ours hold nothing that it would read otherwise. */
const commandOf = (parts: readonly string[]) => parts.join(" \\\n  ");

const script = (lines: readonly string[]) =>
  ["#!/bin/sh", ...lines].map((line) => `${line}\n`).join("");

const buildScript = (options: TensorrtBundleOptions) =>
  script([
    "# Makes model.plan for this machine's GPU; takes minutes. More arguments go to trtexec.",
    "set -eu",
    'cd "$(dirname "$0")"',
    commandOf([
      "trtexec --onnx=model.onnx --saveEngine=model.plan --timingCacheFile=timing.cache",
      ...engineArguments(options),
      '"$@"',
    ]),
  ]);

/** A file for a fixed batch is given the image as often as it takes. */
function checkScript({ batch, size }: TensorrtBundleOptions): string {
  const images = batch ?? BATCHES.min;
  const shapes = batch === null ? [`--shapes=${inputShape(size, images)}`] : [];
  return script([
    "# Runs model.plan on the example and compares what it finds with the fp32 model.",
    "set -eu",
    'cd "$(dirname "$0")"',
    ": > input.f32",
    `for _ in $(seq ${images}); do cat example/image.f32 >> input.f32; done`,
    commandOf([
      `trtexec --loadEngine=model.plan --loadInputs=${INPUT}:input.f32`,
      ...shapes,
      "--iterations=1 --warmUp=0 --duration=0 --exportOutput=output.json > check.log",
    ]),
    "python3 check.py output.json example/expected.json",
  ]);
}

function readme(
  { precision, size, batch, output }: TensorrtBundleOptions,
  metadata: Readonly<Record<string, string>>,
): string {
  const [height, width] = size;
  const images = batch === null ? `any number up to ${BATCHES.max}` : String(batch);
  const gives =
    output === "end_to_end"
      ? "`output0` [batch, 300, 6]: x1, y1, x2, y2 in pixels of the input, score, class, surest first"
      : "`boxes` [batch, anchors, 4] and `scores` [batch, anchors, classes], before the two top-k steps";
  return [
    `# ${metadata.name ?? metadata.variant ?? "A detector"} for TensorRT (${precision})`,
    "",
    ...(precision === "int8" ? [`**${FOREIGN_INT8}**`, ""] : []),
    "An engine is for one GPU and one version of TensorRT: make it where it will run.",
    "",
    "    sh build.sh      # model.plan; TensorRT 8.6 to 10 with trtexec on the PATH",
    "    sh check.sh      # runs it on example/ and compares; Python 3, nothing else",
    "",
    `- Input \`${INPUT}\`: float32 [batch, 3, ${height}, ${width}], RGB in 0 to 1, letterboxed on 114/255.`,
    `- Images of one run: ${images}.`,
    `- It gives ${gives}.`,
    "- `metadata.json`: names of classes and what else the file says of its model.",
    "",
    "It was verified as ONNX on a CPU. This recipe was never run where it was written: no TensorRT",
    "was there. `check.sh` says whether the engine finds the same objects.",
    "",
  ].join("\n");
}
