// The group `devices`: models as files for phones and edge devices through the tools of those who
// run them, and the runners that are not of JavaScript. What each file has to give is what our
// predictor gives for the same pixels.

import { execFile } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import sharp from "sharp";
import { measureRanges } from "../../gpu-node/export/calibration.ts";
import { PACKAGE_FOLDER, writeCoreml } from "../../gpu-node/export/coreml.ts";
import { deployedModel } from "../../gpu-node/export/deployed-model.ts";
import { describeModel, writeOnnx } from "../../gpu-node/export/detector-onnx.ts";
import { sampleImages } from "../../gpu-node/export/sample-images.ts";
import { writeTflite } from "../../gpu-node/export/tflite.ts";
import { readTensors } from "../../gpu-node/export/weights-file.ts";
import type { RgbImage } from "../../gpu-node/media/image.ts";
import { readStill } from "../../gpu-node/media/stills.ts";
import { ZipReader } from "../../gpu-node/objects/zip-reader.ts";
import { openPredictor } from "../../gpu-node/serving/predictor.ts";
import type { OnnxSize } from "../../shared/detector/detector-onnx.ts";
import type { ExportPrecision } from "../../shared/detector/export-formats.ts";
import type { ModelSource } from "../../shared/tasks/tasks.ts";
import { BLOOD_CLASSES, BLOOD_SIDE, bloodWeights } from "../support/blood-cells.ts";
import { bloodImage, bloodSplit } from "../support/images.ts";
import { generatedModel } from "../support/weights.ts";
import { execute } from "./environments.ts";
import { type Group, type GroupContext, runScript } from "./group.ts";
import type { Outcome } from "./known.ts";

const IMAGES = 3;
const CONFIDENCE = 0.25;
/** Rows that a file gives. */
const ROWS_MAX = 300;
const CLASSES = ['say "hi"', "it's", "é漢字"];
/** The newest that Maven Central has of it here; nodes have a newer one from npm. */
const ONNXRUNTIME = "1.23.2";
/** Images that the trained model's ranges are measured on. */
const CALIBRATION_IMAGES = 16;

interface DeviceFile {
  name: string;
  format: "tflite" | "coreml";
  output: "raw" | "joined";
  precision: ExportPrecision;
  size: OnnxSize;
  more?: Partial<ModelSource>;
}

const file = (
  name: string,
  format: DeviceFile["format"],
  more: Partial<Omit<DeviceFile, "name" | "format">> = {},
): DeviceFile => ({ name, format, output: "raw", precision: "fp32", size: [160, 160], ...more });

const FILES: readonly DeviceFile[] = [
  file("raw", "tflite"),
  file("joined", "tflite", { output: "joined", size: [96, 160] }),
  file("half", "tflite", { output: "joined", precision: "fp16" }),
  file("int8", "tflite", { output: "joined", precision: "int8", size: [256, 256] }),
  file("segmentation", "tflite", { more: { task: "segmentation" } }),
  file("medium", "tflite", { size: [64, 64], more: { variant: "det26m" } }),
  file("half", "coreml", { precision: "fp16" }),
  file("single", "coreml", { size: [96, 160] }),
  file("segmentation", "coreml", { size: [64, 96], more: { task: "segmentation" } }),
];

export const devices: Group = {
  async run(context) {
    const written = new Map<DeviceFile["format"], unknown[]>();
    const outcomes: Outcome[] = [];
    for (const one of FILES) {
      const subject = one.precision === "int8" ? await trained() : generated(one.more);
      if (!subject) {
        const detail = "no detector of blood cells: npm run bench -- blood-cell-model";
        outcomes.push({ case: `devices/litert/${one.name}`, outcome: "skipped", detail });
        continue;
      }
      const said = await writeFile(one, subject, context.folder);
      written.set(one.format, [...(written.get(one.format) ?? []), said]);
    }
    const scripts = [
      ["devices/read_tflite.py", "devices/litert", written.get("tflite")],
      ["devices/read_coreml.py", "devices/coremltools", written.get("coreml")],
      ["devices/run_runner.py", "devices/python", await writeRuns(context.folder)],
    ] as const;
    for (const [script, name, inputs] of scripts) {
      const list = join(context.folder, `${name.replace("/", "-")}.json`);
      writeFileSync(list, JSON.stringify(inputs));
      outcomes.push(...(await runScript(context, { script, case: name, args: [list] })));
    }
    return [...outcomes, ...(await runJava(context))];
  },
};

/** A model, and images to see what its files give for them. */
interface Subject {
  model: ModelSource;
  weights: Buffer;
  images: readonly RgbImage[];
  /** Those that int8 is fitted to. */
  calibration: readonly RgbImage[];
}

/** A model whose weights were never trained: whatever is off by a fault is off by much. */
function generated(more: Partial<ModelSource> = {}): Subject {
  let weights: Buffer = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      weights = bytes;
      return { url: "", key, bytes: bytes.length };
    },
    { model_id: "m", classes: CLASSES, ...more },
  );
  return { model, weights, images: sampleImages(IMAGES), calibration: [] };
}

/** The detector that was trained on blood cells here, with images that it did not learn from. */
async function trained(): Promise<Subject | null> {
  const weights = bloodWeights();
  const imagesOf = async (split: "train" | "val", count: number) => {
    const found = await Promise.all(bloodSplit(split).slice(0, count).map(bloodImage));
    return found.flatMap((one) => (one ? [one.image] : []));
  };
  const images = await imagesOf("val", IMAGES);
  if (!weights || images.length === 0) return null;
  const { model } = generated({ classes: BLOOD_CLASSES, image_size: BLOOD_SIDE });
  return { model, weights, images, calibration: await imagesOf("train", CALIBRATION_IMAGES) };
}

/** Writes a file, pixels to run it on, and the rows that our predictor gives for them. */
async function writeFile(one: DeviceFile, subject: Subject, folder: string) {
  const { name, format, output, precision, size } = one;
  const { model, weights } = subject;
  // Of raw heads suppression is the host's.
  const settings = { cpuThreads: 1, device: "cpu", unsuppressed: true } as const;
  const predictor = await openPredictor(model, weights, settings, size);
  const pixels: Float32Array[] = [];
  const rows: number[][][] = [];
  for (const image of subject.images) {
    const laid = await predictor.lay(image);
    pixels.push(laid.pixels);
    const { values, width } = await predictor.rows(laid);
    const count = values.length / width;
    rows.push(
      Array.from({ length: count }, (_, row) => [
        ...values.subarray(row * width, (row + 1) * width),
      ]),
    );
  }
  const fitted = await Promise.all(subject.calibration.map((image) => predictor.lay(image)));
  await predictor.dispose();
  const deployed = deployedModel(model, readTensors(weights));
  const metadata = describeModel(model, { name: "cells", version: "1" });
  const { classes, task } = model;
  const images = join(folder, `${format}-${name}.f32`);
  writeFileSync(images, Buffer.concat(pixels.map(({ buffer }) => Buffer.from(buffer))));
  const said = { name, images, rows, output, precision, size, classes, task };
  if (format === "coreml") {
    const identifiers = [1, 2].map((at) => `00000000-0000-4000-8000-00000000000${at}`);
    const [one = "", two = ""] = identifiers;
    const half = precision === "fp16" ? "fp16" : "fp32";
    const options = { size, precision: half, metadata, identifiers: [one, two] } as const;
    return { ...said, path: await unpack(writeCoreml(deployed, options), folder, name) };
  }
  const calibration = fitted.map((laid) => laid.pixels);
  const ranges =
    precision === "int8"
      ? { ranges: await measureRanges(deployed, () => calibration, { size, cpuThreads: 1 }) }
      : {};
  const path = join(folder, `${name}.tflite`);
  const options = { size, output, precision, classes, metadata, ...ranges };
  writeFileSync(path, writeTflite(deployed, options));
  return { ...said, path };
}

/** Lays a package into a folder of its own, as users unzip it. */
async function unpack(bytes: Uint8Array, folder: string, name: string): Promise<string> {
  const archive = join(folder, `${name}.mlpackage.zip`);
  writeFileSync(archive, bytes);
  const zip = await ZipReader.open(archive);
  const root = join(folder, `${name}-package`);
  for (const path of zip.names) {
    const chunks: Uint8Array[] = [];
    for await (const chunk of await zip.stream(path)) chunks.push(chunk);
    mkdirSync(join(root, path, ".."), { recursive: true });
    writeFileSync(join(root, path), Buffer.concat(chunks));
  }
  zip.close();
  return join(root, PACKAGE_FOLDER);
}

/** A file, an image file of its size, and the objects that our predictor finds on it. */
interface Run {
  name: string;
  path: string;
  image: string;
  confidence: number;
  names: readonly string[];
  /** x1, y1, x2, y2, score, class. */
  objects: number[][];
}

/** Image files that careless readers see otherwise than a node does, by their names. */
async function writeImages(folder: string): Promise<Map<string, string>> {
  const image = sampleImages(3)[2];
  if (!image) throw new Error("there are no sample images");
  const drawn = (width: number, height: number) =>
    sharp(image.data, { raw: { ...image, channels: 3 } }).resize(width, height, { fit: "fill" });
  const fading = Buffer.from(
    '<svg width="160" height="130"><linearGradient id="g"><stop stop-color="#fff"/>' +
      '<stop offset="1" stop-color="#fff" stop-opacity="0"/></linearGradient>' +
      '<rect width="160" height="130" fill="url(#g)"/></svg>',
  );
  const images = {
    "image.png": drawn(160, 130),
    "photo.jpg": drawn(160, 130).jpeg({ quality: 95, chromaSubsampling: "4:4:4" }),
    "transparent.png": drawn(160, 130)
      .ensureAlpha()
      .composite([{ input: fading, blend: "dest-in" }]),
    // Laid at a width of 42.5 pixels, which are 43.
    "odd.png": drawn(85, 320),
  };
  const paths = new Map<string, string>();
  for (const [name, drawing] of Object.entries(images)) {
    const path = join(folder, name);
    await drawing.toFile(path);
    paths.set(name, path);
  }
  return paths;
}

async function writeRuns(folder: string): Promise<Run[]> {
  const { model, weights } = generated({ image_size: 160 });
  const size = [160, 160] as const;
  const deployed = deployedModel(model, readTensors(weights));
  const metadata = describeModel(model, { name: "cells", version: "1" });
  const images = await writeImages(folder);
  const predictor = await openPredictor(model, weights, { cpuThreads: 1, device: "cpu" });
  const run = async (name: string, bytes: Uint8Array, imageName = "image.png"): Promise<Run> => {
    const path = join(folder, `runner-${name.replace("_", ".")}`);
    writeFileSync(path, bytes);
    const image = images.get(imageName) ?? "";
    const found = await predictor.predict(await readStill(image), { confidence: CONFIDENCE });
    // As sure as the last of so many: which of them is left out, the smallest difference decides.
    const last = found.length < ROWS_MAX ? CONFIDENCE : (found.at(-1)?.confidence ?? 1);
    const sure = found.filter(({ confidence }) => confidence > last + 1e-3);
    const objects = sure.map(({ class: called, confidence, bbox }) => [
      ...bbox,
      confidence,
      CLASSES.indexOf(called),
    ]);
    return { name, path, image, confidence: CONFIDENCE, names: CLASSES, objects };
  };
  const onnx = (output: "detections" | "raw") =>
    writeOnnx(deployed, { output, size, batch: 1, metadata });
  const tflite = (output: "joined" | "raw") =>
    writeTflite(deployed, { size, output, precision: "fp32", classes: CLASSES, metadata });
  const runs = [
    await run("end-to-end_onnx", onnx("detections")),
    await run("raw_onnx", onnx("raw")),
    await run("jpeg_onnx", onnx("detections"), "photo.jpg"),
    await run("transparent_onnx", onnx("detections"), "transparent.png"),
    await run("odd_onnx", onnx("detections"), "odd.png"),
    await run("raw_tflite", tflite("raw")),
    await run("joined_tflite", tflite("joined")),
  ];
  await predictor.dispose();
  return runs;
}

/** The runner in Java, where there are a JDK and Maven to get its runtime by. */
async function runJava({ folder, msLeft }: GroupContext): Promise<Outcome[]> {
  const name = "devices/java";
  const skipped = (detail: string): Outcome[] => [{ case: name, outcome: "skipped", detail }];
  const has = (program: string) =>
    promisify(execFile)(program, ["-version"]).then(
      () => true,
      () => false,
    );
  if (!(await has("java")) || !(await has("mvn"))) return skipped("no JDK with Maven here");
  const jar = join(folder, `onnxruntime-${ONNXRUNTIME}.jar`);
  if (!existsSync(jar)) {
    const goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";
    const artifact = `-Dartifact=com.microsoft.onnxruntime:onnxruntime:${ONNXRUNTIME}`;
    const command = ["mvn", "-q", "-B", goal, artifact, `-DoutputDirectory=${folder}`] as const;
    const { code, output } = await execute([...command], { msMax: msLeft() });
    if (code !== 0) return skipped(`its runtime was not installed: ${output.slice(-300)}`);
  }
  const source = resolve(import.meta.dirname, "../../runners/java/Detect.java");
  const outcomes: Outcome[] = [];
  for (const run of (await writeRuns(folder)).filter(({ path }) => path.endsWith(".onnx"))) {
    const args = ["java", "-cp", jar, source, run.path, run.image, String(CONFIDENCE)] as const;
    const { code, output } = await execute([...args], { msMax: msLeft() });
    const detail = code === 0 ? differenceOf(run, output) : output.slice(-500);
    const about = { case: `${name}/${run.name}`, detail };
    outcomes.push({ ...about, outcome: code === 0 && detail === "" ? "passed" : "failed" });
  }
  return outcomes;
}

/** What of the objects a runner's lines lack; empty for nothing. */
function differenceOf({ objects }: Run, output: string): string {
  const found = output
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line) as { class: number; score: number; box: number[] });
  const lacking = objects.filter(
    ([x1 = 0, y1 = 0, x2 = 0, y2 = 0, score = 0, index]) =>
      score > CONFIDENCE + 1e-3 &&
      !found.some(
        (one) =>
          one.class === index &&
          Math.abs(one.score - score) < 1e-3 &&
          [x1, y1, x2, y2].every((side, at) => Math.abs(side - (one.box[at] ?? 0)) < 0.05),
      ),
  );
  return lacking.length > 0 ? `${lacking.length} of ${objects.length} objects are missing` : "";
}
