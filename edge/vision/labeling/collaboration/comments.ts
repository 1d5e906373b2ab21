// Comments on annotations. A comment names its annotation and frame without a reference to the
// annotation's row: deletion of an annotation can be undone, and its comments stay meanwhile.

import { type SQL, sql } from "drizzle-orm";
import { annotationComment } from "../../../../db/vision/labeling.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { AnnotationComment } from "../../../../shared/wire/collaboration.ts";
import { frameId } from "../../../../shared/wire/vision.ts";
import type { Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection } from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import { allOf, idList } from "../../base/sql.ts";

const COMMENT = selection(columnsOf(annotationComment, "c"));
type CommentRow = RowOf<typeof COMMENT>;

const commentRecord = (row: CommentRow): AnnotationComment => ({
  comment_id: row.id,
  job_id: row.jobId,
  annotation_id: row.annotationId,
  frame_id: frameId(row.videoId, row.frameIndex),
  text: row.text,
  author_id: row.authorId,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
  resolved_at: row.resolvedAt,
  resolved_by: row.resolvedBy,
});

/** The failure of a comment that is not there, or in another workspace. */
const noComment = () => new Failure("not_found", "no such comment in your workspaces");

/** The record of the one row that a statement returned; fails with `not_found` without a row. */
function onlyRecord([row]: readonly CommentRow[], absent: () => Failure = noComment) {
  if (!row) throw absent();
  return commentRecord(row);
}

/**
 * Adds a comment to an annotation. Fails with `not_found` where the annotation, or its job, was
 * deleted.
 */
export async function addComment(
  database: Database,
  { annotationId, text, authorId }: { annotationId: string; text: string; authorId: string },
): Promise<AnnotationComment> {
  const made = await rowsOf(database, COMMENT)`
    WITH c AS (
      INSERT INTO annotation_comment (id, job_id, annotation_id, video_id, frame_index, text,
        author_id)
      SELECT gen_random_uuid(), a.job_id, a.id, a.video_id, a.frame_index, ${text},
        ${authorId}::uuid
        FROM annotation a JOIN job j ON j.id = a.job_id WHERE a.id = ${annotationId}::uuid
         FOR KEY SHARE OF j
      RETURNING *)
    SELECT ${COMMENT} FROM c`;
  return onlyRecord(made, () => new Failure("not_found", "the annotation was deleted meanwhile"));
}

/** Which comments of a job are meant. */
interface CommentFilter {
  annotationId?: string | undefined;
  frame?: { videoId: string; index: number } | undefined;
  resolved?: boolean | undefined;
}

/** A page of a job's comments, oldest first, and how many there are. */
export async function listComments(
  database: Database,
  jobId: string,
  { annotationId, frame, resolved, offset, limit }: CommentFilter & Page,
): Promise<{ items: AnnotationComment[]; total: number }> {
  const named: SQL = sql`FROM annotation_comment c WHERE ${allOf([
    sql`c.job_id = ${jobId}::uuid`,
    annotationId && sql`c.annotation_id = ${annotationId}::uuid`,
    frame && sql`(c.video_id, c.frame_index) = (${frame.videoId}::uuid, ${frame.index}::int)`,
    resolved !== undefined && sql`(c.resolved_at IS NOT NULL) = ${resolved}::boolean`,
  ])}`;
  const [rows, { rows: totals }] = await Promise.all([
    rowsOf(database, COMMENT)`SELECT ${COMMENT} ${named}
      ORDER BY c.created_at, c.id LIMIT ${limit}::int OFFSET ${offset}::int`,
    database.execute<{ total: number }>(sql`SELECT count(*)::int AS total ${named}`),
  ]);
  return { items: rows.map(commentRecord), total: totals[0]?.total ?? 0 };
}

/** The author of a comment and its workspace, if it is one of these; fails with `not_found`. */
export async function findComment(
  database: Database,
  workspaces: readonly string[],
  commentId: string,
): Promise<{ commentId: string; authorId: string; workspaceId: string }> {
  const { rows } = await database.execute<{ author_id: string; workspace_id: string }>(sql`
    SELECT c.author_id, j.workspace_id FROM annotation_comment c JOIN job j ON j.id = c.job_id
     WHERE c.id = ${commentId}::uuid AND j.workspace_id IN ${idList(workspaces)}`);
  const [row] = rows;
  if (!row) throw noComment();
  return { commentId, authorId: row.author_id, workspaceId: row.workspace_id };
}

/** What somebody changes of a comment. */
interface CommentEdit {
  text?: string | undefined;
  resolved?: boolean | undefined;
  actorId: string;
}

/**
 * Changes a comment's text, resolves it or opens it again; what is left out stays. A comment that
 * is resolved already keeps who resolved it. Fails with `not_found`.
 */
export async function editComment(
  database: Database,
  commentId: string,
  { text, resolved, actorId }: CommentEdit,
): Promise<AnnotationComment> {
  const isOpen = sql`resolved_at IS NULL`;
  const sets = [
    text !== undefined &&
      sql`text = ${text}, updated_at = CASE text WHEN ${text} THEN updated_at ELSE now() END`,
    resolved === true &&
      sql`resolved_at = coalesce(resolved_at, now()),
        resolved_by = CASE WHEN ${isOpen} THEN ${actorId}::uuid ELSE resolved_by END`,
    resolved === false && sql`resolved_at = NULL, resolved_by = NULL`,
    // An edit without a field changes nothing.
    sql`id = id`,
  ].filter((set) => set !== false);
  const edited = await rowsOf(database, COMMENT)`
    WITH c AS (
      UPDATE annotation_comment SET ${sql.join(sets, sql`, `)} WHERE id = ${commentId}::uuid
      RETURNING *)
    SELECT ${COMMENT} FROM c`;
  return onlyRecord(edited);
}

/** Deletes a comment; fails with `not_found` where somebody did before. */
export async function deleteComment(database: Database, commentId: string): Promise<void> {
  const { rows } = await database.execute(sql`
    DELETE FROM annotation_comment WHERE id = ${commentId}::uuid RETURNING id`);
  if (rows.length === 0) throw noComment();
}
