// Trains the detector of blood cells that tests and benchmarks of exports are held against, by the
// node's own code, and keeps its weights in `.vantage/`. Minutes on a CPU.
// Run: npm run bench -- blood-cell-model [--epochs 24]

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { runTask } from "../../gpu-node/tasks/runners.ts";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { TASK_KINDS, type TaskPayload, TrainDetail } from "../../shared/tasks.ts";
import { TrainSettings } from "../../shared/training.ts";
import { BLOOD_SIDE, BLOOD_WEIGHTS, bloodDataset } from "../support/blood-cells.ts";
import { startNodeService } from "../support/node-service.ts";
import { taskContext } from "../support/task-context.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: { epochs: { type: "string", default: "24" } },
});

Object.assign(process.env, ENGINE_ENVIRONMENT);
const service = await startNodeService();
const dir = mkdtempSync(join(tmpdir(), "vantage-blood-"));
try {
  const dataset = await bloodDataset(service);
  if (!dataset) throw new Error("the images are not on this machine");
  const payload: TaskPayload<"train"> = {
    run_id: crypto.randomUUID(),
    name: "blood cells",
    settings: TrainSettings.parse({
      epochs: Number(values.epochs),
      image_size: BLOOD_SIDE,
      batch_size: 8,
      augmentation: "standard",
    }),
    ...dataset,
    pretrained: null,
    resume: null,
  };
  let epoch = -1;
  const context = await taskContext(service, dir, {
    progress: ({ detail }) => {
      const { recent } = TrainDetail.parse(JSON.parse(JSON.stringify(detail)));
      const newest = recent.at(-1);
      if (!newest || newest.epoch === epoch) return;
      epoch = newest.epoch;
      process.stdout.write(`epoch ${epoch}: ${JSON.stringify(newest.metrics)}\n`);
    },
  });
  const outcome = await runTask("train", payload, context);
  if (outcome.outcome !== "finished") throw new Error(JSON.stringify(outcome));
  const { model } = TASK_KINDS.train.result.parse(outcome.result);
  const weights = model && service.objects.get(model.weights.key);
  if (!weights) throw new Error("the training gave no model");
  mkdirSync(dirname(BLOOD_WEIGHTS), { recursive: true });
  writeFileSync(BLOOD_WEIGHTS, weights);
  process.stdout.write(`${BLOOD_WEIGHTS}: ${JSON.stringify(model?.metrics)}\n`);
} finally {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
}
