// Edits of annotations and their undoing. Every edit, of one annotation or of thousands, is one
// statement that also writes down what was before and what came after.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { Change } from "../../../shared/labeling.ts";
import { iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import { inJob } from "../labeling/jobs.ts";

/** An edit as the log of a job's changes has it. */
export interface Edit {
  jobId: string;
  actorId: string;
  /** Such as `draw` or `delete-class`. */
  kind: string;
  /** What people are told of it, and what undoing it needs. */
  summary?: Record<string, unknown>;
}

/** What an edit may change, and an undo restores. */
const FIELDS = ["class_number", "x1", "y1", "x2", "y2", "review", "polygon"] as const;
const fieldsOf = (table: SQL): SQL =>
  sql`jsonb_build_object(${sql.join(
    FIELDS.map((field) => sql`${sql.raw(`'${field}'`)}, ${table}.${sql.raw(field)}`),
    sql`, `,
  )})`;

/** Logs an edit where `when` holds, for a WITH; gives the change's id. */
export const insertChange = ({ jobId, actorId, kind, summary = {} }: Edit, when: SQL): SQL => sql`
  INSERT INTO change (id, job_id, actor_id, kind, summary)
  SELECT gen_random_uuid(), ${jobId}::uuid, ${actorId}::uuid, ${kind},
    ${JSON.stringify(summary)}::jsonb WHERE ${when} RETURNING id`;

/** What came of an edit. */
export interface EditCount {
  /** Null when nothing was to change. */
  changeId: string | null;
  /** Annotations that it changed. */
  changed: number;
}

interface EditCountRow {
  change_id: string | null;
  changed: number;
}

const editCount = (rows: EditCountRow[]): EditCount => ({
  changeId: rows[0]?.change_id ?? null,
  changed: rows[0]?.changed ?? 0,
});

/** Sets fields of the annotations `a` of a job that `where` names, the `target`s of `also`. */
export async function updateAnnotations(
  database: Database,
  edit: Edit,
  { where, set, also = sql`` }: { where: SQL; set: SQL; also?: SQL },
): Promise<EditCount> {
  const rows = await inJob<EditCountRow>(
    database,
    edit.jobId,
    sql`
    WITH target AS (
      SELECT * FROM annotation a WHERE a.job_id = ${edit.jobId}::uuid AND ${where} FOR UPDATE
    ) ${also}, done AS (
      UPDATE annotation a SET ${set}, revision = a.revision + 1, updated_at = clock_timestamp(),
        updated_by = ${edit.actorId}::uuid
        FROM target t WHERE a.id = t.id RETURNING a.*
    ), c AS (${insertChange(edit, sql`EXISTS (SELECT FROM done)`)}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, t.id, ${fieldsOf(sql`t`)}, ${fieldsOf(sql`d`)}
        FROM c, target t JOIN done d ON d.id = t.id RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed`,
  );
  return editCount(rows);
}

/** Deletes the annotations `a` of a job that `where` names; `also` is run with it. */
export async function deleteAnnotations(
  database: Database,
  edit: Edit,
  { where, also = sql`` }: { where: SQL; also?: SQL },
): Promise<EditCount> {
  const rows = await inJob<EditCountRow>(
    database,
    edit.jobId,
    sql`
    WITH gone AS (
      DELETE FROM annotation a WHERE a.job_id = ${edit.jobId}::uuid AND ${where} RETURNING a.*
    ) ${also},
    c AS (${insertChange(edit, sql`true`)}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, g.id, to_jsonb(g), NULL FROM c, gone g RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed`,
  );
  return editCount(rows);
}

/** A job's edits, newest first. */
export async function listChanges(
  database: Database,
  jobId: string,
  limit: number,
): Promise<Change[]> {
  const { rows } = await database.execute<Record<string, unknown>>(sql`
    SELECT c.id, c.kind, c.actor_id, c.at, c.undone_at, c.summary,
      (SELECT count(*) FROM change_item i WHERE i.change_id = c.id)::int AS annotations
      FROM change c WHERE c.job_id = ${jobId}::uuid ORDER BY c.at DESC, c.id LIMIT ${limit}::int`);
  const time = (value: unknown) => (value === null ? null : iso(Date.parse(String(value))));
  return rows.map((row) => ({
    change_id: row.id as string,
    job_id: jobId,
    kind: row.kind as string,
    actor_id: row.actor_id as string | null,
    at: time(row.at) ?? "",
    undone_at: time(row.undone_at),
    annotations: row.annotations as number,
    summary: row.summary as Record<string, unknown>,
  }));
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

/**
 * Undoes an edit once. Annotations that somebody edited since, and those of a class that went
 * since, are left as they are and counted as `kept`. A class that the edit took away comes back
 * under its number, or is the one that has its name by now.
 */
export async function undoChange(
  database: Database,
  { jobId, changeId }: { jobId: string; changeId: string },
  actorId: string,
): Promise<{ restored: number; kept: number }> {
  const set = sql.join(
    FIELDS.filter((field) => field !== "class_number").map((field) => {
      const column = sql.raw(field);
      return sql`${column} = (jsonb_populate_record(NULL::annotation, i.before)).${column}`;
    }),
    sql`, `,
  );
  const rows = await inJob<{ undone: boolean; items: number; restored: number }>(
    database,
    jobId,
    sql`
    WITH c AS (
      UPDATE change SET undone_at = now() WHERE id = ${changeId}::uuid AND undone_at IS NULL
      RETURNING id, kind, job_id, summary
    ), ${CLASSES_AGAIN}, items AS (
      SELECT i.*, s.now AS class_now FROM change_item i JOIN c ON c.id = i.change_id
        LEFT JOIN stands s ON s.number = (i.before->>'class_number')::int
    ), updated AS (
      UPDATE annotation a SET ${set}, class_number = i.class_now, revision = a.revision + 1,
        updated_at = clock_timestamp(), updated_by = ${actorId}::uuid
        FROM items i WHERE a.id = i.annotation_id AND i.class_now IS NOT NULL
         AND i.after IS NOT NULL AND ${fieldsOf(sql`a`)} = i.after RETURNING a.id
    ), removed AS (
      DELETE FROM annotation a USING items i
       WHERE a.id = i.annotation_id AND i.before IS NULL AND a.revision = 1 RETURNING a.id
    ), returned AS (
      INSERT INTO annotation
      SELECT (jsonb_populate_record(NULL::annotation,
          i.before || jsonb_build_object('class_number', i.class_now))).* FROM items i
       WHERE i.after IS NULL AND i.class_now IS NOT NULL ON CONFLICT (id) DO NOTHING RETURNING id)
    SELECT EXISTS (SELECT FROM c) AS undone, (SELECT count(*) FROM items)::int AS items,
      ((SELECT count(*) FROM updated) + (SELECT count(*) FROM removed)
        + (SELECT count(*) FROM returned))::int AS restored`,
  );
  const [outcome] = rows;
  if (!outcome?.undone) throw new Failure("state_conflict", "this edit was undone already");
  return { restored: outcome.restored, kept: outcome.items - outcome.restored };
}

/**
 * The classes that the edit `c` took away or renamed, as they were; and the class that each number
 * `stands` for `now`.
 */
const CLASSES_AGAIN = sql`
    own AS (
      SELECT k.* FROM job_class k JOIN c ON k.job_id = c.job_id
    ), lost AS (
      SELECT (k->>'number')::int AS number, k->>'name' AS name, k->>'prompt' AS prompt
        FROM c, jsonb_array_elements(coalesce(c.summary->'classes', '[]')) k
    ), renamed AS (
      UPDATE job_class k SET name = c.summary->>'from' FROM c
       WHERE c.kind = 'rename-class' AND k.job_id = c.job_id
         AND k.number = (c.summary->>'number')::int AND k.name = c.summary->>'into'
         AND NOT EXISTS (SELECT FROM own WHERE own.name = c.summary->>'from')
    ), class AS (
      INSERT INTO job_class (job_id, number, name, prompt)
      SELECT c.job_id, lost.number, lost.name, lost.prompt FROM c, lost
      ON CONFLICT DO NOTHING RETURNING number
    ), stands AS (
      SELECT number, number AS now FROM own
      UNION ALL SELECT number, number FROM class
      UNION ALL SELECT lost.number, own.number FROM lost JOIN own ON own.name = lost.name
       WHERE lost.number NOT IN (SELECT number FROM own))`;
