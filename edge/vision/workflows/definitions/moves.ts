// What is served of workflows, and the log of its moves. A move is written down in the statement
// that makes it, of the revision that its maker saw: of two at once one is told of the other.

import { type SQL, sql } from "drizzle-orm";
import { workflowMove } from "../../../../db/vision/workflows.ts";
import { Failure } from "../../../../shared/errors.ts";
import type { WorkflowMove } from "../../../../shared/wire/workflows.ts";
import type { WorkflowDefinition } from "../../../../shared/workflow/definition.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, rowsOf, selection } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Page } from "../../base/api.ts";
import { changeRevised, type LoggedMove, stepBack } from "../../base/history.ts";
import type { Parts } from "../../base/parts.ts";
import { instant } from "../../base/sql.ts";
import { lockRegistry } from "../../models/registry.ts";
import {
  changeWorkflow,
  findWorkflow,
  notThere,
  sameWorkflow,
  WORKFLOWS_MAX,
  type WorkflowRow,
} from "./workflows.ts";

type MoveParts = Pick<Parts, "database" | "clock">;

/** A move of a workflow; deployments of null: nothing was, or is, served. */
interface NewMove {
  row: WorkflowRow;
  kind: WorkflowMove["kind"];
  before: string | null;
  after: string | null;
  rollbackOf?: number;
  actorId: string;
}

const n = columnsOf(workflowMove, "n");
const versionOf = (deployment: SQL) =>
  sql<number | null>`(SELECT version FROM workflow_deployment WHERE id = ${deployment})`;
/** The columns of a move `n`. */
const MOVE: SQL<WorkflowMove> = selection({
  move_id: n.id,
  workflow_id: n.workflowId,
  kind: n.kind,
  before: versionOf(n.beforeId),
  after: versionOf(n.afterId),
  rollback_of: n.rollbackOf,
  actor_id: n.actorId,
  at: n.at,
});

/** The part of a statement that writes down what its part `w` has done. */
const noted = ({ kind, before, after, rollbackOf, actorId }: NewMove, now: SQL): SQL => sql`
  INSERT INTO workflow_move (workspace_id, workflow_id, slug, kind, before_id, after_id,
    rollback_of, actor_id, at)
  SELECT w.workspace_id, w.id, w.slug, ${kind}, ${before}::uuid, ${after}::uuid,
    ${rollbackOf ?? null}::bigint, ${actorId}::uuid, ${now} FROM w RETURNING *`;

/** A workflow that is to be deployed. */
export interface NewDeployment {
  versionId: string;
  version: number;
  /** With its sub-workflows as they are now. */
  definition: WorkflowDefinition;
  actorId: string;
  /** The revision that was seen; without one the newest is deployed over. */
  revision?: number | undefined;
}

/**
 * Deploys a version; returns the workflow as it is then. What is served already, to the last step
 * of its sub-workflows, is no move. Fails with `revision_conflict` where another change came
 * before.
 */
export const deployWorkflow = (
  parts: MoveParts,
  row: WorkflowRow,
  deployment: NewDeployment,
): Promise<WorkflowRow> =>
  changeWorkflow(parts.database, row, {
    revision: deployment.revision,
    change: (seen) => deployAt(parts, seen, deployment),
  });

/** Deploys over the revision that was seen; false where it is served, or another change came. */
async function deployAt(
  { database, clock }: MoveParts,
  row: WorkflowRow,
  { versionId, version, definition, actorId }: NewDeployment,
): Promise<boolean> {
  const now = instant(clock());
  const id = crypto.randomUUID();
  const move = { row, kind: "deploy" as const, before: row.deploymentId, after: id, actorId };
  const { rows } = await database.execute(sql`
    WITH w AS (
      UPDATE workflow w SET deployment_id = ${id}::uuid, revision = revision + 1,
        updated_at = ${now}
       WHERE w.id = ${row.workflowId}::uuid AND w.revision = ${row.revision}::int
         AND w.deleted_at IS NULL AND NOT EXISTS (
         SELECT FROM workflow_deployment o WHERE o.id = w.deployment_id
            AND o.version_id = ${versionId}::uuid AND o.definition = ${jsonb(definition)})
      RETURNING *),
    made AS (
      INSERT INTO workflow_deployment (id, workflow_id, version_id, version, definition, created_by,
        created_at)
      SELECT ${id}::uuid, w.id, ${versionId}::uuid, ${version}::int, ${jsonb(definition)},
        ${actorId}::uuid, ${now} FROM w)
    ${noted(move, now)}`);
  return rows.length > 0;
}

/** Makes a move that changes whether a workflow is there, or which deployment it serves. */
async function moveAt({ database, clock }: MoveParts, move: NewMove): Promise<number | null> {
  const now = instant(clock());
  const { row, after, kind } = move;
  const [, [made]] = await batch<[unknown, { id: number }]>(database, [
    lockRegistry(row.workspaceId),
    sql`
      WITH w AS (
        UPDATE workflow w SET revision = revision + 1, updated_at = ${now},
          deployment_id = ${kind === "delete" ? sql`deployment_id` : sql`${after}::uuid`},
          deleted_at = ${kind === "delete" ? now : sql`NULL::timestamptz`}
         WHERE w.id = ${row.workflowId}::uuid AND w.revision = ${row.revision}::int
           AND (w.deleted_at IS NULL OR NOT EXISTS (SELECT FROM workflow o
             WHERE o.workspace_id = w.workspace_id AND o.slug = w.slug AND o.deleted_at IS NULL)
             AND (SELECT count(*) FROM workflow o WHERE o.workspace_id = w.workspace_id
               AND o.deleted_at IS NULL) < ${WORKFLOWS_MAX}::int)
        RETURNING *),
      n AS (${noted(move, now)})
      SELECT n.id::float8 AS id FROM n`,
  ]);
  return made?.id ?? null;
}

/** Deletes a workflow: it is served no more, and its slug is free. */
export async function deleteWorkflow(
  parts: MoveParts,
  row: WorkflowRow,
  actorId: string,
): Promise<void> {
  await changeRevised(row, {
    what: "workflow",
    again: () => sameWorkflow(parts.database, row),
    change: (seen) => {
      const before = seen.deploymentId;
      return moveAt(parts, { row: seen, kind: "delete", before, after: null, actorId });
    },
  });
}

type DeploymentMove = LoggedMove &
  Record<string, unknown> & { kind: WorkflowMove["kind"]; before: string | null };

/**
 * Takes back the newest move of a workflow that stands; returns the workflow and the move. Fails
 * with `state_conflict` where there is none, and where another move came before.
 */
export async function rollBackWorkflow(
  parts: MoveParts,
  row: WorkflowRow,
  actorId: string,
): Promise<{ workflow: WorkflowRow; move: WorkflowMove }> {
  const { database } = parts;
  const { workspaceId, workflowId, slug } = row;
  const { rows } = await database.execute<DeploymentMove>(sql`
    SELECT id::float8 AS id, rollback_of::float8 AS "rollbackOf", kind, before_id::text AS before
      FROM workflow_move WHERE workflow_id = ${workflowId}::uuid ORDER BY id`);
  // A deletion is taken back also where nothing was served.
  const { move: back } = await stepBack(rows, {
    leadsBack: ({ kind, before }) =>
      kind === "delete" ? row.deleted : before !== null && before !== row.deploymentId,
  });
  if (!back) {
    throw new Failure("state_conflict", `nothing was served by ${slug} before what is served now`);
  }
  const before = row.deleted ? null : row.deploymentId;
  const move = { row, kind: "rollback" as const, before, after: back.before };
  const id = await moveAt(parts, { ...move, rollbackOf: back.id, actorId });
  if (id === null) {
    throw new Failure("state_conflict", "the workflow was moved meanwhile; look, and try again");
  }
  const workflow = await findWorkflow(database, [workspaceId], { slug });
  const [logged] = await rowsOf(database, MOVE)`
    SELECT ${MOVE} FROM workflow_move n WHERE n.id = ${id}::bigint`;
  if (!logged) throw notThere();
  return { workflow, move: logged };
}

/** Moves of a slug in a workspace, newest first; of all workflows that had it. */
export async function listWorkflowMoves(
  database: Database,
  { workspaceId, slug }: WorkflowRow,
  { limit, offset }: Page,
): Promise<WorkflowMove[]> {
  const rows = await rowsOf(database, MOVE)`
    SELECT ${MOVE} FROM workflow_move n WHERE n.workspace_id = ${workspaceId}::uuid
       AND n.slug = ${slug} ORDER BY n.id DESC LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows;
}
