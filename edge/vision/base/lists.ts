// Lists that people look through: a page of them, by part of a name and by states, with how many
// there are in a header of the answer, whose body is a plain array.

import { z } from "@hono/zod-openapi";
import { type SQL, sql } from "drizzle-orm";
import type { Context } from "hono";
import { batch, type Database } from "../../http/database.ts";
import { headers } from "../../http/description.ts";
import { json } from "../../http/route.ts";
import { title } from "../../http/texts.ts";
import { type Page, pageQuery } from "./api.ts";
import { allOf, textList } from "./sql.ts";

const LIST_MAX = 10_000;
const TOTAL_COUNT = "X-Total-Count";

/** What names that people take for the same have in common: case and composition differ. */
export const foldedName = (given: string): string => given.trim().normalize("NFC").toLowerCase();

/** The same as `foldedName`, in SQL. */
export const folded = (text: SQL): SQL =>
  sql`lower(normalize(btrim(${text}), NFC) COLLATE "und-x-icu")`;

/** The query of a page of a list, and of a part of its entries' names. */
export const listQuery = {
  ...pageQuery(LIST_MAX, LIST_MAX),
  q: title()
    .optional()
    .meta({ description: "only those with this in their name, in letters of either case" }),
};

/** The query of the states of a list's entries. */
export const statusQuery = (states: readonly string[]) =>
  z
    .string()
    .max(200)
    .regex(new RegExp(`^(${states.join("|")})(,(${states.join("|")}))*$`), {
      error: `must be ${states.join(", ")}, or several with commas between`,
    })
    .optional()
    .meta({ description: "only those in this state, or in one of several with commas between" });

/** What a query wants of a list. */
export interface ListQuery extends Page {
  q?: string | undefined;
  status?: string | undefined;
}

/** The condition that an entry is wanted, by the columns of its name and its state. */
export const isWanted = ({ q, status }: Omit<ListQuery, keyof Page>, columns: WantedColumns): SQL =>
  allOf([
    q !== undefined &&
      columns.name &&
      sql`strpos(${folded(columns.name)}, ${folded(sql`${q}::text`)}) > 0`,
    status !== undefined &&
      columns.state &&
      sql`${columns.state} IN ${textList(status.split(","))}`,
  ]);

interface WantedColumns {
  name?: SQL;
  state?: SQL;
}

/** A page of rows, and how many there are before and behind it. */
export interface ListPage<Row> {
  rows: Row[];
  total: number;
}

/** Reads a page of what a FROM names, in one transaction with how many there are. */
export async function pageOf<Row>(
  database: Database,
  list: SQL<Row>,
  { from, where, order }: { from: SQL; where: SQL; order: SQL },
  { offset, limit }: Page,
): Promise<ListPage<Row>> {
  const [counted, rows] = await batch<[{ total: number }, Row]>(database, [
    sql`SELECT count(*)::int AS total FROM ${from} WHERE ${where}`,
    sql`SELECT ${list} FROM ${from} WHERE ${where} ORDER BY ${order}
         OFFSET ${offset}::int LIMIT ${limit}::int`,
  ]);
  return { rows, total: counted[0]?.total ?? 0 };
}

/** The answer of a list, with the header that says how many entries there are. */
export const listAnswer = <Schema extends z.ZodType>(description: string, schema: Schema) =>
  json(description, z.array(schema), headers(TOTAL_COUNT));

/** Tells in the answer's header how many entries the list has. */
export const tellTotal = (context: Pick<Context, "header">, { total }: { total: number }): void =>
  context.header(TOTAL_COUNT, String(total));
