// Values on their way into SQL. Postgres stores neither NUL nor half a surrogate pair in jsonb;
// what a node reports may hold both, also as the name of a member. Lists travel as one jsonb
// parameter, so that a statement has the same text whatever their length.

import { type SQL, sql } from "drizzle-orm";

/** A text without what Postgres refuses. */
export const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A value as jsonb, without what Postgres refuses. */
export const jsonb = (value: unknown): SQL => {
  const text = JSON.stringify(value, (_, one: unknown) => {
    if (typeof one === "string") return storable(one);
    if (!isObject(one) || Object.keys(one).every((name) => storable(name) === name)) return one;
    return Object.fromEntries(Object.entries(one).map(([name, held]) => [storable(name), held]));
  });
  return sql`${text}::jsonb`;
};

/** UUIDs as rows of a subquery, for IN: how every list of workspaces reaches a statement. */
export const idList = (ids: readonly string[]): SQL =>
  sql`(SELECT value::uuid FROM jsonb_array_elements_text(${JSON.stringify(ids)}::jsonb))`;

/** Texts as rows of a subquery, for IN; without those that no row can hold. */
export const textList = (values: readonly string[]): SQL => {
  const found = values.filter((value) => storable(value) === value);
  return sql`(SELECT jsonb_array_elements_text(${JSON.stringify(found)}::jsonb))`;
};

/** Whether a statement failed since rows refer to what it deletes, or to what is gone. */
export function breaksReference(thrown: unknown): boolean {
  for (let error = thrown; error instanceof Error; error = error.cause) {
    // Class 23503: foreign_key_violation.
    if ("code" in error && error.code === "23503") return true;
  }
  return false;
}
