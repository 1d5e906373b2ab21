// What the minute cron does for jobs: it takes up what a crash left half done.

import { sql } from "drizzle-orm";
import type { Parts } from "../../base/parts.ts";
import { findJob } from "./jobs.ts";
import { advanceJob, planJob } from "./rounds.ts";

/**
 * Takes up what a crash left half done: rounds that were not planned, jobs that were not ended. One
 * that cannot be taken up holds up no other.
 */
export async function resumeJobs(parts: Parts): Promise<void> {
  const { rows } = await parts.database.execute<{ id: string; workspace_id: string }>(sql`
    SELECT id, workspace_id FROM job WHERE state IN ('queued', 'running')
       AND created_at < now() - interval '30 seconds' ORDER BY random() LIMIT 100`);
  for (const { id, workspace_id: workspaceId } of rows) {
    try {
      const job = await findJob(parts.database, [workspaceId], id);
      if (job.settings.planned < job.settings.round) await planJob(parts, job);
      await advanceJob(parts, id, workspaceId);
    } catch (error) {
      parts.log.error("job_not_taken_up", { job_id: id, error });
    }
  }
}
