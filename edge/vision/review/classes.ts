// Classes of a job as rows: how they are merged, renamed and removed. A number is a class's own for
// good: edits that took a class away keep its number, so that it comes back as what it was.

import { sql } from "drizzle-orm";
import type { Database } from "../../http/database.ts";
import { classExists, folded } from "../labeling/classes.ts";
import { inJob } from "../labeling/jobs.ts";
import { type Edit, type EditCount, fieldsOf, loggedDeletion } from "./changes.ts";

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
): Promise<{ changeId: string; changed: number } | null> {
  const own = sql`SELECT number, name, prompt FROM job_class WHERE job_id = ${jobId}::uuid`;
  const rows = await inJob<{ change_id: string | null; changed: number; taken: string | null }>(
    database,
    jobId,
    sql`
    WITH named AS (${own} AND name = ${from}), target AS (${own} AND name = ${into}),
    taken AS (
      ${own} AND name <> ${from} AND NOT EXISTS (SELECT FROM target)
         AND ${folded(sql`name`)} = ${folded(sql`${into}::text`)} LIMIT 1
    ), source AS (SELECT * FROM named WHERE NOT EXISTS (SELECT FROM taken)),
    renamed AS (
      UPDATE job_class SET name = ${into} WHERE job_id = ${jobId}::uuid
         AND number IN (SELECT number FROM source) AND NOT EXISTS (SELECT FROM target)
    ), moved AS (
      UPDATE annotation a SET class_number = t.number, revision = revision + 1,
        updated_at = clock_timestamp(), updated_by = ${actorId}::uuid FROM source s, target t
       WHERE a.job_id = ${jobId}::uuid AND a.class_number = s.number RETURNING a.*
    ), class AS (
      DELETE FROM job_class WHERE job_id = ${jobId}::uuid
         AND number IN (SELECT number FROM source) AND EXISTS (SELECT FROM target)
    ), c AS (
      INSERT INTO change (id, job_id, actor_id, kind, summary)
      SELECT gen_random_uuid(), ${jobId}::uuid, ${actorId}::uuid, kind,
        jsonb_build_object('from', ${from}::text, 'into', ${into}::text) || CASE kind
          WHEN 'merge-classes' THEN jsonb_build_object('classes', jsonb_build_array(to_jsonb(s)))
          ELSE jsonb_build_object('number', s.number) END
        FROM source s, LATERAL (SELECT CASE WHEN EXISTS (SELECT FROM target) THEN 'merge-classes'
          ELSE 'rename-class' END AS kind) k RETURNING id
    ), items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, m.id, f.after || jsonb_build_object('class_number', s.number), f.after
        FROM c, source s, moved m, LATERAL (SELECT ${fieldsOf(sql`m`)} AS after) f
    )
    SELECT (SELECT id FROM c) AS change_id, (SELECT name FROM taken) AS taken,
      (SELECT count(*) FROM annotation a
        WHERE a.job_id = ${jobId}::uuid AND a.class_number = n.number)::int AS changed
      FROM named n`,
  );
  const [row] = rows;
  if (row?.taken) throw classExists(row.taken);
  return row?.change_id ? { changeId: row.change_id, changed: row.changed } : null;
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
  const [deleted] = await inJob<{ change_id: string; changed: number }>(
    database,
    jobId,
    sql`
    WITH gone AS (
      DELETE FROM annotation
       WHERE job_id = ${jobId}::uuid AND class_number = ${row.number}::int RETURNING *
    ), class AS (
      DELETE FROM job_class WHERE job_id = ${jobId}::uuid AND number = ${row.number}::int
    ), ${loggedDeletion(edit, sql`true`)}
    SELECT c.id AS change_id, (SELECT count(*) FROM items)::int AS changed FROM c`,
  );
  return deleted ? { changeId: deleted.change_id, changed: deleted.changed } : null;
}
