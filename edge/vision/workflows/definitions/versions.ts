// Versions of workflows, and what is served: a version as it was deployed, with its sub-workflows
// as they were then. Nothing here is ever changed.

import { sql } from "drizzle-orm";
import { Failure } from "../../../../shared/errors.ts";
import type { WorkflowVersion } from "../../../../shared/wire/workflows.ts";
import { InlinedDefinition, WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import { type Database, wireTime } from "../../../http/database.ts";
import type { Page } from "../../base/api.ts";
import { idList } from "../../base/sql.ts";
import { notThere, severalHave, type WorkflowRow } from "./workflows.ts";

/** Versions of a workflow, newest first. */
export async function listVersions(
  database: Database,
  { workflowId, deploymentId }: WorkflowRow,
  { limit, offset }: Page,
): Promise<WorkflowVersion[]> {
  const { rows } = await database.execute<WorkflowVersion & Record<string, unknown>>(sql`
    SELECT v.id::text AS version_id, v.version,
      jsonb_array_length(v.definition->'steps') AS steps,
      EXISTS (SELECT FROM workflow_deployment d WHERE d.id = ${deploymentId}::uuid
        AND d.version_id = v.id) AS deployed,
      v.created_by::text, ${wireTime(sql`v.created_at`)} AS created_at
      FROM workflow_version v WHERE v.workflow_id = ${workflowId}::uuid
     ORDER BY v.version DESC LIMIT ${limit}::int OFFSET ${offset}::int`);
  return rows;
}

/** A version with its definition. */
export interface VersionRow extends Record<string, unknown> {
  versionId: string;
  version: number;
  definition: WorkflowDefinition;
}

/** A version of a workflow, the newest by default; fails with `not_found`. */
export async function findVersion(
  database: Database,
  { workflowId, version: newest }: WorkflowRow,
  version: number = newest,
): Promise<VersionRow> {
  const { rows } = await database.execute<VersionRow>(sql`
    SELECT v.id::text AS "versionId", v.version, v.definition FROM workflow_version v
     WHERE v.workflow_id = ${workflowId}::uuid AND v.version = ${version}::int`);
  const [row] = rows;
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

/**
 * What is served by a slug. Fails with `not_found`, with `state_conflict` of a workflow that is
 * saved and not deployed, and with `invalid_request` where several of the workspaces have one.
 */
export async function findDeployed(
  database: Database,
  workspaces: readonly string[],
  { slug }: { slug: string },
): Promise<DeployedWorkflow> {
  type Row = { [Name in keyof DeployedWorkflow]: DeployedWorkflow[Name] | null };
  const { rows } = await database.execute<Row & Record<string, unknown>>(sql`
    SELECT w.id::text AS "workflowId", w.workspace_id::text AS "workspaceId", w.slug,
      d.version_id::text AS "versionId", d.version, d.definition,
      ${wireTime(sql`d.created_at`)} AS "deployedAt"
      FROM workflow w LEFT JOIN workflow_deployment d ON d.id = w.deployment_id
     WHERE w.workspace_id IN ${idList(workspaces)} AND w.slug = ${slug} AND w.deleted_at IS NULL`);
  const [row] = rows;
  if (!row) throw notThere();
  if (rows.length > 1) throw severalHave(slug);
  if (row.versionId === null) {
    throw new Failure("state_conflict", `the workflow ${slug} is not deployed: deploy it first`);
  }
  // Without a left join's nulls, of which the first has just been looked at.
  const deployed = row as DeployedWorkflow;
  return { ...deployed, definition: InlinedDefinition.parse(deployed.definition) };
}
