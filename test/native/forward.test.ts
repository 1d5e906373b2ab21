// The network of a graph. Goal: it has the graph's tensors and maps, begins as the family does, is
// the same for the same seed, and takes no graph, device or batch that it cannot run.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { Engine, EngineOptions, HeadMaps, TensorMap } from "../../native/index.d.ts";
import { deployed } from "../../shared/detector/deployed-detector.ts";
import {
  type DetectorGraph,
  detectorGraph,
  parameterCount,
  stateTensors,
  VARIANT_NAMES,
} from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { safetensors } from "./safetensors.ts";

const OPTIONS = { device: "cpu", seed: 1, threads: 2 } as const;

async function withEngine<Result>(
  options: Partial<EngineOptions> & { graph: DetectorGraph },
  work: (engine: Engine) => Promise<Result>,
): Promise<Result> {
  const engine = new native.Engine({ ...OPTIONS, ...options });
  try {
    return await work(engine);
  } finally {
    await engine.close();
  }
}

const noise = (count: number, height: number, width = height) => ({
  images: Float32Array.from(
    { length: count * 3 * height * width },
    (_, index) => ((index * 7919) % 1009) / 1009,
  ),
  count,
  height,
  width,
});

const shapes = (maps: TensorMap[] = []) => maps.map(({ shape }) => shape);
const levels = (channels: number, height: number, width = height, count = 1) =>
  [8, 16, 32].map((stride) => [count, channels, height / stride, width / stride]);

describe.skipIf(!native)("the network", () => {
  it.each(VARIANT_NAMES)("of %s has the graph's tensors", async (variant) => {
    const dir = mkdtempSync(join(tmpdir(), "vantage-shapes-"));
    for (const task of ["detection", "segmentation"] as const) {
      const graph = detectorGraph(variant, 80, task);
      await withEngine({ graph }, async (engine) => {
        expect(await engine.ready).toEqual({ parameters: parameterCount(graph) });
        // A file of all its names with no values in them: the report tells the shapes.
        const none = { dtype: "F32", shape: [0], bytes: new Uint8Array(0) };
        const names = stateTensors(graph).map(({ name }) => [name, none] as const);
        writeFileSync(join(dir, "names"), safetensors(Object.fromEntries(names)));
        const { mismatched, missing } = await engine.load(join(dir, "names"));
        expect(missing).toEqual([]);
        expect(mismatched.map(({ name, graph: shape }) => ({ name, shape }))).toEqual(
          stateTensors(graph).map(({ name, shape }) => ({ name, shape })),
        );
      });
    }
    rmSync(dir, { recursive: true });
  });

  it.each([
    [320, 320, 2],
    [640, 640, 1],
    [96, 160, 1],
  ])("gives maps of both branches at %i × %i", async (height, width, count) => {
    await withEngine({ graph: detectorGraph("det26n", 80) }, async (engine) => {
      const batch = noise(count, height, width);
      for (const training of [true, false]) {
        const { o2m, o2o, prototypes } = await engine.forward(batch, { training });
        for (const branch of [o2m, o2o] as HeadMaps[]) {
          expect(shapes(branch.box)).toEqual(levels(4, height, width, count));
          expect(shapes(branch.cls)).toEqual(levels(80, height, width, count));
          expect(branch.mask).toBeUndefined();
        }
        expect(prototypes).toBeUndefined();
      }
    });
  });

  it("of segmentation gives mask weights and prototypes", async () => {
    const graph = detectorGraph("det26n", 2, "segmentation");
    await withEngine({ graph }, async (engine) => {
      const { o2m, o2o, prototypes } = await engine.forward(noise(2, 64, 96), {
        training: false,
      });
      expect(shapes(o2o.mask)).toEqual(levels(32, 64, 96, 2));
      expect(shapes(o2m?.mask)).toEqual(levels(32, 64, 96, 2));
      expect(prototypes?.shape).toEqual([2, 32, 16, 24]);
    });
  });

  it("begins with equal branches and expects few objects", async () => {
    await withEngine({ graph: detectorGraph("det26n", 80) }, async (engine) => {
      const get = async (name: string) => (await engine.tensor(name, "model")).values;
      for (const [level, expected] of [-11.537, -10.15, -8.764].entries()) {
        const bias = await get(`layers.23.o2o.cls.${level}.4.bias`);
        for (const value of bias) expect(value).toBeCloseTo(expected, 3);
        expect([...(await get(`layers.23.o2o.box.${level}.2.bias`))]).toEqual([2, 2, 2, 2]);
      }
      for (const part of ["box.0.0.weight", "cls.1.3.norm.weight", "cls.2.4.weight"])
        expect(await get(`layers.23.o2o.${part}`)).toEqual(await get(`layers.23.o2m.${part}`));
      const weight = await get("layers.1.weight");
      const bound = 1 / Math.sqrt(16 * 9);
      expect(Math.max(...weight.map(Math.abs))).toBeLessThanOrEqual(bound);
      expect(Math.max(...weight.map(Math.abs))).toBeGreaterThan(0.99 * bound);
      expect(Math.abs(weight.reduce((sum, value) => sum + value) / weight.length)).toBeLessThan(
        bound / 20,
      );
    });
  });

  it("is the same for the same seed, and another for another", async () => {
    const graph = detectorGraph("det26n", 3);
    const maps = (seed: number) =>
      withEngine({ graph, seed }, (engine) => engine.forward(noise(1, 64), { training: true }));
    const [one, again, other] = [await maps(5), await maps(5), await maps(6)];
    expect(again).toEqual(one);
    expect(other.o2o.box[0]?.values).not.toEqual(one.o2o.box[0]?.values);
  });

  it("runs a deployed graph, which has no second branch", async () => {
    await withEngine({ graph: deployed(detectorGraph("det26n", 3)) }, async (engine) => {
      const { o2m, o2o } = await engine.forward(noise(1, 64), { training: false });
      expect(o2m).toBeUndefined();
      expect(shapes(o2o.cls)).toEqual(levels(3, 64));
    });
  });

  it("predicts at most 300, best first, none below the confidence", async () => {
    await withEngine({ graph: detectorGraph("det26n", 3) }, async (engine) => {
      const all = await engine.predict(noise(2, 160), 0);
      expect(all.map(({ length }) => length)).toEqual([1800, 1800]);
      const scores = [...(all[0] as Float32Array)].filter((_, index) => index % 6 === 4);
      expect(scores).toEqual([...scores].sort((a, b) => b - a));
      const [some] = await engine.predict(noise(2, 160), scores[10] as number);
      expect(some?.length).toBeGreaterThanOrEqual(66);
      expect(some?.length).toBeLessThan(1800);
      // Fewer cells than detections: 64 + 16 + 4.
      const [few] = await engine.predict(noise(1, 64), 0);
      expect(few?.length).toBe(84 * 6);
    });
  });

  it("is refused on a device that is not there", async () => {
    const graph = detectorGraph("det26n", 3);
    const codeOf = (options: Partial<EngineOptions>) =>
      withEngine({ graph, ...options }, (engine) =>
        engine.ready.then(
          () => "made",
          ({ code }) => code,
        ),
      );
    const { gpus } = native.describe();
    if (gpus.length === 0) expect(await codeOf({ device: "cuda" })).toBe("gpu_unavailable");
    expect(await codeOf({})).toBe("made");
  });

  it("is in fp32 on a CPU, to the bit, also of an engine that trains in bf16", async () => {
    const options = { graph: detectorGraph("det26n", 3), seed: 3 };
    const looks: unknown[] = [];
    for (const precision of ["fp32", "bf16"] as const) {
      await withEngine({ ...options, precision }, async (engine) => {
        const maps = await engine.forward(noise(1, 64), { training: false });
        looks.push([maps, await engine.predict(noise(1, 64), 0)]);
      });
    }
    expect(looks[1]).toEqual(looks[0]);
  });

  it("refuses batches that it cannot take", async () => {
    await withEngine({ graph: detectorGraph("det26n", 3) }, async (engine) => {
      const wrong = [
        noise(1, 48),
        { ...noise(1, 64), count: 2 },
        { ...noise(1, 64), count: 0 },
        // An array of another type is what is refused.
        { ...noise(1, 64), images: new Float64Array(3 * 64 * 64) as unknown as Float32Array },
        { ...noise(1, 64), width: 64.5 },
      ];
      for (const batch of wrong) {
        await expect(engine.forward(batch, { training: false })).rejects.toMatchObject({
          code: "bad_argument",
        });
      }
      await expect(engine.tensor("layers.0.nothing", "model")).rejects.toMatchObject({
        code: "bad_argument",
        message: expect.stringContaining("layers.0.nothing"),
      });
    });
  });

  it("refuses every graph that it could not run", async () => {
    const graph = detectorGraph("det26n", 3, "segmentation");
    const odd = fc.constantFrom<unknown>(-1, 0, 0.5, 2, 3, 1e9, Number.NaN, "conv", null, [], {});
    const changes = fc.record({
      node: fc.nat(graph.nodes.length - 1),
      field: fc.nat(20),
      value: odd,
    });
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(changes, async ({ node, field, value }) => {
        const changed = structuredClone(graph);
        // Nodes of all kinds: fields are changed by name.
        const target = changed.nodes[node] as unknown as Record<string, unknown>;
        const fields = Object.keys(target);
        const name = fields[field % fields.length] as string;
        target[name] = name === "inputs" ? [value, 1] : value;
        const made = () => withEngine({ graph: changed, threads: 1 }, (engine) => engine.ready);
        try {
          await made();
        } catch (error) {
          expect(error).toMatchObject({ code: "bad_argument" });
          refused++;
        }
      }),
      { numRuns: 150, seed: Number(process.env.SEED ?? 1) },
    );
    expect(refused).toBeGreaterThan(100);
    for (const change of [
      { nodes: [] },
      { classes: 4 },
      { o2o: { box: [0, 0, 0], cls: graph.o2o.cls } },
      { prototypes: 1 },
      { semantic: 10_000 },
    ]) {
      expect(() => new native.Engine({ ...OPTIONS, graph: { ...graph, ...change } })).toThrow(
        expect.objectContaining({ code: "bad_argument" }),
      );
    }
  });
});
