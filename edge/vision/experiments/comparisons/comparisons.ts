// Stored comparisons: two models side by side under a name. Their sessions go with them.

import { type SQL, sql } from "drizzle-orm";
import { comparison } from "../../../../db/vision/comparisons.ts";
import { Failure } from "../../../../shared/errors.ts";
import { batch, type Database } from "../../../http/database.ts";
import { columnsOf, type RowOf, rowsOf, selection, typed } from "../../../http/selection.ts";
import { jsonb } from "../../../http/storable.ts";
import type { Parts } from "../../base/parts.ts";
import { idList } from "../../base/sql.ts";
import { type Comparison, ComparisonSettings } from "./records.ts";

/** Comparisons of a workspace. */
const COMPARISONS_MAX = 1_000;

const c = columnsOf(comparison, "c");
const COMPARISON = selection({
  comparisonId: c.id,
  workspaceId: c.workspaceId,
  name: c.name,
  settings: typed<ComparisonSettings>(c.settings),
  createdAt: c.createdAt,
});
/** A comparison. */
export type ComparisonRow = RowOf<typeof COMPARISON>;

/** A comparison as it goes over the wire. */
export const comparisonRecord = (row: ComparisonRow): Comparison => ({
  comparison_id: row.comparisonId,
  workspace_id: row.workspaceId,
  name: row.name,
  // In the order of its schema, which the database does not keep.
  settings: ComparisonSettings.parse(row.settings),
  created_at: row.createdAt,
});

/** Comparisons of the workspaces, newest first. */
export async function listComparisons(
  database: Database,
  workspaces: readonly string[],
  { comparisonId, offset, limit }: { comparisonId?: string; offset: number; limit: number },
): Promise<ComparisonRow[]> {
  const one: SQL = comparisonId === undefined ? sql`` : sql`AND c.id = ${comparisonId}::uuid`;
  const rows = await rowsOf(database, COMPARISON)`
    SELECT ${COMPARISON} FROM comparison c WHERE c.workspace_id IN ${idList(workspaces)} ${one}
     ORDER BY c.created_at DESC, c.id LIMIT ${limit}::int OFFSET ${offset}::int`;
  return rows;
}

/** The comparison of this id, if it is of these workspaces; fails with `not_found`. */
export async function findComparison(
  database: Database,
  workspaces: readonly string[],
  comparisonId: string,
): Promise<ComparisonRow> {
  const page = { comparisonId, offset: 0, limit: 1 };
  const [row] = await listComparisons(database, workspaces, page);
  if (!row) throw new Failure("not_found", "no such comparison in your workspaces");
  return row;
}

/** Makes a comparison. Fails with `state_conflict` where the workspace has as many as it may. */
export async function createComparison(
  { database }: Pick<Parts, "database">,
  comparison: Pick<ComparisonRow, "workspaceId" | "name" | "settings"> & { createdBy: string },
): Promise<ComparisonRow> {
  const { workspaceId, name, settings, createdBy } = comparison;
  const rows = await rowsOf(database, COMPARISON)`
    WITH c AS (
      INSERT INTO comparison (id, workspace_id, name, settings, created_by)
      SELECT ${crypto.randomUUID()}::uuid, ${workspaceId}::uuid, ${name}, ${jsonb(settings)},
        ${createdBy}::uuid
       WHERE (SELECT count(*) FROM comparison WHERE workspace_id = ${workspaceId}::uuid)
         < ${COMPARISONS_MAX}::int
      RETURNING *)
    SELECT ${COMPARISON} FROM c`;
  if (rows[0]) return rows[0];
  const detail = `the workspace has ${COMPARISONS_MAX} comparisons, which is as many as it may have`;
  throw new Failure("state_conflict", detail, { data: { comparisons_max: COMPARISONS_MAX } });
}

/**
 * Deletes a comparison: nobody finds its sessions from then on, and their objects go soon after.
 * Returns the ids of those sessions.
 */
export async function deleteComparison(
  { database }: Pick<Parts, "database">,
  { comparisonId }: Pick<ComparisonRow, "comparisonId">,
): Promise<string[]> {
  const id = sql`${comparisonId}::uuid`;
  const [, deleted, sessions] = await batch<[unknown, unknown, { id: string }]>(database, [
    // Whoever begins a session waits for it, and then finds no comparison.
    sql`SELECT FROM comparison WHERE id = ${id} FOR UPDATE`,
    sql`DELETE FROM comparison WHERE id = ${id} RETURNING id`,
    sql`UPDATE comparison_session SET forgotten_at = now()
         WHERE comparison_id = ${id} AND forgotten_at IS NULL RETURNING id::text`,
  ]);
  if (deleted.length === 0) throw new Failure("not_found", "no such comparison in your workspaces");
  return sessions.map((session) => session.id);
}
