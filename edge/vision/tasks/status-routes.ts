// How the installation stands, for admins.

import { z } from "@hono/zod-openapi";
import { TASK_LANES } from "../../../shared/tasks/tasks.ts";
import { json } from "../../http/route.ts";
import { user } from "../auth/audience.ts";
import { callerOf, realmOf } from "../auth/scope.ts";
import { type Route, route } from "../base/route.ts";
import { databaseLatencyMs, oldestQueuedSeconds, overviewOf, storeLatencyMs } from "./status.ts";

const tag = "Administration";
const Count = z.number().int();

const Workers = z.object({
  ready: Count.meta({ description: "live nodes with nothing to do" }),
  busy: Count.meta({ description: "live nodes that work on tasks" }),
  draining: Count.meta({ description: "live nodes that take no more" }),
  lost: Count.meta({ description: "nodes that were not heard of for a minute" }),
});
const KindQueue = z.object({
  kind: z.string(),
  lane: z.enum(TASK_LANES).meta({ description: "which processes of a node take its tasks" }),
  depth: Count.meta({ description: "tasks that wait" }),
  delayed: Count.meta({ description: "of those, due only later" }),
  running: Count,
});
const Status = z
  .object({
    queue_depth: Count,
    running: Count,
    queues: z.array(KindQueue).meta({ description: "by kind; empty ones with a consumer too" }),
    oldest_queued_seconds: z
      .number()
      .nullable()
      .meta({ description: "how long the first in line has waited; null: nothing waits" }),
    worker_count: Count,
    workers: Workers.meta({ description: "those nodes by what they are at, and lost ones" }),
    lines_open: Count.meta({ description: "live nodes that keep a direct line" }),
    stuck_job_count: Count,
    stuck: z
      .array(z.object({ kind: z.string(), tasks: Count.meta({ description: "how many" }) }))
      .meta({ description: "stuck tasks by kind" }),
    database_latency_ms: z.number(),
    object_store: z
      .object({
        reachable: z.boolean().meta({ description: "whether it answers within two seconds" }),
        latency_ms: z.number().nullable().meta({ description: "null: it did not answer" }),
      })
      .meta({ description: "the store of videos, frames and weights" }),
  })
  .meta({ id: "Status" });

/** The route of the status. */
export const statusRoutes: readonly Route[] = [
  route(
    {
      call: "GET /admin/status",
      operationId: "readStatus",
      tag,
      summary: "Queue depth, workers, stuck jobs, database latency",
      description:
        "Needs the role admin. A job is stuck when one of its running tasks has a lease that nobody " +
        "freed for three minutes, made no step for five times its median step (and five minutes), " +
        "or has run for longer than its kind may: ten minutes to four hours, a training for a week. " +
        "Of the workspaces that you are admin of; an admin of the default workspace is an operator, " +
        "who sees all. `worker_count` is of the live nodes that serve them. `database_latency_ms` is " +
        "the middle one of five statements.",
      who: user,
      answers: { 200: json("status", Status) },
      errors: ["forbidden"],
    },
    async (context) => {
      const realm = realmOf(callerOf(context));
      const { service } = context.var;
      const { database, clock } = service;
      const latency = await databaseLatencyMs(database, clock);
      const [overview, storeMs] = await Promise.all([
        overviewOf(database, realm),
        storeLatencyMs(service),
      ]);
      const { queues, nodes, stuck } = overview;
      const total = (of: "depth" | "running") => queues.reduce((sum, queue) => sum + queue[of], 0);
      const { ready, busy, draining, lost } = nodes;
      return context.json(
        {
          queue_depth: total("depth"),
          running: total("running"),
          queues: queues.map(({ name: kind, lane, depth, delayed, running }) => ({
            kind,
            lane,
            depth,
            delayed,
            running,
          })),
          oldest_queued_seconds: oldestQueuedSeconds(queues, clock()),
          worker_count: ready + busy + draining,
          workers: { ready, busy, draining, lost },
          lines_open: nodes.lines,
          stuck_job_count: overview.stuckSubjects,
          stuck,
          database_latency_ms: latency,
          object_store: { reachable: storeMs !== null, latency_ms: storeMs },
        },
        200,
      );
    },
  ),
];
