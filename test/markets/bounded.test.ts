// What the catalog's lists cost in rows that Postgres looks at, in a catalog that has grown: as
// many as they answer, whatever it holds.

import { type SQL, sql } from "drizzle-orm";
import { beforeAll, expect, it } from "vitest";
import { type Database, openDatabase } from "../../edge/http/database.ts";
import { planRead } from "../../edge/markets/store/catalog.ts";
import {
  lastPublication,
  listVintages,
  newestTouched,
  overview,
} from "../../edge/markets/store/listings.ts";
import type { StoreParts } from "../../edge/markets/store/objects.ts";
import { Secret } from "../../shared/secret.ts";
import { alterTables } from "../support/transactions.ts";
import { createDatabases, DAY, HOUR } from "../support/world.ts";

const SYMBOLS = 20_000;
const VINTAGES = 8_760;
const FROM = Date.UTC(2025, 0, 1);
const AT = new Date(FROM).toISOString();
/** Few: what a statement needs beside the rows that it answers. */
const FEW = 60;

let database: Database;
beforeAll(async () => {
  const urls = await createDatabases();
  database = openDatabase(new Secret(urls.marketsWriter));
  // Statistics come when the test says so.
  await alterTables(
    database,
    "ALTER TABLE series SET (autovacuum_enabled = false)",
    "ALTER TABLE vintage SET (autovacuum_enabled = false)",
  );
  await database.execute(sql`
    INSERT INTO series (library, symbol, value_columns, sandbox, head_seq, head_as_of, valid_max)
    SELECT CASE WHEN n <= 3 THEN 'fundamentals.agency' ELSE 'library' || n % 9 END, 's' || n,
      '{value}', false, CASE WHEN n <= 3 THEN ${VINTAGES}::int ELSE 1 END,
      ${AT}::timestamptz + interval '1 hour' * ${VINTAGES}::int, ${AT}::timestamptz
      FROM generate_series(1, ${SYMBOLS}::int) n`);
  await database.execute(sql`
    INSERT INTO vintage (series_id, seq, as_of, reconstructed, run_id, partition, source_url,
      source_published_at, covered_from, covered_to, valid_min, valid_max, inserted, revised,
      retracted, live_rows, content_sha256)
    SELECT id, n, ${AT}::timestamptz + interval '1 hour' * n, false, 'run', 'day', 'https://a',
      CASE WHEN n % 5 = 0 THEN ${AT}::timestamptz + interval '1 hour' * n END,
      ${AT}::timestamptz, ${AT}::timestamptz, ${AT}::timestamptz, ${AT}::timestamptz, 1, 0, 0, n, ''
      FROM series, generate_series(1, head_seq) n`);
});

interface PlanNode {
  "Node Type": string;
  "Actual Rows": number;
  "Actual Loops": number;
  "Rows Removed by Filter"?: number;
  "Rows Removed by Index Recheck"?: number;
  Plans?: PlanNode[];
}

/** The rows that the scans of a plan looked at. */
function looked(node: PlanNode): number {
  const each =
    node["Actual Rows"] +
    (node["Rows Removed by Filter"] ?? 0) +
    (node["Rows Removed by Index Recheck"] ?? 0);
  const own = node["Node Type"].includes("Scan") ? each * node["Actual Loops"] : 0;
  return (node.Plans ?? []).reduce((sum, inner) => sum + looked(inner), own);
}

/** What work takes, in rows that its statements looked at, and what it gives. */
async function measured<Result>(work: (parts: StoreParts) => Promise<Result>) {
  let rows = 0;
  const counting = {
    execute: async (statement: SQL) => {
      const { rows: plans } = await database.execute<{ "QUERY PLAN": { Plan: PlanNode }[] }>(
        sql`EXPLAIN (ANALYZE, FORMAT JSON) ${statement}`,
      );
      rows += looked(plans[0]?.["QUERY PLAN"][0]?.Plan as PlanNode);
      return database.execute(statement);
    },
  };
  // Of the database a list asks nothing else; no bucket is asked, since nothing is archived.
  const parts = { database: counting, bucket: {} } as unknown as StoreParts;
  const result = await work(parts);
  return { result, rows };
}

it.each(["before", "after"])("looks at few rows more than it answers, %s ANALYZE", async (when) => {
  if (when === "after") await alterTables(database, "ANALYZE");
  const series = { library: "fundamentals.agency", symbol: "s2" };

  const health = await measured((parts) => overview(parts.database));
  expect(health.result.libraries.length).toBe(10);
  expect(health.rows).toBeLessThan(FEW);

  const published = await measured((parts) => lastPublication(parts.database, [series.library]));
  expect(published.result?.publishedAt).toBe(FROM + VINTAGES * HOUR);
  expect(published.rows).toBeLessThan(FEW);

  const now = FROM + VINTAGES * HOUR;
  const touched = await measured((parts) => newestTouched(parts, { ...series, asOf: now }));
  expect(touched.result).toBe(FROM);
  expect(touched.rows).toBeLessThan(FEW);

  const limit = 100;
  for (const more of [{ afterSeq: 8_000 }, { since: FROM + 200 * DAY }, { asOf: FROM + 9 * DAY }]) {
    const page = await measured((parts) => listVintages(parts, { ...series, ...more, limit }));
    expect(page.result.length).toBe(limit);
    // A row of each vintage, and its series' beside it.
    expect(page.rows).toBeLessThan(2 * limit + FEW);
  }

  const range = { from: FROM, to: FROM + DAY };
  const plan = await measured((parts) =>
    planRead(parts.database, { ...series, asOf: FROM + 300 * DAY, range }),
  );
  expect(plan.result?.seq).toBe(300 * 24);
  expect(plan.rows).toBeLessThan(FEW);
});
