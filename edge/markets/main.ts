// The markets Worker: the read-only HTTP API over the bitemporal store.

import { cors } from "hono/cors";
import { createService } from "../http/app.ts";
import { addRoutes } from "../http/route.ts";
import { HEADERS, TAGS } from "./description.ts";
import examples from "./examples.json" with { type: "json" };
import { routes } from "./routes.ts";
import { openReadApi, type ReadApi } from "./service.ts";

/** Query parameters that may be logged; none of them can hold a secret. */
const LOGGED = (
  "library symbol symbols as_of snapshot start end includeHistory as_of_offset vintage provenance " +
  "format column time_zone from to since after limit lags commodity label instrument_id depth"
).split(" ");

/** Headers that a page of another origin may read: Parquet readers in browsers need the ranges'. */
const EXPOSED = [
  "ETag",
  "X-Request-Id",
  "X-As-Of",
  "X-Store-Version",
  "X-Sandbox",
  "X-Empty-Reason",
  "Link",
  "Accept-Ranges",
  "Content-Range",
  "Retry-After",
];

const { app } = createService<ReadApi>({
  name: "markets",
  title: "Vantage Markets: read API",
  version: "0.1.0",
  description:
    "Power, commodity and weather series with two clocks: Datetime is the instant a value refers to, " +
    "as_of is when this service learned it. Every data endpoint answers what was known at any as_of.\n\n" +
    "With a key configured, data endpoints need it in the X-API-Key header. Errors are " +
    "{code, detail, request_id}.",
  tags: TAGS,
  headers: HEADERS,
  examples,
  loggedQuery: LOGGED,
  logsAll: ({ config }) => config.LOG_REQUESTS,
  open: openReadApi,
});

app.use(async (context, next) => {
  const origins = context.var.service.config.SERVICE_CORS_ORIGINS;
  if (origins.length === 0) return next();
  return cors({
    origin: origins,
    allowMethods: ["GET"],
    allowHeaders: ["X-API-Key", "X-Request-Id", "If-None-Match", "Range", "If-Range"],
    exposeHeaders: EXPOSED,
    maxAge: 3600,
  })(context, next);
});

addRoutes(app, routes);

export default { fetch: app.fetch };
