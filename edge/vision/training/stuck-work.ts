// Labeling jobs and training runs that run longer than their own history lets expect.

import { z } from "@hono/zod-openapi";
import { sql } from "drizzle-orm";
import type { Database } from "../../http/database.ts";
import type { Realm } from "../auth/scope.ts";
import { idList } from "../base/sql.ts";
import { subjectOf as subjectOfJob } from "../labeling/jobs/jobs.ts";
import { type StuckTask, stuckTasks } from "../tasks/overview.ts";
import { subjectOf as subjectOfRun } from "./runs/runs.ts";

/** A labeling job or a training run with tasks that are stuck. */
export const StuckWork = z
  .object({
    kind: z.enum(["labeling", "training"]),
    id: z.uuid().meta({ description: "of the labeling job, or of the training run" }),
    name: z.string(),
    workspace_id: z.uuid(),
    started_at: z.iso.datetime().meta({ description: "of the task that is stuck longest" }),
    progress_at: z.iso
      .datetime()
      .nullable()
      .meta({ description: "when one of those tasks made a step; null: none did" }),
    tasks: z.array(
      z.object({
        task_id: z.uuid(),
        node_id: z.uuid().nullable(),
        reason: z.enum(["lease_expired", "no_progress", "too_long"]).meta({
          description:
            "`lease_expired`: its node is silent, and nobody freed it for three minutes; " +
            "`no_progress`: no step for five times its own median step, and five minutes; " +
            "`too_long`: an attempt of over four hours, in a training of over a week",
        }),
      }),
    ),
  })
  .meta({ id: "StuckWork" });
export type StuckWork = z.infer<typeof StuckWork>;

/** What the subjects of tasks begin with, by what they are. */
const PREFIXES = { labeling: subjectOfJob(""), training: subjectOfRun("") } as const;

/** What is stuck of a realm, with the tasks that are. */
export async function listStuck(database: Database, realm: Realm): Promise<StuckWork[]> {
  const bySubject = Map.groupBy(await stuckTasks(database, realm), ({ subject }) => subject);
  const found = [...bySubject].flatMap(([subject, tasks]) => {
    const entry = Object.entries(PREFIXES).find(([, prefix]) => subject.startsWith(prefix));
    if (!entry) return [];
    const [kind, prefix] = entry as [StuckWork["kind"], string];
    const id = z.uuid().safeParse(subject.slice(prefix.length)).data;
    return id === undefined ? [] : [{ kind, id, tasks }];
  });
  const ids = found.map(({ id }) => id);
  if (ids.length === 0) return [];
  const { rows } = await database.execute<{ id: string; name: string }>(sql`
    SELECT id::text, name FROM job WHERE id IN ${idList(ids)}
    UNION ALL SELECT id::text, name FROM training_run WHERE id IN ${idList(ids)}`);
  const names = new Map(rows.map(({ id, name }) => [id, name]));
  return found.flatMap(({ kind, id, tasks }) => {
    const name = names.get(id);
    const [first] = tasks;
    // Deleted meanwhile, or a task of something that is neither.
    if (name === undefined || !first) return [];
    return [{ kind, id, name, ...recordOf(first, tasks) }];
  });
}

function recordOf(
  { workspaceId, startedAt }: StuckTask,
  tasks: readonly StuckTask[],
): Omit<StuckWork, "kind" | "id" | "name"> {
  const steps = tasks.flatMap(({ progressAt }) => (progressAt === null ? [] : [progressAt]));
  return {
    workspace_id: workspaceId,
    // Tasks come by the time at which they began.
    started_at: startedAt,
    progress_at: steps.toSorted().at(-1) ?? null,
    tasks: tasks.map(({ taskId, nodeId, reason }) => ({
      task_id: taskId,
      node_id: nodeId,
      reason,
    })),
  };
}
