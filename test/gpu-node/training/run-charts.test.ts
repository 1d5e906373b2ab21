// A run's images. Goal: each is an image that shows something, whatever the figures are, and its
// words can be read also on a machine without any font.

import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import sharp from "sharp";
import { describe, expect, it } from "vitest";
import { csvOf } from "../../../gpu-node/training/artifacts.ts";
import { chartText, textSvg } from "../../../gpu-node/training/chart-text.ts";
import { numberText, rangeOf, ticks } from "../../../gpu-node/training/charts.ts";
import { curvesFile, curvesOf } from "../../../gpu-node/training/curves.ts";
import {
  confidenceChart,
  confusionChart,
  labelsChart,
  precisionRecallChart,
  resultsChart,
  type Scores,
} from "../../../gpu-node/training/run-charts.ts";
import {
  batchOf,
  drawSheet,
  type Sheet,
  sheetsOfBatch,
  withDetections,
  withMasks,
} from "../../../gpu-node/training/sheets.ts";
import { RunCurves, WeightsCurves } from "../../../shared/wire/run-curves.ts";
import type { RunEpoch } from "../../../shared/wire/training.ts";

const epochs = (count: number): RunEpoch[] =>
  Array.from({ length: count }, (_, at) => ({
    epoch: at + 1,
    losses: { box: 3 / (at + 1), cls: 8 / (at + 1), dfl: 1 / (at + 1) },
    validation_losses: null,
    metrics: { mAP50: 1 - 1 / (at + 1), "mAP50-95": 0.5, precision: 0.6, recall: 0.7 },
    learning_rate: 0.01,
    seconds: 1.5,
  }));

const curve = (of: (at: number) => number) =>
  Array.from({ length: 1_000 }, (_, at) => of(at / 999));
const scores = (classes: number): Scores => ({
  precision: 0.8,
  recall: 0.7,
  mAP50: 0.75,
  mAP50_95: 0.5,
  perClass: [],
  confidence: 0.4,
  curves: {
    precision: curve((x) => x),
    recall: curve((x) => 1 - x),
    f1: curve((x) => x * (1 - x)),
  },
  precisionByRecall: curve((x) => 1 - x ** 3),
  confusion: Array.from({ length: (classes + 1) ** 2 }, (_, at) => (at % (classes + 2) ? 1 : 40)),
  confidenceBins: [],
});

/** How many different shades an image has, and its size. */
async function seen(image: Buffer) {
  const { data, info } = await sharp(image).greyscale().raw().toBuffer({ resolveWithObject: true });
  const dark = data.filter((value) => value < 128).length / data.length;
  return { format: info, shades: new Set(data).size, dark, width: info.width, height: info.height };
}

async function expectShown(image: Buffer) {
  const { shades, dark } = await seen(image);
  expect(shades).toBeGreaterThan(20);
  expect(dark).toBeGreaterThan(0.001);
  expect(dark).toBeLessThan(0.9);
}

const names = (count: number) => Array.from({ length: count }, (_, at) => `class ${at}`);

describe("charts", () => {
  it("show a run of one epoch, of many, and of figures that are no numbers", async () => {
    await expectShown(await resultsChart(epochs(1)));
    await expectShown(await resultsChart(epochs(120)));
    const bare = epochs(3).map((row) => ({ ...row, metrics: {} }));
    await expectShown(await resultsChart(bare));
  });

  it("have a row more for average precision by masks, where a run has it", async () => {
    const [plain, masked] = [epochs(5), epochs(5)];
    for (const { metrics, losses } of masked) {
      metrics["mask/mAP50"] = 0.5;
      Object.assign(losses, { mask: 2, semantic: 0.5 });
    }
    const [less, more] = [await resultsChart(plain), await resultsChart(masked)];
    await expectShown(more);
    const heightOf = async (image: Buffer) => (await sharp(image).metadata()).height;
    expect(2 * (await heightOf(more))).toBe(3 * (await heightOf(less)));
  });

  it("have no room below nothing for what is never less", () => {
    expect(rangeOf([[0, 0]], 0.05, 0)).toEqual({ min: 0, max: 0.05 });
    expect(rangeOf([[1, 3]], 0.05, 0)).toEqual({ min: 0.9, max: 3.1 });
    expect(rangeOf([[Number.NaN], []], 0.05, 0)).toEqual({ min: 0, max: 1 });
  });

  it.each([1, 3, 26, 100])("show the confusion of %d classes", async (classes) => {
    await expectShown(await confusionChart(scores(classes), names(classes)));
  });

  it("show precision, recall and F1", async () => {
    await expectShown(await precisionRecallChart(scores(2)));
    await expectShown(await confidenceChart(scores(2)));
  });

  it("show labels, also of more classes than have room, and none at all", async () => {
    const boxes = Array.from({ length: 300 }, (_, at) => ({
      className: at % 50,
      split: at % 5 ? ("train" as const) : ("val" as const),
      x: (at % 17) / 17,
      y: (at % 13) / 13,
      width: 0.1,
      height: 0.2,
    }));
    await expectShown(await labelsChart(boxes, names(50)));
    expect((await seen(await labelsChart([], ["only"]))).shades).toBeGreaterThan(5);
  });

  it("take class names for text, whatever is in them", async () => {
    const odd = ['<script>"&', "\u0000\ud800", "赤血球", "x".repeat(500), ""];
    await expectShown(await confusionChart(scores(odd.length), odd));
  });
});

/** Pixels of a text's drawing, black on white. */
async function drawnText(text: string, { width = 60, bold = false } = {}) {
  const { write } = await chartText();
  const style = { x: 2, y: 26, size: 24, colour: "#000000", bold };
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="36">` +
    `${write(text, style)}</svg>`;
  return sharp(Buffer.from(svg)).flatten({ background: "#ffffff" }).greyscale().raw().toBuffer();
}

describe("words", () => {
  it("leave a trace of their own, letter by letter, and in bold", async () => {
    const letters = await Promise.all([..."ABCxyz019&~é赤"].map((letter) => drawnText(letter)));
    for (const pixels of letters) expect(pixels.some((value) => value < 128)).toBe(true);
    expect(new Set(letters.map((pixels) => pixels.toString("base64"))).size).toBe(13);
    expect(await drawnText("Ag", { bold: true })).not.toEqual(await drawnText("Ag"));
  });

  it("can be read, and look the same, on a machine without any font", async () => {
    const folder = mkdtempSync(join(tmpdir(), "vantage-fonts-"));
    try {
      const config = join(folder, "fonts.conf");
      writeFileSync(config, '<?xml version="1.0"?><fontconfig></fontconfig>');
      const program = join(import.meta.dirname, "../../support/draw-text.ts");
      const { stdout } = await promisify(execFile)(process.execPath, [program, "Ag 019 wörld"], {
        env: { ...process.env, FONTCONFIG_FILE: config, XDG_CACHE_HOME: folder },
        encoding: "buffer",
      });
      const pixels = await sharp(stdout).greyscale().raw().toBuffer();
      expect(pixels.filter((value) => value < 128).length).toBeGreaterThan(200);
      // No boxes of missing letters: as dark as here, where fonts may be.
      const here = await drawnText("Ag 019 wörld", { width: 300 });
      const dark = (bytes: Buffer) => bytes.filter((value) => value < 128).length;
      expect(dark(pixels) / dark(here)).toBeCloseTo(1, 1);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it("are as wide as they say", async () => {
    const { widthOf } = await chartText();
    for (const text of ["WWWWWWWWWW", "illilliill", "confusion 0.75", "été"]) {
      const pixels = await drawnText(text, { width: 400 });
      const columns = Array.from({ length: 400 }, (_, x) =>
        Array.from({ length: 36 }, (_row, y) => pixels[y * 400 + x] as number),
      );
      const last = columns.findLastIndex((column) => column.some((value) => value < 200));
      expect(Math.abs(last - 2 - widthOf(text, 24))).toBeLessThan(4);
    }
    expect(widthOf("赤血球", 10)).toBeGreaterThan(10);
  });

  it("are escaped where they are set", () => {
    expect(textSvg("<b>&\u0000", { x: 0, y: 0, size: 1 })).toContain("&#60;b&#62;&#38; ");
  });
});

describe("axes", () => {
  it("have round numbers within their range", () => {
    expect(ticks(0, 1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1].map((one) => expect.closeTo(one, 9)));
    expect(ticks(3, 3).length).toBeGreaterThan(0);
    expect(rangeOf([[Number.NaN, 2, 4]], 0)).toEqual({ min: 2, max: 4 });
    expect(rangeOf([[]])).toEqual({ min: 0, max: 1 });
    expect([0, 0.25, 1500, 1e6, 0.00012].map(numberText)).toEqual([
      "0",
      "0.25",
      "1500",
      "1.0e6",
      "1.2e-4",
    ]);
  });
});

describe("sheets", () => {
  const side = 64;
  const sheet = (boxes: Sheet["boxes"] = []): Sheet => ({
    side,
    boxes,
    rgb: new Uint8Array(side * side * 3).fill(200),
  });

  it("show pictures as the engine has them, with their boxes", async () => {
    const images = new Float32Array(2 * 3 * side * side).fill(0.5);
    // The first image's left half is red.
    for (let row = 0; row < side; row++) images.fill(1, row * side, row * side + side / 2);
    const boxes = Float32Array.of(1, 0, 10, 10, 50, 50, 0, 1, 2, 2, 20, 20);
    const sheets = sheetsOfBatch({ images, count: 2, height: side, width: side, boxes });
    expect(sheets.map(({ boxes: own }) => own)).toEqual([
      [{ classIndex: 1, confidence: null, box: [2, 2, 20, 20] }],
      [{ classIndex: 0, confidence: null, box: [10, 10, 50, 50] }],
    ]);
    expect([...(sheets[0]?.rgb.subarray(0, 3) ?? [])]).toEqual([255, 128, 128]);
    const drawn = await drawSheet(sheets, ["a", "b"]);
    expect(await sharp(drawn).metadata()).toMatchObject({
      format: "jpeg",
      width: 640,
      height: 320,
    });
    await expectShownColour(drawn);
  });

  it("give the engine what they hold, and take what it found", () => {
    const batch = batchOf([sheet(), sheet()]);
    expect(batch).toMatchObject({ count: 2, width: side, height: side });
    expect(batch.images[0]).toBeCloseTo(200 / 255);
    const found = withDetections([sheet()], [Float32Array.of(1, 2, 3, 4, 0.5, 1)]);
    expect(found[0]?.boxes).toEqual([{ classIndex: 1, confidence: 0.5, box: [1, 2, 3, 4] }]);
  });

  it("lay masks over the pictures, in the colours of their classes", async () => {
    const shape = { count: 1, height: side, width: side };
    const masks = new Uint8Array((side / 4) ** 2);
    masks.set([1, 1], side / 4);
    const images = new Float32Array(3 * side * side);
    const boxes = Float32Array.of(0, 1, 0, 4, 8, 8);
    const [batch] = sheetsOfBatch({ images, ...shape, boxes, masks }) as [Sheet];
    const lit = (rgb: Uint8Array) =>
      Array.from({ length: side * side }, (_, pixel) => pixel).filter(
        (pixel) => Math.max(...rgb.subarray(3 * pixel, 3 * pixel + 3)) > 0,
      );
    const expected = [4, 5, 6, 7].flatMap((y) => Array.from({ length: 8 }, (_, x) => y * side + x));
    expect(lit(batch.rgb)).toEqual(expected);
    const black = { side, boxes: [], rgb: new Uint8Array(side * side * 3) };
    const cells = new Uint8Array(side * side).fill(1, 70, 80);
    const found = withMasks(black, Float32Array.of(1, 2, 3, 4, 0.5, 1), cells);
    expect(lit(found.rgb)).toEqual(Array.from({ length: 10 }, (_, at) => 70 + at));
    expect([...found.rgb.subarray(210, 213)]).toEqual([...batch.rgb.subarray(768, 771)]);
    expect(found.boxes).toEqual([{ classIndex: 1, confidence: 0.5, box: [1, 2, 3, 4] }]);
    expect(lit(black.rgb)).toEqual([]);
    const box = [8, 8, 56, 56] as const;
    const ring = [8, 8, 56, 8, 56, 56];
    const truth = { classIndex: 0, confidence: null, box };
    const [bare, ringed] = await Promise.all(
      [sheet([truth]), sheet([{ ...truth, ring }])].map(async (one) => {
        const pixels = sharp(await drawSheet([one], ["a"]))
          .removeAlpha()
          .raw();
        const { data, info } = await pixels.toBuffer({ resolveWithObject: true });
        // A place inside of the ring, and one in the box beside it.
        return [
          [40, 24],
          [24, 40],
        ].map(([x = 0, y = 0]) => {
          const scale = info.width / side;
          const at = 3 * (Math.round(y * scale) * info.width + Math.round(x * scale));
          return [...data.subarray(at, at + 3)];
        });
      }),
    );
    expect(bare?.[1]).toEqual(ringed?.[1]);
    expect(bare?.[0]).not.toEqual(ringed?.[0]);
  });

  const expectShownColour = async (image: Buffer) => {
    const { channels } = await sharp(image).stats();
    expect(Math.max(...channels.map(({ stdev }) => stdev))).toBeGreaterThan(10);
  };
});

describe("curves by class", () => {
  const line = (of: (at: number) => number) => Array.from({ length: 101 }, (_, at) => of(at / 100));
  const measured = (recall: number) => ({
    precision: 0.5,
    recall,
    mAP50: 0.5,
    mAP50_95: 0.3,
    truths: 7,
    curves: {
      precision: line((x) => x),
      recall: line(() => recall),
      f1: line((x) => (2 * x * recall) / (x + recall)),
      precisionByRecall: line((x) => 1 - x),
    },
  });

  it("are means over the classes with objects, and null for one without", () => {
    const kept = { ...scores(3), perClass: [measured(0.2), null, measured(0.6)] };
    const curves = curvesOf(kept, { classes: names(3), epoch: 4 });
    expect(WeightsCurves.parse(curves)).toEqual(curves);
    expect(curves).toMatchObject({ epoch: 4, confidence: 0.4 });
    expect(curves?.all.recall).toEqual(line(() => 0.4));
    expect(curves?.all.precision_by_recall[25]).toBe(0.75);
    expect(curves?.classes.map((own) => [own.class, own.objects, own.curves === null])).toEqual([
      ["class 0", 7, false],
      ["class 1", 0, true],
      ["class 2", 7, false],
    ]);
    const file = curvesFile({ best_epoch: curves, model: null });
    expect(RunCurves.parse(JSON.parse(file ?? ""))).toMatchObject({ best_epoch: curves });
  });

  it("are left out where scores were kept without them, and where nothing was measured", () => {
    const { curves: _, ...bare } = measured(0.5);
    const kept = { ...scores(1), perClass: [bare] };
    expect(curvesOf(kept, { classes: names(1), epoch: 1 })).toBeNull();
    expect(curvesFile({ best_epoch: null, model: null })).toBeNull();
  });
});

describe("the table of epochs", () => {
  it("has a column for every metric, and quotes what needs it", () => {
    const [one, other] = epochs(2) as [RunEpoch, RunEpoch];
    const history = [
      one,
      { ...other, metrics: { ...other.metrics, 'per_class/a,"b"/mAP50': 0.5 } },
    ];
    const [head, first, second] = csvOf(history).trimEnd().split("\n");
    expect(head).toBe(
      "epoch,seconds,box_loss,cls_loss,dfl_loss,learning_rate,mAP50,mAP50-95,precision,recall," +
        '"per_class/a,""b""/mAP50"',
    );
    expect(first).toMatch(/^1,1\.5,3,8,1,0\.01,0,0\.5,0\.6,0\.7,$/);
    expect(second).toMatch(/,0\.5$/);
  });

  it("has the losses of masks where a run has them", () => {
    const [row] = epochs(1) as [RunEpoch];
    const losses = { ...row.losses, mask: 2.5, semantic: 0.25 };
    const [head, first] = csvOf([{ ...row, losses }]).split("\n");
    expect(head).toContain("dfl_loss,mask_loss,semantic_loss,learning_rate,");
    expect(first).toMatch(/^1,1\.5,3,8,1,2\.5,0\.25,0\.01,/);
  });

  it("has the losses of validation; blank where an epoch has none", () => {
    const [one, other] = epochs(2) as [RunEpoch, RunEpoch];
    const validated = { ...one, validation_losses: { box: 2, cls: 4, dfl: 0.5 } };
    const [head, first, second] = csvOf([validated, other]).split("\n");
    expect(head).toContain("learning_rate,val/box_loss,val/cls_loss,val/dfl_loss,mAP50,");
    expect(first).toMatch(/^1,1\.5,3,8,1,0\.01,2,4,0\.5,0,/);
    expect(second).toMatch(/^2,1\.5,1\.5,4,0\.5,0\.01,,,,0\.5,/);
  });
});
