// The read API's routes. Read only: no route here, and no module it imports, can write.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { iso } from "../../shared/time.ts";
import { Health } from "../../shared/wire/markets.ts";
import { type App, errorResponses, json } from "../http/app.ts";
import { isUnavailable } from "../http/database.ts";
import { cacheControl } from "./answer.ts";
import { addCurve } from "./curve-routes.ts";
import { addDescriptions } from "./describe-routes.ts";
import { addGraph } from "./graph-routes.ts";
import { addHistory } from "./history-routes.ts";
import { addPanel } from "./panel-routes.ts";
import { apiKey, library } from "./parameters.ts";
import { addSeries } from "./series-routes.ts";
import type { ReadApi } from "./service.ts";

/** Registers every route on the service. */
export function addRoutes(app: App<ReadApi>) {
  addHealth(app);
  addCatalog(app);
  addDescriptions(app);
  addSeries(app);
  addHistory(app);
  addPanel(app);
  addCurve(app);
  addGraph(app);
}

function addHealth(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/healthz",
    operationId: "readHealth",
    tags: ["Health"],
    summary: "Liveness, libraries and the newest knowledge time",
    description:
      "Always open. Reads only the vintage index, never series data. When the database does not " +
      "answer, or lets this service write, the status is `degraded` and the answer still 200.",
    responses: { 200: json("the health object", Health) },
  });
  app.openapi(route, async (context) => {
    const { service } = context.var;
    // The store and the graph are asked at once, so that neither waits while the other is silent.
    const overview = service.overview();
    overview.catch(() => {});
    const graph = await service.graph.state((probe) => context.executionCtx.waitUntil(probe));
    try {
      const { libraries, latestAsOf, sandbox } = await overview;
      const latest = latestAsOf === null ? null : iso(latestAsOf);
      const known = { libraries, latest_as_of: latest, graph, sandbox };
      const refused = await service.assertReader().then(
        () => null,
        (thrown: unknown) => {
          if (thrown instanceof Failure) return thrown;
          throw thrown;
        },
      );
      if (refused) {
        context.var.log.error("health", { error: refused });
        const detail = refused.message;
        return context.json({ status: "degraded" as const, ...known, detail }, 200);
      }
      return context.json({ status: "ok" as const, ...known }, 200);
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
    operationId: "listLibraries",
    tags: ["Catalog"],
    summary: "Libraries present in the store",
    description: "A library holds the series of one kind; the spec lists those there may be.",
    security: apiKey,
    responses: {
      200: json("library names, sorted", z.array(z.string())),
      ...errorResponses("unauthorized", "store_unavailable"),
    },
  });
  app.openapi(libraries, async (context) => {
    const { store, config } = context.var.service;
    const names = await store.libraries();
    context.header("Cache-Control", cacheControl({ immutable: false }, config));
    return context.json(names, 200);
  });

  const symbols = createRoute({
    method: "get",
    path: "/symbols",
    operationId: "listSymbols",
    tags: ["Catalog"],
    summary: "Symbols of a library",
    description: "A symbol names one series of its library, which may hold several instruments.",
    security: apiKey,
    request: { query: z.object({ library }) },
    responses: {
      200: json("symbols, sorted; sidecars are hidden", z.array(z.string())),
      ...errorResponses("unauthorized", "unknown_library", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(symbols, async (context) => {
    const { store, config } = context.var.service;
    const entries = await store.symbols(context.req.valid("query").library);
    context.header("Cache-Control", cacheControl({ immutable: false }, config));
    return context.json(
      entries.map(({ symbol }) => symbol),
      200,
    );
  });
}
