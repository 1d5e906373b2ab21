// The operator API's view of stored rows: which instruments checks watch, which ones are retired,
// and which rows are flagged as true vintages against the publication rule.

import { z } from "@hono/zod-openapi";
import { Instrument, LateRows } from "../../shared/wire/instruments.ts";
import { json, jsonBody } from "../http/route.ts";
import { namePart } from "../http/texts.ts";
import { listInstruments, setRetired, toWire } from "../markets/ingest/instruments.ts";
import { requirePipeline } from "../markets/ingest/pipeline.ts";
import { listLateRows } from "../markets/ingest/vintage-flags.ts";
import { bearerName } from "./bearer.ts";
import { job } from "./parameters.ts";
import { operator, type Route, route } from "./route.ts";

/** Routes of instruments. */
export const instrumentRoutes: readonly Route[] = [
  route(
    {
      call: "GET /api/jobs/{job}/instruments",
      operationId: "listInstruments",
      tag: "Instruments",
      summary: "Instruments that a pipeline's checks watch, with their newest valid times",
      description: "Only instruments of power libraries are watched. Sorted by identifier.",
      who: operator,
      params: z.object({ job }),
      answers: { 200: json("the instruments", z.array(Instrument)) },
      errors: ["unknown_job"],
    },
    async (context) => {
      const { database, pipelines } = context.var.service.ingest;
      const { libraries } = requirePipeline(pipelines, context.req.valid("param").job);
      return context.json((await listInstruments(database, libraries)).map(toWire), 200);
    },
  ),
  route(
    {
      call: "GET /api/jobs/{job}/vintage-flags",
      operationId: "checkVintageFlags",
      tag: "Instruments",
      summary: "Stored rows that are flagged as true vintages but were learned too late for it",
      description:
        "Such rows were written before the publication rule existed. Their flags stay as they are. " +
        "The whole history of the job is read, which may take minutes.",
      who: operator,
      params: z.object({ job }),
      answers: { 200: json("one entry a series", z.array(LateRows)) },
      errors: ["unknown_job"],
    },
    async (context) => {
      const { ingest } = context.var.service;
      return context.json(await listLateRows(ingest, context.req.valid("param").job), 200);
    },
  ),
  route(
    {
      call: "PATCH /api/instruments/{instrument_id}",
      operationId: "retireInstrument",
      tag: "Instruments",
      summary: "Retire an instrument, or watch it again",
      description:
        "Checks list a retired instrument in `retired_symbols` instead of `stale_symbols`, from the " +
        "next one on. A row newer than any before ends the retirement.",
      who: operator,
      params: z.object({
        instrument_id: namePart().meta({
          description: "instrument identifier",
          example: "power.demand.erco",
        }),
      }),
      body: jsonBody(
        z.strictObject({
          retired: z
            .boolean()
            .meta({ description: "whether its silence is expected", example: true }),
        }),
      ),
      answers: { 204: { description: "changed" } },
      errors: ["unknown_instrument"],
    },
    async (context) => {
      const { database, clock } = context.var.service.ingest;
      const { retired } = context.req.valid("json");
      const { instrument_id: id } = context.req.valid("param");
      await setRetired(database, id, { retired, by: bearerName(context), now: clock() });
      return context.body(null, 204);
    },
  ),
];
