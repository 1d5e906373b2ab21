// What a statement selects, written once: a list of typed columns is the text of the SELECT and the
// type of its rows. A column that the list lacks, or that the table lost, is a type error.

import { type Column, getTableColumns, type SQL, sql, type Table } from "drizzle-orm";
import { assert } from "../../shared/errors.ts";
import { type Database, wireTime } from "./database.ts";

/** What rows hold for a column: an instant as the wire shows it, a number for an integer. */
type ValueOf<C extends Column> =
  | (C["_"]["dataType"] extends "date" ? string : C["_"]["data"])
  | (C["_"]["notNull"] extends true ? never : null);

/** The columns of a table, by their names in code. */
export type Columns<T extends Table> = T["_"]["columns"];

/** The row that a list of columns makes. */
export type RowOf<List> = List extends SQL<infer Row> ? Row : never;

/** The columns of a table that a statement calls `alias`, each as its rows are to hold it. */
export function columnsOf<T extends Table>(
  table: T,
  alias: string,
): { [Name in keyof Columns<T>]: SQL<ValueOf<Columns<T>[Name]>> } {
  const columns = Object.entries(getTableColumns(table)).map(([name, column]) => [
    name,
    readable(column, sql`${sql.identifier(alias)}.${sql.identifier(column.name)}`),
  ]);
  // One entry for each of the table's columns, of its name.
  return Object.fromEntries(columns) as never;
}

/** The same of a table that is joined by LEFT JOIN: each may be null. */
export const joinedColumnsOf = <T extends Table>(
  table: T,
  alias: string,
): { [Name in keyof Columns<T>]: SQL<ValueOf<Columns<T>[Name]> | null> } => columnsOf(table, alias);

/** The driver gives integers of eight bytes, and arrays, as text, and days as instants. */
function readable({ dataType, columnType }: Column, column: SQL): SQL {
  if (dataType === "date" || columnType === "PgTimestampString") return wireTime(column);
  if (columnType === "PgDateString") return sql`${column}::text`;
  if (columnType.startsWith("PgBigInt") || columnType.startsWith("PgBigSerial"))
    return sql`${column}::float8`;
  return dataType === "array" ? sql`to_jsonb(${column})` : column;
}

/** A column as the type of what was stored in it, where its table does not tell. */
export const typed = <Value>(column: SQL): SQL<Value> => column as SQL<Value>;

/** A list of columns, by the names that its rows give them. */
export function selection<Fields extends Readonly<Record<string, SQL>>>(
  fields: Fields,
): SQL<{ [Name in keyof Fields]: RowOf<Fields[Name]> }> {
  const items = Object.entries(fields).map(
    ([name, column]) => sql`${column} AS ${sql.identifier(name)}`,
  );
  // Its rows have the members of `fields`, which no SQL tells.
  return sql.join(items, sql`, `) as never;
}

/** Another list with more columns. */
export const extended = <Row, Fields extends Readonly<Record<string, SQL>>>(
  list: SQL<Row>,
  fields: Fields,
): SQL<Row & { [Name in keyof Fields]: RowOf<Fields[Name]> }> => sql`${list}, ${selection(fields)}`;

/** Runs the statement that follows, a template as `sql` takes it, which selects the list. */
export const rowsOf =
  <Row>(database: Database, list: SQL<Row>) =>
  async (parts: TemplateStringsArray, ...values: unknown[]): Promise<Row[]> => {
    assert(values.includes(list), "the statement selects the list that types its rows");
    const { rows } = await database.execute(sql(parts, ...values));
    // The list is what the statement selects.
    return rows as Row[];
  };
