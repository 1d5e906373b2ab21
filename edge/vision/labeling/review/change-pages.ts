// The log of a job's edits as it is read: the newest ones, or those since a number.

import { sql } from "drizzle-orm";
import { change } from "../../../../db/vision/labeling.ts";
import type { Change } from "../../../../shared/wire/labeling.ts";
import type { Database } from "../../../http/database.ts";
import { columnsOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { idList } from "../../base/sql.ts";
import { listedAnnotations } from "./annotations.ts";

/** So many annotations at most are shown with a change, or an event, that touched them. */
export const TOUCHED_MAX = 200;
/** The same for all changes of a page. */
const TOUCHED_PAGE_MAX = 2_000;

const c = columnsOf(change, "c");
const LOGGED = selection({
  change_id: c.id,
  job_id: c.jobId,
  kind: c.kind,
  actor_id: c.actorId,
  at: c.at,
  undone_at: c.undoneAt,
  annotations: sql<number>`(
    SELECT count(*) FROM change_item i WHERE i.change_id = c.id)::int`,
  summary: typed<Record<string, unknown>>(c.summary),
  seq: c.seq,
});

/**
 * A job's edits: the newest ones first, or with `afterSeq` those of greater numbers in their order,
 * each with what it touched.
 */
export async function listChanges(
  database: Database,
  jobId: string,
  { afterSeq, limit }: { afterSeq?: number | undefined; limit: number },
): Promise<Change[]> {
  const since = afterSeq === undefined ? sql`true` : sql`c.seq > ${afterSeq}::bigint`;
  const order = afterSeq === undefined ? sql`c.at DESC, c.seq DESC` : sql`c.seq`;
  const changes = await rowsOf(database, LOGGED)`
    SELECT ${LOGGED} FROM change c WHERE c.job_id = ${jobId}::uuid AND ${since}
     ORDER BY ${order} LIMIT ${limit}::int`;
  return afterSeq === undefined ? changes : withTouched(database, jobId, changes);
}

/** Changes with the annotations that they touched, as far as those are few. */
async function withTouched(
  database: Database,
  jobId: string,
  changes: readonly Change[],
): Promise<Change[]> {
  let total = 0;
  const told = new Set<string>();
  for (const { change_id: id, annotations } of changes) {
    if (annotations > TOUCHED_MAX || total + annotations > TOUCHED_PAGE_MAX) continue;
    total += annotations;
    told.add(id);
  }
  const { rows: items } = await database.execute<{ change: string; annotation: string }>(sql`
    SELECT change_id::text AS change, annotation_id::text AS annotation FROM change_item
     WHERE change_id IN ${idList([...told])}`);
  const ids = [...new Set(items.map(({ annotation }) => annotation))];
  const now = new Map(
    (await listedAnnotations(database, jobId, ids)).map((one) => [one.annotation_id, one]),
  );
  const touched = Map.groupBy(items, (item) => item.change);
  return changes.map((one) => {
    if (!told.has(one.change_id)) return { ...one, rows: null, deleted: null };
    const own = touched.get(one.change_id) ?? [];
    return {
      ...one,
      rows: own.flatMap(({ annotation }) => now.get(annotation) ?? []),
      deleted: own.flatMap(({ annotation }) => (now.has(annotation) ? [] : [annotation])),
    };
  });
}

/** The job that an edit was made in, or null for none of the workspaces. */
export async function jobOfChange(
  database: Database,
  changeId: string,
): Promise<{ jobId: string; workspaceId: string } | null> {
  const { rows } = await database.execute<{ job_id: string; workspace_id: string }>(sql`
    SELECT c.job_id, j.workspace_id FROM change c JOIN job j ON j.id = c.job_id
     WHERE c.id = ${changeId}::uuid`);
  const row = rows[0];
  return row ? { jobId: row.job_id, workspaceId: row.workspace_id } : null;
}
