// Detectors as TensorFlow Lite files: LiteRT, which others run them with, gives what onnxruntime
// gives for the fp32 ONNX file; files are those of their weights and options; and what LiteRT
// refuses, or a LiteRT that is not there, is told apart.

import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { measureRanges } from "../../../gpu-node/export/calibration.ts";
import { type FileForm, RuntimeMissing } from "../../../gpu-node/export/file-runner.ts";
import { type TfliteOptions, writeTflite } from "../../../gpu-node/export/tflite.ts";
import { openTfliteRunner } from "../../../gpu-node/export/tflite-runner.ts";
import type { RawHeads } from "../../../gpu-node/export/verification.ts";
import type { DeployedModel } from "../../../shared/detector/deployed-weights.ts";
import type { OnnxSize } from "../../../shared/detector/detector-onnx.ts";
import type { ExportPrecision } from "../../../shared/detector/export-formats.ts";
import { sha256 } from "../../support/weights.ts";
import {
  CLASSES,
  type DetectorKind,
  generatedDetector,
  generatedPixels,
  greatestDifference,
  onnxHeads,
  sureBoxDifference,
} from "../../support/written-detectors.ts";
import { zipFiles } from "../../support/zip-files.ts";

const dir = await mkdtemp(join(tmpdir(), "vantage-tflite-"));
const large = process.env.LARGE === "1";
const never = new AbortController().signal;

const METADATA = {
  names: JSON.stringify(Object.fromEntries(CLASSES.entries())),
  stride: "32",
  imgsz: "[640,640]",
  channels: "3",
  task: "detect",
  model: "m",
};

const optionsOf = (size: OnnxSize, more: Partial<TfliteOptions> = {}): TfliteOptions => ({
  size,
  output: "raw",
  precision: "fp32",
  classes: CLASSES,
  metadata: METADATA,
  ...more,
});

const formOf = ({ size, output }: TfliteOptions, classes: number): FileForm => ({
  size,
  output,
  classes,
  cpuThreads: 1,
  signal: never,
});

/** What LiteRT gives for the file, as it lies on disk. */
async function looked(
  model: DeployedModel,
  options: TfliteOptions,
  pixels: Float32Array,
): Promise<RawHeads> {
  const path = join(dir, `${crypto.randomUUID()}.tflite`);
  writeFileSync(path, writeTflite(model, options));
  const runner = await openTfliteRunner(path, formOf(options, model.graph.classes));
  try {
    expect(runner.runtime).toMatch(/^@litertjs\/core \d+\.\d+\.\d+$/);
    // A second image, so that nothing of the first is left behind.
    await runner.look(generatedPixels(options.size, 9));
    return await runner.look(pixels);
  } finally {
    await runner.close();
  }
}

type Case = [name: string, kind: DetectorKind, size: OnnxSize, more: Partial<TfliteOptions>];
const LARGE: Case[] = [
  ["of det26l", { variant: "det26l" }, [64, 96], {}],
  ["of det26x", { variant: "det26x" }, [96, 64], {}],
];

describe("a TensorFlow Lite file gives what the fp32 ONNX file gives", () => {
  it.each<Case>([
    ["raw", {}, [160, 160], {}],
    ["joined", {}, [160, 160], { output: "joined" }],
    ["higher than wide", {}, [224, 96], { output: "joined" }],
    ["wider than high, of the smallest height", {}, [32, 288], {}],
    ["of one class", { classes: ["cell"] }, [96, 96], { classes: ["cell"] }],
    ["of a segmentation model", { task: "segmentation" }, [96, 160], {}],
    ["of a segmentation model, joined", { task: "segmentation" }, [64, 64], { output: "joined" }],
    ["of det26s", { variant: "det26s" }, [64, 64], {}],
    ["of det26m", { variant: "det26m" }, [64, 64], {}],
    ...(large ? LARGE : []),
  ])("%s", async (_, kind, size, more) => {
    const model = generatedDetector(kind);
    const pixels = generatedPixels(size);
    const wanted = await onnxHeads(model, size, pixels);
    const found = await looked(model, optionsOf(size, more), pixels);
    expect(greatestDifference(found.boxes, wanted.boxes)).toBeLessThanOrEqual(1e-3);
    expect(greatestDifference(found.scores, wanted.scores)).toBeLessThanOrEqual(1e-5);
    expect(greatestDifference(found.masks, wanted.masks)).toBeLessThanOrEqual(1e-3);
    expect(greatestDifference(found.prototypes, wanted.prototypes)).toBeLessThanOrEqual(1e-3);
  });

  it("nearly, in half precision and in about half the bytes", async () => {
    const [model, size] = [generatedDetector(), [160, 160] as const];
    const pixels = generatedPixels(size);
    const wanted = await onnxHeads(model, size, pixels);
    const found = await looked(model, optionsOf(size, { precision: "fp16" }), pixels);
    expect(sureBoxDifference(found, wanted)).toBeLessThanOrEqual(0.1);
    expect(greatestDifference(found.scores, wanted.scores)).toBeLessThanOrEqual(1e-2);
    const bytes = (precision: ExportPrecision) =>
      writeTflite(model, optionsOf(size, { precision })).length;
    expect(bytes("fp16") / bytes("fp32")).toBeLessThanOrEqual(0.53);
  });

  it.each<[string, DetectorKind]>([
    ["detection", {}],
    ["segmentation", { task: "segmentation" }],
  ])("roughly, in int8 and in less than a third of the bytes (%s)", async (_, kind) => {
    const [model, size] = [generatedDetector(kind), [160, 160] as const];
    const images = [1, 2, 3].map((seed) => generatedPixels(size, seed));
    const ranges = await measureRanges(model, () => images, { size, cpuThreads: 1 });
    const options = optionsOf(size, { precision: "int8", ranges });
    const [pixels = new Float32Array()] = images;
    const wanted = await onnxHeads(model, size, pixels);
    const found = await looked(model, options, pixels);
    // Weights that were never trained to tell classes apart: what is off by a fault is off by all.
    const off = (one: Float32Array, other: Float32Array) =>
      one.reduce((sum, value, at) => sum + Math.abs(value - (other[at] ?? 0)), 0) / one.length;
    expect(off(found.boxes, wanted.boxes)).toBeLessThan(3);
    expect(off(found.scores, wanted.scores)).toBeLessThan(0.05);
    const fp32 = writeTflite(model, optionsOf(size)).length;
    expect(writeTflite(model, options).length / fp32).toBeLessThanOrEqual(0.31);
  });
});

describe("what a TensorFlow Lite file says of itself", () => {
  const SIZE = [64, 96] as const;

  it("is what Ultralytics and the format's own tools look for, behind its end", async () => {
    const odd = ['say "hi"', "new\nline", "\u2028", "é漢字", "😀", ""];
    const names = JSON.stringify(Object.fromEntries(odd.entries()));
    const model = generatedDetector({ classes: odd });
    const metadata = { ...METADATA, names, description: "of cells" };
    const files = await zipFiles(writeTflite(model, optionsOf(SIZE, { classes: odd, metadata })));
    expect([...files.keys()]).toEqual(["metadata.json", "labels.txt"]);
    expect(JSON.parse(String(files.get("metadata.json")))).toEqual({
      names: Object.fromEntries(odd.entries()),
      stride: 32,
      channels: 3,
      task: "detect",
      model: "m",
      description: "of cells",
      imgsz: [64, 96],
      batch: 1,
      end2end: false,
    });
    expect(String(files.get("labels.txt"))).toBe('say "hi"\nnew line\n \né漢字\n😀\n\n');
  });

  it("depends on nothing but the weights and the options", () => {
    const model = generatedDetector();
    const once = sha256(writeTflite(model, optionsOf(SIZE)));
    expect(sha256(writeTflite(model, optionsOf(SIZE)))).toBe(once);
    expect(sha256(writeTflite(model, optionsOf(SIZE, { precision: "fp16" })))).not.toBe(once);
  });

  it("is refused for a side that is no multiple of 32, and for int8 without ranges", () => {
    const model = generatedDetector();
    expect(() => writeTflite(model, optionsOf([64, 100]))).toThrow(/a side of 100 pixels/);
    const blind = optionsOf(SIZE, { precision: "int8" });
    expect(() => writeTflite(model, blind)).toThrow(/the range of .* is not known/);
  });
});

describe("opening a TensorFlow Lite file", () => {
  const SIZE = [64, 64] as const;
  const written = join(dir, "written.tflite");
  const model = generatedDetector();
  writeFileSync(written, writeTflite(model, optionsOf(SIZE)));
  const form = formOf(optionsOf(SIZE), CLASSES.length);

  it.each<[string, (bytes: Buffer) => Buffer]>([
    ["cut off", (bytes) => bytes.subarray(0, bytes.length / 2)],
    ["of another kind", () => Buffer.from("no file of this format, by far")],
    ["of nothing", () => Buffer.alloc(0)],
  ])("fails where it is %s", async (_, spoil) => {
    const path = join(dir, `${crypto.randomUUID()}.tflite`);
    writeFileSync(path, spoil(readFileSync(written)));
    const opened = openTfliteRunner(path, form);
    await expect(opened).rejects.toThrow(/LiteRT/);
    await expect(opened).rejects.not.toBeInstanceOf(RuntimeMissing);
  });

  it("fails where it gives other sizes than it should", async () => {
    const runner = await openTfliteRunner(written, { ...form, classes: 5 });
    await expect(runner.look(generatedPixels(SIZE))).rejects.toThrow(/scores has \d+ numbers/);
    await runner.close();
  });

  it("says that the runtime is missing where it does not start", async () => {
    const program = join(dir, "missing.mjs");
    writeFileSync(program, 'process.send({ type: "missing", reason: "no package" });');
    const opened = openTfliteRunner(written, form, { program });
    await expect(opened).rejects.toThrow(RuntimeMissing);
    await expect(opened).rejects.toThrow(/no package/);
    const talkative = join(dir, "talkative.mjs");
    const said = 'process.send({ type: "missing", reason: "no package ".repeat(100) });';
    writeFileSync(talkative, said);
    const cut = await openTfliteRunner(written, form, { program: talkative }).catch(String);
    // What a record takes of a reason, behind the error's name.
    expect(cut).toMatch(/^RuntimeMissing: .{500}$/);
  });

  it("fails with the last words of a process that crashes", async () => {
    const program = join(dir, "crash.mjs");
    writeFileSync(program, 'process.stderr.write("out of memory\\n"); process.exit(9);');
    await expect(openTfliteRunner(written, form, { program })).rejects.toThrow(
      /\(9\): out of memory/,
    );
  });

  it("fails where it does not answer in time, and its process is gone", async () => {
    const program = join(dir, "hanging.mjs");
    writeFileSync(
      program,
      'process.send({ type: "ready", runtime: "none" }); setInterval(() => {}, 9e5);',
    );
    const runner = await openTfliteRunner(written, form, { program, answerSeconds: 20 });
    await runner.close();
    const silent = join(dir, "mute.mjs");
    writeFileSync(silent, "setInterval(() => {}, 9e5);");
    const opened = openTfliteRunner(written, form, { program: silent, answerSeconds: 1 });
    await expect(opened).rejects.toThrow(/no answer for the file within 1 s/);
    const slow = await openTfliteRunner(written, form, { program, answerSeconds: 5 });
    const looked = slow.look(generatedPixels(SIZE));
    await expect(looked).rejects.toMatchObject({ code: "export_differs" });
    await slow.close();
  });

  it("ends with its signal, also while it waits", async () => {
    const program = join(dir, "silent.mjs");
    writeFileSync(program, "setInterval(() => {}, 1_000);");
    const cancel = new AbortController();
    const opened = openTfliteRunner(written, { ...form, signal: cancel.signal }, { program });
    cancel.abort();
    await expect(opened).rejects.toThrow(/abort/i);
  });
});
