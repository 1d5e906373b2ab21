// Values that a statement gives to columns, by the names that the table has for them in code: a
// column that a whole row lacks is a type error.

import { getTableColumns, type SQL, sql, type Table } from "drizzle-orm";
import type { Columns } from "./selection.ts";

/** A new row: the columns of its table and their values, for `INSERT INTO table`. */
export function newRow<T extends Table>(
  table: T,
  values: { [Name in keyof Columns<T>]: SQL },
): SQL {
  const { names, given } = listsOf(table, values);
  return sql`(${names}) VALUES (${given})`;
}

/**
 * The copy of a row, as it is but for `changes`, for `INSERT INTO table`; what follows is where the
 * row comes from. A column that is added to the table is copied.
 */
export function copyOf<T extends Table>(
  table: T,
  changes: { [Name in keyof Columns<T>]?: SQL },
): SQL {
  const { names, given } = listsOf(table, changes);
  return sql`(${names}) SELECT ${given}`;
}

/** What an UPDATE sets. */
export function assignments<T extends Table>(
  table: T,
  changes: { [Name in keyof Columns<T>]?: SQL },
): SQL {
  const columns = getTableColumns(table);
  const all = Object.entries<SQL>(changes as Record<string, SQL>).map(
    ([key, value]) => sql`${sql.identifier(columns[key]?.name ?? key)} = ${value}`,
  );
  return sql.join(all, sql`, `);
}

/** The names of all columns, and the value of each: the column itself where none is given. */
function listsOf<T extends Table>(table: T, values: { [Name in keyof Columns<T>]?: SQL }) {
  const columns = Object.entries(getTableColumns(table)).map(([key, { name }]) => ({
    name: sql`${sql.identifier(name)}`,
    value: values[key as keyof Columns<T>] ?? sql`${sql.identifier(name)}`,
  }));
  return {
    names: sql.join(
      columns.map(({ name }) => name),
      sql`, `,
    ),
    given: sql.join(
      columns.map(({ value }) => value),
      sql`, `,
    ),
  };
}
