// Files of weights. Goal: what is saved comes back bit by bit, what was made elsewhere is taken by
// name, and no file whatsoever does more harm than being refused.

import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Engine } from "../../native/index.d.ts";
import { detectorGraph, stateTensors } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { type Entry, f32, fileOf, headerOf, safetensors } from "./safetensors.ts";

const graph = detectorGraph("det26n", 3);
const NORM = "layers.0.norm.mean";
const sixteen = Array.from({ length: 16 }, (_, index) => index / 8 - 1);
const make = (classes = 3, seed = 1) =>
  new native.Engine({
    graph: detectorGraph("det26n", classes),
    device: "cpu",
    seed,
    threads: 1,
  });

/** Of a seeded generator: a failing file can be made again. */
function generator(seed: number) {
  let state = seed;
  return (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

describe.skipIf(!native)("weights", () => {
  let dir: string;
  let engine: Engine;
  beforeAll(async () => {
    dir = mkdtempSync(join(tmpdir(), "vantage-weights-"));
    engine = make();
    await engine.ready;
  });
  afterAll(async () => {
    await engine?.close();
    rmSync(dir, { recursive: true, force: true });
  });

  const put = (file: Uint8Array) => {
    const path = join(dir, "given.safetensors");
    writeFileSync(path, file);
    return path;
  };
  const load = (file: Uint8Array) => engine.load(put(file));
  const values = async (name: string, of = engine) => [...(await of.tensor(name, "model")).values];
  const refused = (file: Uint8Array, why: RegExp) =>
    expect(load(file)).rejects.toMatchObject({
      name: "EngineError",
      code: "bad_weights",
      message: expect.stringMatching(why),
    });

  it("come back as they were, with their metadata", async () => {
    const path = join(dir, "saved.safetensors");
    const metadata = { names: 'cat, "dog"\n\tκύων \u{1f415}', empty: "", back: "\\ / \u0001" };
    const { bytes } = await engine.save(path, metadata);
    const file = readFileSync(path);
    expect(file.length).toBe(bytes);
    const header = headerOf(file);
    expect(Object.entries(header).map(([name, { shape }]) => ({ name, shape }))).toEqual(
      stateTensors(graph).map(({ name, shape }) => ({ name, shape })),
    );
    expect(Math.min(...Object.values(header).map(({ data_offsets: [from] }) => from % 4))).toBe(0);
    const other = make(3, 2);
    const report = await other.load(path);
    expect(report).toMatchObject({ mismatched: [], missing: [], unused: [], metadata });
    expect(report.matched).toEqual(stateTensors(graph).map(({ name }) => name));
    const again = join(dir, "again.safetensors");
    await other.save(again, metadata);
    expect(readFileSync(again).equals(file)).toBe(true);
    await other.close();
  });

  it("of another number of classes leave the class heads alone", async () => {
    const path = join(dir, "five.safetensors");
    const five = make(5, 9);
    await five.save(path, {});
    await five.close();
    const three = make();
    const head = "layers.23.o2o.cls.0.4.weight";
    const before = await values(head, three);
    const report = await three.load(path);
    expect(await values(head, three)).toEqual(before);
    expect(report.mismatched.map(({ name }) => name)).toEqual(
      ["o2m", "o2o"].flatMap((branch) =>
        [0, 1, 2].flatMap((level) =>
          ["weight", "bias"].map((part) => `layers.23.${branch}.cls.${level}.4.${part}`),
        ),
      ),
    );
    expect(report.mismatched[0]).toMatchObject({ file: [5, 64, 1, 1], graph: [3, 64, 1, 1] });
    expect(report.missing).toEqual([]);
    await three.close();
  });

  it("are taken by name from whatever type they have", async () => {
    const of = (dtype: string, array: { buffer: ArrayBufferLike }): Entry => ({
      dtype,
      shape: [16],
      bytes: new Uint8Array(array.buffer as ArrayBuffer),
    });
    const words = new Uint32Array(Float32Array.from(sixteen).buffer);
    const bf16 = Uint16Array.from(words, (word) => word >>> 16);
    const f16 = Uint16Array.from(sixteen, (value) => {
      if (value === 0) return 0;
      const exponent = Math.floor(Math.log2(Math.abs(value)));
      const mantissa = Math.round((Math.abs(value) / 2 ** exponent - 1) * 1024);
      return (value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | mantissa;
    });
    const types: [Entry, number[]][] = [
      [f32([16], sixteen), sixteen],
      [of("F64", Float64Array.from(sixteen)), sixteen],
      [of("F16", f16), sixteen],
      [of("BF16", bf16), sixteen],
      [
        of(
          "I64",
          BigInt64Array.from({ length: 16 }, (_, index) => BigInt(index)),
        ),
        [...Array(16).keys()],
      ],
    ];
    for (const [entry, expected] of types) {
      const report = await load(safetensors({ [NORM]: entry, foreign: entry }));
      expect(report).toMatchObject({ matched: [NORM], unused: ["foreign"], mismatched: [] });
      expect(report.missing.length).toBe(stateTensors(graph).length - 1);
      expect(await values(NORM)).toEqual(expected);
    }
    await refused(
      safetensors({ [NORM]: { dtype: "F8_E4M3", shape: [16], bytes: new Uint8Array(16) } }),
      /type F8_E4M3/,
    );
  });

  it("that are not finite are refused", async () => {
    await refused(
      safetensors({ [NORM]: f32([16], [...sixteen.slice(1), Number.NaN]) }),
      /not finite/,
    );
  });

  it("that are not what the file says are refused, each with its reason", async () => {
    const body = new Uint8Array(64);
    const entry = (more: object) =>
      JSON.stringify({ [NORM]: { dtype: "F32", shape: [16], data_offsets: [0, 64], ...more } });
    await refused(new Uint8Array(0), /too short/);
    await refused(new Uint8Array(7), /too short/);
    await refused(new Uint8Array(8).fill(255), /longer than the file/);
    await refused(fileOf("", body), /not what the format/);
    await refused(fileOf("[]", body), /not what the format/);
    await refused(fileOf(`${entry({})}x`, body), /not what the format/);
    await refused(fileOf(entry({ dtype: "F33" }), body), /unknown type/);
    await refused(fileOf(entry({ data_offsets: [0, 65] }), body), /leaves the file/);
    await refused(fileOf(entry({ data_offsets: [32, 0] }), body), /leaves the file/);
    await refused(fileOf(entry({ shape: [15] }), body), /bytes of its shape/);
    await refused(fileOf(entry({ shape: [2 ** 40, 2 ** 40] }), body), /larger than the file/);
    await refused(fileOf(entry({ shape: Array(17).fill(1) }), body), /too many dimensions/);
    await refused(fileOf(entry({ more: 1 }), body), /unknown field/);
    await refused(fileOf(entry({}).replace('"F32"', "32"), body), /not what the format/);
    const [inner] = [entry({}).slice(1, -1)];
    await refused(fileOf(`{${inner},${inner}}`, body), /twice/);
    await refused(fileOf(`{${inner},${inner.replace(NORM, "b")}}`, body), /overlap/);
    await refused(fileOf(entry({}), new Uint8Array(80)), /longer than its tensors/);
    await refused(fileOf('{"a\\ud800":{}}', body), /not what the format/);
    await expect(engine.load(dir)).rejects.toMatchObject({ code: "bad_weights" });
    await expect(engine.load(join(dir, "none"))).rejects.toMatchObject({ code: "io_failed" });
  });

  it("cut or changed anywhere are refused or read, never more", async () => {
    const whole = safetensors(
      { [NORM]: f32([16], sixteen), "layers.0.norm.batches": f32([], [3]) },
      { "a\\n": "\u00e9" },
    );
    for (let length = 0; length < whole.length; length++) {
      await expect(load(whole.slice(0, length))).rejects.toMatchObject({ code: "bad_weights" });
    }
    const draw = generator(Number(process.env.SEED ?? 1));
    const outcomes = { read: 0, refused: 0 };
    for (let round = 0; round < 1_500; round++) {
      const file = whole.slice();
      for (let flip = draw(4); flip >= 0; flip--) file[draw(file.length)] = draw(256);
      try {
        await load(file);
        outcomes.read++;
      } catch (error) {
        expect(error).toMatchObject({ code: "bad_weights" });
        outcomes.refused++;
      }
    }
    expect(Math.min(outcomes.read, outcomes.refused)).toBeGreaterThan(50);
  });

  it("that cannot be written leave the old file and nothing else", async () => {
    await expect(engine.save(join(dir, "none/x"), {})).rejects.toMatchObject({ code: "io_failed" });
    const folder = mkdtempSync(join(dir, "taken-"));
    mkdtempSync(join(folder, "full-"));
    await expect(engine.save(folder, {})).rejects.toMatchObject({ code: "io_failed" });
    expect(existsSync(folder)).toBe(true);
    expect(readdirSync(dir).filter((name) => name.includes(".partial"))).toEqual([]);
  });
});
