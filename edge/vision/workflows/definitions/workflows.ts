// Saved workflows as rows. Each save of another definition makes a version, which is never changed;
// a change is of the revision that its maker saw: of two at once one is told of the other. A
// deleted workflow's row stays, so that its deletion can be taken back.

import { type SQL, sql } from "drizzle-orm";
import { workflow, workflowDeployment } from "../../../../db/vision/workflows.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { Workflow } from "../../../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import { batch, type Database } from "../../../http/database.ts";
import {
  columnsOf,
  joinedColumnsOf,
  type RowOf,
  rowsOf,
  selection,
} from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import { changeRevised } from "../../base/history.ts";
import type { Parts } from "../../base/parts.ts";
import { idList, instant } from "../../base/sql.ts";
import { lockRegistry } from "../../models/registry.ts";

/** Workflows of a workspace. */
export const WORKFLOWS_MAX = 200;
/** Versions of a workflow. */
const VERSIONS_MAX = 1_000;

const w = columnsOf(workflow, "w");
const d = joinedColumnsOf(workflowDeployment, "d");
/** The columns of a workflow `w` with its deployment `d`, and where they come from. */
const WORKFLOW = selection({
  workflowId: w.id,
  workspaceId: w.workspaceId,
  slug: w.slug,
  name: w.name,
  description: w.description,
  /** Its newest version's number. */
  version: w.version,
  deploymentId: d.id,
  deployedVersion: d.version,
  deployedAt: d.createdAt,
  revision: w.revision,
  createdAt: w.createdAt,
  updatedAt: w.updatedAt,
  deleted: sql<boolean>`w.deleted_at IS NOT NULL`,
});
/** A saved workflow. */
export type WorkflowRow = RowOf<typeof WORKFLOW>;
const DEPLOYED = sql`LEFT JOIN workflow_deployment d ON d.id = w.deployment_id`;

/** A workflow as the wire shows it. */
export const workflowRecord = (row: WorkflowRow): Workflow => ({
  workflow_id: row.workflowId,
  workspace_id: row.workspaceId,
  slug: row.slug,
  name: row.name,
  description: row.description,
  version: row.version,
  deployed_version: row.deployedVersion,
  deployed_at: row.deployedAt,
  revision: row.revision,
  created_at: row.createdAt,
  updated_at: row.updatedAt,
});

/** What is said of a workflow that is none of the caller's, or none any more. */
export const notThere = () => new Failure("not_found", "no such workflow in your workspaces");

/** What is said where several of the caller's workspaces have a workflow of the slug. */
export const severalHave = (slug: string) =>
  new Failure(
    "invalid_request",
    `workspace_id: required, since several of your workspaces have a workflow ${slug}`,
  );

/** Workflows of the workspaces, by slug. */
export async function listWorkflows(
  database: Database,
  workspaces: readonly string[],
): Promise<WorkflowRow[]> {
  const rows = await rowsOf(database, WORKFLOW)`
    SELECT ${WORKFLOW} FROM workflow w ${DEPLOYED}
     WHERE w.workspace_id IN ${idList(workspaces)} AND w.deleted_at IS NULL
     ORDER BY w.slug, w.id`;
  return rows;
}

/**
 * The workflow of a slug; with `orFormer` the newest deleted one where there is no other. Fails
 * with `not_found`, and with `invalid_request` where several of the workspaces have one.
 */
export async function findWorkflow(
  database: Database,
  workspaces: readonly string[],
  { slug, orFormer = false }: { slug: string; orFormer?: boolean },
): Promise<WorkflowRow> {
  const rows = await rowsOf(database, WORKFLOW)`
    SELECT DISTINCT ON (w.workspace_id) ${WORKFLOW} FROM workflow w ${DEPLOYED}
     WHERE w.workspace_id IN ${idList(workspaces)} AND w.slug = ${slug}
       AND (w.deleted_at IS NULL OR ${orFormer}::boolean)
     ORDER BY w.workspace_id, (w.deleted_at IS NULL) DESC, w.deleted_at DESC`;
  const [row] = rows;
  if (!row) throw notThere();
  if (rows.length === 1) return row;
  throw severalHave(slug);
}

/** A workflow that is to be made. */
export interface NewWorkflow {
  workspaceId: string;
  slug: string;
  name: string;
  description: string;
  definition: WorkflowDefinition;
  actorId: string;
}

/** The row of a version, in terms of what a statement has as `w`. */
const versionOf = (
  { definition, actorId }: Pick<NewWorkflow, "definition" | "actorId">,
  { now, where = sql`true` }: { now: SQL; where?: SQL },
): SQL => sql`
  INSERT INTO workflow_version (id, workflow_id, version, definition, created_by, created_at)
  SELECT ${crypto.randomUUID()}::uuid, w.id, w.version, ${jsonb(definition)}, ${actorId}::uuid,
    ${now} FROM w WHERE ${where}`;

/**
 * Makes a workflow at version 1; returns it. Fails with `state_conflict` where the workspace has
 * one of this slug, or as many as it may have.
 */
export async function createWorkflow(
  { database, clock }: Pick<Parts, "database" | "clock">,
  made: NewWorkflow,
): Promise<WorkflowRow> {
  const { workspaceId, slug, name, description, actorId } = made;
  const now = instant(clock());
  const own = sql`workspace_id = ${workspaceId}::uuid AND deleted_at IS NULL`;
  const [, [row]] = await batch<[unknown, { workflowId: string }]>(database, [
    lockRegistry(workspaceId),
    sql`
      WITH w AS (
        INSERT INTO workflow (id, workspace_id, slug, name, description, created_by, created_at,
          updated_at)
        SELECT ${crypto.randomUUID()}::uuid, ${workspaceId}::uuid, ${slug}, ${name},
          ${description}, ${actorId}::uuid, ${now}, ${now}
         WHERE (SELECT count(*) FROM workflow WHERE ${own}) < ${WORKFLOWS_MAX}::int
        ON CONFLICT (workspace_id, slug) WHERE deleted_at IS NULL DO NOTHING
        RETURNING id, version),
      v AS (${versionOf(made, { now })})
      SELECT id FROM w`,
  ]);
  if (row) return findWorkflow(database, [workspaceId], { slug });
  const { rows } = await database.execute(sql`
    SELECT FROM workflow WHERE ${own} AND slug = ${slug}`);
  if (rows.length > 0) {
    throw new Failure("state_conflict", `slug: the workspace has a workflow ${slug}`);
  }
  throw tooMany();
}

/** What is said where a workspace has as many workflows as it may have. */
export const tooMany = () =>
  new Failure(
    "state_conflict",
    `the workspace has ${WORKFLOWS_MAX} workflows, which is as many as it may have`,
    { data: { workflows_max: WORKFLOWS_MAX } },
  );

/** What is to change of a workflow; what is left out stays. */
export interface WorkflowEdit {
  definition: WorkflowDefinition;
  name?: string | undefined;
  description?: string | undefined;
  /** The revision that was seen; without one the newest is changed. */
  revision?: number | undefined;
  actorId: string;
}

/** A workflow as it is now; fails with `not_found` where its slug is another's by now. */
export async function sameWorkflow(database: Database, row: WorkflowRow): Promise<WorkflowRow> {
  const found = await findWorkflow(database, [row.workspaceId], { slug: row.slug });
  if (found.workflowId !== row.workflowId) throw notThere();
  return found;
}

/**
 * Changes a workflow as it is now; returns it as it is then. `change` says whether it made one; it
 * made none where nothing was to do, or where another change came before. Fails with
 * `revision_conflict` where a revision is given and is not the workflow's any more.
 */
export const changeWorkflow = (
  database: Database,
  row: WorkflowRow,
  {
    revision,
    change,
  }: { revision?: number | undefined; change: (seen: WorkflowRow) => Promise<boolean> },
): Promise<WorkflowRow> =>
  changeRevised(row, {
    what: "workflow",
    revision,
    again: () => sameWorkflow(database, row),
    change: async (seen) => {
      const isMade = await change(seen);
      const now = await sameWorkflow(database, row);
      return isMade || now.revision === seen.revision ? now : null;
    },
  });

/**
 * Saves a workflow; returns it as it is then. Another definition is a new version; an edit that
 * changes nothing makes none. Fails with `revision_conflict` where `revision` is given and is not
 * the workflow's any more.
 */
export const saveWorkflow = (
  parts: Pick<Parts, "database" | "clock">,
  row: WorkflowRow,
  edit: WorkflowEdit,
): Promise<WorkflowRow> =>
  changeWorkflow(parts.database, row, {
    revision: edit.revision,
    change: (seen) => saveAt(parts, seen, edit),
  });

/** Saves an edit of the revision that was seen; false where nothing was to do, or another came. */
async function saveAt(
  { database, clock }: Pick<Parts, "database" | "clock">,
  seen: WorkflowRow,
  edit: WorkflowEdit,
): Promise<boolean> {
  const now = instant(clock());
  const name = edit.name ?? seen.name;
  const description = edit.description ?? seen.description;
  const { rows } = await database.execute<{ full: boolean }>(sql`
    WITH seen AS (
      SELECT v.workflow_id, v.definition <> ${jsonb(edit.definition)} AS other
        FROM workflow_version v
       WHERE v.workflow_id = ${seen.workflowId}::uuid AND v.version = ${seen.version}::int),
    w AS (
      UPDATE workflow w SET name = ${name}, description = ${description},
        version = w.version + seen.other::int, revision = w.revision + 1, updated_at = ${now}
        FROM seen
       WHERE w.id = seen.workflow_id AND w.revision = ${seen.revision}::int
         AND w.deleted_at IS NULL AND (NOT seen.other OR w.version < ${VERSIONS_MAX}::int)
         AND (seen.other OR (w.name, w.description) <> (${name}::text, ${description}::text))
      RETURNING w.id, w.version, seen.other),
    v AS (${versionOf(edit, { now, where: sql`w.other` })})
    SELECT false AS full FROM w
    UNION ALL
    SELECT true FROM seen WHERE other AND ${seen.version}::int >= ${VERSIONS_MAX}::int`);
  const [saved] = rows;
  if (!saved?.full) return saved !== undefined;
  throw new Failure(
    "state_conflict",
    `the workflow has ${VERSIONS_MAX} versions, which is as many as it may have: save another`,
    { data: { versions_max: VERSIONS_MAX } },
  );
}
