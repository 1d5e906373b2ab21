// What the store is measured against: the same rows kept as rows in Postgres, fetched over Neon's
// HTTP and written as JSON by a Worker. `/stringify` makes objects and lets JSON.stringify write
// them; `/bytes` writes the same bytes with the product's own writer; `/day?from=` reads one day by
// the covering index.

import { neon, neonConfig } from "@neondatabase/serverless";
import type { Batch } from "../../edge/markets/store/columns.ts";
import { encodeText } from "../../edge/markets/wire/text.ts";

neonConfig.fetchEndpoint = (host, port) => `http://${host}:${port}/sql`;

/** The last version of every row: what a bitemporal read of plain rows has to find. */
const QUERY = `
  SELECT DISTINCT ON (datetime, instrument_id)
    (extract(epoch FROM datetime) * 1000)::float8, instrument_id, value,
    (extract(epoch FROM as_of) * 1000)::float8, reconstructed
    FROM bench_row WHERE as_of <= now()
   ORDER BY datetime, instrument_id, as_of DESC`;

/** A day of it, from the index alone. */
const DAY_QUERY = `
  SELECT DISTINCT ON (datetime, instrument_id)
    (extract(epoch FROM datetime) * 1000)::float8, instrument_id, value,
    (extract(epoch FROM as_of) * 1000)::float8, reconstructed
    FROM bench_year WHERE as_of <= now()
     AND datetime >= $1::timestamptz AND datetime < $1::timestamptz + interval '1 day'
   ORDER BY datetime, instrument_id, as_of DESC`;

type Row = [datetime: number, instrument: string, value: number, asOf: number, flag: boolean];

export default {
  async fetch(request: Request, environment: { DATABASE_URL: string }): Promise<Response> {
    if (request.url.endsWith("/idle")) return new Response();
    const sql = neon(environment.DATABASE_URL, { arrayMode: true });
    const from = new URL(request.url).searchParams.get("from");
    if (from) return Response.json(records((await sql.query(DAY_QUERY, [from])) as Row[]));
    const rows = (await sql.query(QUERY)) as Row[];
    const body = request.url.endsWith("/stringify") ? stringified(rows) : await bytes(rows);
    return new Response(body as BodyInit, { headers: { "Content-Type": "application/json" } });
  },
};

const records = (rows: readonly Row[]) =>
  rows.map(([datetime, instrument_id, value, asOf, vintage_reconstructed]) => ({
    Datetime: new Date(datetime).toISOString(),
    instrument_id,
    value,
    as_of: new Date(asOf).toISOString(),
    vintage_reconstructed,
  }));

const stringified = (rows: readonly Row[]) => JSON.stringify(records(rows));

async function bytes(rows: readonly Row[]): Promise<ReadableStream> {
  const instruments = [...new Set(rows.map((row) => row[1]))];
  const written = [...new Set(rows.map((row) => `${row[3]} ${row[4]}`))];
  const codeOf = new Map(written.map((key, code) => [key, code]));
  const batch: Batch = {
    length: rows.length,
    datetime: Float64Array.from(rows, (row) => row[0]),
    instrument: Uint32Array.from(rows, (row) => instruments.indexOf(row[1])),
    instruments,
    values: [Float64Array.from(rows, (row) => row[2])],
    vintage: Uint32Array.from(rows, (row) => codeOf.get(`${row[3]} ${row[4]}`) ?? 0),
    vintages: written.map((key, seq) => {
      const [asOf = "", flag] = key.split(" ");
      return { seq, asOf: Number(asOf), reconstructed: flag === "true" };
    }),
    retracted: null,
  };
  const one = async function* () {
    yield batch;
  };
  const shape = { valueColumns: ["value"], history: false, provenance: null };
  const { readable, writable } = new IdentityTransformStream();
  const pump = async () => {
    const writer = writable.getWriter();
    for await (const chunk of encodeText("json", one(), shape)) await writer.write(chunk);
    await writer.close();
  };
  pump();
  // The stream of Workers is that of the DOM with other type parameters.
  return readable as unknown as ReadableStream;
}
