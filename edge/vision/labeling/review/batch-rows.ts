// Batches of edits against the database: read what they are about, plan, and write all in one
// statement, where what was read still stands; else once more.

import { type SQL, sql } from "drizzle-orm";
import { appliedEdit } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { EditResult, EditsAnswer } from "../../../../shared/wire/edits.ts";
import { parseFrameId } from "../../../../shared/wire/vision.ts";
import { batch, type Database } from "../../../http/database.ts";
import { keep } from "../../base/retention.ts";
import { idList } from "../../base/sql.ts";
import { ClassName, unusedNumber } from "../classes.ts";
import type { FrameSize } from "../jobs/boxes.ts";
import { tellEdited } from "../jobs/edit-events.ts";
import { editedJob, editsSeq, inRange, type JobRow } from "../jobs/jobs.ts";
import { TrackId } from "./annotation-fields.ts";
import { listedAnnotations } from "./annotations.ts";
import {
  type BatchEdit,
  type BatchPlan,
  framesDrawnOn,
  type KnownAnnotation,
  type KnownJob,
  type KnownTrack,
  type PlannedResult,
  planBatch,
} from "./batch-edits.ts";
import { TOUCHED_MAX } from "./change-pages.ts";
import { fieldsOf, insertChange } from "./changes.ts";

/** For so long a repeated edit is known; no outbox waits longer. */
export const KEPT_EDITS = keep(appliedEdit, "createdAt", { days: 90 });

/** Times that a batch is planned anew since others edited what it is about. */
const TRIES_MAX = 20;

/** Applies the edits of a batch, in order; what was applied before is answered as it was then. */
export async function applyEdits(
  database: Database,
  job: JobRow,
  { edits, actorId }: { edits: readonly BatchEdit[]; actorId: string },
): Promise<EditsAnswer> {
  const results: EditResult[] = [];
  let first: number | null = null;
  let editsSeq = 0;
  for (let tries = 0; results.length < edits.length; ) {
    const rest = edits.slice(results.length);
    const known = await readKnown(database, job, rest);
    const plan = planBatch(rest, known);
    const written = await write(database, job, { plan, known, edits: rest, actorId });
    if (!written) {
      if (++tries < TRIES_MAX) continue;
      throw new Failure("busy", "many edit these annotations at once; send the batch again");
    }
    first ??= written.afterSeq;
    ({ editsSeq } = written);
    results.push(...(await answered(database, job, plan.results, written.changeId)));
  }
  return { after_seq: first ?? editsSeq, edits_seq: editsSeq, results };
}

/** Results as they are answered, with the annotations that edits are in conflict with. */
async function answered(
  database: Database,
  job: JobRow,
  planned: readonly PlannedResult[],
  changeId: string,
): Promise<EditResult[]> {
  const conflicts = planned.flatMap((one) =>
    one.status === "conflict" ? [one.annotation_id] : [],
  );
  const rows = await listedAnnotations(database, job.id, [...new Set(conflicts)]);
  const now = new Map(rows.map((row) => [row.annotation_id, row]));
  return planned.map((one): EditResult => {
    const { edit_id, status } = one;
    if (status === "applied") {
      return { edit_id, status, revision: one.revision, change_id: one.change_id ?? changeId };
    }
    if (status !== "conflict") return one;
    const current = now.get(one.annotation_id);
    return current ? { edit_id, status, current } : { edit_id, status: "gone" };
  });
}

/** Names of a job's classes by number. */
const classesOf = (jobId: SQL): SQL => sql`(
  SELECT coalesce(jsonb_object_agg(number, name), '{}') FROM job_class WHERE job_id = ${jobId})`;

/** Reads what a batch is about. */
async function readKnown(
  database: Database,
  job: JobRow,
  edits: readonly BatchEdit[],
): Promise<KnownJob> {
  const jobId = sql`${job.id}::uuid`;
  const ids = idList(edits.map((edit) => edit.annotation_id));
  const frames = framesDrawnOn(edits).map((id) => ({ id, ...parseFrameId(id) }));
  const names = edits.flatMap((edit) => {
    const { data } = ClassName.safeParse(edit.op === "delete" ? null : edit.fields.class);
    return data === undefined ? [] : [data];
  });
  const [head, annotations, applied, sizes, tracks] = await batch<
    [
      { seq: number; classes: Record<number, string>; unused: number | null },
      Omit<KnownAnnotation, "size"> & FrameSize,
      KnownJob["applied"][number],
      { id: string } & FrameSize,
      KnownTrack,
    ]
  >(database, [
    sql`
    SELECT ${editsSeq(jobId)} AS seq, ${classesOf(jobId)} AS classes, CASE WHEN EXISTS (
        SELECT FROM jsonb_array_elements_text(${JSON.stringify(names)}::jsonb) n
         WHERE NOT EXISTS (SELECT FROM job_class WHERE job_id = ${jobId} AND name = n))
      THEN ${unusedNumber(job.id)} END AS unused`,
    sql`
    SELECT a.id, a.job_id = ${jobId} AS own, a.video_id AS video, a.frame_index AS frame,
      a.class_number AS class, a.track_id AS track, a.revision, v.width, v.height
      FROM annotation a JOIN video v ON v.id = a.video_id WHERE a.id IN ${ids}`,
    sql`
    SELECT edit_id AS edit, revision, change_id AS change FROM applied_edit
     WHERE job_id = ${jobId} AND edit_id IN ${idList(edits.map((edit) => edit.edit_id))}`,
    sql`
    SELECT f.id, v.width, v.height
      FROM jsonb_to_recordset(${JSON.stringify(frames)}::jsonb) f(id text, "videoId" uuid, index int)
      JOIN job_video jv ON jv.job_id = ${jobId} AND jv.video_id = f."videoId"
      JOIN job j ON j.id = jv.job_id JOIN video v ON v.id = jv.video_id
     WHERE ${inRange(sql`f.index`)}`,
    sql`
    WITH ${wantedTracks(jobId, edits)}
    SELECT a.video_id AS video, a.track_id AS track, a.class_number AS class,
      coalesce(jsonb_agg(DISTINCT a.frame_index) FILTER (WHERE a.frame_index IN (
        SELECT frame FROM wanted)), '[]') AS frames
      FROM (SELECT DISTINCT video, track FROM wanted) w JOIN annotation a
        ON a.job_id = ${jobId} AND a.video_id = w.video AND a.track_id = w.track
     WHERE a.id NOT IN ${ids} GROUP BY 1, 2, 3`,
  ]);
  return {
    editsSeq: head[0]?.seq ?? 0,
    classes: head[0]?.classes ?? {},
    unusedNumber: head[0]?.unused ?? 0,
    annotations: annotations.map(({ width, height, ...one }) => ({
      ...one,
      size: { width, height },
    })),
    applied,
    sizes: new Map(sizes.map(({ id, width, height }) => [id, { width, height }])),
    tracks,
  };
}

/** `wanted`, for a WITH: the tracks that edits name, with the video and frame that each is of. */
function wantedTracks(jobId: SQL, edits: readonly BatchEdit[]): SQL {
  const frames = new Map(
    edits.map((edit) => {
      const given = edit.op === "create" && edit.fields.frame_id;
      return [edit.annotation_id, typeof given === "string" ? parseFrameId(given) : null];
    }),
  );
  const named = edits.flatMap((edit) => {
    const { data: track } = TrackId.safeParse(edit.op === "delete" ? null : edit.fields.track_id);
    const frame = frames.get(edit.annotation_id);
    return track === undefined
      ? []
      : [{ id: edit.annotation_id, video: frame?.videoId, frame: frame?.index, track }];
  });
  return sql`wanted AS (
    SELECT coalesce(a.video_id, t.video) AS video, coalesce(a.frame_index, t.frame) AS frame, t.track
      FROM jsonb_to_recordset(${JSON.stringify(named)}::jsonb)
        t(id uuid, video uuid, frame int, track int)
      LEFT JOIN annotation a ON a.id = t.id AND a.job_id = ${jobId})`;
}

/**
 * What listeners are told of the annotations that got a number of a commit, where these are few:
 * those of the batch, and those that triggers changed with them.
 */
async function touchedBy(database: Database, job: JobRow, { after, upTo }: NumberRange) {
  const numbered = sql`job_id = ${job.id}::uuid AND seq > 0
    AND seq > ${after}::bigint AND seq <= ${upTo}::bigint`;
  const { rows: touched } = await database.execute<{ id: string }>(sql`
    SELECT id::text FROM annotation WHERE ${numbered}
    UNION SELECT annotation_id::text FROM annotation_deletion WHERE ${numbered}
     LIMIT ${TOUCHED_MAX + 1}::int`);
  if (touched.length > TOUCHED_MAX) return {};
  const ids = touched.map(({ id }) => id);
  const rows = await listedAnnotations(database, job.id, ids);
  const now = new Set(rows.map((row) => row.annotation_id));
  return { rows, deleted: ids.filter((id) => !now.has(id)) };
}

/** The numbers of one commit: above the first, up to the second. */
interface NumberRange {
  after: number;
  upTo: number;
}

interface PlannedBatch {
  plan: BatchPlan;
  known: KnownJob;
  edits: readonly BatchEdit[];
  actorId: string;
}

/**
 * Writes what a plan says, as one change; null where what it was made by does not stand any more.
 */
async function write(
  database: Database,
  job: JobRow,
  { plan, known, edits, actorId }: PlannedBatch,
): Promise<{ changeId: string; afterSeq: number; editsSeq: number } | null> {
  const applied = new Map(
    plan.results.flatMap((one) =>
      one.status === "applied" && one.change_id === undefined ? [[one.edit_id, one] as const] : [],
    ),
  );
  if (applied.size === 0) {
    return { changeId: "", afterSeq: known.editsSeq, editsSeq: known.editsSeq };
  }
  const jobId = sql`${job.id}::uuid`;
  const { writes, added } = plan;
  // What came and went within the batch is not written, but its id has to be free.
  const drawn = edits.flatMap(({ op, edit_id, annotation_id: id }) =>
    op === "create" && applied.has(edit_id) ? [id] : [],
  );
  const rows = writes.map(({ bbox, ...one }) => {
    const [x1, y1, x2, y2] = bbox ?? [];
    return { ...one, x1, y1, x2, y2 };
  });
  const summary = { edits: applied.size, ...(added.length > 0 && { added }) };
  const change = { jobId: job.id, actorId, kind: "edit", summary };
  const stands = sql`
    EXISTS (SELECT FROM job WHERE id = ${jobId})
    AND ${classesOf(jobId)} = ${JSON.stringify(known.classes)}::jsonb
    AND NOT EXISTS (SELECT FROM applied_edit
      WHERE job_id = ${jobId} AND edit_id IN ${idList([...applied.keys()])})
    AND NOT EXISTS (SELECT FROM given g LEFT JOIN annotation a ON a.id = g.id AND a.job_id = ${jobId}
      WHERE g.seen IS NOT NULL AND a.revision IS DISTINCT FROM g.seen)
    AND NOT EXISTS (SELECT FROM annotation WHERE id IN ${idList(drawn)})
    AND NOT EXISTS (SELECT FROM (SELECT DISTINCT video, track FROM wanted) w JOIN annotation a
        ON a.job_id = ${jobId} AND a.video_id = w.video AND a.track_id = w.track
      WHERE a.seq > ${known.editsSeq}::bigint)`;
  const own = sql`a.id = g.id AND a.job_id = ${jobId} AND EXISTS (SELECT FROM ok)`;
  const statement = sql`
    WITH ${wantedTracks(jobId, edits)}, given AS MATERIALIZED (
      SELECT * FROM jsonb_to_recordset(${JSON.stringify(rows)}::jsonb) g(id uuid, op text, seen int,
        revision int, video uuid, frame int, class int, x1 real, y1 real, x2 real, y2 real,
        review text, shaped boolean, polygon jsonb, tracked boolean, track int)
    ), ok AS MATERIALIZED (
      SELECT WHERE ${stands}
    ), classes AS (
      INSERT INTO job_class (job_id, number, name)
      SELECT ${jobId}, k.number, k.name
        FROM jsonb_to_recordset(${JSON.stringify(added)}::jsonb) k(number int, name text), ok
    ), target AS (
      SELECT a.* FROM annotation a JOIN given g ON ${own} WHERE g.op = 'set' FOR UPDATE OF a
    ), edited AS (
      UPDATE annotation a SET class_number = coalesce(g.class, a.class_number),
        x1 = coalesce(g.x1, a.x1), y1 = coalesce(g.y1, a.y1), x2 = coalesce(g.x2, a.x2),
        y2 = coalesce(g.y2, a.y2), keyframe = a.keyframe OR g.x1 IS NOT NULL,
        polygon = CASE WHEN g.shaped THEN g.polygon ELSE a.polygon END,
        review = coalesce(g.review, a.review),
        track_id = CASE WHEN g.tracked THEN g.track ELSE a.track_id END,
        revision = g.revision, updated_at = clock_timestamp(), updated_by = ${actorId}::uuid
        FROM given g JOIN target t ON t.id = g.id WHERE a.id = t.id
      RETURNING a.id, ${fieldsOf(sql`t`)} AS before, ${fieldsOf(sql`a`)} AS after
    ), made AS (
      INSERT INTO annotation AS a (id, workspace_id, job_id, video_id, frame_index, class_number,
        x1, y1, x2, y2, source, review, polygon, track_id, keyframe, revision, updated_by)
      SELECT g.id, ${job.workspaceId}::uuid, ${jobId}, g.video, g.frame, g.class, g.x1, g.y1, g.x2,
        g.y2, 'person', g.review, g.polygon, g.track, true, g.revision, ${actorId}::uuid
        FROM given g, ok WHERE g.op = 'create'
      RETURNING a.id, ${fieldsOf(sql`a`)} AS after
    ), gone AS (
      DELETE FROM annotation a USING given g WHERE ${own} AND g.op = 'delete'
      RETURNING a.id, to_jsonb(a) AS before
    ), c AS (${insertChange(change, sql`EXISTS (SELECT FROM ok)`)}),
    items AS (
      INSERT INTO change_item (change_id, annotation_id, before, after)
      SELECT c.id, i.id, i.before, i.after FROM c, (
        SELECT id, before, after FROM edited
        UNION ALL SELECT id, NULL, after FROM made
        UNION ALL SELECT id, before, NULL FROM gone) i
    ), noted AS (
      INSERT INTO applied_edit (job_id, edit_id, annotation_id, revision, change_id)
      SELECT ${jobId}, e.edit_id, e.annotation_id, e.revision, c.id
        FROM c, jsonb_to_recordset(${JSON.stringify([...applied.values()])}::jsonb)
          e(edit_id uuid, annotation_id uuid, revision int))
    SELECT id AS change_id FROM c`;
  const written = await editedJob<{ change_id: string }>(database, job.id, statement);
  const changeId = written.rows[0]?.change_id;
  if (changeId === undefined) return null;
  const { afterSeq, editsSeq: newest } = written;
  const data = { after_seq: afterSeq, edits_seq: newest, actor_id: actorId };
  await tellEdited(database, job.id, {
    ...data,
    ...(await touchedBy(database, job, { after: afterSeq, upTo: newest })),
  });
  return { ...written, changeId };
}
