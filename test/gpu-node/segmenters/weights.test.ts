// First weights as bundles: a file is a backbone's or is refused with the tensor that is wrong,
// says where it comes from and under which licence, and is told of by name and variant.

import { createHash } from "node:crypto";
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { models } from "../../../gpu-node/models.ts";
import { listSegmenters } from "../../../gpu-node/segmenters/registry.ts";
import { checkedWeights, findWeights, listWeights } from "../../../gpu-node/segmenters/weights.ts";
import { detectorGraph, type Variant } from "../../../shared/detector/detector.ts";
import { randomWeights, type Tensors, tensorFile } from "../../support/weights.ts";

const root = mkdtempSync(join(tmpdir(), "vantage-weights-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let count = 0;
let modelsDir = "";
beforeEach(() => {
  modelsDir = join(root, `models-${count++}`);
});

/** A file of a variant's backbone alone, changed. */
function fileOf(variant: Variant = "det26n", change: (tensors: Tensors) => void = () => {}) {
  const all = randomWeights(detectorGraph(variant, 1));
  const backbone: Tensors = new Map(
    [...all].filter(([name]) => Number(/^layers\.(\d+)/.exec(name)?.[1]) < 11),
  );
  change(backbone);
  const path = join(root, `weights ${count++}.safetensors`);
  writeFileSync(path, tensorFile(backbone));
  return path;
}

const command = async (...args: string[]) => {
  const said: string[] = [];
  const environment = { VANTAGE_MODELS: modelsDir };
  const code = await models(args, { environment, say: (line) => said.push(line) });
  return [code, said.join("\n")] as const;
};
const SAID = ["--name", "coco", "--licence", "CC-BY-4.0", "--source", "https://example.com/coco"];

describe("weights as a bundle", () => {
  it("come from a file alone, with their licence and source, for each variant", async () => {
    const [code, text] = await command("install", fileOf("det26n"), ...SAID);
    expect([code, text]).toEqual([0, expect.stringMatching(/Licence: CC-BY-4\.0/)]);
    expect(text).toMatch(/Source: https:\/\/example\.com\/coco/);
    expect((await command("install", fileOf("det26s"), ...SAID))[0]).toBe(0);
    const told = { dataset: "coco", licence: "CC-BY-4.0", source: "https://example.com/coco" };
    expect(await listWeights(modelsDir)).toEqual([
      { ...told, variant: "det26n", title: "coco, det26n" },
      { ...told, variant: "det26s", title: "coco, det26s" },
    ]);
    expect((await listSegmenters(modelsDir)).map(({ name }) => name)).toEqual(["builtin"]);
    const [listed, list] = await command("list");
    expect([listed, list]).toEqual([0, expect.stringMatching(/coco-det26s {2}coco, det26s/)]);
    await expect(findWeights(modelsDir, "coco", "det26x")).rejects.toThrow(/models -- install/);
  });

  it("are looked at again before they are used", async () => {
    await command("install", fileOf(), ...SAID);
    const bundle = await findWeights(modelsDir, "coco", "det26n");
    const path = await checkedWeights(bundle);
    appendFileSync(path, "x");
    await expect(checkedWeights(bundle)).rejects.toThrow(/bytes, not/);
  });

  it("can be taken away, and others not by mistake", async () => {
    await command("install", fileOf(), ...SAID);
    expect(await command("remove", "coco")).toEqual([1, expect.stringMatching(/coco-det26n/)]);
    expect((await command("remove", "coco-det26n"))[0]).toBe(0);
    expect(readdirSync(modelsDir)).toEqual([]);
  });

  it.each<[string, string[], (tensors: Tensors) => void, RegExp]>([
    ["no name", ["--licence", "MIT", "--source", "x"], () => {}, /--name/],
    ["no licence", ["--name", "a", "--source", "x"], () => {}, /--licence/],
    ["no source", ["--name", "a", "--licence", "MIT"], () => {}, /--source/],
    ["a bad name", ["--name", "A b", "--licence", "MIT", "--source", "x"], () => {}, /lower-case/],
    [
      "no such tensor",
      SAID,
      (all) => all.delete("layers.4.join.weight"),
      /layers\.4\.join\.weight/,
    ],
    [
      "another shape",
      SAID,
      (all) => all.set("layers.1.weight", { shape: [2], values: new Float32Array(2) }),
      /its layers\.1\.weight is \[2\], and \[32,16,3,3\] in det26n/,
    ],
  ])("are refused with %s, and leave no trace", async (_, args, change, why) => {
    const [code, text] = await command("install", fileOf("det26n", change), ...args);
    expect([code, text]).toEqual([1, expect.stringMatching(why)]);
    expect(await listWeights(modelsDir)).toEqual([]);
  });

  it("are verified by their name, whole and damaged", async () => {
    await command("install", fileOf("det26n"), ...SAID);
    const [code, text] = await command("verify", "coco-det26n");
    expect([code, text]).toEqual([0, "coco-det26n is whole: weights of det26n"]);
    const { folder, manifest } = await findWeights(modelsDir, "coco", "det26n");
    appendFileSync(join(folder, manifest.weights), "more");
    const [broken, why] = await command("verify", "coco-det26n");
    expect([broken, why]).toEqual([1, expect.stringMatching(/safetensors/)]);
  });

  it("of a bundle are held against its variant", async () => {
    const folder = join(root, "bundle");
    mkdirSync(folder);
    const bytes = tensorFile(randomWeights(detectorGraph("det26n", 1)));
    writeFileSync(join(folder, "w.safetensors"), bytes);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const manifest = {
      kind: "weights",
      name: "coco-s",
      dataset: "coco",
      variant: "det26s",
      title: "COCO",
      licence: "MIT",
      source: "https://example.com",
      weights: "w.safetensors",
      files: [{ path: "w.safetensors", sha256, bytes: bytes.length }],
    };
    const written = (variant: Variant) =>
      writeFileSync(join(folder, "bundle.json"), JSON.stringify({ ...manifest, variant }));
    written("det26s");
    const [code, text] = await command("install", folder);
    expect([code, text]).toEqual([1, expect.stringMatching(/does not fit: .*in det26s/)]);
    written("det26n");
    expect((await command("install", folder))[0]).toBe(0);
  });
});
