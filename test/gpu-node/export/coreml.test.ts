// Detectors as Core ML packages. Apple's runtime is not here: a package is read back from its bytes
// and run as ONNX, and gives what the fp32 ONNX file gives; one that was damaged is refused.

import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { describe, expect, it } from "vitest";
import { type CoremlOptions, writeCoreml } from "../../../gpu-node/export/coreml.ts";
import { readCoreml } from "../../../gpu-node/export/coreml-reader.ts";
import { openCoremlRunner } from "../../../gpu-node/export/coreml-runner.ts";
import { type CoremlMessage, Model } from "../../../gpu-node/export/coreml-schema.ts";
import type { OnnxSize } from "../../../shared/detector/detector-onnx.ts";
import { sha256 } from "../../support/weights.ts";
import {
  type DetectorKind,
  generatedDetector,
  generatedPixels,
  greatestDifference,
  onnxHeads,
  sureBoxDifference,
} from "../../support/written-detectors.ts";
import { zipFiles } from "../../support/zip-files.ts";

const dir = await mkdtemp(join(tmpdir(), "vantage-coreml-"));
const large = process.env.LARGE === "1";
const never = new AbortController().signal;
const IDENTIFIERS = [
  "5b1c4e8e-1d0a-4c7e-9a41-0f3c0e7c8a01",
  "5b1c4e8e-1d0a-4c7e-9a41-0f3c0e7c8a02",
] as const;

const optionsOf = (size: OnnxSize, more: Partial<CoremlOptions> = {}): CoremlOptions => ({
  size,
  precision: "fp16",
  metadata: { names: '{"0":"disc","1":"square","2":"star"}', task: "detect", imgsz: "[1,1]" },
  identifiers: IDENTIFIERS,
  ...more,
});

async function looked(kind: DetectorKind, options: CoremlOptions) {
  const model = generatedDetector(kind);
  const path = join(dir, `${crypto.randomUUID()}.zip`);
  writeFileSync(path, writeCoreml(model, options));
  const { size } = options;
  const { classes } = model.graph;
  const form = { size, classes, output: "raw", cpuThreads: 1, signal: never } as const;
  const runner = await openCoremlRunner(path, form);
  const pixels = generatedPixels(size);
  try {
    return { found: await runner.look(pixels), wanted: await onnxHeads(model, size, pixels) };
  } finally {
    await runner.close();
  }
}

type Case = [name: string, kind: DetectorKind, size: OnnxSize];
const LARGE: Case[] = [
  ["of det26l", { variant: "det26l" }, [64, 96]],
  ["of det26x", { variant: "det26x" }, [96, 64]],
];

describe("a Core ML package gives what the fp32 ONNX file gives", () => {
  it.each<Case>([
    ["square", {}, [160, 160]],
    ["higher than wide", {}, [224, 96]],
    ["of a segmentation model", { task: "segmentation" }, [64, 96]],
    ["of one class", { classes: ["cell"] }, [32, 288]],
    ["of det26s", { variant: "det26s" }, [96, 64]],
    ["of det26m", { variant: "det26m" }, [64, 64]],
    ...(large ? LARGE : []),
  ])("%s", async (_, kind, size) => {
    const single = await looked(kind, optionsOf(size, { precision: "fp32" }));
    const { boxes, scores, masks, prototypes } = single.found;
    expect(greatestDifference(boxes, single.wanted.boxes)).toBeLessThanOrEqual(1e-3);
    expect(greatestDifference(scores, single.wanted.scores)).toBeLessThanOrEqual(1e-5);
    expect(greatestDifference(masks, single.wanted.masks)).toBeLessThanOrEqual(1e-3);
    expect(greatestDifference(prototypes, single.wanted.prototypes)).toBeLessThanOrEqual(1e-3);

    const half = await looked(kind, optionsOf(size));
    expect(sureBoxDifference(half.found, half.wanted)).toBeLessThanOrEqual(0.1);
    expect(greatestDifference(half.found.scores, half.wanted.scores)).toBeLessThanOrEqual(1e-2);
  });
});

describe("a Core ML package", () => {
  const SIZE = [64, 96] as const;
  const model = generatedDetector();

  /** The files of the package, by their paths in it. */
  async function filesOf(bytes: Uint8Array): Promise<Map<string, Uint8Array>> {
    const files = [...(await zipFiles(bytes))];
    return new Map(files.map(([name, file]) => [name.replace("model.mlpackage/", ""), file]));
  }

  const MODEL = "Data/com.apple.CoreML/model.mlmodel";
  const WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin";

  it("has the files and the manifest that the format asks for, and says of itself what it is", async () => {
    const files = await filesOf(writeCoreml(model, optionsOf(SIZE)));
    expect([...files.keys()]).toEqual(["Manifest.json", MODEL, WEIGHTS]);
    const manifest = JSON.parse(Buffer.from(files.get("Manifest.json") ?? []).toString());
    expect(manifest).toMatchObject({
      fileFormatVersion: "1.0.0",
      rootModelIdentifier: IDENTIFIERS[0],
    });
    const paths = Object.values<{ path: string }>(manifest.itemInfoEntries).map(({ path }) => path);
    expect(paths).toEqual(["com.apple.CoreML/model.mlmodel", "com.apple.CoreML/weights"]);
    const message = fromBinary(Model, files.get(MODEL) as Uint8Array);
    expect(message.specificationVersion).toBe(6);
    const said = message.description?.metadata?.userDefined ?? [];
    expect(Object.fromEntries(said.map(({ key, value }) => [key, value]))).toEqual({
      names: '{"0":"disc","1":"square","2":"star"}',
      task: "detect",
      imgsz: "[64,96]",
      batch: "1",
      end2end: "False",
    });
    const image = message.description?.input[0]?.type?.imageType;
    expect(image).toMatchObject({ width: 96n, height: 64n, colorSpace: 20 });
    const outputs = message.description?.output.map(({ name, type }) => [
      name,
      type?.multiArrayType?.shape,
    ]);
    expect(outputs).toEqual([
      ["boxes", [1n, 126n, 4n]],
      ["scores", [1n, 126n, 3n]],
    ]);
  });

  it("depends on nothing but the weights and the options, and takes half the bytes", () => {
    const once = writeCoreml(model, optionsOf(SIZE));
    expect(sha256(writeCoreml(model, optionsOf(SIZE)))).toBe(sha256(once));
    const whole = writeCoreml(model, optionsOf(SIZE, { precision: "fp32" }));
    expect(once.length / whole.length).toBeLessThanOrEqual(0.53);
  });

  it("is refused for a side that is no multiple of 32", () => {
    expect(() => writeCoreml(model, optionsOf([64, 100]))).toThrow(/a side of 100 pixels/);
  });

  type Program = CoremlMessage<"Block">;
  const editing =
    (edit: (program: Program, message: CoremlMessage<"Model">) => void) =>
    (files: Map<string, Uint8Array>) => {
      const message = fromBinary(Model, files.get(MODEL) as Uint8Array);
      const [main] = message.mlProgram?.functions ?? [];
      const block = main?.value?.blockSpecializations[0]?.value;
      if (block) edit(block, message);
      files.set(MODEL, toBinary(Model, message));
    };

  it.each<[string, (files: Map<string, Uint8Array>) => void, RegExp]>([
    ["without its weights", (files) => files.delete(WEIGHTS), /lacks .*weight\.bin/],
    [
      "with weights that are cut off",
      (files) => files.set(WEIGHTS, (files.get(WEIGHTS) as Buffer).subarray(0, 200_000)),
      /can begin|is cut off|is not/,
    ],
    [
      "with weights that begin elsewhere",
      (files) => {
        const bytes = Buffer.from(files.get(WEIGHTS) as Buffer);
        bytes.fill(0, 64, 128);
        files.set(WEIGHTS, bytes);
      },
      /no blob begins at byte 64/,
    ],
    [
      "whose manifest is none",
      (files) => files.set("Manifest.json", Buffer.from("{}")),
      /fileFormatVersion/,
    ],
    [
      "whose operation reads what comes later",
      editing(({ operations }) => operations.reverse()),
      /before it is written/,
    ],
    [
      "with an operation that nobody knows",
      editing(({ operations }) => {
        const found = operations.find(({ type }) => type === "silu");
        if (found) found.type = "swish";
      }),
      /nothing is known of the operation swish/,
    ],
    [
      "with one name twice",
      editing(({ operations }) => operations.push(...operations.slice(0, 1))),
      /is written twice/,
    ],
    [
      "whose program gives other outputs",
      editing((program) => program.outputs.reverse()),
      /other outputs than the model declares/,
    ],
    ["of another opset", editing((_, message) => renameOpset(message)), /no program called main/],
  ])("%s is refused", async (_, damage, reason) => {
    const files = await filesOf(writeCoreml(model, optionsOf(SIZE)));
    damage(files);
    expect(() => readCoreml(files)).toThrow(reason);
  });

  function renameOpset(message: CoremlMessage<"Model">) {
    for (const { value } of message.mlProgram?.functions ?? []) if (value) value.opset = "CoreML9";
  }

  it("of another size, or cut off, is not opened", async () => {
    const path = join(dir, "whole.zip");
    writeFileSync(path, writeCoreml(model, optionsOf(SIZE)));
    const form = { classes: 3, output: "raw", cpuThreads: 1, signal: never } as const;
    const other = openCoremlRunner(path, { ...form, size: [96, 64] });
    await expect(other).rejects.toThrow(/for 64,96 pixels/);
    const cut = join(dir, "cut.zip");
    writeFileSync(cut, readFileSync(path).subarray(0, 300_000));
    await expect(openCoremlRunner(cut, { ...form, size: SIZE })).rejects.toThrow(/zip/);
  });
});
