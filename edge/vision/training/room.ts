// Training runs, and files that models are exported to.

import type { TaskRoom } from "../tasks/room.ts";
import { modelExportEnded, sealModelExport } from "./exports/ended.ts";
import { modelExportRoutes } from "./exports/routes.ts";
import { enqueueMissingExports } from "./exports/task.ts";
import { sealTrain, trainEnded } from "./runs/ended.ts";
import { resumeRuns } from "./runs/recovery.ts";
import { trainReported } from "./runs/reports.ts";
import { runRoutes } from "./runs/routes.ts";
import { trainRoutes } from "./runs/train-routes.ts";
import { stuckRoutes } from "./stuck-routes.ts";

const modelExport = { seal: sealModelExport, ended: modelExportEnded };

export const training: TaskRoom = {
  routes: [trainRoutes, stuckRoutes, runRoutes, modelExportRoutes].flat(),
  handlers: {
    train: { seal: sealTrain, ended: trainEnded, progressed: trainReported },
    model_export: modelExport,
    device_export: modelExport,
    engine_export: modelExport,
  },
  duties: { model_exports: enqueueMissingExports, runs: resumeRuns },
};
