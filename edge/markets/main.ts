// The markets Worker: the read-only HTTP API over the bitemporal store.

import { cors } from "hono/cors";
import { systemClock } from "../../shared/time.ts";
import { createService } from "../http/app.ts";
import { openDatabase } from "../http/database.ts";
import { requireApiKey } from "../http/keys.ts";
import { parseConfig } from "./config.ts";
import { openGraph } from "./graph.ts";
import { addRoutes, type ReadApi } from "./routes.ts";
import { Slots } from "./slots.ts";
import { overview } from "./store/listings.ts";
import { openStore } from "./store/store.ts";

const DATA_PATHS = [
  ...["/libraries", "/symbols", "/series", "/curve", "/graph/entities", "/graph/related"],
  ...["/vintages", "/diff", "/revisions", "/panel", "/snapshots", "/changes"],
];
/** Query parameters that may be logged; none of them can hold a secret. */
const LOGGED = (
  "library symbol symbols as_of snapshot start end includeHistory as_of_offset vintage provenance " +
  "format column time_zone from to since after limit lags commodity label instrument_id depth"
).split(" ");
/** Large reads at once per isolate, and how long one may wait or be silent. */
const LARGE_READS = {
  most: 2,
  largeRows: 100_000,
  waitMs: 10_000,
  leaseMs: 30_000,
  clock: systemClock,
};
/** A statement that takes longer is given up; the health check's, long before its reader does. */
const STATEMENT_MS = 15_000;
const HEALTH_MS = 1_500;

const { app } = createService<ReadApi>({
  name: "markets",
  title: "Vantage Markets: read API",
  version: "0.1.0",
  description:
    "Power, commodity and weather series with two clocks: Datetime is the instant a value refers to, " +
    "as_of is when this service learned it. Every data endpoint answers what was known at any as_of.\n\n" +
    "With a key configured, data endpoints need it in the X-API-Key header. Errors are " +
    "{code, detail, request_id}.",
  loggedQuery: LOGGED,
  open: (environment, log) => {
    const config = parseConfig(environment);
    if (!config.SERVICE_READ_API_KEY) {
      log.warning("open_api", { detail: "SERVICE_READ_API_KEY is unset: the read API is open" });
    }
    const database = openDatabase(config.DATABASE_URL, { timeoutMs: STATEMENT_MS });
    const probe = openDatabase(config.DATABASE_URL, { timeoutMs: HEALTH_MS });
    const { host, pathname } = new URL(config.DATABASE_URL.reveal());
    return {
      config,
      graph: openGraph(config.GRAPH_DATABASE_URL),
      store: openStore({ database, bucket: config.STORE }),
      overview: () => overview(probe),
      largeReads: new Slots(LARGE_READS),
      cacheScope: `${host}${pathname}`,
    };
  },
});

type Var = { service: ReadApi };

app.openAPIRegistry.registerComponent("securitySchemes", "apiKey", {
  type: "apiKey",
  in: "header",
  name: "X-API-Key",
});

app.use(async (context, next) => {
  const origins = context.var.service.config.SERVICE_CORS_ORIGINS;
  if (origins.length === 0) return next();
  return cors({
    origin: origins,
    allowMethods: ["GET"],
    allowHeaders: ["X-API-Key", "X-Request-Id", "If-None-Match"],
    exposeHeaders: ["ETag", "X-Request-Id", "X-As-Of", "X-Store-Version", "X-Sandbox", "Link"],
    maxAge: 3600,
  })(context, next);
});

for (const path of DATA_PATHS) {
  app.use(
    path,
    requireApiKey((context) => (context.var as Var).service.config.SERVICE_READ_API_KEY),
  );
}

addRoutes(app);

export default { fetch: app.fetch };
