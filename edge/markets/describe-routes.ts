// The route that tells what symbols are: their names, units and clocks.

import { createRoute, z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { type App, errorResponses, json } from "../http/app.ts";
import { cacheControl } from "./answer.ts";
import { describeSymbol, SymbolDescription } from "./client/symbols.ts";
import { apiKey, library, symbol } from "./parameters.ts";
import type { ReadApi } from "./service.ts";

/** Registers the route on the service. */
export function addDescriptions(app: App<ReadApi>) {
  const route = createRoute({
    method: "get",
    path: "/symbols/describe",
    operationId: "describeSymbols",
    tags: ["Catalog"],
    summary: "Names, units and clocks of a library's symbols",
    description: "Of one `symbol`, or of all that the library holds, sorted.",
    security: apiKey,
    request: { query: z.object({ library, symbol: symbol.optional() }) },
    responses: {
      200: json("what each symbol is", z.array(SymbolDescription)),
      ...errorResponses(
        "unauthorized",
        "unknown_library",
        "unknown_symbol",
        "invalid_request",
        "store_unavailable",
      ),
    },
  });
  app.openapi(route, async (context) => {
    const { store, config } = context.var.service;
    const { library, symbol } = context.req.valid("query");
    const held = (await store.symbols(library)).map((entry) => entry.symbol);
    if (symbol !== undefined && !held.includes(symbol)) {
      const detail = `library ${library} holds no symbol ${JSON.stringify(symbol)}`;
      throw new Failure("unknown_symbol", detail);
    }
    context.header("Cache-Control", cacheControl({ immutable: false }, config));
    const wanted = symbol === undefined ? held : [symbol];
    return context.json(
      wanted.map((one) => describeSymbol(library, one)),
      200,
    );
  });
}
