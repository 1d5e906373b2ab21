// What training with masks promises beside what it computes: who learns from which loss, resuming,
// and that wrong masks and rings are refused with a code.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Batch, Engine } from "../../native/index.d.ts";
import { detectorGraph } from "../../shared/detector/detector.ts";
import { native } from "./engine.ts";
import { PLAIN } from "./plain-training.ts";
import { COLOURS, withImages } from "./rectangle-images.ts";
import { headerOf } from "./safetensors.ts";
import { disc, frame, horseshoe, shapeImage, triangle } from "./shape-images.ts";
import { LIVELY } from "./training-world.ts";

const SIZE = 64;
const graph = detectorGraph("det26n", COLOURS.length, "segmentation");
const sources = [
  shapeImage(SIZE, SIZE, [disc(0, [20, 20], 14), triangle(1, [34, 34, 24])]),
  shapeImage(SIZE, SIZE, [horseshoe(2, [10, 14, 40])]),
  shapeImage(SIZE, SIZE, [frame(3, [12, 8, 44])]),
  shapeImage(SIZE, SIZE, []),
  shapeImage(SIZE, SIZE, [disc(4, [40, 30], 20)]),
];
const training = { ...PLAIN, imageSize: SIZE };
const world = { sources, options: { graph }, training };

const gradient = async (engine: Engine, name: string) =>
  Math.hypot(...(await engine.tensor(name, "gradient")).values);
const PROTOTYPES = "layers.23.prototypes.4.weight";
const SEMANTIC = "layers.23.semantic.2.weight";
const weightsOf = (branch: "o2o" | "o2m") => `layers.23.${branch}.mask.0.2.weight`;

describe.skipIf(!native)("training with masks", () => {
  it("teaches prototypes and the semantic map by the one-to-many side alone", async () => {
    await withImages(world, async (engine) => {
      const batch = await engine.render({ epoch: 0, batch: 0 });
      expect(batch.masks?.length).toBe((batch.boxes.length / 6) * 16 * 16);
      await engine.losses(batch, { o2mShare: 0 });
      for (const name of [PROTOTYPES, SEMANTIC, weightsOf("o2m")]) {
        expect(await gradient(engine, name)).toBe(0);
      }
      expect(await gradient(engine, weightsOf("o2o"))).toBeGreaterThan(0);
      await engine.losses(batch, { o2mShare: 1 });
      for (const name of [PROTOTYPES, SEMANTIC, weightsOf("o2m")]) {
        expect(await gradient(engine, name)).toBeGreaterThan(0);
      }
      expect(await gradient(engine, weightsOf("o2o"))).toBe(0);
    });
  });

  it("teaches no mask by boxes alone, and weighs its losses by their gains", async () => {
    await withImages(world, async (engine) => {
      const { masks, ...bare } = await engine.render({ epoch: 0, batch: 0 });
      const batch: Batch = { ...bare, ...(masks && { masks }) };
      const without = await engine.losses(bare, { o2mShare: 0.5 });
      expect([without.mask, without.semantic]).toEqual([0, 0]);
      expect(await gradient(engine, weightsOf("o2m"))).toBe(0);
      const whole = await engine.losses(batch, { o2mShare: 0 });
      const { box, cls, dfl, mask = 0, semantic = 0 } = whole;
      expect(whole.total).toBeCloseTo(7.5 * box + 0.5 * cls + 1.5 * dfl + 7.5 * mask, 3);
      expect(Math.min(mask, semantic)).toBeGreaterThan(0);
      const gains = { ...training.gains, mask: 2, semantic: 0 };
      await withImages({ ...world, training: { ...training, gains } }, async (other) => {
        const less = await other.losses(batch, { o2mShare: 0 });
        expect(less.mask).toBe(mask);
        expect(whole.total - less.total).toBeCloseTo(5.5 * mask, 3);
      });
    });
  });

  it("goes on from a checkpoint to the same bits", async () => {
    const lively = { ...world, training: { ...training, ...LIVELY, nominalBatch: 4 } };
    await withImages(lively, async (straight, { path }) => {
      const file = (name: string) => join(path, "..", name);
      const first = await straight.trainEpoch({ epoch: 0, from: 0 }, () => {});
      expect(first.losses.mask).toBeGreaterThan(0);
      expect(first.losses.semantic).toBeGreaterThan(0);
      await straight.checkpoint(file("middle"), {});
      const whole = await straight.trainEpoch({ epoch: 1, from: 0 }, () => {});
      await straight.checkpoint(file("end"), {});
      await withImages(lively, async (resumed) => {
        await resumed.restore(file("middle"));
        const rest = await resumed.trainEpoch({ epoch: 1, from: 0 }, () => {});
        expect(rest.losses).toEqual(whole.losses);
        await resumed.checkpoint(file("again"), {});
      });
      expect(readFileSync(file("again")).equals(readFileSync(file("end")))).toBe(true);
      expect(headerOf(readFileSync(file("end")))["trainer.sums"]?.shape).toEqual([7]);
    });
  });

  it("leaves a checkpoint of detection as it was, and refuses the other's", async () => {
    const detection = { sources, training };
    await withImages(detection, async (engine, { path }) => {
      const file = join(path, "..", "detection");
      const { losses } = await engine.trainEpoch({ epoch: 0, from: 0 }, () => {});
      expect(Object.keys(losses)).toEqual(["total", "box", "cls", "dfl"]);
      await engine.checkpoint(file, {});
      expect(headerOf(readFileSync(file))["trainer.sums"]?.shape).toEqual([5]);
      await withImages(world, async (other) => {
        await expect(other.restore(file)).rejects.toMatchObject({ code: "bad_weights" });
      });
    });
  });

  it("takes the time and memory of masks into a probe", async () => {
    await withImages(world, async (engine) => {
      const before = (await engine.tensor(PROTOTYPES, "model")).values;
      const { bytes, seconds } = await engine.probe({ batch: 2, imageSize: SIZE });
      expect(Math.min(bytes, seconds)).toBeGreaterThan(0);
      expect((await engine.tensor(PROTOTYPES, "model")).values).toEqual(before);
    });
  });
});

describe.skipIf(!native)("wrong masks and rings", () => {
  it("are refused with a code, and the engine goes on", async () => {
    await withImages(world, async (engine, dataset) => {
      const batch = await engine.render({ epoch: 0, batch: 0 });
      for (const masks of [new Uint8Array(3), new Float32Array(16), null, "masks"]) {
        const wrong = { ...batch, masks } as Batch;
        await expect(engine.losses(wrong, { o2mShare: 0.5 })).rejects.toMatchObject({
          code: "bad_argument",
        });
      }
      const set = (change: object, index = 0) => {
        const images = dataset.images.map((image, at) =>
          at === index ? { ...image, ...change } : image,
        );
        return engine.setDataset("train", { ...dataset, images });
      };
      const { rings = new Float32Array(), ringStarts = new Int32Array() } = dataset.images[0] ?? {};
      for (const change of [
        { rings: rings.subarray(1) },
        { rings: [...rings] },
        { rings, ringStarts: undefined },
        { ringStarts: Float32Array.from(ringStarts) },
        { ringStarts: ringStarts.subarray(1) },
        { ringStarts: Int32Array.of(1, 48) },
        { ringStarts: Int32Array.of(0, -1) },
        { ringStarts: Int32Array.of(0, 1e9) },
        { rings: undefined },
      ]) {
        await expect(set(change)).rejects.toMatchObject({ code: "bad_argument" });
      }
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY, -1e9]) {
        const moved = rings.map((corner, index) => (index === 7 ? value : corner));
        await expect(set({ rings: moved })).rejects.toMatchObject({ code: "bad_dataset" });
      }
      await expect(
        set({ rings: rings.subarray(0, 100), ringStarts: Int32Array.of(0, 48) }),
      ).rejects.toMatchObject({ code: "bad_dataset" });
      await set({ rings, ringStarts });
      expect((await engine.render({ epoch: 0, batch: 0 })).masks?.includes(1)).toBe(true);
    });
  });

  it("of detection are refused, and its predictions have none", async () => {
    await withImages({ sources, training }, async (engine) => {
      const batch = await engine.render({ epoch: 0, batch: 0 });
      expect(batch.masks).toBeUndefined();
      const masks = new Uint8Array((batch.boxes.length / 6) * 16 * 16);
      await expect(engine.losses({ ...batch, masks }, { o2mShare: 0.5 })).rejects.toMatchObject({
        code: "bad_argument",
      });
      await expect(engine.predictMasks(batch, 0.1)).rejects.toMatchObject({ code: "bad_argument" });
    });
  });

  it("of a graph that has but a part of what masks need are refused", async () => {
    const options = { device: "cpu", seed: 1, threads: 1, training } as const;
    const { semantic: _, ...withoutSemantic } = graph;
    const engine = new native.Engine({ ...options, graph: withoutSemantic });
    await expect(engine.ready).rejects.toMatchObject({ code: "bad_argument" });
    await engine.close();
    const { prototypes: __, ...withoutPrototypes } = graph;
    const { mask: ___, ...o2o } = graph.o2o;
    for (const changed of [withoutPrototypes, { ...graph, o2o }]) {
      expect(() => new native.Engine({ ...options, graph: changed })).toThrow(
        expect.objectContaining({ code: "bad_argument" }),
      );
    }
  });
});
