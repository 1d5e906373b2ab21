// The life of a thing as a table of moves: from which states each may be made, and where it leads.
// Every change of a `state` in SQL names the states that it may leave, by such a table.

import { type SQL, sql, type Table } from "drizzle-orm";
import type { Database } from "../../http/database.ts";
import { textList } from "../base/sql.ts";
import { type Act, auditEntries, moveChanges } from "./audit.ts";

/** A move of a table. */
export interface MoveRule<State extends string> {
  from: readonly State[];
  to: State;
}

/** Whether a move may be made from a state. */
export const mayMove = <State extends string>(
  { from }: { from: readonly NoInfer<State>[] },
  state: State,
): boolean => from.includes(state);

/** The row that is moved, of a table with `state` and `failure`. */
interface MovedRow {
  table: Table;
  id: string;
  /** What the audit log says was moved. */
  subject: string;
  /** What has to hold beside its state. */
  where?: SQL;
}

/**
 * Makes a move where the row stands in a state that allows it; tells whether. `set` is more of what
 * the statement sets; an act is written down with it.
 */
export async function moveRow(
  database: Database,
  { table, id, subject, where = sql`true` }: MovedRow,
  { from, to }: MoveRule<string>,
  { set = sql``, act }: { set?: SQL; act?: Act } = {},
): Promise<boolean> {
  const entry = act && auditEntries(act, moveChanges(subject));
  const { rows } = await database.execute(sql`
    WITH held AS (
      SELECT id AS held_id, state AS held_state FROM ${table}
       WHERE id = ${id}::uuid AND ${where} AND state IN ${textList(from)} FOR UPDATE),
    moved AS (
      UPDATE ${table} SET state = ${to} ${set} FROM held WHERE id = held_id
      RETURNING id, workspace_id, held_state, state, failure)
    ${entry ? sql`, logged AS (${entry})` : sql``}
    SELECT id FROM moved`);
  return rows.length > 0;
}
