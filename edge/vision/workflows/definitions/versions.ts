// Versions of workflows, and what is served: a version as it was deployed, with its sub-workflows
// as they were then. Nothing here is ever changed.

import { type SQL, sql } from "drizzle-orm";
import { workflow, workflowDeployment, workflowVersion } from "../../../../db/vision/workflows.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { WorkflowVersion } from "../../../../shared/wire/workflows.ts";
import { InlinedDefinition, WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import type { Database } from "../../../http/database.ts";
import {
  columnsOf,
  joinedColumnsOf,
  type RowOf,
  rowsOf,
  selection,
  typed,
} from "../../../http/selection.ts";
import type { Page } from "../../base/api.ts";
import { idList } from "../../base/sql.ts";
import { notThere, severalHave, type WorkflowRow } from "./workflows.ts";

const v = columnsOf(workflowVersion, "v");

/** Versions of a workflow, newest first. */
export async function listVersions(
  database: Database,
  { workflowId, deploymentId }: WorkflowRow,
  { limit, offset }: Page,
): Promise<WorkflowVersion[]> {
  const list: SQL<WorkflowVersion> = selection({
    version_id: v.id,
    version: v.version,
    steps: sql<number>`jsonb_array_length(v.definition->'steps')`,
    deployed: sql<boolean>`EXISTS (SELECT FROM workflow_deployment d
      WHERE d.id = ${deploymentId}::uuid AND d.version_id = v.id)`,
    created_by: v.createdBy,
    created_at: v.createdAt,
  });
  return await rowsOf(database, list)`
    SELECT ${list} FROM workflow_version v WHERE v.workflow_id = ${workflowId}::uuid
     ORDER BY v.version DESC LIMIT ${limit}::int OFFSET ${offset}::int`;
}

const VERSION = selection({
  versionId: v.id,
  version: v.version,
  definition: typed<WorkflowDefinition>(v.definition),
});
/** A version with its definition. */
export type VersionRow = RowOf<typeof VERSION>;

/** A version of a workflow, the newest by default; fails with `not_found`. */
export async function findVersion(
  database: Database,
  { workflowId, version: newest }: WorkflowRow,
  version: number = newest,
): Promise<VersionRow> {
  const [row] = await rowsOf(database, VERSION)`
    SELECT ${VERSION} FROM workflow_version v
     WHERE v.workflow_id = ${workflowId}::uuid AND v.version = ${version}::int`;
  if (!row) throw new Failure("not_found", "the workflow has no such version");
  // In the order of its schema, whatever it was stored in.
  return { ...row, definition: WorkflowDefinition.parse(row.definition) };
}

/** What a slug serves. */
export interface DeployedWorkflow {
  workflowId: string;
  workspaceId: string;
  slug: string;
  versionId: string;
  version: number;
  /** Its sub-workflows are a part of it. */
  definition: WorkflowDefinition;
  deployedAt: string;
}

const w = columnsOf(workflow, "w");
const d = joinedColumnsOf(workflowDeployment, "d");
/** A workflow `w` with its deployment `d`, where it has one. */
const DEPLOYED = selection({
  workflowId: w.id,
  workspaceId: w.workspaceId,
  slug: w.slug,
  versionId: d.versionId,
  version: d.version,
  definition: d.definition,
  deployedAt: d.createdAt,
});

/**
 * What is served by a slug. Fails with `not_found`, with `state_conflict` of a workflow that is
 * saved and not deployed, and with `invalid_request` where several of the workspaces have one.
 */
export async function findDeployed(
  database: Database,
  workspaces: readonly string[],
  { slug }: { slug: string },
): Promise<DeployedWorkflow> {
  const rows = await rowsOf(database, DEPLOYED)`
    SELECT ${DEPLOYED} FROM workflow w LEFT JOIN workflow_deployment d ON d.id = w.deployment_id
     WHERE w.workspace_id IN ${idList(workspaces)} AND w.slug = ${slug} AND w.deleted_at IS NULL`;
  const [row] = rows;
  if (!row) throw notThere();
  if (rows.length > 1) throw severalHave(slug);
  const { versionId, version, deployedAt, ...rest } = row;
  if (versionId === null || version === null || deployedAt === null) {
    throw new Failure("state_conflict", `the workflow ${slug} is not deployed: deploy it first`);
  }
  const definition = InlinedDefinition.parse(rest.definition);
  return { ...rest, versionId, version, definition, deployedAt };
}
