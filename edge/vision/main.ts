// The vision Worker. It serves its liveness only, until its first rooms move in.

import { createRoute, z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import { createService } from "../http/app.ts";
import { type Database, isUnavailable, openDatabase } from "../http/database.ts";
import { parseConfig } from "./config.ts";

const { app } = createService<{ database: Database }>({
  name: "vision",
  title: "Vantage Vision",
  version: "0.1.0",
  description: "Video labeling, training, serving and administration.",
  loggedQuery: [],
  open: (environment) => ({ database: openDatabase(parseConfig(environment).DATABASE_URL) }),
});

const health = createRoute({
  method: "get",
  path: "/healthz",
  summary: "Liveness",
  responses: {
    200: {
      description: "degraded: the process lives, its database does not answer",
      content: { "application/json": { schema: z.object({ status: z.enum(["ok", "degraded"]) }) } },
    },
  },
});
app.openapi(health, async (context) => {
  try {
    await context.var.service.database.execute(sql`SELECT 1`);
    return context.json({ status: "ok" as const }, 200);
  } catch (thrown) {
    if (!isUnavailable(thrown)) throw thrown;
    return context.json({ status: "degraded" as const }, 200);
  }
});

export default { fetch: app.fetch };
