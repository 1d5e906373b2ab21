// The same rows in a DuckDB file: their state as it is known now, written as JSON and as Parquet by
// DuckDB itself, without a network between.

import { join } from "node:path";
import { DuckDBInstance } from "@duckdb/node-api";

export interface DuckBaseline {
  /** Writes the state to a file. */
  write(format: "json" | "parquet"): Promise<void>;
  close(): void;
}

export async function openDuckBaseline(
  folder: string,
  { rows, from, stepMs }: { rows: number; from: number; stepMs: number },
): Promise<DuckBaseline> {
  const instance = await DuckDBInstance.create(join(folder, "bench.duckdb"));
  const connection = await instance.connect();
  await connection.run(`
    CREATE TABLE bench_row AS
      SELECT make_timestamp((${from} + i * ${stepMs}) * 1000) AS "Datetime",
        'power.lmp.whole' AS instrument_id, ((i * 7919) % 900001) / 100.0 AS value,
        TIMESTAMP '2026-01-01' AS as_of, false AS vintage_reconstructed
        FROM range(${rows}) t(i)`);
  const state = `
    SELECT "Datetime", instrument_id, last(value ORDER BY as_of) AS value,
      max(as_of) AS as_of, last(vintage_reconstructed ORDER BY as_of) AS vintage_reconstructed
      FROM bench_row WHERE as_of <= now() GROUP BY ALL ORDER BY "Datetime", instrument_id`;
  return {
    write: async (format) => {
      const file = join(folder, `bench.${format}`);
      const options = format === "json" ? "FORMAT json, ARRAY true" : "FORMAT parquet";
      await connection.run(`COPY (${state}) TO '${file}' (${options})`);
    },
    close: () => {
      connection.closeSync();
      instance.closeSync();
    },
  };
}
