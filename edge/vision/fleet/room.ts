// Edge devices, rollouts of models to them, and deployment targets.

import type { TaskRoom } from "../tasks/room.ts";
import { alertRoutes } from "./devices/alert-routes.ts";
import { KEPT_ALERTS, noticeAlerts } from "./devices/alerts.ts";
import { condenseReadings, KEPT_MEANS } from "./devices/beats.ts";
import { deviceImageRoutes } from "./devices/image-routes.ts";
import { logRoutes } from "./devices/log-routes.ts";
import { forgetLogs } from "./devices/logs.ts";
import { sendNotices } from "./devices/notices.ts";
import { deviceProtocolRoutes } from "./devices/protocol-routes.ts";
import { deviceRoutes } from "./devices/routes.ts";
import { manifestRoutes } from "./rollouts/manifest-routes.ts";
import { advanceRollouts } from "./rollouts/progress.ts";
import { rolloutRoutes } from "./rollouts/routes.ts";
import { checkTargets, KEPT_CHECKS } from "./targets/health.ts";
import { targetRoutes } from "./targets/routes.ts";

export const fleet: TaskRoom = {
  routes: [
    ...[rolloutRoutes, manifestRoutes],
    ...[deviceProtocolRoutes, deviceImageRoutes, alertRoutes, deviceRoutes, logRoutes],
    ...[targetRoutes],
  ].flat(),
  keeps: [KEPT_MEANS, KEPT_ALERTS, KEPT_CHECKS],
  duties: {
    rollouts: advanceRollouts,
    device_readings: condenseReadings,
    device_logs: forgetLogs,
    device_alerts: noticeAlerts,
    device_notices: sendNotices,
    targets: checkTargets,
  },
};
