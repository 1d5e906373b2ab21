// What is stuck, for admins.

import { createRoute, z } from "@hono/zod-openapi";
import { type App, errorResponses, json } from "../../../http/app.ts";
import { callerOf, guard, realmOf } from "../../auth/scope.ts";
import { API, bearer } from "../../base/api.ts";
import type { Parts } from "../../base/parts.ts";
import { listStuck, StuckWork } from "./stuck.ts";

const tags = ["Administration"];

/** Registers the route of what is stuck. */
export function addStuckRoutes(app: App<Parts>) {
  guard(app, "/admin/jobs/*");
  const route = createRoute({
    method: "get",
    path: `${API}/admin/jobs/stuck`,
    operationId: "listStuckJobs",
    tags,
    summary: "Labeling jobs and training runs that run longer than expected",
    description:
      "Needs the role admin; of the workspaces that you are admin of, an operator of all. Judged by " +
      "each one's own progress. `mark-failed` ends one, `/admin/tasks/{task_id}/revoke` one task.",
    security: bearer,
    responses: {
      200: json("those that are stuck, the longest first", z.array(StuckWork)),
      ...errorResponses("unauthorized", "forbidden", "store_unavailable"),
    },
  });
  app.openapi(route, async (context) => {
    const realm = realmOf(callerOf(context));
    return context.json(await listStuck(context.var.service.database, realm), 200);
  });
}
