// Workflows of blocks: their definitions, runs, secrets and deliveries.

import type { TaskRoom } from "../tasks/room.ts";
import { checkRoutes } from "./definitions/check-routes.ts";
import { deployRoutes } from "./definitions/deploy-routes.ts";
import { definitionRoutes } from "./definitions/routes.ts";
import { forgetDeliveries, sendDeliveries } from "./deliveries.ts";
import { sealVideoRun, sealWorkflow, videoRunEnded, workflowEnded } from "./runs/ended.ts";
import { failStranded } from "./runs/expiry.ts";
import { workflowRunRoutes } from "./runs/routes.ts";
import { forgetStreams } from "./runs/streams.ts";
import { videoRunRoutes } from "./runs/video-routes.ts";
import { secretRoutes } from "./secret-routes.ts";
import { servingRoutes } from "./serving-routes.ts";
import { forgetUse } from "./usage.ts";

export const workflows: TaskRoom = {
  routes: [
    ...[definitionRoutes, checkRoutes, deployRoutes, secretRoutes],
    ...[workflowRunRoutes, videoRunRoutes, servingRoutes],
  ].flat(),
  handlers: {
    workflow: { seal: sealWorkflow, ended: workflowEnded },
    workflow_video: { seal: sealVideoRun, ended: videoRunEnded },
  },
  duties: {
    deliveries: (parts) => sendDeliveries(parts),
    old_deliveries: forgetDeliveries,
    streams: forgetStreams,
    workflow_use: forgetUse,
    stranded_runs: failStranded,
  },
};
