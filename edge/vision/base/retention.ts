// How long rows are kept. A rule names a table and the column that says how old a row is; the
// minute cron lets go of what is older.

import { getTableColumns, getTableName, type SQL, sql, type Table } from "drizzle-orm";
import { DAY } from "../../../shared/time.ts";
import type { Parts } from "./parts.ts";
import { allOf, instant } from "./sql.ts";

/** Rows that one minute lets go of by default; the next one takes the rest. */
export const FORGOTTEN_MAX = 5_000;

/** What a rule is asked by. */
export type RetentionParts = Pick<Parts, "clock" | "limits">;

/** Rows of a table that are let go of. */
export interface Retention {
  /** The duty's: the table's name after `old_`. */
  name: string;
  /** The statement that deletes what is too old by now. */
  forget: (parts: RetentionParts) => SQL;
}

/**
 * Keeps rows of a table for days after the instant in a column; those without one stay. `where`
 * narrows the rule to some rows, `max` is how many a minute lets go of.
 */
export function keep<T extends Table>(
  table: T,
  since: keyof T["_"]["columns"] & string,
  { days, where, max = FORGOTTEN_MAX }: { days: number; where?: SQL; max?: number },
): Retention {
  const name = getTableName(table);
  const column = sql.identifier(getTableColumns(table)[since]?.name ?? since);
  const of = sql.identifier(name);
  return {
    name: `old_${name}`,
    // A row that somebody holds is the next minute's.
    forget: ({ clock }) => sql`
      DELETE FROM ${of} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${of}
         WHERE ${allOf([sql`${column} < ${instant(clock() - days * DAY)}`, where])}
         ORDER BY ${column} LIMIT ${max}::int FOR UPDATE SKIP LOCKED))`,
  };
}

/** The duty of each rule, by its name. */
export const forgetting = (rules: readonly Retention[]) =>
  Object.fromEntries(
    rules.map(({ name, forget }) => [
      name,
      (parts: Parts) => parts.database.execute(forget(parts)),
    ]),
  );
