// Comparisons of models on one dataset, and experiments on their traffic.

import type { TaskRoom } from "../tasks/room.ts";
import { lookAtExperiments } from "./campaigns/looks.ts";
import { experimentMoveRoutes } from "./campaigns/move-routes.ts";
import { experimentRoutes } from "./campaigns/routes.ts";
import { comparisonEnded, sealComparison } from "./comparisons/ended.ts";
import { modelComparisonRoutes } from "./comparisons/routes.ts";
import { tendComparisons } from "./comparisons/sessions.ts";

export const experiments: TaskRoom = {
  routes: [modelComparisonRoutes, experimentRoutes, experimentMoveRoutes].flat(),
  handlers: { comparison: { seal: sealComparison, ended: comparisonEnded } },
  duties: { comparisons: tendComparisons, experiments: lookAtExperiments },
};
