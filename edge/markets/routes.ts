// The read API's routes. Read only: no route here, and no module it imports, can write.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { iso } from "../../shared/time.ts";
import { Health } from "../../shared/wire/markets.ts";
import { isUnavailable } from "../http/database.ts";
import { anybody, json } from "../http/route.ts";
import { cacheControl } from "./answer.ts";
import { curveRoutes } from "./curve-routes.ts";
import { describeRoutes } from "./describe-routes.ts";
import { graphRoutes } from "./graph-routes.ts";
import { historyRoutes } from "./history-routes.ts";
import { panelRoutes } from "./panel-routes.ts";
import { library } from "./parameters.ts";
import { type Route, reader, route } from "./route.ts";
import { seriesRoutes } from "./series-routes.ts";

/** Every route of the read API. */
export const routes: readonly Route[] = [
  route(
    {
      call: "GET /healthz",
      operationId: "readHealth",
      tag: "Health",
      summary: "Liveness, libraries and the newest knowledge time",
      description:
        "Always open. Reads only the vintage index, never series data. When the database does not " +
        "answer, or lets this service write, the status is `degraded` and the answer still 200.",
      who: anybody,
      answers: { 200: json("the health object", Health) },
      never: ["store_unavailable"],
    },
    async (context) => {
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
    },
  ),
  route(
    {
      call: "GET /libraries",
      operationId: "listLibraries",
      tag: "Catalog",
      summary: "Libraries present in the store",
      description: "A library holds the series of one kind; the spec lists those there may be.",
      who: reader,
      answers: { 200: json("library names, sorted", z.array(z.string())) },
    },
    async (context) => {
      const { store, config } = context.var.service;
      const names = await store.libraries();
      context.header("Cache-Control", cacheControl({ immutable: false }, config));
      return context.json(names, 200);
    },
  ),
  route(
    {
      call: "GET /symbols",
      operationId: "listSymbols",
      tag: "Catalog",
      summary: "Symbols of a library",
      description: "A symbol names one series of its library, which may hold several instruments.",
      who: reader,
      query: z.object({ library }),
      answers: { 200: json("symbols, sorted; sidecars are hidden", z.array(z.string())) },
      errors: ["unknown_library"],
    },
    async (context) => {
      const { store, config } = context.var.service;
      const entries = await store.symbols(context.req.valid("query").library);
      context.header("Cache-Control", cacheControl({ immutable: false }, config));
      return context.json(
        entries.map(({ symbol }) => symbol),
        200,
      );
    },
  ),
  ...describeRoutes,
  ...seriesRoutes,
  ...historyRoutes,
  ...panelRoutes,
  ...curveRoutes,
  ...graphRoutes,
];
