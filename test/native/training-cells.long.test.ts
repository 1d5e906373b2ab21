// The trainings of `npm run bench -- training-choices`. Goal: a result is kept under all that
// decides it and under nothing else, a training that was put aside goes on from where it was, and
// every image that is measured is one that nothing was chosen on.

import { existsSync, linkSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { cocoOf, imageSet, innerSplit, offered } from "../bench/image-sets.ts";
import {
  type CellResult,
  chosenTraining,
  codeVersion,
  keyOf,
  trainingCells,
} from "../bench/training-cells.ts";
import { runCell } from "../bench/training-process.ts";
import { tablesOf } from "../bench/training-tables.ts";
import { realData } from "../support/images.ts";
import { until } from "../support/node-service.ts";
import { engineOrSay } from "../support/training.ts";

const native = engineOrSay();
const base = { epochs: 3, image_size: 32, batch_size: 16, precision: "fp32" } as const;
const shapes = { set: "shapes", isWhole: false } as const;

/** Where the bytes of images would lie. */
const store = () => {
  const objects = new Map<string, Buffer>();
  const source = (key: string, bytes: Buffer) => {
    objects.set(key, bytes);
    return { url: `http://127.0.0.1/${key}`, key, bytes: bytes.length };
  };
  return { objects, source };
};

describe("images", () => {
  it("are drawn the same each time, of 24 classes, with a part held out and others measured", async () => {
    const [set, again] = [await imageSet("shapes"), await imageSet("shapes")];
    const [one, other] = [store(), store()];
    const split = innerSplit(set, { isWhole: false });
    offered(one, set, split);
    offered(other, again, innerSplit(again, { isWhole: false }));
    expect(one.objects).toEqual(other.objects);
    expect([split.train.length, split.val.length, set.val.length]).toEqual([164, 41, 87]);
    const names = [...split.train, ...split.val, ...set.val].map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(innerSplit(set, { isWhole: true }).train).toHaveLength(205);
    const used = set.train.flatMap(({ truths }) => truths.map(({ classIndex }) => classIndex));
    expect(new Set(used).size).toBe(24);
    const { annotations, images } = cocoOf(set, set.val);
    for (const { bbox, image_id } of annotations) {
      const [x = -1, y = -1, width = 0, height = 0] = bbox;
      const image = images[image_id - 1];
      expect(Math.min(x, y, width, height)).toBeGreaterThanOrEqual(0);
      expect(x + width).toBeLessThanOrEqual(image?.width ?? 0);
      expect(y + height).toBeLessThanOrEqual(image?.height ?? 0);
    }
  });
});

describe("a key", () => {
  it("changes with what decides a training, and with nothing else", async () => {
    const key = async (more: Partial<Parameters<typeof chosenTraining>[0]>, version = "a") =>
      keyOf(await chosenTraining({ ...shapes, base, ...more }), version);
    const same = await key({});
    expect(await key({ settings: { learning_rate: 0.004 } })).toBe(same);
    const others = [
      await key({ base: { ...base, seed: 1 } }),
      await key({ base: { ...base, precision: "bf16" } }),
      await key({ settings: { batch_size: 8 } }),
      await key({ training: () => ({ warmupEpochs: 1 }) }),
      await key({ isWhole: true }),
      await key({}, "b"),
      keyOf({ ...(await chosenTraining({ ...shapes, base })), first: "weights" }, "a"),
    ];
    expect(new Set([same, ...others]).size).toBe(others.length + 1);
    expect(codeVersion("2.15.0")).toBe(codeVersion("2.15.0"));
    expect(codeVersion("1.13.1")).not.toBe(codeVersion("2.15.0"));
  });

  it.skipIf(!realData("bccd/train.txt"))(
    "of the automatic choice is there in each column",
    async () => {
      const cells = (await trainingCells("fp32")).filter(({ table }) => table === "choices");
      expect(new Set(cells.map(({ row }) => row)).size).toBe(11);
      expect(cells.filter(({ row }) => row === "automatic")).toHaveLength(6);
      // Of three classes the automatic rate is 0.004 already.
      const keys = new Set(cells.map((cell) => keyOf(cell, "a")));
      expect(keys.size).toBeLessThan(cells.length);
    },
  );
});

describe.skipIf(!native)("a training", () => {
  it("goes on where it was put aside, and has its figures by who is asked", async () => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-training-cell-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    // In place of pycocotools, which tests do not install: it counts what it is given.
    const python = join(folder, "python");
    const script = join(folder, "count.mjs");
    writeFileSync(
      script,
      'import { readFileSync } from "node:fs";' +
        "const [images, found] = process.argv.slice(2).map((p) => JSON.parse(readFileSync(p)));" +
        "const figures = { ap50: images.images.length / 1000, ap: found.length > 0 ? 0.5 : 0 };" +
        "process.stdout.write(JSON.stringify(figures));",
    );
    writeFileSync(python, `#!/bin/sh\nexec ${process.execPath} ${script} "$2" "$3"\n`, {
      mode: 0o755,
    });
    const cell = await chosenTraining({ ...shapes, base });
    const work = join(folder, "work");
    const order = { cell, key: "a-key", name: "a name", folder: work, python };
    const result = join(folder, "result.json");
    const stop = new AbortController();
    const begun = runCell({ ...order, result }, stop.signal);
    await until("the first epoch's end", () => existsSync(join(work, "progress.json")));
    stop.abort();
    expect(await begun).toBeNull();
    // What the training says goes with its folder; under another name it stays.
    const log = join(folder, "train.log");
    linkSync(join(work, "training/runs/a-key/train.log"), log);
    const made = await runCell({ ...order, result }, new AbortController().signal);
    expect(made?.scores).toHaveLength(3);
    expect(made).toMatchObject({ name: "a name", precision: "fp32", val: { ap50: 0.087 } });
    expect(readFileSync(log, "utf8")).toMatch(
      /Stopped after [12] epochs[\s\S]+Resumed at epoch [23]/,
    );
    expect(made?.cpuSeconds?.epoch).toBeGreaterThan(0);
    expect(existsSync(work)).toBe(false);
  });
});

describe("the tables", () => {
  it("tell means over seeds, and what a patience costs in trainings that it ends", async () => {
    const cell = { ...(await chosenTraining({ ...shapes, base: { ...base, epochs: 40 } })) };
    const result = (ap: number): CellResult => ({
      torch: "2.15.0",
      version: "a",
      precision: "fp32",
      epoch: 30,
      suppression: null,
      scores: [],
      name: `seed of ${ap}`,
      inner: { ap50: 0.9, ap: 0.7 },
      val: { ap50: 0.8, ap },
      patience: { 10: { stopped: 20, epoch: 10, val: { ap50: 0.7, ap: ap - 0.1 } } },
      cpuSeconds: { training: 8, epoch: 9 },
    });
    const named = { ...cell, table: "precision", row: "fp32", column: "seed" } as const;
    const told = tablesOf([
      [named, result(0.5)],
      [named, result(0.6)],
      [{ ...named, row: "bf16" }, null],
    ]);
    expect(told).toContain("(2 of 3 trainings)");
    expect(told).toContain("| fp32 | 30 30 | .700 .700: .700 ± .000 |");
    expect(told).toContain(".500 .600: .550 ± .071 | 8.0 |");
    expect(told).toContain("| 10 | 2 of 2 | 50 % | 0.100, 0.100 |");
    expect(told).toContain("| 20 | 0 of 2 | – | – |");
  });
});
