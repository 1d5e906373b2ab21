// Classes of a job as rows: how they are merged, renamed and removed. A number is a class's own for
// good: edits that took a class away keep its number, so that it comes back as what it was.

import { sql } from "drizzle-orm";
import type { Database } from "../../../http/database.ts";
import { folded } from "../../base/lists.ts";
import { classExists } from "../classes.ts";
import { inJob } from "../jobs/jobs.ts";
import {
  type Edit,
  type EditCount,
  fieldsOf,
  inSteps,
  insertChange,
  LOGGED_DELETION,
  MORE,
} from "./changes.ts";

interface ClassRow extends Record<string, unknown> {
  number: number;
  name: string;
  prompt: string | null;
}

/** A job's class by its name, or null. */
async function classOf(
  database: Database,
  jobId: string,
  className: string,
): Promise<ClassRow | null> {
  const { rows } = await database.execute<ClassRow>(sql`
    SELECT number, name, prompt FROM job_class
     WHERE job_id = ${jobId}::uuid AND name = ${className}`);
  return rows[0] ?? null;
}

/**
 * Makes the annotations of one class those of another, whose own class goes; where there is no
 * other, the class is renamed. Both are one edit. Null when there is no class `from`; fails with
 * `class_exists` where a third one is nearly called like the new name.
 */
export async function mergeClasses(
  database: Database,
  { jobId, actorId }: Pick<Edit, "jobId" | "actorId">,
  { from, into }: { from: string; into: string },
): Promise<EditCount | null> {
  const own = await classOf(database, jobId, from);
  if (!own) return null;
  const other = await classOf(database, jobId, into);
  const edit = { jobId, actorId, summary: { from, into } };
  const count = other
    ? await moveClass(database, { ...edit, kind: "merge-classes" }, { own, other })
    : await renameClass(database, { ...edit, kind: "rename-class" }, { own, into });
  // Somebody was faster, and there is no such class any more.
  return count.changeId === null ? null : count;
}

async function renameClass(
  database: Database,
  { summary, ...edit }: Edit,
  { own, into }: { own: ClassRow; into: string },
): Promise<EditCount> {
  const { jobId } = edit;
  const log = { ...edit, summary: { ...summary, number: own.number } };
  const [row] = await inJob<EditCount & { taken: string | null }>(
    database,
    jobId,
    sql`
    WITH taken AS (
      SELECT name FROM job_class WHERE job_id = ${jobId}::uuid AND number <> ${own.number}::int
         AND ${folded(sql`name`)} = ${folded(sql`${into}::text`)} LIMIT 1
    ), renamed AS (
      UPDATE job_class SET name = ${into} WHERE job_id = ${jobId}::uuid
         AND number = ${own.number}::int AND name = ${own.name}
         AND NOT EXISTS (SELECT FROM taken) RETURNING number
    ), c AS (${insertChange(log, sql`EXISTS (SELECT FROM renamed)`)})
    SELECT (SELECT id FROM c) AS "changeId", (SELECT name FROM taken) AS taken,
      (SELECT coalesce(sum(annotations), 0) FROM annotation_count
        WHERE job_id = ${jobId}::uuid AND class_number = ${own.number}::int)::int AS changed`,
    { actorId: edit.actorId },
  );
  if (row?.taken) throw classExists(row.taken);
  return { changeId: row?.changeId ?? null, changed: row?.changed ?? 0 };
}

function moveClass(
  database: Database,
  { summary, ...edit }: Edit,
  { own, other }: { own: ClassRow; other: ClassRow },
): Promise<EditCount> {
  const isThere = ({ number }: ClassRow) => sql`EXISTS (SELECT FROM job_class
    WHERE job_id = ${edit.jobId}::uuid AND number = ${number}::int)`;
  const both = sql`${isThere(own)} AND ${isThere(other)}`;
  return inSteps(
    database,
    { ...edit, summary: { ...summary, classes: [own] } },
    ({ targets, change }) => sql`
    WITH ${targets(sql`a.class_number = ${own.number}::int AND ${both}`)}, moved AS (
      UPDATE annotation a SET class_number = ${other.number}::int, revision = a.revision + 1,
        updated_at = clock_timestamp(), updated_by = ${edit.actorId}::uuid
        FROM target t WHERE a.id = t.id AND a.job_id = t.job_id
      RETURNING a.id, ${fieldsOf(sql`t`)} AS before, ${fieldsOf(sql`a`)} AS after
    ), c AS (${change(both)}), class AS (
      DELETE FROM job_class WHERE job_id = ${edit.jobId}::uuid AND number = ${own.number}::int
         AND EXISTS (SELECT FROM c) AND NOT ${MORE}
    ), items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, m.id, m.before, m.after FROM c, moved m RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed,
      ${MORE} AS more`,
    { isLarge: true },
  );
}

/** Removes a class of a job and its annotations, as one edit; null when there is no such class. */
export async function deleteClass(
  database: Database,
  { jobId, actorId }: Pick<Edit, "jobId" | "actorId">,
  className: string,
): Promise<EditCount | null> {
  const row = await classOf(database, jobId, className);
  if (!row) return null;
  const summary = { class: className, classes: [row] };
  const edit = { jobId, actorId, kind: "delete-class", summary };
  return inSteps(
    database,
    edit,
    ({ targets, change }) => sql`
    WITH ${targets(sql`a.class_number = ${row.number}::int`)}, gone AS (
      DELETE FROM annotation a USING target t WHERE a.id = t.id AND a.job_id = t.job_id
      RETURNING a.*
    ), c AS (${change(sql`true`)}), class AS (
      DELETE FROM job_class WHERE job_id = ${jobId}::uuid AND number = ${row.number}::int
         AND EXISTS (SELECT FROM c) AND NOT ${MORE}
    ), ${LOGGED_DELETION}
    SELECT c.id AS change_id, (SELECT count(*) FROM items)::int AS changed, ${MORE} AS more FROM c`,
    { isLarge: true },
  );
}
