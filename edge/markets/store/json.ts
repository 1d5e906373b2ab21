// Rows → the JSON of the wire, in chunks, so that a long series is never one string in memory.

import { iso } from "../../../shared/time.ts";
import type { StoredRow } from "./plan.ts";

const ROWS_PER_CHUNK = 2_000;

/** A body stream of the series records of the spec, in the rows' order. */
export function seriesJson(rows: readonly StoredRow[], valueColumns: readonly string[]) {
  const encoder = new TextEncoder();
  const write = recordWriter(valueColumns);
  let next = 0;
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = rows.slice(next, next + ROWS_PER_CHUNK);
      const opening = next === 0 ? "[" : ",";
      next += chunk.length;
      const done = next >= rows.length;
      const body = chunk.map(write).join(",");
      controller.enqueue(encoder.encode(`${opening}${body}${done ? "]" : ""}`));
      if (done) controller.close();
    },
  });
}

/** JSON text of one record; what repeats from row to row is written once. */
function recordWriter(valueColumns: readonly string[]) {
  const names = valueColumns.map((name) => JSON.stringify(name));
  const instruments = new Map<string, string>();
  const tails = new Map<string, string>();
  const cached = (cache: Map<string, string>, key: string, make: () => string) => {
    const known = cache.get(key) ?? make();
    cache.set(key, known);
    return known;
  };
  return (row: StoredRow): string => {
    const instrument = cached(instruments, row.instrumentId, () =>
      JSON.stringify(row.instrumentId),
    );
    const tail = cached(
      tails,
      `${row.asOf} ${row.reconstructed}`,
      () => `"as_of":"${iso(row.asOf)}","vintage_reconstructed":${row.reconstructed}`,
    );
    const values = names.map((name, column) => {
      const value = row.values[column] ?? NaN;
      return `${name}:${Number.isNaN(value) ? "null" : String(value)}`;
    });
    return `{"Datetime":"${iso(row.datetime)}","instrument_id":${instrument},${values.join()},${tail}}`;
  };
}
