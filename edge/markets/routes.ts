// The read API's routes. Read only: no route here, and no module it imports, can write.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { Health, SeriesRecord } from "../../shared/markets.ts";
import { iso, parseInstant } from "../../shared/time.ts";
import { type App, errorResponses, json, name } from "../http/app.ts";
import { isUnavailable } from "../http/database.ts";
import type { Config } from "./config.ts";
import { seriesJson } from "./store/json.ts";
import type { Store } from "./store/store.ts";

/** What the routes need, opened once per environment. */
export interface ReadApi {
  config: Config;
  store: Store;
}

export const apiKey = [{ apiKey: [] }];

const library = name().meta({
  description: "library name, as GET /libraries lists it",
  example: "power.demand",
});
export const datetime = (description: string, example: string) =>
  z.string().optional().meta({ description, example });

/** Registers every route on the service. */
export function addRoutes(app: App<ReadApi>) {
  addHealth(app);
  addCatalog(app);
  addSeries(app);
}

function addHealth(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/healthz",
    summary: "Liveness, libraries and the newest knowledge time",
    description:
      "Always open. Reads only the vintage index, never series data. When the database does not " +
      "answer, the status is `degraded` and the answer still 200.",
    responses: { 200: json("the health object", Health) },
  });
  app.openapi(route, async (context) => {
    const { store } = context.var.service;
    const graph = "not_configured" as const;
    try {
      const { libraries, latestAsOf, sandbox } = await store.overview();
      const latest = latestAsOf === null ? null : iso(latestAsOf);
      return context.json(
        { status: "ok" as const, libraries, latest_as_of: latest, graph, sandbox },
        200,
      );
    } catch (thrown) {
      if (!isUnavailable(thrown)) throw thrown;
      context.var.log.error("health", { error: thrown });
      const unknown = { libraries: [], latest_as_of: null, graph, sandbox: false };
      return context.json({ status: "degraded" as const, ...unknown }, 200);
    }
  });
}

function addCatalog(app: App<ReadApi>) {
  const libraries = createRoute({
    method: "get",
    path: "/libraries",
    summary: "Libraries present in the store",
    security: apiKey,
    responses: {
      200: json("library names, sorted", z.array(z.string())),
      ...errorResponses("unauthorized", "store_unavailable"),
    },
  });
  app.openapi(libraries, async (context) =>
    context.json(await context.var.service.store.libraries(), 200),
  );

  const symbols = createRoute({
    method: "get",
    path: "/symbols",
    summary: "Symbols of a library",
    security: apiKey,
    request: { query: z.object({ library }) },
    responses: {
      200: json("symbols, sorted; sidecars are hidden", z.array(z.string())),
      ...errorResponses("unauthorized", "unknown_library", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(symbols, async (context) => {
    const found = await context.var.service.store.symbols(context.req.valid("query").library);
    return context.json(
      found.map(({ symbol }) => symbol),
      200,
    );
  });
}

function addSeries(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/series",
    summary: "A series as it was known at `as_of`",
    description:
      "Rows ordered by Datetime, then instrument_id. Data learned after `as_of` is never returned; " +
      "an `as_of` before the first vintage gives `[]`.\n\n" +
      "Datetimes are ISO 8601: a date alone means 00:00Z at its start, no offset means UTC. `start` " +
      "and `end` are inclusive and make the read bounded, which exempts it from the row cap.\n\n" +
      "Headers: X-As-Of and X-Store-Version name the vintage that answered (absent before the first), " +
      "X-Sandbox: true marks sandbox data. ETag names the answer (If-None-Match gives 304); with an " +
      "`as_of` not after the series' newest vintage it is immutable and cached as such.",
    security: apiKey,
    request: {
      query: z.object({
        library,
        symbol: name().meta({ description: "lowercase symbol", example: "erco" }),
        as_of: datetime("knowledge time; the latest vintage when omitted", "2026-01-31T12:00:00Z"),
        start: datetime("valid-time lower bound, inclusive", "2026-01-01"),
        end: datetime("valid-time upper bound, inclusive", "2026-01-31"),
      }),
    },
    responses: {
      200: json("the series", z.array(SeriesRecord)),
      304: { description: "the answer named by If-None-Match is still the answer" },
      ...errorResponses(
        "bad_datetime",
        "unauthorized",
        "unknown_library",
        "unknown_symbol",
        "row_cap_exceeded",
        "invalid_request",
        "store_unavailable",
      ),
    },
  });
  app.openapi(route, async (context) => {
    const { store, config } = context.var.service;
    const query = context.req.valid("query");
    const reading = await store.read({
      library: query.library,
      symbol: query.symbol,
      asOf: instant("as_of", query.as_of),
      ...window(query),
      rowsMax: config.SERVICE_SERIES_MAX_ROWS,
    });
    if (reading.asOf !== null) {
      context.header("X-As-Of", iso(reading.asOf));
      context.header("X-Store-Version", String(reading.seq));
    }
    if (reading.sandbox) context.header("X-Sandbox", "true");
    const etag = `"${reading.identity}"`;
    context.header("ETag", etag);
    context.header("Cache-Control", cacheControl(reading.settled, config));
    if (matches(context.req.header("If-None-Match"), etag)) return context.body(null, 304) as never;
    context.header("Content-Type", "application/json");
    // The stream writes exactly the declared records; the type system cannot see into it.
    return context.body(seriesJson(await reading.rows(), reading.valueColumns)) as never;
  });
}

/** A settled answer never changes; shared caches may hold it unless readers need a key. */
export function cacheControl(settled: boolean, config: Config): string {
  const scope = config.SERVICE_READ_API_KEY ? "private" : "public";
  if (settled) return `${scope}, max-age=31536000, immutable`;
  return config.SERVICE_READ_API_KEY
    ? "private, max-age=0"
    : "public, max-age=0, s-maxage=30, stale-while-revalidate=30";
}

const matches = (ifNoneMatch: string | undefined, etag: string) =>
  (ifNoneMatch ?? "").split(",").some((one) => ["*", etag, `W/${etag}`].includes(one.trim()));

function window(query: { start?: string | undefined; end?: string | undefined }) {
  const start = instant("start", query.start);
  const end = instant("end", query.end);
  if (start !== undefined && end !== undefined && start > end) {
    throw new Failure("invalid_request", "start: lies after end");
  }
  return { start, end };
}

/** The instant a parameter names; fails with `bad_datetime`. */
export function instant(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const parsed = parseInstant(text);
  if (parsed === null) {
    const given = JSON.stringify(text.slice(0, 64));
    throw new Failure("bad_datetime", `${name}: ${given} is not an ISO 8601 date or datetime`);
  }
  return parsed;
}
