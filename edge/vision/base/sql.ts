// Values on their way into a jsonb column. Postgres stores neither NUL nor half a surrogate pair;
// what a node reports may hold both, also as the name of a member.

import { type SQL, sql } from "drizzle-orm";

export const storable = (text: string): string => text.replaceAll("\0", "").toWellFormed();

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** A value as jsonb, without what Postgres would refuse. */
export const given = (value: unknown): SQL => {
  const text = JSON.stringify(value, (_, one: unknown) => {
    if (typeof one === "string") return storable(one);
    if (!isObject(one) || Object.keys(one).every((name) => storable(name) === name)) return one;
    return Object.fromEntries(Object.entries(one).map(([name, held]) => [storable(name), held]));
  });
  return sql`${text}::jsonb`;
};
