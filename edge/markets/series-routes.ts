// GET /series: one symbol as it was known at an `as_of`, in every format.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { SeriesRecord } from "../../shared/markets.ts";
import { parseDuration } from "../../shared/time.ts";
import { type App, errorResponses } from "../http/app.ts";
import { send, sendCached } from "./answer.ts";
import {
  apiKey,
  bounds,
  encoded,
  instant,
  knowledge,
  knowledgeTime,
  library,
  symbol,
  window,
} from "./parameters.ts";
import type { ReadApi } from "./service.ts";
import type { Slots } from "./slots.ts";
import type { Reading } from "./store/store.ts";
import { encodeRows, FORMAT_NAMES, FORMATS, type Format, preferredFormat } from "./wire/formats.ts";

/** Part of every tag and cache key: raised when a release changes the bytes of equal answers. */
const ENCODING = 1;

const Query = z.object({
  library,
  symbol,
  ...knowledge,
  ...window,
  includeHistory: z.stringbool().default(false).meta({
    description:
      "every version of every row, each with known_from and known_to (null while it holds)",
  }),
  as_of_offset: z
    .string()
    .optional()
    .meta({
      description:
        "ISO 8601 duration: per row, only what was known by Datetime plus this; -PT10H is ten hours " +
        "before delivery. A row not known by then is left out",
      example: "-PT10H",
    }),
  vintage: z
    .enum(["any", "true_only"])
    .default("any")
    .meta({
      description:
        "true_only: leaves out the versions that backfills wrote. A scheduled run that finds what a " +
        "backfill wrote already writes nothing, so such a row is absent or its last true version",
    }),
  provenance: z.enum(["basic", "full"]).default("basic").meta({
    description: "full: adds store_version, source_url, source_published_at and run_id to each row",
  }),
  format: z.enum(FORMAT_NAMES).optional().meta({ description: "instead of the Accept header" }),
});
type Query = z.output<typeof Query>;

const content = {
  ...Object.fromEntries(Object.values(FORMATS).map(({ type }) => [type, encoded])),
  "application/json": { schema: z.array(SeriesRecord) },
};

/** Registers the series route. */
export function addSeries(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/series",
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
      "`as_of` not after the series' newest vintage, or a snapshot, it is immutable and cached as such.",
    security: apiKey,
    request: { query: Query },
    responses: {
      200: { description: "the series", content },
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
    const { store, config, largeReads, cacheScope } = context.var.service;
    const query = context.req.valid("query");
    const format = query.format ?? preferredFormat(context.req.header("Accept"));
    const { type, text } = FORMATS[format];
    const knownBy = offset(query);
    const range = bounds(query);
    const keyAt = (asOf: number) =>
      cacheKey(cacheScope, query, { ...range, asOf, knownBy, format });
    const named = instant("as_of", query.as_of);
    if (named !== undefined && query.snapshot === undefined) {
      const cached = await sendCached(context, keyAt(named), { compressible: text });
      if (cached) return cached;
    }
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
    const immutable = reading.immutable || pinned;
    // The answer is the vintage's for ever, and `as_of`'s once nothing can be learned before it.
    const keyTimes = [reading.asOf, immutable ? asOf : undefined];
    return send(context, {
      tag: `${ENCODING}-${reading.identity}${query.provenance === "full" ? "-p" : ""}.${format}`,
      // Row groups and record batches follow the store's objects, which compaction replaces.
      weak: !text,
      contentType: type,
      compressible: text,
      immutable,
      asOf: reading.asOf,
      storeVersion: reading.asOf === null ? null : reading.seq,
      sandbox: reading.sandbox,
      cacheKeys: keyTimes.flatMap((time) => (typeof time === "number" ? [keyAt(time)] : [])),
      body: () => encodedRows(largeReads, reading, query, format),
    });
  });
}

/** The bytes of the rows. Provenance is asked for first: it is small, and no slot waits for it. */
async function* encodedRows(
  largeReads: Slots,
  reading: Reading,
  { includeHistory: history, provenance: detail }: Query,
  format: Format,
) {
  const provenance = detail === "full" ? await reading.provenance() : null;
  const shape = { valueColumns: reading.valueColumns, history, provenance };
  yield* largeReads.hold(encodeRows(format, reading.batches(), shape), reading.versionCount);
}

/** The `as_of_offset` of a query in milliseconds; fails with `invalid_request`. */
function offset({ as_of_offset: text, includeHistory }: Query): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseDuration(text);
  if (parsed === null) {
    const problem = "must be an ISO 8601 duration of weeks, days, hours, minutes or seconds";
    throw new Failure("invalid_request", `as_of_offset: ${problem}, such as -PT10H`);
  }
  if (includeHistory) {
    throw new Failure("invalid_request", "as_of_offset: cannot be combined with includeHistory");
  }
  return parsed;
}

/** The key of an answer in the edge cache: every parameter its bytes depend on, in one order. */
function cacheKey(
  scope: string,
  { library, symbol, vintage, provenance, includeHistory }: Query,
  resolved: Record<"start" | "end" | "asOf" | "knownBy", number | undefined> & { format: string },
): string {
  const parts = { library, symbol, ...resolved, vintage, provenance, includeHistory };
  const pairs = Object.entries(parts).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return `https://cache.invalid/${ENCODING}/${scope}/series?${new URLSearchParams(pairs)}`;
}
