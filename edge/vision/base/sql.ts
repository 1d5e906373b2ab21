// Values on their way into SQL: instants, conditions, and lists as one jsonb parameter, so that a
// statement has the same text whatever their length.

import { type SQL, sql } from "drizzle-orm";
import { iso } from "../../../shared/time.ts";
import { storable } from "../../http/storable.ts";

/** An instant, epoch milliseconds, as Postgres takes it. */
export const instant = (milliseconds: number): SQL => sql`${iso(milliseconds)}::timestamptz`;

/** The conditions that are given, of which all have to hold; none holds always. */
export function allOf(conditions: readonly (SQL | false | "" | undefined)[]): SQL {
  const given = conditions.filter((one): one is SQL => Boolean(one));
  return given.length === 0 ? sql`true` : sql.join(given, sql` AND `);
}

/** UUIDs as rows of a subquery, for IN: how every list of workspaces reaches a statement. */
export const idList = (ids: readonly string[]): SQL =>
  sql`(SELECT value::uuid FROM jsonb_array_elements_text(${JSON.stringify(ids)}::jsonb))`;

/** Texts as rows of a subquery, for IN; without those that no row can hold. */
export const textList = (values: readonly string[]): SQL => {
  const found = values.filter((value) => storable(value) === value);
  return sql`(SELECT jsonb_array_elements_text(${JSON.stringify(found)}::jsonb))`;
};

function hasState(thrown: unknown, state: string): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    if ("code" in error && error.code === state) return true;
  }
  return false;
}

/** Whether a statement failed since rows refer to what it deletes, or to what is gone. */
export const breaksReference = (thrown: unknown): boolean =>
  // Class 23503: foreign_key_violation.
  hasState(thrown, "23503");

/** Whether a statement failed since a row that excludes the one it stores is there. */
export const breaksUniqueness = (thrown: unknown): boolean =>
  // Class 23505: unique_violation.
  hasState(thrown, "23505");
