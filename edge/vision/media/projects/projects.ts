// Projects as rows, found only within the caller's workspaces.

import { sql } from "drizzle-orm";
import { project } from "../../../../db/vision/schema.ts";
import { Failure } from "../../../../shared/errors.ts";
import { iso } from "../../../../shared/time.ts";
import type { Project, Role } from "../../../../shared/wire/vision.ts";
import { columnsOf, type RowOf, rowsOf, selection } from "../../../http/selection.ts";
import { allow, type Caller, workspacesOf } from "../../auth/scope.ts";
import { isWanted, type ListPage, type ListQuery, pageOf } from "../../base/lists.ts";
import type { Parts } from "../../base/parts.ts";
import { breaksReference, idList } from "../../base/sql.ts";

const p = columnsOf(project, "p");
const PROJECT = selection({
  projectId: p.id,
  workspaceId: p.workspaceId,
  name: p.name,
  description: p.description,
  videoCount: sql<number>`(SELECT count(*)::int FROM video WHERE project_id = p.id)`,
  createdAt: p.createdAt,
});
/** A project as its row holds it. */
export type ProjectRow = RowOf<typeof PROJECT>;

/** A project as the wire shows it. */
export const projectRecord = (row: ProjectRow): Project => ({
  project_id: row.projectId,
  workspace_id: row.workspaceId,
  name: row.name,
  description: row.description,
  video_count: row.videoCount,
  created_at: row.createdAt,
});

/** A page of the projects of these workspaces, newest first. */
export const listProjects = (
  { database }: Parts,
  workspaceIds: readonly string[],
  query: ListQuery,
): Promise<ListPage<ProjectRow>> => {
  const where = sql`p.workspace_id IN ${idList(workspaceIds)}
    AND ${isWanted(query, { name: p.name })}`;
  const order = sql`p.created_at DESC, p.id`;
  return pageOf(database, PROJECT, { from: sql`project p`, where, order }, query);
};

/**
 * A project in which the caller has at least this role. Fails with `not_found` where he has none,
 * with `forbidden` where it is too small.
 */
export async function findProjectFor(
  { database }: Parts,
  caller: Caller,
  projectId: string,
  role: Role = "viewer",
): Promise<ProjectRow> {
  const rows = await rowsOf(database, PROJECT)`
    SELECT ${PROJECT} FROM project p
     WHERE p.id = ${projectId}::uuid AND p.workspace_id IN ${idList(workspacesOf(caller))}`;
  const [row] = rows;
  if (!row) throw new Failure("not_found", "no such project in your workspaces");
  allow(caller, row.workspaceId, role);
  return row;
}

/** Makes a project without videos. */
export async function createProject(
  { database, clock, defaultHoldsProjects }: Parts,
  made: { workspaceId: string; name: string; description: string; createdBy: string },
): Promise<ProjectRow> {
  const rows = await rowsOf(database, PROJECT)`
    WITH p AS (
      INSERT INTO project (id, workspace_id, name, description, created_by, created_at)
      SELECT ${crypto.randomUUID()}::uuid, id, ${made.name}, ${made.description},
          ${made.createdBy}::uuid, ${iso(clock())}::timestamptz
        FROM workspace WHERE id = ${made.workspaceId}::uuid
         AND (${defaultHoldsProjects}::boolean OR NOT is_default)
      RETURNING *)
    SELECT ${PROJECT} FROM p`;
  if (rows[0]) return rows[0];
  const detail = "projects are made in a team's workspace here, not in the default one";
  throw new Failure("state_conflict", `${detail}: name one by workspace_id`);
}

/** Renames or describes a project anew; fails with `not_found` when it was deleted meanwhile. */
export async function updateProject(
  { database }: Parts,
  projectId: string,
  change: { name?: string | undefined; description?: string | undefined },
): Promise<ProjectRow> {
  const rows = await rowsOf(database, PROJECT)`
    WITH p AS (
      UPDATE project SET name = coalesce(${change.name ?? null}, name),
        description = coalesce(${change.description ?? null}, description)
       WHERE id = ${projectId}::uuid RETURNING *)
    SELECT ${PROJECT} FROM p`;
  const [row] = rows;
  if (!row) throw new Failure("not_found", "the project was deleted meanwhile");
  return row;
}

/** Deletes an empty project; fails with `state_conflict` for one that holds anything. */
export async function deleteProject({ database, clock }: Parts, projectId: string): Promise<void> {
  const { rows } = await database
    .execute(sql`
      WITH gone AS (
        DELETE FROM project WHERE id = ${projectId}::uuid
          AND NOT EXISTS (SELECT FROM video WHERE project_id = ${projectId}::uuid)
          AND NOT EXISTS (SELECT FROM job WHERE project_id = ${projectId}::uuid)
          AND NOT EXISTS (SELECT FROM training_run WHERE project_id = ${projectId}::uuid)
          AND NOT EXISTS (SELECT FROM dataset_import
            WHERE project_id = ${projectId}::uuid AND state = 'running')
          AND NOT EXISTS (SELECT FROM model WHERE project_id = ${projectId}::uuid)
          AND NOT EXISTS (SELECT FROM upload WHERE project_id = ${projectId}::uuid
            AND aborted_at IS NULL AND expires_at > ${iso(clock())}::timestamptz)
        RETURNING id),
      uploads AS (DELETE FROM upload USING gone WHERE upload.project_id = gone.id)
      SELECT id FROM gone`)
    .catch((thrown: unknown) => {
      // A video or job came while this statement ran.
      if (breaksReference(thrown)) return { rows: [] };
      throw thrown;
    });
  if (rows.length === 0) {
    const detail =
      "the project is not empty; delete its jobs, datasets, videos, uploads, runs and models first";
    throw new Failure("state_conflict", detail);
  }
}
