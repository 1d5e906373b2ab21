// Pre-training on images without labels. Goal: a view and its features show the same place; a
// killed command goes on to the bits of one that nobody killed; what comes of it is what a run can
// start from; a folder that cannot be learned from is refused in words.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import sharp from "sharp";
import { afterAll, describe, expect, it } from "vitest";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { models } from "../../../gpu-node/models.ts";
import { loadPretrained, readPretrained } from "../../../gpu-node/training/pretrained-weights.ts";
import { pretrain } from "../../../gpu-node/training/pretraining.ts";
import {
  FEATURES,
  listImages,
  type PreparedImage,
  prepareImages,
  readPrepared,
} from "../../../gpu-node/training/pretraining-images.ts";
import {
  drawView,
  numbersOf,
  orderOf,
  targetsOf,
  type View,
  viewOf,
} from "../../../gpu-node/training/pretraining-views.ts";
import { detectorGraph, stateTensors } from "../../../shared/detector/detector.ts";
import { engineOrSay } from "../../support/training.ts";

const native = engineOrSay();
const root = mkdtempSync(join(tmpdir(), "vantage-pretraining-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));

describe("a view", () => {
  /** 64 by 32 pixels, left half black and right half white; features tell the column. */
  const columns = 16;
  const rows = 8;
  const source: PreparedImage = {
    image: {
      width: 64,
      height: 32,
      data: Uint8Array.from({ length: 64 * 32 * 3 }, (_, at) => (at % 192 < 96 ? 0 : 255)),
    },
    features: {
      columns,
      rows,
      values: Float16Array.from({ length: columns * rows * FEATURES }, (_, at) =>
        at % FEATURES === 0 ? 1 + (Math.floor(at / FEATURES) % columns) : 1,
      ),
    },
  };
  const scale = { mean: new Float32Array(FEATURES), factor: new Float32Array(FEATURES).fill(1) };
  const whole: View = {
    size: 64,
    left: 0,
    top: 0,
    side: 64,
    isMirrored: false,
    colours: [1, 1, 1],
  };
  const shown = (view: View) => {
    const planes = new Float32Array(3 * 64 * 64);
    drawView(source.image, view, planes);
    const targets = new Float32Array(FEATURES * 8 * 8);
    targetsOf(source, view, { scale, level: 0, into: targets });
    return { row: (y: number) => planes.subarray(y * 64, y * 64 + 64), targets };
  };

  it("shows a place and its features, mirrored together, and nothing beyond the picture", () => {
    const { row, targets } = shown(whole);
    expect([row(5)[2], row(5)[60]]).toEqual([0, 1]);
    expect(row(40)[2]).toBeCloseTo(114 / 255);
    // Two columns of features lie under a cell: the first two are 1 and 2.
    expect(Array.from(targets.subarray(0, 8))).toEqual([1.5, 3.5, 5.5, 7.5, 9.5, 11.5, 13.5, 15.5]);
    expect(Array.from(targets.subarray(32, 40))).toEqual(Array(8).fill(0));
    const mirrored = shown({ ...whole, isMirrored: true });
    expect([mirrored.row(5)[2], mirrored.row(5)[60]]).toEqual([1, 0]);
    expect(Array.from(mirrored.targets.subarray(0, 2))).toEqual([15.5, 13.5]);
    const right = shown({ ...whole, left: 32, side: 32 });
    expect([right.row(5)[2], right.targets[0]]).toEqual([1, 9]);
  });

  it("is decided by its key, and lies on the picture", () => {
    const views = Array.from({ length: 50 }, (_, at) =>
      viewOf(source.image, 64, numbersOf(1, 2, at)),
    );
    expect(viewOf(source.image, 64, numbersOf(1, 2, 7))).toEqual(views[7]);
    expect(new Set(views.map(({ left }) => left)).size).toBe(50);
    for (const { left, side } of views) {
      expect(left + side).toBeGreaterThan(0);
      expect(left).toBeLessThan(64);
    }
    expect(orderOf(40, 1, 2).toSorted((one, other) => one - other)).toEqual([...Array(40).keys()]);
    expect(orderOf(40, 1, 2)).not.toEqual(orderOf(40, 1, 3));
  });
});

/** A folder of small images, one below another folder, with what is none beside them. */
async function folderOf(name: string): Promise<string> {
  const folder = join(root, name);
  mkdirSync(join(folder, "more"), { recursive: true });
  for (const [at, colour] of ["#d42020", "#2040d0", "#20a040"].entries()) {
    const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="96" height="80">
      <rect width="96" height="80" fill="#999"/>
      <circle cx="${30 + 10 * at}" cy="40" r="20" fill="${colour}"/></svg>`;
    const file = join(folder, at === 2 ? "more/third.png" : `${at}.png`);
    writeFileSync(file, await sharp(Buffer.from(svg)).png().toBuffer());
  }
  writeFileSync(join(folder, "notes.txt"), "none");
  return folder;
}

describe("features of pictures", () => {
  it("are kept, and those of another encoder are not read", async () => {
    const [path = ""] = await listImages(await folderOf("kept"));
    const workDir = join(root, "kept.work");
    const prepared = async () => {
      const options = { workDir, modelsDir: join(root, "models"), longestSide: 64, cpuThreads: 1 };
      const { files } = await prepareImages([path], options, () => {});
      return { file: files[0] ?? "", ...(await readPrepared(files[0] ?? "")) };
    };
    const { file, features } = await prepared();
    expect(features.values.some((value) => value !== 0)).toBe(true);
    // The size of an image without a pixel, and of features without a cell.
    const empty = new Uint8Array(16);
    writeFileSync(file, empty);
    expect((await prepared()).features.values).toHaveLength(0);
    rmSync(file);
    const content = basename(file).slice(0, 64);
    for (const name of [`${content}-64.picture`, `${content}-64-0123456789abcdef.picture`])
      writeFileSync(join(workDir, name), empty);
    expect((await prepared()).features).toEqual(features);
  });
});

const said: string[] = [];
const terminal = {
  environment: { VANTAGE_MODELS: join(root, "models") },
  say: (line: string) => said.push(line),
};
const command = async (...args: string[]) => {
  said.length = 0;
  const code = await models(args, terminal);
  return [code, said.join("\n")] as const;
};

describe.skipIf(!native)("pre-training", () => {
  const optionsOf = (folder: string, out: string) => ({
    folder,
    out: join(root, out),
    variant: "det26n" as const,
    size: 64,
    epochs: 3,
    batch: 2,
    seed: 0,
    cpuThreads: 1,
    device: "cpu" as const,
    modelsDir: join(root, "models"),
    native: native as NonNullable<typeof native>,
    checkpointMs: 0,
    say: (_: string) => {},
  });

  it("goes on after a kill to the same bits, and gives what a run starts from", async () => {
    const folder = await folderOf("pictures");
    writeFileSync(join(folder, "torn.jpg"), "no picture");
    const lines: string[] = [];
    const say = (line: string) => void lines.push(line);
    await pretrain({ ...optionsOf(folder, "whole.safetensors"), say });
    expect(lines.join("\n")).toMatch(/torn\.jpg is left out/);
    expect(lines.join("\n")).toMatch(/Epoch 3\/3 {2}loss \d/);

    const killed = {
      ...optionsOf(folder, "killed.safetensors"),
      say: (line: string) => {
        if (line.startsWith("Epoch 2/")) throw new Error("killed");
      },
    };
    await expect(pretrain(killed)).rejects.toThrow("killed");
    lines.length = 0;
    await pretrain({ ...killed, say });
    expect(lines.join("\n")).toMatch(/Going on after epoch 1 of 3/);
    const whole = readFileSync(join(root, "whole.safetensors"));
    expect(readFileSync(join(root, "killed.safetensors")).equals(whole)).toBe(true);

    const { metadata, tensors } = readTensors(whole);
    expect(metadata).toMatchObject({
      variant: "det26n",
      image_size: "64",
      epochs: "3",
      images: "3",
      images_sha256: expect.stringMatching(/^[0-9a-f]{64}$/),
      recipe: expect.stringMatching(/direction/),
    });
    const graph = detectorGraph("det26n", 2);
    const features = stateTensors(graph).filter(({ layer }) => layer < 23);
    expect([...tensors.keys()].toSorted()).toEqual(features.map(({ name }) => name).toSorted());
    const { Engine } = native as NonNullable<typeof native>;
    const engine = new Engine({ graph, device: "cpu", seed: 0, threads: 1 });
    const file = { path: join(root, "whole.safetensors"), format: "safetensors" as const };
    const first = await readPretrained(graph, file);
    const { report } = await loadPretrained(engine, first, join(root, "t"));
    await engine.close();
    // Counters of batches are matched as well, and the two heads start fresh.
    expect(report.matched).toBe(features.length);
    expect([report.mismatched, report.unused, first.hasHead]).toEqual([[], [], false]);
  });

  it("begins anew, and says so, where its checkpoint is none any more", async () => {
    const folder = await folderOf("lost");
    const options = { ...optionsOf(folder, "lost.safetensors"), epochs: 2 };
    const killed = (line: string) => {
      if (line.startsWith("Epoch 2/")) throw new Error("killed");
    };
    await expect(pretrain({ ...options, say: killed })).rejects.toThrow("killed");
    const checkpoint = join(root, "lost.safetensors.work/checkpoint.safetensors");
    writeFileSync(checkpoint, readFileSync(checkpoint).subarray(0, -8));
    await expect(pretrain({ ...options, say: killed })).rejects.toThrow("killed");
    writeFileSync(checkpoint, Buffer.from([4, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]));
    const lines: string[] = [];
    await pretrain({ ...options, say: (line) => void lines.push(line) });
    expect(lines.join("\n")).toMatch(/The checkpoint is not used: .*[\s\S]*Epoch 1\/2/);
  });

  it("installs as a set of weights, which is listed and can be removed", async () => {
    const folder = await folderOf("again");
    const out = join(root, "cells.safetensors");
    const [made, how] = await command(
      ...["pretrain", folder, "--out", out, "--size", "64", "--epochs", "1", "--batch", "2"],
    );
    expect([made, how]).toEqual([0, expect.stringMatching(/Wrote .*cells\.safetensors/)]);
    const [installed, told] = await command("install", out, "--name", "cells");
    expect([installed, told]).toEqual([0, expect.stringMatching(/\{"dataset": "cells"\}/)]);
    const [, listed] = await command("list");
    expect(listed).toMatch(/cells-det26n[\s\S]*licence {3}your own[\s\S]*pretrain on 3 pictures/);
    expect((await command("remove", "cells-det26n"))[0]).toBe(0);
    expect((await command("list"))[1]).not.toMatch(/cells/);
  });

  it("refuses what it cannot learn from, and options that are none", async () => {
    const empty = join(root, "empty");
    mkdirSync(empty);
    const torn = join(root, "torn");
    mkdirSync(torn);
    writeFileSync(join(torn, "a.jpg"), "no picture");
    const folder = await folderOf("fine");
    const out = ["--out", join(root, "none.safetensors")];
    for (const [args, why] of [
      [[join(root, "nowhere"), ...out], /nowhere is no folder that can be read/],
      [[empty, ...out], /empty holds no pictures/],
      [[torn, ...out], /none of the 1 pictures of .*torn can be read/],
      [[folder], /--out/],
      [[folder, ...out, "--size", "100"], /--size is a multiple of 32 64 to 1024, not 100/],
      [[folder, ...out, "--variant", "q"], /--variant is n, s, m, l or x, not q/],
      [[folder, "--out", join(root, "no/such.safetensors")], /there is no folder/],
    ] as const) {
      const [code, text] = await command("pretrain", ...args);
      expect([code, text]).toEqual([1, expect.stringMatching(why)]);
    }
  });
});
