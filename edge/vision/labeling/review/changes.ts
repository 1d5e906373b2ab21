// Edits of annotations and their undoing. Every edit, of one annotation or of thousands, is one
// statement that also writes down what was before and what came after.

import { type SQL, sql } from "drizzle-orm";
import { editSeq } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Database } from "../../../http/database.ts";
import { folded } from "../../base/lists.ts";
import { addedBy, classExists, classNamed } from "../classes.ts";
import { inJob } from "../jobs/jobs.ts";

/** An edit as the log of a job's changes has it. */
export interface Edit {
  jobId: string;
  actorId: string;
  /** Such as `draw` or `delete-class`. */
  kind: string;
  /** What people are told of it, and what undoing it needs. */
  summary?: Record<string, unknown>;
}

/** Annotations that one statement of an edit changes: as many as are written within seconds. */
export const STEP_MAX = 50_000;

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

/** A new number of what happens to annotations. */
const NEXT_SEQ = sql.raw(`nextval('${editSeq.seqName}')`);

/** Logs an edit where `when` holds, for a WITH, and the class that it `added`; gives its id. */
export const insertChange = (
  { jobId, actorId, kind, summary = {} }: Edit,
  when: SQL,
  { addsClass = false } = {},
): SQL => {
  const added = sql`coalesce((SELECT jsonb_build_object('added',
    jsonb_build_object('number', number, 'name', name)) FROM added), '{}')`;
  return sql`
  INSERT INTO change (id, job_id, actor_id, kind, at, summary)
  -- When the lock was held, not when the transaction began: in the order of commits.
  SELECT gen_random_uuid(), ${jobId}::uuid, ${actorId}::uuid, ${kind}, clock_timestamp(),
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

/** The row that a statement of an edit answers. */
export interface StepRow {
  change_id: string | null;
  changed: number;
  /** Whether it left annotations to the next one. */
  more: boolean;
  /** The job's class that the one to be added would be mistaken for. */
  taken?: string | null;
}

/** One statement of an edit. */
export interface Step {
  /** `target`, for a WITH: annotations `a` that a condition names, as many as a step takes. */
  targets(where: SQL): SQL;
  /** The change that the edit is, for a WITH: logged by the first step where `when` holds. */
  change(when: SQL, options?: { addsClass?: boolean }): SQL;
}

/** Whether a step has more annotations to change than it takes, for a SELECT. */
export const MORE = sql`(SELECT count(*) FROM target) = ${STEP_MAX}::int`;

/**
 * Runs an edit of a job step by step, as one change: each annotation that a step changed must be
 * none that the next one names. Of many annotations the steps before one that fails stand, and can
 * be undone; an edit that somebody begins to undo ends there. Fails with
 * `class_exists` where the first step says so.
 */
export async function inSteps(
  database: Database,
  edit: Edit,
  statement: (step: Step) => SQL,
  { isLarge = false } = {},
): Promise<EditCount> {
  const count: EditCount = { changeId: null, changed: 0 };
  for (let more = true; more; ) {
    const own = statement(stepOf(edit, count));
    const [row] = await inJob<StepRow>(database, edit.jobId, own, {
      isLarge,
      actorId: edit.actorId,
    });
    if (row?.taken) throw classExists(row.taken);
    count.changeId ??= row?.change_id ?? null;
    count.changed += row?.changed ?? 0;
    more = Boolean(row?.more && row.change_id);
  }
  return count;
}

/** From so many annotations on an edit is a large one. */
const LARGE_MIN = 1_000;

/** Whether an edit of what `where` names is large. */
async function sizeOf(database: Database, { jobId }: Edit, where: SQL) {
  const { rows } = await database.execute<{ isLarge: boolean }>(sql`
    SELECT count(*) = ${LARGE_MIN}::int AS "isLarge" FROM (SELECT FROM annotation a
      WHERE a.job_id = ${jobId}::uuid AND ${where} LIMIT ${LARGE_MIN}::int) f`);
  return { isLarge: rows[0]?.isLarge ?? false };
}

function stepOf(edit: Edit, { changeId }: EditCount): Step {
  const begun = sql`id = ${changeId}::uuid AND undoing_at IS NULL AND undone_at IS NULL`;
  const goesOn = changeId === null ? sql`true` : sql`EXISTS (SELECT FROM change WHERE ${begun})`;
  return {
    targets: (where) => sql`
  target AS (
    SELECT * FROM annotation a WHERE a.job_id = ${edit.jobId}::uuid AND ${where} AND ${goesOn}
     LIMIT ${STEP_MAX}::int FOR UPDATE)`,
    change: (when, options) =>
      changeId === null
        ? insertChange(edit, when, options)
        : sql`UPDATE change SET seq = ${NEXT_SEQ} WHERE ${begun} AND ${when} RETURNING id`,
  };
}

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
 * Sets fields of annotations of a job, none of which `where` names any more then. Fails with
 * `class_exists` where their new class would be mistaken for another.
 */
export async function updateAnnotations(
  database: Database,
  edit: Edit,
  { where, set, className }: Update,
): Promise<EditCount> {
  const named = className !== undefined;
  const also = named
    ? sql`, ${classNamed(edit.jobId, className, sql`EXISTS (SELECT FROM target)`)}`
    : sql``;
  const sets = named ? [...set, sql`class_number = (SELECT number FROM named)`] : set;
  return inSteps(
    database,
    edit,
    ({ targets, change }) => sql`
    WITH ${targets(where)} ${also}, done AS (
      UPDATE annotation a SET ${sql.join([...sets], sql`, `)}, revision = a.revision + 1,
        updated_at = clock_timestamp(), updated_by = ${edit.actorId}::uuid
        FROM target t WHERE a.id = t.id AND a.job_id = t.job_id ${named ? sql`AND EXISTS (SELECT FROM named)` : sql``}
      -- A join of the rows before with those after is quadratic where few of them are expected.
      RETURNING a.id, ${fieldsOf(sql`t`)} AS before, ${fieldsOf(sql`a`)} AS after
    ), c AS (${change(sql`EXISTS (SELECT FROM done)`, { addsClass: named })}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, d.id, d.before, d.after FROM c, done d RETURNING annotation_id)
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed,
      ${MORE} AS more ${named ? sql`, (SELECT name FROM taken) AS taken` : sql``}`,
    await sizeOf(database, edit, where),
  );
}

/** Deletes the annotations `a` of a job that `where` names. */
export const deleteAnnotations = async (
  database: Database,
  edit: Edit,
  where: SQL,
): Promise<EditCount> =>
  inSteps(
    database,
    edit,
    ({ targets, change }) => sql`
    WITH ${targets(where)}, gone AS (
      DELETE FROM annotation a USING target t WHERE a.id = t.id AND a.job_id = t.job_id
      RETURNING a.*
    ), c AS (${change(sql`EXISTS (SELECT FROM gone)`)}), ${LOGGED_DELETION}
    SELECT (SELECT id FROM c) AS change_id, (SELECT count(*) FROM items)::int AS changed,
      ${MORE} AS more`,
    await sizeOf(database, edit, where),
  );

/** `items`, for a WITH: the log, in the change `c`, of the deletion of what is `gone`. */
export const LOGGED_DELETION = sql`
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, g.id, to_jsonb(g), NULL FROM c, gone g RETURNING annotation_id)`;

/** Whether an annotation `a` is as the edit of the item `i` left it. */
const AS_LEFT = sql`i.after = ${fieldsOf(sql`a`)}`;

/**
 * Undoes an edit once. Annotations that somebody edited since, and those of a class that went
 * since, are left as they are and counted as `kept`. A class that the edit took away comes back
 * under its number, or is the one that has its name by now; a class that it added goes when nothing
 * else is of it. One of many annotations is undone step by step: after a failure, undone again, it
 * goes on.
 */
export async function undoChange(
  database: Database,
  { jobId, changeId }: { jobId: string; changeId: string },
  actorId: string,
): Promise<{ restored: number; kept: number }> {
  const count = { restored: 0, kept: 0 };
  const { rows: sizes } = await database.execute<{ isLarge: boolean }>(sql`
    SELECT count(*) = ${LARGE_MIN}::int AS "isLarge" FROM (SELECT FROM change_item
      WHERE change_id = ${changeId}::uuid LIMIT ${LARGE_MIN}::int) f`);
  const isLarge = sizes[0]?.isLarge ?? false;
  const options = { after: dropAdded(changeId), isLarge, actorId };
  let last: string | null = null;
  for (let ended = false; !ended; ) {
    const step = undoStep(changeId, last, actorId);
    const [row]: UndoRow[] = await inJob<UndoRow>(database, jobId, step, options);
    if (!row?.stands) throw new Failure("state_conflict", "this edit was undone already");
    count.restored += row.restored;
    count.kept += row.items - row.restored;
    ({ last, ended } = row);
  }
  return count;
}

interface UndoRow {
  /** Whether the edit was not undone before. */
  stands: boolean;
  items: number;
  restored: number;
  /** The last item's annotation. */
  last: string | null;
  ended: boolean;
}

/** Undoes the items of a change that follow one; the last step marks the change as undone. */
function undoStep(changeId: string, last: string | null, actorId: string): SQL {
  const restored = FIELDS.filter((field) => field !== "class_number");
  const columns = (prefix: string) => sql.raw(restored.map((name) => prefix + name).join(", "));
  const following = last === null ? sql`true` : sql`annotation_id > ${last}::uuid`;
  return sql`
    WITH c AS (
      SELECT id, kind, job_id, summary FROM change
       WHERE id = ${changeId}::uuid AND undone_at IS NULL
    ), ${CLASSES_AGAIN}, own_items AS MATERIALIZED (
      SELECT * FROM change_item WHERE change_id = (SELECT id FROM c) AND ${following}
       ORDER BY annotation_id LIMIT ${STEP_MAX}::int
    ), undone AS (
      UPDATE change SET undoing_at = now(), seq = ${NEXT_SEQ},
        undone_at = CASE WHEN (SELECT count(*) FROM own_items) < ${STEP_MAX}::int THEN now() END
       WHERE id = (SELECT id FROM c) RETURNING undone_at IS NOT NULL AS ended
    ), items AS (
      SELECT i.*, s.now AS class_now FROM own_items i
        LEFT JOIN stands s ON s.number = (i.before->>'class_number')::int
    ), updated AS (
      -- Read once a row, not once a column.
      UPDATE annotation a SET (${columns("")}) = (SELECT ${columns("r.")}
          FROM jsonb_populate_record(NULL::annotation, i.before) r),
        class_number = i.class_now, revision = a.revision + 1, updated_at = clock_timestamp(),
        updated_by = ${actorId}::uuid
        FROM items i WHERE a.job_id = (SELECT job_id FROM c) AND a.id = i.annotation_id
         AND i.class_now IS NOT NULL
         AND i.before IS NOT NULL AND i.after IS NOT NULL AND ${AS_LEFT} RETURNING a.id
    ), removed AS (
      DELETE FROM annotation a USING items i
       WHERE a.job_id = (SELECT job_id FROM c) AND a.id = i.annotation_id AND i.before IS NULL
         AND ${AS_LEFT} RETURNING a.id
    ), returned AS (
      INSERT INTO annotation
      SELECT r.* FROM items i CROSS JOIN LATERAL jsonb_populate_record(NULL::annotation,
          i.before || jsonb_build_object('class_number', i.class_now)) r
       WHERE i.after IS NULL AND i.class_now IS NOT NULL ON CONFLICT (id) DO NOTHING RETURNING id)
    SELECT EXISTS (SELECT FROM c) AS stands, (SELECT count(*) FROM items)::int AS items,
      ((SELECT count(*) FROM updated) + (SELECT count(*) FROM removed)
        + (SELECT count(*) FROM returned))::int AS restored,
      (SELECT annotation_id FROM own_items ORDER BY annotation_id DESC LIMIT 1)::text AS last,
      coalesce((SELECT ended FROM undone), false) AS ended`;
}

/**
 * Removes the classes that an edit added, which this transaction undid, where nothing is of them
 * and no undoing could bring back what was.
 */
const dropAdded = (changeId: string): SQL => sql`
  DELETE FROM job_class k USING change c, LATERAL ${addedBy(sql`c.summary`)} added
   WHERE c.id = ${changeId}::uuid AND c.undone_at = now()::timestamptz(3) AND k.job_id = c.job_id
     AND k.number = (added->>'number')::int AND k.name = added->>'name'
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
