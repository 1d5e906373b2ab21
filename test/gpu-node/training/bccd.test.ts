// Real images: a detector of blood cells from scratch, where the images are on this machine and
// somebody asked for a test that takes its time: LARGE=1. Goal: it learns, and says so in figures.
// EPOCHS and IMAGE_SIZE may be given; CURVES names a folder for the images.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { TaskPayload } from "../../../shared/tasks/tasks.ts";
import { TrainSettings } from "../../../shared/wire/training.ts";
import { bloodDataset } from "../../support/blood-cells.ts";
import { realData } from "../../support/images.ts";
import { type NodeService, startNodeService } from "../../support/node-service.ts";
import { engineOrSay, machine } from "../../support/training.ts";

const { LARGE, EPOCHS = "12", IMAGE_SIZE = "320", CURVES } = process.env;

let service: NodeService;
beforeAll(async () => {
  service = await startNodeService();
});
afterAll(() => service.close());

async function bloodCells(): Promise<TaskPayload<"train"> | null> {
  const dataset = await bloodDataset(service);
  const settings = TrainSettings.parse({
    epochs: Number(EPOCHS),
    image_size: Number(IMAGE_SIZE),
    augmentation: "standard",
  });
  return (
    dataset && {
      run_id: crypto.randomUUID(),
      name: "blood cells",
      settings,
      ...dataset,
      pretrained: null,
      resume: null,
    }
  );
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
