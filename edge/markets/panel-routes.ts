// GET /panel: many series at one knowledge time, aligned.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { PanelRecord } from "../../shared/markets.ts";
import { type App, errorResponses, name } from "../http/app.ts";
import { send } from "./answer.ts";
import { encodePanel, instrumentsOf, localClock, panelRows } from "./panel.ts";
import { readPanel } from "./panel-reading.ts";
import {
  apiKey,
  bounds,
  encoded,
  knowledge,
  knowledgeTime,
  library,
  window,
} from "./parameters.ts";
import type { ReadApi } from "./service.ts";
import { FORMATS, preferredFormat } from "./wire/formats.ts";

const SERIES_MAX = 100;

const Query = z.object({
  library: library.optional().meta({ description: "library of the symbols that name none" }),
  symbols: name().meta({
    description: `symbols, or library/symbol, separated by commas; at most ${SERIES_MAX}`,
    example: "erco,pjm",
  }),
  ...knowledge,
  ...window,
  column: name().optional().meta({ description: "value column; each series' first when omitted" }),
  time_zone: name().optional().meta({
    description: "adds `local`: Datetime as this IANA zone's clocks show it, with its offset",
    example: "America/Chicago",
  }),
  format: z.enum(["json", "ndjson", "csv"]).optional().meta({ description: "instead of Accept" }),
});

/** Registers the panel route. */
export function addPanel(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/panel",
    summary: "Many series at one knowledge time, aligned by Datetime",
    description:
      "Beyond the contract. One record an instant with a field per instrument_id, null where a series " +
      "has no row. Without `as_of` all series are read at the newest knowledge time of the store. " +
      "Rows over all series are capped, bounded or not. X-As-Of is the knowledge time of the read; " +
      "a commit to another series that was under way in that millisecond may still join it.",
    security: apiKey,
    request: { query: Query },
    responses: {
      200: {
        description: "the panel, as JSON, NDJSON or CSV",
        content: {
          "application/json": { schema: z.array(PanelRecord) },
          [FORMATS.ndjson.type]: encoded,
          [FORMATS.csv.type]: encoded,
        },
      },
      304: { description: "the answer named by If-None-Match is still the answer" },
      ...errorResponses(
        "bad_datetime",
        "unauthorized",
        "unknown_library",
        "unknown_symbol",
        "unknown_snapshot",
        "row_cap_exceeded",
        "invalid_request",
        "busy",
        "store_unavailable",
      ),
    },
  });
  app.openapi(route, async (context) => {
    const { store, config, largeReads } = context.var.service;
    const query = context.req.valid("query");
    const accepted = preferredFormat(context.req.header("Accept"));
    const format =
      query.format ?? (accepted === "ndjson" || accepted === "csv" ? accepted : "json");
    const names = seriesNames(query);
    const local = query.time_zone === undefined ? null : clockOf(query.time_zone);
    const range = bounds(query);
    const { asOf, pinned } = await knowledgeTime(store, query);
    const panel = await readPanel(store, {
      names,
      ...range,
      asOf: asOf ?? (await store.overview()).latestAsOf ?? 0,
      column: query.column,
      rowsMax: config.SERVICE_SERIES_MAX_ROWS,
    });
    // How many rows lie within bounds shows only when they are read.
    if (context.req.raw.method === "HEAD") await panel.requireWithinCap();
    const rows = async function* () {
      const series = await panel.series();
      const instruments = instrumentsOf(series);
      yield* encodePanel(panelRows(series, instruments), instruments, { format, local });
    };
    return send(context, {
      tag: await panel.tag({ ...query, format }),
      contentType: FORMATS[format].type,
      compressible: true,
      // Without a time in the address, the same one asks for a newer state tomorrow.
      immutable: pinned || (asOf !== undefined && panel.immutable),
      asOf: panel.asOf,
      sandbox: panel.sandbox,
      cacheKeys: [],
      body: () => largeReads.hold(rows(), panel.versionCount),
    });
  });
}

/** The series that `symbols` names, each once; fails with `invalid_request`. */
function seriesNames({ library, symbols }: z.output<typeof Query>) {
  const entries = [...new Set(symbols.split(",").map((entry) => entry.trim()))].filter(Boolean);
  if (entries.length === 0 || entries.length > SERIES_MAX) {
    throw new Failure("invalid_request", `symbols: between 1 and ${SERIES_MAX}`);
  }
  return entries.map((entry) => {
    const slash = entry.indexOf("/");
    const of = slash < 0 ? library : entry.slice(0, slash);
    if (of) return { library: of, symbol: entry.slice(slash + 1) };
    const given = JSON.stringify(entry.slice(0, 64));
    throw new Failure("invalid_request", `library: required, since ${given} names none`);
  });
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
