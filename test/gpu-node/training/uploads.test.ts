// What a run keeps and sends beside its training, without an engine. Goal: a store or a disk that
// is away never ends a training nor slows it, and a run of any length is of a size that travels.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createLog } from "../../../gpu-node/base/log.ts";
import { LAST, thinned } from "../../../gpu-node/training/checkpoints.ts";
import { openRunFolder, type RunFolder } from "../../../gpu-node/training/run-folder.ts";
import { CheckpointUploads } from "../../../gpu-node/training/uploads.ts";
import type { RunEpoch } from "../../../shared/wire/training.ts";
import { runState } from "../../support/run-state.ts";

let dir: string;
let folder: RunFolder;
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "vantage-uploads-"));
  folder = await openRunFolder(dir, "a-run");
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

const state = runState();

/** Uploads that are always due, to a store that is away. */
function uploads() {
  let asked = 0;
  const address = async () => {
    asked += 1;
    throw new Error("the store is away");
  };
  const context = { address, log: createLog(() => {}) };
  const made = new CheckpointUploads({ folder, context, everyMs: 0, onUploaded: () => {} });
  return { made, asked: () => asked };
}

describe("a checkpoint that does not arrive", () => {
  it("is not followed by another one after every short epoch", async () => {
    writeFileSync(folder.file(LAST), "tensors");
    const { made, asked } = uploads();
    for (let epoch = 0; epoch < 5; epoch++) {
      await made.offer(state);
      await made.idle();
    }
    expect(asked()).toBe(1);
    // The one that has to arrive does not wait, and says so.
    await expect(made.finish(state)).rejects.toThrow("the store is away");
    expect(asked()).toBe(2);
  });

  it("does not end the training where it cannot even be packed", async () => {
    const { made, asked } = uploads();
    await made.offer(state);
    await made.idle();
    expect(asked()).toBe(0);
  });
});

describe("a history", () => {
  const rows = (epochs: number, classes: number): RunEpoch[] =>
    Array.from({ length: epochs }, (_, at) => ({
      epoch: at + 1,
      losses: { box: 1, cls: 1, dfl: 1 },
      validation_losses: null,
      learning_rate: 0.01,
      seconds: 1,
      metrics: Object.fromEntries([
        ["mAP50", 0.5],
        ...Array.from({ length: classes }, (_, own) => [`per_class/${own}/mAP50`, 0.5] as const),
      ]),
    }));
  const counts = (history: readonly RunEpoch[]) =>
    history.map(({ metrics }) => Object.keys(metrics).length);

  it("keeps everything of a usual run", () => {
    const usual = rows(300, 80);
    expect(thinned(usual, 7)).toEqual(usual);
  });

  it("of a long run with many classes keeps what is new, the best, and all means", () => {
    const history = thinned(rows(2_000, 500), 7);
    const [oldest, best] = [history[0], history[6]];
    expect([oldest?.metrics, counts(history)[6]]).toEqual([{ mAP50: 0.5 }, 501]);
    expect(best?.epoch).toBe(7);
    expect(counts(history.slice(-20))).toEqual(Array(20).fill(501));
    expect(counts(history).reduce((sum, count) => sum + count)).toBeLessThan(201_000);
    // Grown epoch by epoch it comes to the same.
    const more = thinned([...history, ...rows(1, 500)], 7);
    expect(JSON.stringify(more).length).toBeLessThan(10_000_000);
  });
});
