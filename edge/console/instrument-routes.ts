// The operator API's view of stored rows: which instruments checks watch, which ones are retired,
// and which rows are flagged as true vintages against the publication rule.

import { createRoute, z } from "@hono/zod-openapi";
import { Instrument, LateRows } from "../../shared/wire/instruments.ts";
import { type App, errorResponses, json, jsonBody, namePart } from "../http/app.ts";
import { listInstruments, setRetired, toWire } from "../markets/ingest/instruments.ts";
import { requirePipeline } from "../markets/ingest/pipeline.ts";
import { listLateRows } from "../markets/ingest/vintage-flags.ts";
import { bearerName } from "./bearer.ts";
import { type Console, job, operator, refusals } from "./parameters.ts";

/** Registers the routes of instruments. */
export function addInstruments(app: App<Console>) {
  const list = createRoute({
    method: "get",
    path: "/api/jobs/{job}/instruments",
    operationId: "listInstruments",
    tags: ["Instruments"],
    summary: "Instruments that a pipeline's checks watch, with their newest valid times",
    description: "Only instruments of power libraries are watched. Sorted by identifier.",
    security: operator,
    request: { params: z.object({ job }) },
    responses: {
      200: json("the instruments", z.array(Instrument)),
      ...errorResponses(...refusals, "unknown_job", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(list, async (context) => {
    const { database, pipelines } = context.var.service.ingest;
    const { libraries } = requirePipeline(pipelines, context.req.valid("param").job);
    return context.json((await listInstruments(database, libraries)).map(toWire), 200);
  });

  const flags = createRoute({
    method: "get",
    path: "/api/jobs/{job}/vintage-flags",
    operationId: "checkVintageFlags",
    tags: ["Instruments"],
    summary: "Stored rows that are flagged as true vintages but were learned too late for it",
    description:
      "Such rows were written before the publication rule existed. Their flags stay as they are. " +
      "The whole history of the job is read, which may take minutes.",
    security: operator,
    request: { params: z.object({ job }) },
    responses: {
      200: json("one entry a series", z.array(LateRows)),
      ...errorResponses(...refusals, "unknown_job", "invalid_request", "store_unavailable"),
    },
  });
  app.openapi(flags, async (context) => {
    const { ingest } = context.var.service;
    return context.json(await listLateRows(ingest, context.req.valid("param").job), 200);
  });

  const change = createRoute({
    method: "patch",
    path: "/api/instruments/{instrument_id}",
    operationId: "retireInstrument",
    tags: ["Instruments"],
    summary: "Retire an instrument, or watch it again",
    description:
      "Checks list a retired instrument in `retired_symbols` instead of `stale_symbols`, from the " +
      "next one on. A row newer than any before ends the retirement.",
    security: operator,
    request: {
      params: z.object({
        instrument_id: namePart().meta({
          description: "instrument identifier",
          example: "power.demand.erco",
        }),
      }),
      ...jsonBody(
        z.strictObject({
          retired: z
            .boolean()
            .meta({ description: "whether its silence is expected", example: true }),
        }),
      ),
    },
    responses: {
      204: { description: "changed" },
      ...errorResponses(
        "bad_body",
        ...refusals,
        "unknown_instrument",
        "invalid_request",
        "store_unavailable",
      ),
    },
  });
  app.openapi(change, async (context) => {
    const { database, clock } = context.var.service.ingest;
    const { retired } = context.req.valid("json");
    const { instrument_id: id } = context.req.valid("param");
    await setRetired(database, id, { retired, by: bearerName(context), now: clock() });
    return context.body(null, 204);
  });
}
