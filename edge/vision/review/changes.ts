// Edits of annotations and their undoing. Every edit, of one annotation or of thousands, is one
// statement that also writes down what was before and what came after.

import { type SQL, sql } from "drizzle-orm";
import { Failure } from "../../../shared/errors.ts";
import type { Change } from "../../../shared/labeling.ts";
import { iso } from "../../../shared/time.ts";
import type { Database } from "../../http/database.ts";
import { classExists, classNamed, folded } from "../labeling/classes.ts";
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

/** Annotations of one edit by a filter: as many as are written within seconds. */
export const EDITED_MAX = 100_000;

/** What an edit may change, and an undo restores. */
const FIELDS = [
  ...(["class_number", "x1", "y1", "x2", "y2"] as const),
  ...(["review", "polygon", "track_id", "keyframe", "confidence", "source"] as const),
] as const;
/** The fields of a row of an annotation, as a change's item holds them. */
export const fieldsOf = (table: SQL): SQL =>
  sql`jsonb_build_object(${sql.join(
    FIELDS.map((field) => sql`${sql.raw(`'${field}'`)}, ${table}.${sql.raw(field)}`),
    sql`, `,
  )})`;

/** Logs an edit where `when` holds, for a WITH, and the class that it `added`; gives its id. */
export const insertChange = (
  { jobId, actorId, kind, summary = {} }: Edit,
  when: SQL,
  { addsClass = false } = {},
): SQL => {
  const added = sql`coalesce((SELECT jsonb_build_object('added',
    jsonb_build_object('number', number, 'name', name)) FROM added), '{}')`;
  return sql`
  INSERT INTO change (id, job_id, actor_id, kind, summary)
  SELECT gen_random_uuid(), ${jobId}::uuid, ${actorId}::uuid, ${kind},
    ${JSON.stringify(summary)}::jsonb || ${addsClass ? added : sql`'{}'::jsonb`}
   WHERE ${when} RETURNING id`;
};

/** What came of an edit. */
export interface EditCount {
  /** Null when nothing was to change. */
  changeId: string | null;
  /** Annotations that it changed. */
  changed: number;
}

/** The row that the statement of an edit answers. */
export interface EditCountRow {
  change_id: string | null;
  changed: number;
  /** Whether the annotations were not too many. */
  fits: boolean;
  /** The job's class that the one to be added would be mistaken for. */
  taken?: string | null;
}

/**
 * What came of an edit by its row; fails with `class_exists` or `invalid_request` where that says
 * why nothing did.
 */
export function editCount([row]: EditCountRow[]): EditCount {
  if (row?.taken) throw classExists(row.taken);
  if (row?.fits === false) {
    const detail = `filter: over ${EDITED_MAX} annotations in one edit; narrow it`;
    throw new Failure("invalid_request", detail);
  }
  return { changeId: row?.change_id ?? null, changed: row?.changed ?? 0 };
}

/** `target`, for a WITH: the annotations `a` that `where` names; `size` tells whether they fit. */
const targets = (jobId: string, where: SQL): SQL => sql`
  target AS (
    SELECT * FROM annotation a WHERE a.job_id = ${jobId}::uuid AND ${where}
     LIMIT ${EDITED_MAX + 1}::int FOR UPDATE
  ), size AS (SELECT count(*) <= ${EDITED_MAX}::int AS fits FROM target)`;

/** What an edit sets of annotations. */
export interface Update {
  /** The annotations `a` that are meant. */
  where: SQL;
  /** Columns and their values; empty where the class is all. */
  set: readonly SQL[];
  /** The class that they get; one that the job lacks is added. */
  className?: string | undefined;
}

/**
 * Sets fields of annotations of a job. Fails with `class_exists` where their new class would be
 * mistaken for another, and with `invalid_request` where they are too many.
 */
export async function updateAnnotations(
  database: Database,
  edit: Edit,
  { where, set, className }: Update,
): Promise<EditCount> {
  const named = className !== undefined;
  const any = sql`EXISTS (SELECT FROM target) AND (SELECT fits FROM size)`;
  const also = named ? sql`, ${classNamed(edit.jobId, className, any)}` : sql``;
  const sets = named ? [...set, sql`class_number = (SELECT number FROM named)`] : set;
  const rows = await inJob<EditCountRow>(
    database,
    edit.jobId,
    sql`
    WITH ${targets(edit.jobId, where)} ${also}, done AS (
      UPDATE annotation a SET ${sql.join([...sets], sql`, `)}, revision = a.revision + 1,
        updated_at = clock_timestamp(), updated_by = ${edit.actorId}::uuid
        FROM target t, size WHERE a.id = t.id AND size.fits
         ${named ? sql`AND EXISTS (SELECT FROM named)` : sql``}
      -- A join of the rows before with those after is quadratic where few of them are expected.
      RETURNING a.id, ${fieldsOf(sql`t`)} AS before, ${fieldsOf(sql`a`)} AS after
    ), c AS (${insertChange(edit, sql`EXISTS (SELECT FROM done)`, { addsClass: named })}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, d.id, d.before, d.after FROM c, done d RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed,
      (SELECT fits FROM size) AS fits
      ${named ? sql`, (SELECT name FROM taken) AS taken` : sql``}`,
  );
  return editCount(rows);
}

/**
 * Deletes the annotations `a` of a job that `where` names. Fails with `invalid_request` where they
 * are too many.
 */
export async function deleteAnnotations(
  database: Database,
  edit: Edit,
  where: SQL,
): Promise<EditCount> {
  const rows = await inJob<EditCountRow>(
    database,
    edit.jobId,
    sql`
    WITH ${targets(edit.jobId, where)}, gone AS (
      DELETE FROM annotation a USING target t, size WHERE a.id = t.id AND size.fits RETURNING a.*
    ), ${loggedDeletion(edit, sql`EXISTS (SELECT FROM gone)`)}
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed,
      (SELECT fits FROM size) AS fits`,
  );
  return editCount(rows);
}

/** `c` and `items`, for a WITH: the log of the deletion of what is `gone`. */
export const loggedDeletion = (edit: Edit, when: SQL): SQL => sql`
    c AS (${insertChange(edit, when)}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, g.id, to_jsonb(g), NULL FROM c, gone g RETURNING annotation_id)`;

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

/** Whether an annotation `a` is as the edit of the item `i` left it, in all that the item holds. */
const AS_LEFT = sql`${fieldsOf(sql`a`)} || i.after = ${fieldsOf(sql`a`)}`;

/**
 * Undoes an edit once. Annotations that somebody edited since, and those of a class that went
 * since, are left as they are and counted as `kept`. A class that the edit took away comes back
 * under its number, or is the one that has its name by now; a class that it added goes when nothing
 * else is of it.
 */
export async function undoChange(
  database: Database,
  { jobId, changeId }: { jobId: string; changeId: string },
  actorId: string,
): Promise<{ restored: number; kept: number }> {
  const restored = FIELDS.filter((field) => field !== "class_number");
  const columns = (prefix: string) => sql.raw(restored.map((name) => prefix + name).join(", "));
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
      -- What an older item does not hold stays. Read once a row, not once a column.
      UPDATE annotation a SET (${columns("")}) = (SELECT ${columns("r.")}
          FROM jsonb_populate_record(a, i.before) r),
        class_number = i.class_now, revision = a.revision + 1, updated_at = clock_timestamp(),
        updated_by = ${actorId}::uuid
        FROM items i WHERE a.id = i.annotation_id AND i.class_now IS NOT NULL
         AND i.before IS NOT NULL AND i.after IS NOT NULL AND ${AS_LEFT} RETURNING a.id
    ), removed AS (
      DELETE FROM annotation a USING items i WHERE a.id = i.annotation_id AND i.before IS NULL
         AND (a.revision = 1 OR i.after <> '{}' AND ${AS_LEFT}) RETURNING a.id
    ), returned AS (
      INSERT INTO annotation
      SELECT r.* FROM items i CROSS JOIN LATERAL jsonb_populate_record(NULL::annotation,
          '{"keyframe": false}' || i.before || jsonb_build_object('class_number', i.class_now)) r
       WHERE i.after IS NULL AND i.class_now IS NOT NULL ON CONFLICT (id) DO NOTHING RETURNING id)
    SELECT EXISTS (SELECT FROM c) AS undone, (SELECT count(*) FROM items)::int AS items,
      ((SELECT count(*) FROM updated) + (SELECT count(*) FROM removed)
        + (SELECT count(*) FROM returned))::int AS restored`,
    dropAdded(changeId),
  );
  const [outcome] = rows;
  if (!outcome?.undone) throw new Failure("state_conflict", "this edit was undone already");
  return { restored: outcome.restored, kept: outcome.items - outcome.restored };
}

/**
 * Removes the class that an edit added, which this transaction undid, where nothing is of it and no
 * undoing could bring back what was.
 */
const dropAdded = (changeId: string): SQL => sql`
  DELETE FROM job_class k USING change c
   WHERE c.id = ${changeId}::uuid AND c.undone_at = now()::timestamptz(3) AND k.job_id = c.job_id
     AND k.number = (c.summary->'added'->>'number')::int
     AND k.name = c.summary->'added'->>'name'
     AND NOT EXISTS (SELECT FROM annotation a
       WHERE a.job_id = k.job_id AND a.class_number = k.number)
     AND NOT EXISTS (SELECT FROM change o JOIN change_item i ON i.change_id = o.id
       WHERE o.job_id = k.job_id AND o.undone_at IS NULL
         AND (i.before->>'class_number')::int = k.number)`;

/**
 * The classes that the edit `c` took away or renamed, as they were; and the class that each number
 * `stands` for `now`.
 */
const CLASSES_AGAIN = sql`
    own AS (
      SELECT k.* FROM job_class k JOIN c ON k.job_id = c.job_id
    ), lost AS (
      SELECT (k->>'number')::int AS number, k->>'name' AS name, k->>'prompt' AS prompt, (
          SELECT own.number FROM own WHERE ${folded(sql`own.name`)} = ${folded(sql`k->>'name'`)}
           ORDER BY own.name = k->>'name' DESC LIMIT 1) AS heir
        FROM c, jsonb_array_elements(coalesce(c.summary->'classes', '[]')) k
    ), renamed AS (
      UPDATE job_class k SET name = c.summary->>'from' FROM c
       WHERE c.kind = 'rename-class' AND k.job_id = c.job_id
         AND k.number = (c.summary->>'number')::int AND k.name = c.summary->>'into'
         AND NOT EXISTS (SELECT FROM own WHERE own.number <> k.number
           AND ${folded(sql`own.name`)} = ${folded(sql`c.summary->>'from'`)})
    ), class AS (
      INSERT INTO job_class (job_id, number, name, prompt)
      SELECT c.job_id, lost.number, lost.name, lost.prompt FROM c, lost WHERE lost.heir IS NULL
      ON CONFLICT DO NOTHING RETURNING number
    ), stands AS (
      SELECT number, number AS now FROM own
      UNION ALL SELECT number, number FROM class
      UNION ALL SELECT number, heir FROM lost
       WHERE heir IS NOT NULL AND number NOT IN (SELECT number FROM own))`;
