// Predictions of the active model, of SAM, and of named endpoints.

import type { TaskRoom } from "../tasks/room.ts";
import { makeEdgeFiles } from "./endpoints/edge-files.ts";
import { noticeEndpointErrors } from "./endpoints/incidents.ts";
import { endpointKeyRoutes } from "./endpoints/key-routes.ts";
import { endpointServingRoutes } from "./endpoints/predict-routes.ts";
import { endpointRoutes } from "./endpoints/routes.ts";
import { serveRoutes } from "./predict/active-model-routes.ts";
import { predictEnded, sealPredict } from "./predict/ended.ts";
import { deleteUnusedFiles, KEPT_PREDICTIONS } from "./predict/predictions.ts";
import { predictionRoutes } from "./predict/routes.ts";
import { samRoutes } from "./sam/routes.ts";
import { sealSam } from "./sam/sam.ts";

const sam = { seal: sealSam, ended: predictEnded };

export const serving: TaskRoom = {
  routes: [
    ...[predictionRoutes, samRoutes, serveRoutes],
    ...[endpointRoutes, endpointKeyRoutes, endpointServingRoutes],
  ].flat(),
  handlers: {
    predict: { seal: sealPredict, ended: predictEnded },
    sam,
    sam_video: sam,
  },
  keeps: [KEPT_PREDICTIONS],
  duties: { edge_files: makeEdgeFiles, prediction_files: deleteUnusedFiles },
  incidents: { endpoint_errors: noticeEndpointErrors },
};
