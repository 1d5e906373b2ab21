// Trains the detector of blood cells that tests and benchmarks of exports are held against, by the
// node's own code, and keeps its weights in `.vantage/`. Minutes on a CPU.
// Run: npm run bench -- blood-cell-model [--epochs 24]

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { ENGINE_ENVIRONMENT } from "../../native/load.ts";
import { BLOOD_SIDE, BLOOD_WEIGHTS, trainOnBlood } from "../support/blood-cells.ts";
import { startNodeService } from "../support/node-service.ts";

const { values } = parseArgs({
  args: process.argv.slice(2).filter((argument) => argument !== "--"),
  options: { epochs: { type: "string", default: "24" } },
});

Object.assign(process.env, ENGINE_ENVIRONMENT);
const service = await startNodeService();
const dir = mkdtempSync(join(tmpdir(), "vantage-blood-"));
try {
  const settings = {
    epochs: Number(values.epochs),
    image_size: BLOOD_SIDE,
    batch_size: 8,
    augmentation: "standard",
  } as const;
  const { weights, metrics } = await trainOnBlood(service, dir, settings, {
    onEpoch: (epoch, reached) => {
      process.stdout.write(`epoch ${epoch}: ${JSON.stringify(reached)}\n`);
    },
  });
  mkdirSync(dirname(BLOOD_WEIGHTS), { recursive: true });
  writeFileSync(BLOOD_WEIGHTS, weights);
  process.stdout.write(`${BLOOD_WEIGHTS}: ${JSON.stringify(metrics)}\n`);
} finally {
  await service.close();
  rmSync(dir, { recursive: true, force: true });
}
