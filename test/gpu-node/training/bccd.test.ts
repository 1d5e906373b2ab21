// Real images: a detector of blood cells from scratch, where the images are on this machine and
// somebody asked for a test that takes its time: LARGE=1. Goal: it learns, and says so in figures.
// EPOCHS and IMAGE_SIZE may be given; CURVES names a folder for the images.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ExportManifest, type TaskPayload } from "../../../shared/tasks.ts";
import { TrainSettings } from "../../../shared/training.ts";
import { bloodImage, bloodSplit, realData } from "../../support/images.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { engineOrSay, machine } from "../../support/training.ts";

const { LARGE, EPOCHS = "12", IMAGE_SIZE = "320", CURVES } = process.env;
const CLASSES = ["RBC", "WBC", "Platelets"];

let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

async function bloodCells(): Promise<TaskPayload<"train"> | null> {
  const videos: ExportManifest["videos"] = [];
  const sources = [];
  for (const split of ["train", "val"] as const) {
    for (const id of bloodSplit(split)) {
      const blood = await bloodImage(id);
      const file = realData(`bccd/images/${id}.jpg`);
      if (!blood || !file) return null;
      const key = `ws/a/blood/${id}.jpg`;
      sources.push(service.source(key, readFileSync(file)));
      const annotations = blood.truth.map(({ name, bbox }) => ({
        id: crypto.randomUUID(),
        class_index: CLASSES.indexOf(name),
        bbox,
        polygon: null,
      }));
      const { width, height } = blood.image;
      const frames = [{ index: 0, split, annotations }];
      videos.push({ video_id: id, filename: `${id}.jpg`, key, width, height, frames });
    }
  }
  const manifest = ExportManifest.parse({ name: "blood cells", classes: CLASSES, videos });
  const settings = TrainSettings.parse({
    epochs: Number(EPOCHS),
    image_size: Number(IMAGE_SIZE),
    augmentation: "standard",
  });
  return {
    run_id: crypto.randomUUID(),
    name: "blood cells",
    settings,
    videos: sources,
    manifest: service.source("ws/a/blood.json", Buffer.from(JSON.stringify(manifest))),
    pretrained: null,
    resume: null,
  };
}

describe.skipIf(!LARGE || !engineOrSay() || !realData("bccd/train.txt"))("blood cells", () => {
  it("are learned from scratch", { timeout: 3_600_000 }, async () => {
    const payload = await bloodCells();
    if (!payload) throw new Error("the pictures are not all here");
    const here = machine(service);
    const result = await here.finish(payload);
    process.stderr.write(`${here.lines().join("\n")}\n`);
    if (CURVES) {
      for (const { name, key } of result.artifacts) {
        writeFileSync(join(CURVES, name), service.objects.get(key) as Buffer);
      }
    }
    const of = (from: number, to: number) => {
      const rows = result.history.slice(from, to);
      return rows.reduce((sum, { metrics }) => sum + (metrics.mAP50 ?? 0), 0) / rows.length;
    };
    const third = Math.floor(result.history.length / 3);
    expect(of(2 * third, 3 * third)).toBeGreaterThan(of(0, third));
    expect(of(2 * third, 3 * third)).toBeGreaterThan(0.1);
  });
});
