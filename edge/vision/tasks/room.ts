// The queue of tasks, the GPU nodes that take them, and live progress.

import type { Room } from "../base/room.ts";
import { taskAdministrationRoutes } from "./admin-routes.ts";
import { noticeLostNodes, noticeStalledQueues } from "./incidents.ts";
import { nodeRoutes } from "./nodes/routes.ts";
import { progressRoutes } from "./progress/routes.ts";
import { type HandlersByKind, KEPT_CODES, minuteTasks } from "./queue/delivery.ts";
import { statusRoutes } from "./status-routes.ts";

/** A room that takes the outcomes of its kinds of tasks. */
export interface TaskRoom extends Room {
  handlers?: HandlersByKind;
}

/** The room of tasks, which hands outcomes to these. */
export const tasks = (handlers: HandlersByKind): Room => ({
  routes: [
    ...nodeRoutes(handlers),
    ...taskAdministrationRoutes(handlers),
    ...statusRoutes,
    ...progressRoutes,
  ],
  keeps: [KEPT_CODES],
  duties: { tasks: (parts) => minuteTasks(parts, handlers) },
  incidents: { lost_nodes: noticeLostNodes, stalled_queues: noticeStalledQueues },
});
