// Where a small run is, as its checkpoints say.

import type { z } from "zod";
import { RunState } from "../../gpu-node/training/checkpoints.ts";

/** The state of a run of four images after its first epoch, but for what is given. */
export const runState = (more: Partial<z.input<typeof RunState>> = {}): RunState =>
  RunState.parse({
    run_id: "a-run",
    dataset_sha256: "x",
    classes: ["a"],
    variant: "det26n",
    epoch: 1,
    batch: 0,
    learning_rate: 0.01,
    history: [],
    best: null,
    trend: null,
    line: 3,
    resolved: {
      device: "CPU",
      precision: "fp32",
      precision_reason: "this CPU has no instructions for bf16",
      batch_size: 2,
      optimizer: "adamw",
      learning_rate: 0.01,
      train_images: 4,
      val_images: 2,
      pretrained: null,
    },
    ...more,
  });
