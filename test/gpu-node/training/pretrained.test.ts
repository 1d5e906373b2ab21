// First weights from files of other makers. Goal: what fits is taken where it belongs, by name or
// by an order that leaves no doubt; what does not is said; a file that lies is refused and nothing
// in it is run.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { create } from "@bufbuild/protobuf";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { describeModel, writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { readTensors, writeTensors } from "../../../gpu-node/export/weights-file.ts";
import { decodeModel, encodeModel } from "../../../gpu-node/onnx/model-file.ts";
import { StringStringEntryProto } from "../../../gpu-node/onnx/schema.ts";
import { loadPretrained, readPretrained } from "../../../gpu-node/training/pretrained-weights.ts";
import type { Engine } from "../../../native/index.d.ts";
import { detectorGraph, stateTensors } from "../../../shared/detector/detector.ts";
import { engineOrSay } from "../../support/training.ts";
import { randomWeights, type Tensors, tensorFile } from "../../support/weights.ts";

const native = engineOrSay();
const classes = ["disc", "square"];
const graph = detectorGraph("det26n", classes.length);
const weights = randomWeights(graph, 5);
const engines: Engine[] = [];
let dir: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "vantage-pretrained-"));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));
afterAll(async () => {
  for (const engine of engines) await engine.close();
});

function engineOf(of = graph): Engine {
  const { Engine } = native as NonNullable<typeof native>;
  const engine = new Engine({ graph: of, device: "cpu", seed: 3, threads: 1 });
  engines.push(engine);
  return engine;
}

/** Loads a file into a new engine. */
async function load(bytes: Uint8Array, format: "safetensors" | "onnx", of = graph) {
  const path = join(dir, "given");
  writeFileSync(path, bytes);
  const engine = engineOf(of);
  const first = await readPretrained(of, { path, format });
  const made = await loadPretrained(engine, first, join(dir, "made"));
  return { engine, hasHead: first.hasHead, ...made };
}

const valuesOf = async (engine: Engine, name: string) =>
  Array.from((await engine.tensor(name, "model")).values.slice(0, 5));
const given = (name: string) => Array.from(weights.get(name)?.values.slice(0, 5) ?? []);
const FIRST = "layers.0.weight";
const HEAD = "layers.23.o2o.box.0.0.weight";

const onnxOf = (served: Record<string, string> = {}) => {
  const file = readTensors(tensorFile(weights, served));
  const model = deployedModel({ variant: "det26n", classes, task: "detection" }, file);
  const shape = { model_id: "m", variant: "det26n", task: "detection", classes } as const;
  const metadata = describeModel({ ...shape, classes: [...classes], image_size: 64 });
  return writeOnnx(model, { output: "detections", size: [64, 64], batch: 1, metadata });
};

describe.skipIf(!native)("first weights", () => {
  it("of our own file go where they are named", async () => {
    const { engine, report, lines, hasHead } = await load(tensorFile(weights), "safetensors");
    expect(report).toMatchObject({ mismatched: [], missing: [], unused: [] });
    expect(report.matched).toBe(report.of);
    expect(await valuesOf(engine, FIRST)).toEqual(given(FIRST));
    expect(lines.join(" ")).toMatch(/Matched by name/);
    expect(hasHead).toBe(true);
  });

  it("of a backbone and a neck alone have no head, and all of it starts fresh", async () => {
    const features = new Map([...weights].filter(([name]) => !name.startsWith("layers.23.")));
    const { report, hasHead } = await load(tensorFile(features), "safetensors");
    expect([hasHead, report.mismatched]).toEqual([false, []]);
    expect(report.matched).toBeLessThan(report.of);
    expect(report.missing[0]).toMatch(/^layers\.23\./);
  });

  it("for other classes leave the class head fresh and say so", async () => {
    const three = detectorGraph("det26n", 3);
    const { engine, report, lines, hasHead } = await load(
      tensorFile(weights),
      "safetensors",
      three,
    );
    expect(hasHead).toBe(true);
    const heads = 2 * 3;
    expect(report.mismatched).toHaveLength(2 * heads);
    expect(report.mismatched[0]).toMatch(/cls.*\[2,.*in the file, \[3,.*here/);
    expect(report.matched).toBe(report.of - 2 * heads);
    expect(await valuesOf(engine, FIRST)).toEqual(given(FIRST));
    expect(lines.join(" ")).toMatch(/12 of another shape start fresh/);
  });

  it("of another variant are refused where nothing fits", async () => {
    const tensors: Tensors = new Map([
      ["layers.0.weight", { shape: [7], values: new Float32Array(7) }],
    ]);
    await expect(load(tensorFile(tensors), "safetensors")).rejects.toMatchObject({
      code: "bad_weights",
      message: expect.stringMatching(/same variant/),
    });
  });

  it("under other names go by order, where every shape agrees", async () => {
    const renamed = new Map([...weights.values()].map((one, at) => [`model.${at}.tensor`, one]));
    const { engine, report, lines } = await load(tensorFile(renamed), "safetensors");
    expect(report.matched).toBe(report.of);
    expect(await valuesOf(engine, HEAD)).toEqual(given(HEAD));
    expect(lines.join(" ")).toMatch(/Matched by order: all \d+ shapes/);
  });

  it("under other names and for other classes go by order as well, but for the classes", async () => {
    const renamed = new Map([...weights.values()].map((one, at) => [`model.${at}.tensor`, one]));
    const three = detectorGraph("det26n", 3);
    const { report } = await load(tensorFile(renamed), "safetensors", three);
    expect(report.mismatched).toHaveLength(12);
  });

  it("under other names and in another order are refused", async () => {
    const turned = [...weights.values()].reverse().map((one, at) => [`t${at}`, one] as const);
    await expect(load(tensorFile(new Map(turned)), "safetensors")).rejects.toMatchObject({
      code: "bad_weights",
      message: expect.stringMatching(/none of the file's \d+ tensors is named as in det26n/),
    });
  });

  it("of an ONNX file of ours are unfolded, and the other head starts as a copy", async () => {
    const { engine, report, lines } = await load(onnxOf(), "onnx");
    expect(report).toMatchObject({ mismatched: [], missing: [], unused: [] });
    expect(lines.join(" ")).toMatch(/folded in: made again for \d+ convolutions.*one head/);
    expect(await valuesOf(engine, HEAD.replace("o2o", "o2m"))).toEqual(
      await valuesOf(engine, HEAD),
    );
    // What the engine computes of an image is what the weights as trained give.
    const trained = engineOf();
    const path = join(dir, "trained");
    writeFileSync(path, tensorFile(weights));
    await trained.load(path);
    const images = Float32Array.from({ length: 3 * 64 * 64 }, (_, at) => (at % 97) / 97);
    const look = async (one: Engine) =>
      (
        await one.forward({ images, count: 1, height: 64, width: 64 }, { training: false })
      ).o2o.box.flatMap(({ values }) => Array.from(values));
    const [mine, theirs] = [await look(engine), await look(trained)];
    const worst = Math.max(...mine.map((value, at) => Math.abs(value - (theirs[at] ?? 0))));
    const scale = Math.max(...theirs.map(Math.abs));
    expect(worst / scale).toBeLessThan(1e-4);
  });

  it("of an ONNX file that is served by its other head begin both heads, too", async () => {
    const file = onnxOf({ head: "one_to_many", nms_iou: "0.6" });
    const { engine, report, lines } = await load(file, "onnx");
    expect(report).toMatchObject({ mismatched: [], missing: [], unused: [] });
    expect(lines.join(" ")).toMatch(/one head: the other starts as a copy/);
    const many = HEAD.replace("o2o", "o2m");
    expect(await valuesOf(engine, HEAD)).toEqual(await valuesOf(engine, many));
  });

  it("of an ONNX file under other names go by the order in which they are listed", async () => {
    const model = decodeModel(onnxOf());
    const names = new Map<string, string>();
    for (const [at, one] of (model.graph?.initializer ?? []).entries()) {
      names.set(one.name ?? "", `onnx::Conv_${at}`);
      one.name = `onnx::Conv_${at}`;
    }
    for (const node of model.graph?.node ?? []) {
      node.input = (node.input ?? []).map((name) => names.get(name) ?? name);
    }
    const { engine, report, lines } = await load(encodeModel(model), "onnx");
    expect(report).toMatchObject({ mismatched: [], missing: [] });
    expect(lines.join(" ")).toMatch(/Matched by order.*as it is deployed/);
    const { engine: named } = await load(onnxOf(), "onnx");
    expect(await valuesOf(engine, HEAD)).toEqual(await valuesOf(named, HEAD));
  });
});

describe.skipIf(!native)("a file of weights that is not what it says", () => {
  const refused = (bytes: Uint8Array, format: "safetensors" | "onnx") =>
    expect(load(bytes, format)).rejects.toMatchObject({ code: "bad_weights", retryable: false });

  it("is refused", async () => {
    const whole = tensorFile(weights);
    await refused(Buffer.from("no weights"), "safetensors");
    await refused(whole.subarray(0, whole.length - 10), "safetensors");
    await refused(whole, "onnx");
    await refused(Buffer.from(onnxOf()).subarray(0, 5_000), "onnx");
    await refused(Buffer.alloc(0), "onnx");
  });

  it("is refused where its weights lie elsewhere, or are fewer than their shape says", async () => {
    const outside = decodeModel(onnxOf());
    const [first] = outside.graph?.initializer ?? [];
    if (!first) throw new Error("there is no weight");
    first.dataLocation = 1;
    first.externalData = [
      create(StringStringEntryProto, { key: "location", value: "/etc/passwd" }),
    ];
    await refused(encodeModel(outside), "onnx");
    const short = decodeModel(onnxOf());
    const weight = short.graph?.initializer?.find(({ name }) => name === FIRST);
    if (!weight) throw new Error("there is no first weight");
    weight.rawData = weight.rawData.subarray(0, 8);
    await refused(encodeModel(short), "onnx");
  });

  it("is refused where a weight is no number", async () => {
    const { shape, values } = weights.get(FIRST) ?? { shape: [], values: new Float32Array() };
    const bad = new Map(weights).set(FIRST, { shape, values: values.map(() => Number.NaN) });
    await expect(load(writeTensors(bad), "safetensors")).rejects.toMatchObject({
      code: "bad_weights",
      message: expect.stringMatching(/not finite/),
    });
  });
});

it("names of the graph's state are those of the files", () => {
  expect([...weights.keys()]).toEqual(stateTensors(graph).map(({ name }) => name));
});
