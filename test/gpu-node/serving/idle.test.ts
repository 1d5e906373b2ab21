// What an open model takes of the processor between two images. Goal: nothing, since whoever is
// beside it needs that, though the runtime's threads would rather wait awake.

import { setTimeout as pause } from "node:timers/promises";
import { expect, it } from "vitest";
import { deployedModel } from "../../../gpu-node/export/deployed-model.ts";
import { writeOnnx } from "../../../gpu-node/export/detector-onnx.ts";
import { readTensors } from "../../../gpu-node/export/weights-file.ts";
import { float, openSession, run } from "../../../gpu-node/onnx/runtime.ts";
import { openPredictor } from "../../../gpu-node/serving/predictor.ts";
import { INPUT } from "../../../shared/detector/detector-onnx.ts";
import { generatedModel } from "../../support/weights.ts";

const SIDE = 32;
const ROUNDS = 9;
const PAUSE_MS = 40;

/** Processor time of this process in a pause after each of some runs, the middle one. */
async function restAfter(look: () => Promise<unknown>): Promise<number> {
  const rests: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await look();
    const before = process.cpuUsage();
    await pause(PAUSE_MS);
    const { user, system } = process.cpuUsage(before);
    rests.push(user + system);
  }
  return rests.toSorted((one, other) => one - other)[ROUNDS >> 1] as number;
}

it("an open model rests after an image, where the runtime's own way is to stay awake", async () => {
  let weights = Buffer.alloc(0);
  const model = generatedModel(
    (key, bytes) => {
      weights = bytes as Buffer<ArrayBuffer>;
      return { url: "", key, bytes: bytes.length };
    },
    { image_size: SIDE },
  );
  const machine = { cpuThreads: 2, device: "cpu" as const };
  const predictor = await openPredictor(model, weights, machine);
  const grey = { data: new Uint8Array(3 * SIDE * SIDE).fill(114), width: SIDE, height: SIDE };
  const onnx = writeOnnx(deployedModel(model, readTensors(weights)), {
    output: "detections",
    size: [SIDE, SIDE],
    batch: 1,
    metadata: {},
  });
  const awake = await openSession(onnx, machine);
  const pixels = float(new Float32Array(3 * SIDE * SIDE), [1, 3, SIDE, SIDE]);
  try {
    await predictor.warm();
    const own = await restAfter(() => predictor.predict(grey, { confidence: 0.25 }));
    const other = await restAfter(() => run(awake, { [INPUT]: pixels }));
    // Measured: .2 ms of 40, and 5 to 10.
    expect(own).toBeLessThan(other / 3);
  } finally {
    await predictor.dispose();
    await awake.release();
  }
});
