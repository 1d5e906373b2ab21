// Texts from outside on their way into SQL. Postgres stores neither NUL nor half a surrogate pair
// in jsonb; what a node or a provider says may hold both, also as the name of a member.

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
