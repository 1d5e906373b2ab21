// GET /series: one symbol as it was known at an `as_of`, in every format.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { flag } from "../../shared/scalars.ts";
import { SeriesRecord } from "../../shared/wire/markets.ts";
import { headers } from "../http/description.ts";
import { send } from "./answer.ts";
import {
  bounds,
  knowledge,
  knowledgeTime,
  library,
  offset,
  symbol,
  versions,
  window,
} from "./parameters.ts";
import { type Route, reader, route } from "./route.ts";
import type { Slots } from "./slots.ts";
import type { Reading } from "./store/store.ts";
import { SERIES_ENCODING } from "./wire/encodings.ts";
import {
  encodedContent,
  encodeRows,
  FORMAT_NAMES,
  FORMATS,
  type Format,
  preferredFormat,
} from "./wire/formats.ts";

/** So many rows are written in less time than a cache takes to answer. */
const QUICK_ROWS = 1_000;

const Query = z.object({
  library,
  symbol,
  ...knowledge,
  ...window,
  includeHistory: flag().default(false).meta({
    type: "boolean",
    description:
      "every version of every row, each with known_from and known_to (null while it holds)",
  }),
  ...versions,
  provenance: z.enum(["basic", "full"]).default("basic").meta({
    description: "full: adds store_version, source_url, source_published_at and run_id to each row",
  }),
  format: z.enum(FORMAT_NAMES).optional().meta({ description: "instead of the Accept header" }),
});
type Query = z.output<typeof Query>;

const content = {
  "application/json": { schema: z.array(SeriesRecord) },
  ...encodedContent(["ndjson", "csv", "parquet", "arrow"]),
};
const sent = headers("X-As-Of", "X-Store-Version", "X-Sandbox", "ETag", "Vary", "Accept-Ranges");
const partSent = Object.assign({}, sent, headers("Content-Range"));

/** The bytes of the rows. Provenance is asked for first: it is small, and no slot waits for it. */
async function* encodedRows(
  largeReads: Slots,
  reading: Reading,
  { includeHistory: history, provenance: detail }: Query,
  format: Format,
) {
  const provenance = detail === "full" ? await reading.provenance() : null;
  const shape = { valueColumns: reading.valueColumns, history, provenance };
  yield* largeReads.hold(encodeRows(format, reading.passing(), shape), reading.versionCount);
}

/** The route of a series. */
export const seriesRoutes: readonly Route[] = [
  route(
    {
      call: "GET /series",
      operationId: "readSeries",
      tag: "Series",
      summary: "A series as it was known at `as_of`",
      description:
        "Rows ordered by Datetime, then instrument_id. Data learned after `as_of` is never returned; " +
        "an `as_of` before the first vintage gives `[]`.\n\n" +
        "Datetimes are ISO 8601: a date alone means 00:00Z at its start, no offset means UTC. `start` " +
        "and `end` are inclusive and make the read bounded, which exempts it from the row cap.\n\n" +
        "Beyond the contract: includeHistory, as_of_offset, vintage, provenance, snapshot, and the " +
        "formats NDJSON, CSV, Parquet and Arrow by Accept or `format`.\n\n" +
        "Headers: X-As-Of and X-Store-Version name the vintage that answered (absent before the first), " +
        "X-Sandbox: true marks sandbox data. ETag names the answer (If-None-Match gives 304); with an " +
        "`as_of` not after the series' newest vintage, or two minutes old, or a snapshot, it is immutable " +
        "and cached as such.",
      who: reader,
      query: Query,
      answers: {
        200: { description: "the series", headers: sent, content },
        206: {
          description: "the range of an immutable answer that Range asks for",
          headers: partSent,
          content,
        },
        304: {
          description: "the answer named by If-None-Match is still the answer",
          headers: sent,
        },
      },
      errors: [
        "bad_datetime",
        "unknown_library",
        "unknown_symbol",
        "unknown_snapshot",
        "row_cap_exceeded",
        "range_not_satisfiable",
        "busy",
      ],
    },
    async (context) => {
      const { store, config, largeReads } = context.var.service;
      const query = context.req.valid("query");
      const format = query.format ?? preferredFormat(context.req.header("Accept"));
      const { type, text } = FORMATS[format];
      const knownBy = offset(query.as_of_offset);
      if (knownBy !== undefined && query.includeHistory) {
        throw new Failure(
          "invalid_request",
          "as_of_offset: cannot be combined with includeHistory",
        );
      }
      const range = bounds(query);
      const { asOf, pinned } = await knowledgeTime(store, query);
      const reading = await store.read({
        library: query.library,
        symbol: query.symbol,
        asOf,
        ...range,
        history: query.includeHistory,
        knownBy,
        trueOnly: query.vintage === "true_only",
        rowsMax: config.SERVICE_SERIES_MAX_ROWS,
      });
      return send(context, {
        tag: `${SERIES_ENCODING}-${reading.identity}${query.provenance === "full" ? "-p" : ""}.${format}`,
        contentType: type,
        compressible: text,
        immutable: reading.immutable || pinned,
        asOf: reading.asOf,
        storeVersion: reading.asOf === null ? null : reading.seq,
        sandbox: reading.sandbox,
        // Before the first vintage there is nothing that a catalog begun anew would not repeat.
        cacheable: reading.asOf !== null,
        isEmpty: reading.asOf === null,
        isQuick: reading.isHeld && reading.versionCount <= QUICK_ROWS,
        body: () => encodedRows(largeReads, reading, query, format),
      });
    },
  ),
];
