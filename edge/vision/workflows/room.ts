// Workflows of blocks: their definitions, runs, secrets and deliveries.

import type { TaskRoom } from "../tasks/room.ts";
import { checkRoutes } from "./definitions/check-routes.ts";
import { deployRoutes } from "./definitions/deploy-routes.ts";
import { definitionRoutes } from "./definitions/routes.ts";
import { KEPT_DELIVERIES, sendDeliveries } from "./deliveries.ts";
import { sealVideoRun, sealWorkflow, videoRunEnded, workflowEnded } from "./runs/ended.ts";
import { failStranded } from "./runs/expiry.ts";
import { workflowRunRoutes } from "./runs/routes.ts";
import { KEPT_STREAMS } from "./runs/streams.ts";
import { videoRunRoutes } from "./runs/video-routes.ts";
import { secretRoutes } from "./secret-routes.ts";
import { servingRoutes } from "./serving-routes.ts";
import { KEPT_USE } from "./usage.ts";

export const workflows: TaskRoom = {
  routes: [
    ...[definitionRoutes, checkRoutes, deployRoutes, secretRoutes],
    ...[workflowRunRoutes, videoRunRoutes, servingRoutes],
  ].flat(),
  handlers: {
    workflow: { seal: sealWorkflow, ended: workflowEnded },
    workflow_video: { seal: sealVideoRun, ended: videoRunEnded },
  },
  keeps: [KEPT_DELIVERIES, KEPT_STREAMS, KEPT_USE],
  duties: {
    deliveries: (parts) => sendDeliveries(parts),
    stranded_runs: failStranded,
  },
};
