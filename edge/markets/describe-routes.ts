// The route that tells what symbols are: their names, units and clocks.

import { z } from "@hono/zod-openapi";
import { Failure } from "../../shared/errors.ts";
import { json } from "../http/route.ts";
import { cacheControl } from "./answer.ts";
import { describeSymbol, SymbolDescription } from "./client/symbols.ts";
import { library, symbol } from "./parameters.ts";
import { type Route, reader, route } from "./route.ts";

/** The route that describes a series. */
export const describeRoutes: readonly Route[] = [
  route(
    {
      call: "GET /symbols/describe",
      operationId: "describeSymbols",
      tag: "Catalog",
      summary: "Names, units and clocks of a library's symbols",
      description: "Of one `symbol`, or of all that the library holds, sorted.",
      who: reader,
      query: z.object({ library, symbol: symbol.optional() }),
      answers: { 200: json("what each symbol is", z.array(SymbolDescription)) },
      errors: ["unknown_library", "unknown_symbol"],
    },
    async (context) => {
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
    },
  ),
];
