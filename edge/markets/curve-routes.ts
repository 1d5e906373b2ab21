// GET /curve, and the reader that answers it from the store. Read windows are bounded: older
// history is opened only where the recent holds nothing.

import { z } from "@hono/zod-openapi";
import { assert, Failure } from "../../shared/errors.ts";
import { DAY, iso } from "../../shared/time.ts";
import { CurveRecord } from "../../shared/wire/markets.ts";
import { headers } from "../http/description.ts";
import { json } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { cacheControl } from "./answer.ts";
import { type CurveReader, curve, emptyReason } from "./curve.ts";
import { datetime, instant } from "./parameters.ts";
import { type Route, reader, route } from "./route.ts";
import type { ReadRequest, Store } from "./store/store.ts";

/** Days before the newest Datetime ever written that are searched, a window after the other. */
const WINDOW_DAYS = [14, 366, Infinity];

interface StoreReader extends CurveReader {
  /** Whether any series read so far is sandbox. */
  readonly sandbox: boolean;
  /** The newest vintage of those series that answered. */
  readonly newestAsOf: number | null;
}

/** Reads curves' rows from a store, and remembers which vintages answered. */
function storeReader(store: Store): StoreReader {
  let sandbox = false;
  let newestAsOf: number | null = null;
  const rows = async (request: ReadRequest) => {
    const reading = await store.read(request).catch(nullIfUnknown);
    if (!reading) return [];
    sandbox ||= reading.sandbox;
    if (reading.asOf !== null) newestAsOf = Math.max(newestAsOf ?? 0, reading.asOf);
    const column = reading.valueColumns.indexOf("value");
    assert(column >= 0, "a series that curves are made of has a column `value`");
    return (await reading.rows()).map(({ values, ...row }) => ({
      ...row,
      value: values[column] ?? NaN,
    }));
  };
  return {
    get sandbox() {
      return sandbox;
    },
    get newestAsOf() {
      return newestAsOf;
    },
    rows: (library, symbol, window) => rows({ library, symbol, ...window }),
    exists: async (library, symbol) =>
      (await store.newestDatetime(library, symbol, Infinity)) !== null,
    newestDatetime: async (library, symbol, asOf) => {
      const newestWritten = await store.newestDatetime(library, symbol, asOf ?? Infinity);
      if (newestWritten === null) return null;
      let end = newestWritten;
      for (const days of WINDOW_DAYS) {
        const start = newestWritten - days * DAY;
        const newest = (await rows({ library, symbol, asOf, start, end })).at(-1);
        if (newest) return newest.datetime;
        end = start - 1;
      }
      return null;
    },
  };
}

function nullIfUnknown(thrown: unknown): null {
  const codes = ["unknown_library", "unknown_symbol"];
  if (thrown instanceof Failure && codes.includes(thrown.code)) return null;
  throw thrown;
}

/** The route of the forward curve. */
export const curveRoutes: readonly Route[] = [
  route(
    {
      call: "GET /curve",
      operationId: "readCurve",
      tag: "Series",
      summary: "A forward curve as it was known at `as_of`",
      description:
        "Commodities `natural_gas`, `crude_oil_wti`, `gasoline_rbob` and `heating_oil`, and the day-ahead " +
        "hours of every hub and zone that GET /symbols?library=power.dalmp lists. Nothing learned after " +
        "`as_of` is used. An empty curve is `[]`, and X-Empty-Reason says why: `never_ingested`, the " +
        "store holds no series of the commodity yet (the real ones need EIA_API_KEY); " +
        "`not_known_then`, what was known at `as_of` makes no curve.\n\n" +
        "A curve is never stitched: `futures` are the four nearest contracts on the newest trade date " +
        "that has a price for each of them, `day_ahead` the hours of the newest operating day. The " +
        "agency's monthly path, `agency_forecast`, is served for natural gas and crude oil when it was " +
        "learned on a later day than the futures' trade date, or when there are no futures.\n\n" +
        "`tenor` counts from 1. Of futures tenor 1 is the contract that expires next after the trade " +
        "date, of the agency's path the month in which it was learned, of day-ahead hours the operating " +
        "day's first hour.\n\n" +
        "Headers: X-As-Of is the newest vintage of the series that were read, and as `as_of` gives the " +
        "same curve (absent before the first); X-Sandbox: true marks sandbox data.",
      who: reader,
      query: z.object({
        commodity: namePart().meta({
          description: "commodity, or a lowercase hub or zone",
          example: "natural_gas",
        }),
        as_of: datetime("knowledge time; the latest vintages when omitted", "2026-01-31T12:00:00Z"),
      }),
      answers: {
        200: json(
          "the curve, by tenor",
          z.array(CurveRecord),
          headers("X-As-Of", "X-Sandbox", "X-Empty-Reason"),
        ),
      },
      errors: ["bad_datetime", "unknown_commodity"],
    },
    async (context) => {
      const { store, config } = context.var.service;
      const query = context.req.valid("query");
      const reader = storeReader(store);
      // All series that the curve is made of are read at one knowledge time.
      const asOf = instant("as_of", query.as_of) ?? (await store.overview()).latestAsOf ?? 0;
      const records = await curve(reader, query.commodity, asOf);
      if (reader.newestAsOf !== null) context.header("X-As-Of", iso(reader.newestAsOf));
      if (reader.sandbox) context.header("X-Sandbox", "true");
      if (records.length === 0) {
        context.header("X-Empty-Reason", await emptyReason(reader, query.commodity));
      }
      context.header("Cache-Control", cacheControl({ immutable: false }, config));
      return context.json(records, 200);
    },
  ),
];
