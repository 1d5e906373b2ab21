// GET /panel: many series at one knowledge time, aligned.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { PanelRecord } from "../../shared/wire/markets.ts";
import { headers } from "../http/description.ts";
import { name, namePart } from "../http/texts.ts";
import { send } from "./answer.ts";
import { encodePanel, localClock, panelColumns, panelRows } from "./panel.ts";
import { readPanel } from "./panel-reading.ts";
import {
  bounds,
  knowledge,
  knowledgeTime,
  library,
  offset,
  versions,
  window,
} from "./parameters.ts";
import { type Route, reader, route } from "./route.ts";
import { encodedContent, FORMAT_NAMES, FORMATS, preferredFormat } from "./wire/formats.ts";

const SERIES_MAX = 100;
/** Characters of their names: more than as many would have, some of them twice. */
const SYMBOLS_CHARACTERS_MAX = 10_000;

const Query = z.object({
  library: library.optional().meta({
    description: "library of the symbols that name none",
    example: "power.demand",
  }),
  symbols: name()
    .max(SYMBOLS_CHARACTERS_MAX)
    .meta({
      description: `symbols, or library/symbol, separated by commas; at most ${SERIES_MAX}`,
      example: "power.demand/erco,power.demand/pjm",
    }),
  ...knowledge,
  ...window,
  ...versions,
  column: namePart().optional().meta({
    description: "value column; each series' first when omitted",
    example: "value",
  }),
  time_zone: namePart().optional().meta({
    description: "adds `local`: Datetime as this IANA zone's clocks show it, with its offset",
    example: "America/Chicago",
  }),
  format: z.enum(FORMAT_NAMES).optional().meta({ description: "instead of Accept" }),
});

const sent = headers("X-As-Of", "X-Sandbox", "ETag", "Vary", "Accept-Ranges");
const partSent = Object.assign({}, sent, headers("Content-Range"));
const content = {
  "application/json": { schema: z.array(PanelRecord) },
  ...encodedContent(["ndjson", "csv", "parquet", "arrow"]),
};

/** The series that `symbols` names, each once; fails with `invalid_request`. */
function seriesNames({ library, symbols }: z.output<typeof Query>) {
  const entries = [...new Set(symbols.split(",").map((entry) => entry.trim()))].filter(Boolean);
  if (entries.length === 0 || entries.length > SERIES_MAX) {
    throw new Failure("invalid_request", `symbols: between 1 and ${SERIES_MAX}`);
  }
  const names = entries.map((entry) => {
    const slash = entry.indexOf("/");
    const of = slash < 0 ? library : entry.slice(0, slash);
    if (of) return { library: of, symbol: entry.slice(slash + 1) };
    const given = JSON.stringify(entry.slice(0, 64));
    throw new Failure("invalid_request", `library: required, since ${given} names none`);
  });
  // With and without its library, a symbol is one series.
  return [...new Map(names.map((one) => [`${one.library}/${one.symbol}`, one])).values()];
}

/** Instants as a zone shows them; fails with `invalid_request` for a name that is no zone. */
function clockOf(timeZone: string) {
  try {
    return localClock(timeZone);
  } catch {
    const given = JSON.stringify(timeZone.slice(0, 64));
    throw new Failure("invalid_request", `time_zone: ${given} is not an IANA time zone`);
  }
}

/** The route of panels. */
export const panelRoutes: readonly Route[] = [
  route(
    {
      call: "GET /panel",
      operationId: "readPanel",
      tag: "Series",
      summary: "Many series at one knowledge time, aligned by Datetime",
      description:
        "Beyond the contract. One record an instant with a field per instrument_id, null where a series " +
        "has no row; an instrument_id that several of the series have is named " +
        "library/symbol/instrument_id. Without `as_of` all series are read at the newest knowledge time " +
        "of the store. Rows over all series are capped, bounded or not. X-As-Of is the knowledge time of the read " +
        "(absent where nothing was known): as `as_of`, it gives the same rows again.",
      who: reader,
      query: Query,
      answers: {
        200: { description: "the panel", headers: sent, content },
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
      const names = seriesNames(query);
      const local = query.time_zone === undefined ? null : clockOf(query.time_zone);
      const range = bounds(query);
      const { asOf, pinned } = await knowledgeTime(store, query);
      // Nothing can become known at a snapshot's time.
      const at = pinned ? asOf : await store.settled(asOf);
      const panel = await readPanel(store, {
        names,
        ...range,
        asOf: at ?? 0,
        column: query.column,
        knownBy: offset(query.as_of_offset),
        trueOnly: query.vintage === "true_only",
        rowsMax: config.SERVICE_SERIES_MAX_ROWS,
      });
      const rows = async function* () {
        const series = await panel.series();
        const columns = panelColumns(series);
        yield* encodePanel(format, panelRows(series, columns), { columns, local });
      };
      const body = () => largeReads.hold(rows(), panel.versionCount);
      // Without a time in the address the same one asks for a newer state tomorrow, and so it does
      // with one that is not settled yet.
      const immutable = pinned || (asOf !== undefined && asOf === at && panel.immutable);
      // What GET refuses once it has read so far, HEAD refuses; a first part has read it all. Of an
      // immutable answer HEAD tells the length, for which all of it is read anyway.
      if (context.req.raw.method === "HEAD" && panel.mayExceedCap && !immutable) {
        const parts = body();
        await parts.next();
        await parts.return(undefined);
      }
      return send(context, {
        tag: await panel.tag({ ...query, format }),
        contentType: type,
        compressible: text,
        immutable,
        asOf: panel.asOf,
        sandbox: panel.sandbox,
        cacheable: immutable && panel.asOf !== null,
        isEmpty: panel.asOf === null,
        body,
      });
    },
  ),
];
