// The routes of the catalog graph. They share nothing with the series' routes, and answer when
// those cannot, as those answer without the graph.

import { z } from "@hono/zod-openapi";
import { whole } from "../../shared/scalars.ts";
import { GraphEntity, GraphNeighbourhood } from "../../shared/wire/markets.ts";
import { json } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { graphReader, type Route, route } from "./route.ts";

const depth = whole(1, 3).default(1).meta({ description: "hops to follow", example: 2 });

/** Routes of the catalog graph. */
export const graphRoutes: readonly Route[] = [
  route(
    {
      call: "GET /graph/entities",
      operationId: "listEntities",
      tag: "Graph",
      summary: "Entities of the catalog graph",
      description:
        "Instruments, libraries, providers, and what instruments are located at or about, in their " +
        "current state. `first_seen` and `last_seen` tell when ingest saw an entity.",
      who: graphReader,
      query: z.object({
        label: namePart().optional().meta({
          description: "only entities with this label",
          example: "BalancingAuthority",
        }),
      }),
      answers: { 200: json("entities by label, then key", z.array(GraphEntity)) },
      errors: ["graph_unavailable"],
      never: ["store_unavailable"],
    },
    async (context) => {
      const { label } = context.req.valid("query");
      return context.json(await context.var.service.graph.entities(label), 200);
    },
  ),
  route(
    {
      call: "GET /graph/related",
      operationId: "readRelated",
      tag: "Graph",
      summary: "What an instrument is connected to, and its siblings",
      description:
        "Entities within `depth` hops in either direction, and other instruments that share a place, " +
        "commodity or fuel with it. Empty for an instrument that the graph does not know.",
      who: graphReader,
      query: z.object({
        instrument_id: namePart().meta({
          description: "instrument, as the rows of /series name it",
          example: "power.demand.erco",
        }),
        depth,
      }),
      answers: { 200: json("the instrument's neighbourhood", GraphNeighbourhood) },
      errors: ["graph_unavailable"],
      never: ["store_unavailable"],
    },
    async (context) => {
      const query = context.req.valid("query");
      const related = await context.var.service.graph.related(query.instrument_id, query.depth);
      return context.json(related, 200);
    },
  ),
];
