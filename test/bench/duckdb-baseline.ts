// The same rows in a DuckDB file: their state as it is known now, written as JSON and as Parquet by
// DuckDB itself, and one day of a longer series as JSON, all without a network between.

import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

/** So many rows from an instant on, a step apart; milliseconds. */
interface Rows {
  rows: number;
  from: number;
  stepMs: number;
}

const DAY_MS = 86_400_000;

export interface DuckBaseline {
  /** Writes the state to a file. */
  write(format: "json" | "parquet"): Promise<void>;
  /** The state of the 24 hours from an instant on, in ms, of the series of years; JSON. */
  day(start: number): Promise<string>;
  close(): void;
}

/** Opens a new database in a folder with two series: one to write whole, one to ask for a day. */
export async function openDuckBaseline(
  folder: string,
  { whole, years }: { whole: Rows; years: Rows },
): Promise<DuckBaseline> {
  const instance = await DuckDBInstance.create(join(folder, "bench.duckdb"));
  const connection = await instance.connect();
  for (const [name, { rows, from, stepMs }] of Object.entries({ whole, years })) {
    await connection.run(`
      CREATE TABLE ${name} AS
        SELECT make_timestamp((${from} + i * ${stepMs}) * 1000) AS "Datetime",
          'power.lmp.${name}' AS instrument_id, ((i * 7919) % 900001) / 100.0 AS value,
          TIMESTAMP '2026-01-01' AS as_of, false AS vintage_reconstructed
          FROM range(${rows}) t(i)`);
  }
  const stateOf = (name: string, condition = "") => `
    SELECT "Datetime", instrument_id, last(value ORDER BY as_of) AS value,
      max(as_of) AS as_of, last(vintage_reconstructed ORDER BY as_of) AS vintage_reconstructed
      FROM ${name} WHERE as_of <= now() ${condition}
      GROUP BY ALL ORDER BY "Datetime", instrument_id`;
  const within = `AND "Datetime" BETWEEN make_timestamp($1::BIGINT) AND make_timestamp($2::BIGINT)`;
  const dayState = await connection.prepare(stateOf("years", within));
  return {
    write: async (format) => {
      const file = join(folder, `bench.${format}`);
      const options = format === "json" ? "FORMAT json, ARRAY true" : "FORMAT parquet";
      await connection.run(`COPY (${stateOf("whole")}) TO '${file}' (${options})`);
    },
    day: async (start) => {
      dayState.bindBigInt(1, BigInt(start) * 1_000n);
      dayState.bindBigInt(2, BigInt(start + DAY_MS - 1) * 1_000n);
      const found = await dayState.runAndReadAll();
      return JSON.stringify(found.getRowObjectsJson());
    },
    close: () => {
      connection.closeSync();
      instance.closeSync();
    },
  };
}
