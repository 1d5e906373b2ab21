// GET /panel: many series at one knowledge time, aligned.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { PanelRecord } from "../../shared/markets.ts";
import { iso } from "../../shared/time.ts";
import { type App, errorResponses, name } from "../http/app.ts";
import { send } from "./answer.ts";
import { encodePanel, instrumentsOf, localClock, type PanelSeries, panelRows } from "./panel.ts";
import {
  apiKey,
  bounds,
  columnOf,
  knowledge,
  knowledgeTime,
  library,
  window,
} from "./parameters.ts";
import type { ReadApi } from "./routes.ts";
import type { Batch } from "./store/columns.ts";
import type { Reading } from "./store/store.ts";
import { FORMATS, preferredFormat } from "./wire/formats.ts";

const SERIES_MAX = 100;
const READS_AT_ONCE = 6;

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
          [FORMATS.ndjson.type]: { schema: { type: "string" } as never },
          [FORMATS.csv.type]: { schema: { type: "string" } as never },
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
    const known = await knowledgeTime(store, query);
    const asOf = known.asOf ?? (await store.overview()).latestAsOf ?? 0;
    const bounded = range.start !== undefined || range.end !== undefined;
    const rowsMax = config.SERVICE_SERIES_MAX_ROWS;
    const readings: Reading[] = [];
    for (let index = 0; index < names.length; index += READS_AT_ONCE) {
      const batch = names.slice(index, index + READS_AT_ONCE);
      const reads = batch.map((series) => store.read({ ...series, asOf, ...range, rowsMax }));
      readings.push(...(await Promise.all(reads)));
    }
    const columns = readings.map(({ valueColumns }) => columnOf(valueColumns, query.column));
    const rowCount = readings.reduce((sum, reading) => sum + reading.rowCount, 0);
    if (!bounded && rowCount > rowsMax) throw overCap(rowCount, rowsMax);
    const collected = () => collectAll(readings, columns, rowsMax);
    // How many rows lie within bounds shows only when they are read.
    if (context.req.raw.method === "HEAD" && rowCount > rowsMax) await collected();
    const versions = readings.reduce((sum, reading) => sum + reading.versionCount, 0);
    const tag = await panelTag(readings, { ...query, format });
    const response = await send(context, {
      tag,
      contentType: FORMATS[format].type,
      compressible: true,
      // Without a time in the address, the same one asks for a newer state tomorrow.
      settled:
        known.pinned || (known.asOf !== undefined && readings.every(({ settled }) => settled)),
      headers: {
        "X-As-Of": iso(asOf),
        ...(readings.some(({ sandbox }) => sandbox) ? { "X-Sandbox": "true" } : {}),
      },
      cacheKeys: [],
      body: () => {
        const panel = async function* () {
          const series = await collected();
          const instruments = instrumentsOf(series);
          yield* encodePanel(panelRows(series, instruments), instruments, { format, local });
        };
        return largeReads.hold(panel(), versions);
      },
    });
    return response as never;
  });
}

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

function clockOf(timeZone: string) {
  try {
    return localClock(timeZone);
  } catch {
    const given = JSON.stringify(timeZone.slice(0, 64));
    throw new Failure("invalid_request", `time_zone: ${given} is not an IANA time zone`);
  }
}

/** A panel's bytes follow from its series' identities and how they are shown. */
async function panelTag(readings: readonly Reading[], shown: object): Promise<string> {
  const text = JSON.stringify([readings.map(({ identity }) => identity), shown]);
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return Array.from(new Uint8Array(digest, 0, 16), (b) => b.toString(16).padStart(2, "0")).join("");
}

const overCap = (rows: number, cap: number) =>
  new Failure(
    "row_cap_exceeded",
    `the panel has ${rows} rows or more over all its series, over the cap of ${cap}; ` +
      "ask for fewer symbols, or a narrower start and end",
    { data: { rows, cap } },
  );

/** The rows of every series, within the cap of them all. */
async function collectAll(
  readings: readonly Reading[],
  columns: readonly number[],
  rowsMax: number,
): Promise<PanelSeries[]> {
  const series: PanelSeries[] = [];
  let rows = 0;
  for (const [index, reading] of readings.entries()) {
    const batches: Batch[] = [];
    for await (const batch of reading.batches()) {
      rows += batch.length;
      if (rows > rowsMax) throw overCap(rows, rowsMax);
      batches.push(batch);
    }
    series.push({ batches, column: columns[index] ?? 0 });
  }
  return series;
}
