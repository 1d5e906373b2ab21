// A detector as ONNX, under the runtime that serves it. Goal: it computes what the graph says, for
// every kind of operation, every size and batch; its two top-k steps are those of the contract; and
// a file that is not what it says is refused.

import { beforeAll, describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import {
  describeModel,
  type OnnxOptions,
  writeOnnx,
} from "../../../gpu-node/export/detector-onnx.ts";
import { floatsOf, readTensors } from "../../../gpu-node/export/weights-file.ts";
import { decodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { float, floats, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { foldNorm } from "../../../shared/detector/deployed-weights.ts";
import {
  type DetectorTask,
  detectorGraph,
  LEVEL_STRIDES,
} from "../../../shared/detector/detector.ts";
import { anchorsOf } from "../../../shared/detector/detector-onnx.ts";
import { suppress } from "../../../shared/detector/suppression.ts";
import {
  computeMaps,
  type Plane,
  randomWeights,
  seeded,
  type Tensors,
  tensorFile,
} from "../../support/weights.ts";

const CLASSES = ["disc", "square", "star"];

const modelOf = (tensors: Tensors, task: DetectorTask = "detection", classes = CLASSES) =>
  deployedModel({ variant: "det26n", classes, task }, readTensors(tensorFile(tensors)));

const noise = (count: number, height: number, width: number, seed = 5) => {
  const random = seeded(seed);
  return Float32Array.from({ length: count * 3 * height * width }, random);
};

/** Runs a model's file on noise. */
async function look(
  model: ReturnType<typeof modelOf>,
  [count, height, width]: [number, number, number],
  options: Partial<OnnxOptions> = {},
) {
  const file = writeOnnx(model, {
    output: "raw",
    size: [height, width],
    batch: null,
    metadata: {},
    ...options,
  });
  const session = await openSession(file, { cpuThreads: 2, device: "cpu" });
  try {
    const images = float(noise(count, height, width), [count, 3, height, width]);
    const outputs = await run(session, { images });
    return Object.fromEntries(
      Object.entries(outputs).map(([name, tensor]) => [
        name,
        { dims: [...tensor.dims], values: floats(outputs, name).slice() },
      ]),
    );
  } finally {
    await session.release();
  }
}

type Output = { dims: number[]; values: Float32Array };
const out = (outputs: Record<string, Output>, name: string) => outputs[name] as Output;

/** The greatest difference between two lists of numbers. */
function apart(one: ArrayLike<number>, other: ArrayLike<number>): number {
  expect(one.length).toBe(other.length);
  let max = 0;
  for (let at = 0; at < one.length; at++) {
    max = Math.max(max, Math.abs((one[at] ?? 0) - (other[at] ?? 0)));
  }
  return max;
}

describe("a detector as ONNX", () => {
  let tensors: Tensors;
  let masked: Tensors;
  beforeAll(() => {
    tensors = randomWeights(detectorGraph("det26n", CLASSES.length));
    masked = randomWeights(detectorGraph("det26n", 2, "segmentation"), 3);
  });

  /** Boxes, scores and, of a segmentation model, coefficients and prototypes, by hand. */
  function byHand(of: Tensors, task: DetectorTask, classes: number, size: [number, number]) {
    const [height, width] = size;
    const values = Float64Array.from(noise(1, height, width));
    const graph = detectorGraph("det26n", classes, task);
    const maps = computeMaps(graph, of, { channels: 3, height, width, values });
    const map = (index: number) => maps[index] as Plane;
    const perAnchor = (nodes: readonly number[], one: (map: Plane, cell: number) => number[]) =>
      nodes.flatMap((index) => {
        const cells = map(index).height * map(index).width;
        return Array.from({ length: cells }, (_, cell) => one(map(index), cell)).flat();
      });
    const channels = (
      { channels: count, height: rows, width: columns, values: all }: Plane,
      cell: number,
    ) => Array.from({ length: count }, (_, channel) => all[channel * rows * columns + cell] ?? 0);
    return {
      boxes: perAnchor(graph.o2o.box, (level, cell) => {
        const [left = 0, top = 0, right = 0, bottom = 0] = channels(level, cell);
        const stride = height / level.height;
        expect(LEVEL_STRIDES).toContain(stride);
        const x = (cell % level.width) + 0.5;
        const y = Math.floor(cell / level.width) + 0.5;
        return [x - left, y - top, x + right, y + bottom].map((side) => side * stride);
      }),
      scores: perAnchor(graph.o2o.cls, (level, cell) =>
        channels(level, cell).map((logit) => 1 / (1 + Math.exp(-logit))),
      ),
      masks: perAnchor(graph.o2o.mask ?? [], channels),
      prototypes: graph.prototypes === undefined ? [] : [...map(graph.prototypes).values],
    };
  }

  it("computes what plain arithmetic makes of the weights as trained", async () => {
    const outputs = await look(modelOf(tensors), [1, 64, 96]);
    const wanted = byHand(tensors, "detection", CLASSES.length, [64, 96]);
    expect(out(outputs, "boxes").dims).toEqual([1, anchorsOf([64, 96]), 4]);
    expect(out(outputs, "scores").dims).toEqual([1, 126, 3]);
    expect(apart(out(outputs, "boxes").values, wanted.boxes)).toBeLessThan(1e-3);
    expect(apart(out(outputs, "scores").values, wanted.scores)).toBeLessThan(1e-5);
    // The weights are no trivial ones: scores and boxes differ from cell to cell.
    expect(Math.max(...wanted.scores) - Math.min(...wanted.scores)).toBeGreaterThan(0.05);
  });

  it("computes coefficients and prototypes of a segmentation model", async () => {
    const model = modelOf(masked, "segmentation", ["a", "b"]);
    const outputs = await look(model, [1, 64, 64]);
    const wanted = byHand(masked, "segmentation", 2, [64, 64]);
    expect(out(outputs, "output1").dims).toEqual([1, 32, 16, 16]);
    expect(apart(out(outputs, "masks").values, wanted.masks)).toBeLessThan(1e-3);
    expect(apart(out(outputs, "output1").values, wanted.prototypes)).toBeLessThan(1e-3);
    const rows = await look(model, [1, 64, 64], { output: "detections" });
    expect(out(rows, "output0").dims).toEqual([1, 84, 38]);
  });

  it("gives the same for any size known beforehand or only when it runs, one by one or together", async () => {
    const model = modelOf(tensors);
    for (const output of ["raw", "detections"] as const) {
      const fixed = await look(model, [3, 64, 160], { output });
      const open = await look(model, [3, 64, 160], { output, size: null });
      for (const name of Object.keys(fixed)) {
        expect(out(open, name).dims).toEqual(out(fixed, name).dims);
        expect(apart(out(open, name).values, out(fixed, name).values)).toBeLessThan(1e-4);
      }
    }
    const together = await look(model, [3, 64, 64]);
    const alone = await look(model, [1, 64, 64]);
    const { values } = out(alone, "boxes");
    expect(apart(out(together, "boxes").values.subarray(0, values.length), values)).toBeLessThan(
      1e-3,
    );
    const one = await look(model, [1, 64, 64], { batch: 1 });
    expect(apart(out(one, "boxes").values, values)).toBe(0);
  });

  it("keeps the 300 best rows: of the 300 best anchors, the 300 best classes", async () => {
    const model = modelOf(tensors);
    const size: [number, number, number] = [2, 160, 160];
    const { boxes, scores } = (await look(model, size)) as Record<"boxes" | "scores", Output>;
    const { output0 } = (await look(model, size, { output: "detections" })) as { output0: Output };
    expect(output0.dims).toEqual([2, 300, 6]);
    const anchors = anchorsOf([160, 160]);
    for (const image of [0, 1]) {
      const score = (anchor: number, index: number) =>
        scores.values[(image * anchors + anchor) * 3 + index] ?? 0;
      const best = Array.from({ length: anchors }, (_, anchor) => anchor)
        .sort(
          (a, b) =>
            Math.max(...[0, 1, 2].map((c) => score(b, c))) -
            Math.max(...[0, 1, 2].map((c) => score(a, c))),
        )
        .slice(0, 300);
      const wanted = best
        .flatMap((anchor) =>
          [0, 1, 2].map((index) => ({ anchor, index, score: score(anchor, index) })),
        )
        .sort((a, b) => b.score - a.score)
        .slice(0, 300);
      const rows = Array.from({ length: 300 }, (_, row) => [
        ...output0.values.subarray((image * 300 + row) * 6, (image * 300 + row + 1) * 6),
      ]);
      // Near-ties may change nodes: compare scores in order, the rest by what is nearest.
      expect(
        apart(
          rows.map((row) => row[4] ?? 0),
          wanted.map((one) => one.score),
        ),
      ).toBeLessThan(1e-5);
      for (const { anchor, index, score: sure } of wanted.slice(0, 250)) {
        const box = boxes.values.subarray(
          (image * anchors + anchor) * 4,
          (image * anchors + anchor + 1) * 4,
        );
        const found = rows.some(
          (row) =>
            row[5] === index &&
            Math.abs((row[4] ?? 0) - sure) < 1e-5 &&
            apart(row.slice(0, 4), box) < 1e-3,
        );
        expect([anchor, index, found]).toEqual([anchor, index, true]);
      }
    }
  });

  it.each<[string, DetectorTask, Partial<OnnxOptions>]>([
    ["of a size", "detection", {}],
    ["of any size and batch", "detection", { size: null }],
    ["of segmentation", "segmentation", {}],
  ])("suppresses by itself what its model is served without: %s", async (_, task, options) => {
    const classes = task === "detection" ? CLASSES : ["a", "b"];
    const plain = modelOf(task === "detection" ? tensors : masked, task, classes);
    const size: [number, number, number] = [2, 160, 160];
    const detections = { ...options, output: "detections" } as const;
    const before = out(await look(plain, size, detections), "output0");
    for (const nmsIou of [0.2, 0.6]) {
      const outputs = await look({ ...plain, nmsIou }, size, detections);
      const { dims, values } = out(outputs, "output0");
      expect(dims).toEqual(before.dims);
      const [, count = 0, width = 0] = dims;
      for (const image of [0, 1]) {
        const part = (all: Float32Array) =>
          all.subarray(image * count * width, (image + 1) * count * width);
        const wanted = suppress({ values: part(before.values), width }, nmsIou).values;
        const scores = wanted.filter((_value, at) => at % width === 4);
        const kept = scores.filter((score) => score > 0).length;
        // Random weights find much where there is nothing: some of it covers the rest.
        expect([kept > 3, kept < count]).toEqual([true, true]);
        expect(part(values).subarray(0, kept * width)).toEqual(wanted.subarray(0, kept * width));
        for (let row = kept; row < count; row++) {
          expect(part(values)[row * width + 4]).toBe(0);
        }
      }
    }
  });

  it("takes its suppression from the metadata of the weights", () => {
    const file = (metadata: Record<string, string>) => readTensors(tensorFile(tensors, metadata));
    const kind = { variant: "det26n", classes: CLASSES, task: "detection" } as const;
    expect(deployedModel(kind, file({})).nmsIou).toBeNull();
    expect(deployedModel(kind, file({ head: "one_to_one", nms_iou: "0.7" })).nmsIou).toBe(0.7);
    expect(() => deployedModel(kind, file({ nms_iou: "2" }))).toThrow(
      expect.objectContaining({ code: "bad_weights" }),
    );
  });

  it("says of itself what whoever finds the file needs", () => {
    const model = modelOf(tensors);
    const metadata = describeModel(
      {
        model_id: "m",
        variant: "det26n",
        task: "detection",
        image_size: 320,
        classes: CLASSES,
      },
      { run: "r", dataset_sha256: "d", version: "2" },
    );
    const options = { output: "detections", size: [320, 320], batch: null, metadata } as const;
    const file = writeOnnx(model, options);
    const { opsetImport, irVersion, metadataProps, graph } = decodeModel(file);
    expect(Number(opsetImport[0]?.version)).toBe(17);
    expect(Number(irVersion)).toBe(8);
    expect(Object.fromEntries(metadataProps.map(({ key, value }) => [key, value]))).toEqual({
      names: '{"0":"disc","1":"square","2":"star"}',
      stride: "32",
      imgsz: "[320,320]",
      channels: "3",
      batch: "1",
      task: "detect",
      variant: "det26n",
      end2end: "True",
      model: "m",
      run: "r",
      dataset_sha256: "d",
      version: "2",
    });
    expect(graph?.input?.map(({ name }) => name)).toEqual(["images"]);
    expect(graph?.output?.map(({ name }) => name)).toEqual(["output0"]);
    expect(Buffer.from(writeOnnx(model, options)).equals(Buffer.from(file))).toBe(true);
    expect(() => writeOnnx(model, { ...options, size: [320, 300] })).toThrow("a side of 300");
  });

  it.each(["det26s", "det26m", "det26l"] as const)("holds %s", async (variant) => {
    const graph = detectorGraph(variant, 2);
    const file = readTensors(tensorFile(randomWeights(graph)));
    const model = deployedModel({ variant, classes: ["a", "b"], task: "detection" }, file);
    const { boxes } = await look(model, [1, 64, 64]);
    expect(boxes?.dims).toEqual([1, 84, 4]);
    expect(boxes?.values.every((value) => Number.isFinite(value))).toBe(true);
  });
});

describe("folding", () => {
  it("scales a channel's weights by γ / √(variance + 0.001) and shifts by what is left", () => {
    const tensors: Record<string, number[]> = {
      "a.weight": [1, 2, 3, 4],
      "a.norm.weight": [2, 1],
      "a.norm.bias": [0.5, -1],
      "a.norm.mean": [1, 3],
      "a.norm.variance": [3.999, 0.249],
    };
    const { weight, bias } = foldNorm({ name: "a", channels: 2 }, (name) =>
      Float32Array.from(tensors[name] ?? []),
    );
    expect(apart(weight, [1, 2, 6, 8])).toBeLessThan(1e-6);
    expect(apart(bias, [-0.5, -7])).toBeLessThan(1e-6);
  });
});

describe("a weights file", () => {
  const good = () =>
    new Map([
      ["a", { shape: [2], values: Float32Array.of(1, 2) }],
      ["b", { shape: [], values: Float32Array.of(3) }],
    ]);

  /** A file of this header and so many bytes. */
  function fileOf(header: unknown, bytes: number): Buffer {
    const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(text.length));
    return Buffer.concat([length, text, Buffer.alloc(bytes)]);
  }
  const entry = (from: number, to: number, more = {}) => ({
    dtype: "F32",
    shape: [(to - from) / 4],
    data_offsets: [from, to],
    ...more,
  });

  it("is read with its metadata, in any float precision", () => {
    const { tensors, metadata } = readTensors(tensorFile(good(), { epoch: "3" }));
    expect(metadata).toEqual({ epoch: "3" });
    expect([...tensors.keys()]).toEqual(["a", "b"]);
    const values = [...tensors].map(([name, tensor]) => [...floatsOf(tensor, name)]);
    expect(values).toEqual([[1, 2], [3]]);
    const stored = (dtype: string, bytes: number[]) =>
      floatsOf({ dtype, shape: [], bytes: Uint8Array.from(bytes) }, "x")[0];
    expect(stored("F16", [0x00, 0x3e])).toBe(1.5);
    expect(stored("BF16", [0xc0, 0x3f])).toBe(1.5);
    expect(stored("F64", [0, 0, 0, 0, 0, 0, 0xf8, 0x3f])).toBe(1.5);
    expect(() => stored("I64", [0, 0, 0, 0, 0, 0, 0, 0])).toThrow("no floats but I64");
  });

  it.each([
    ["is empty", Buffer.alloc(0)],
    ["is cut off", tensorFile(good()).subarray(0, -1)],
    ["has bytes behind its end", Buffer.concat([tensorFile(good()), Buffer.alloc(1)])],
    ["announces an endless header", Buffer.alloc(64, 0xff)],
    ["has no JSON in front", fileOf("{not", 0)],
    ["has a list in front", fileOf([], 0)],
    ["has a hole", fileOf({ a: entry(0, 8), b: entry(12, 16) }, 16)],
    ["has tensors on each other", fileOf({ a: entry(0, 8), b: entry(4, 12) }, 12)],
    ["has a tensor of another size", fileOf({ a: entry(0, 8, { shape: [3] }) }, 8)],
    ["has a tensor backwards", fileOf({ a: entry(8, 0) }, 8)],
    ["has an unknown type", fileOf({ a: entry(0, 8, { dtype: "PICKLE" }) }, 8)],
    ["has an absurd shape", fileOf({ a: entry(0, 8, { shape: [2 ** 40, 2 ** 40] }) }, 8)],
    ["has metadata that are no texts", fileOf({ __metadata__: { a: 1 } }, 0)],
  ])("that %s is refused", (_, file) => {
    expect(() => readTensors(file)).toThrow(/the weights cannot be read/);
  });

  it.each<[string, (tensors: Tensors) => void, RegExp]>([
    ["lacks a tensor", (tensors) => tensors.delete("layers.0.weight"), /lack layers\.0\.weight/],
    [
      "has one of another shape",
      (tensors) => tensors.set("layers.0.weight", { shape: [1], values: new Float32Array(1) }),
      /has the shape \[1\] where the model has \[16,3,3,3\]/,
    ],
    [
      "holds what is no number",
      (tensors) => tensors.get("layers.3.weight")?.values.fill(Number.NaN, 7, 8),
      /layers\.3 are not all numbers/,
    ],
    [
      "has a variance below zero",
      (tensors) => tensors.get("layers.1.norm.variance")?.values.fill(-1),
      /layers\.1 are not all numbers/,
    ],
  ])("of a model that %s is refused", (_, spoil, message) => {
    const tensors = randomWeights(detectorGraph("det26n", CLASSES.length));
    spoil(tensors);
    expect(() => modelOf(tensors)).toThrow(message);
  });

  it("may lack what is not deployed", () => {
    const tensors = randomWeights(detectorGraph("det26n", CLASSES.length));
    for (const name of [...tensors.keys()]) if (name.includes(".o2m.")) tensors.delete(name);
    expect(modelOf(tensors).weights.size).toBeGreaterThan(100);
  });
});
