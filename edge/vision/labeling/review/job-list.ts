// The list of jobs, each with how far people are with it where that is wanted: a page of jobs is
// one request then.

import { type SQL, sql } from "drizzle-orm";
import type { JobSummary } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { extended } from "../../../http/selection.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../../base/lists.ts";
import { allOf, idList } from "../../base/sql.ts";
import { addedFramesOf, JOB_RECORD } from "../jobs/jobs.ts";
import { reviewedFrames } from "./frames.ts";

const JOB = sql`j.id`;

/** Annotations of a review, or all of them, by the counts `n` of a job. */
const sumOf = (which: SQL): SQL => sql`coalesce(sum(n.annotations) FILTER (WHERE ${which}), 0)`;

const WITH_COUNTS: SQL<JobSummary> = extended(JOB_RECORD, {
  annotations: sql<JobSummary["annotations"]>`(
    SELECT json_build_object('total', ${sumOf(sql`true`)},
        'pending', ${sumOf(sql`n.review = 'pending'`)},
        'accepted', ${sumOf(sql`n.review = 'accepted'`)},
        'rejected', ${sumOf(sql`n.review = 'rejected'`)})
      FROM annotation_count n WHERE n.job_id = ${JOB} AND n.shown AND NOT n.repeated)`,
  frames: sql<JobSummary["frames"]>`json_build_object(
    'total', j.frames_total + (SELECT count(*) FROM (${addedFramesOf(JOB)}) f),
    'done', (SELECT count(*) FROM (${reviewedFrames({ id: JOB })}) f))`,
});

const WITHOUT_COUNTS: SQL<JobSummary> = extended(JOB_RECORD, {
  annotations: sql<null>`NULL`,
  frames: sql<null>`NULL`,
});

/** Jobs of a page with counts, which read each frame that people worked on. */
export const COUNTED_MAX = 100;

interface JobListRequest {
  projectId: string | undefined;
  counts: boolean;
  query: ListQuery;
}

/** A page of the jobs of the workspaces, newest first. */
export const listJobs = (
  database: Database,
  workspaces: readonly string[],
  { projectId, counts, query }: JobListRequest,
): Promise<ListPage<JobSummary>> => {
  const where = allOf([
    sql`j.workspace_id IN ${idList(workspaces)}`,
    projectId && sql`j.project_id = ${projectId}::uuid`,
    isWanted(query, { name: sql`j.name`, state: sql`j.state` }),
  ]);
  const order = sql`j.created_at DESC, j.id`;
  const list = counts ? WITH_COUNTS : WITHOUT_COUNTS;
  return pageOf(database, list, { from: sql`job j`, where, order }, query);
};
