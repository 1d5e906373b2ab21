// What is stuck, for admins.

import { z } from "@hono/zod-openapi";
import { json } from "../../http/route.ts";
import { user } from "../auth/audience.ts";
import { callerOf, realmOf } from "../auth/scope.ts";
import { type Route, route } from "../base/route.ts";
import { listStuck, StuckWork } from "./stuck-work.ts";

const tag = "Administration";

/** Routes of what is stuck. */
export const stuckRoutes: readonly Route[] = [
  route(
    {
      call: "GET /admin/jobs/stuck",
      operationId: "listStuckJobs",
      tag,
      summary: "Labeling jobs and training runs that run longer than expected",
      description:
        "Needs the role admin; of the workspaces that you are admin of, an operator of all. Judged by " +
        "each one's own progress. `mark-failed` ends one, `/admin/tasks/{task_id}/revoke` one task.",
      who: user,
      answers: { 200: json("those that are stuck, the longest first", z.array(StuckWork)) },
      errors: ["forbidden"],
    },
    async (context) => {
      const realm = realmOf(callerOf(context));
      return context.json(await listStuck(context.var.service.database, realm), 200);
    },
  ),
];
