// Logs of devices over HTTP, as people read them.

import { z } from "@hono/zod-openapi";
import { decimal, whole } from "../../../../shared/scalars.ts";
import { LogLine } from "../../../../shared/wire/fleet.ts";
import { headers } from "../../../http/description.ts";
import { json } from "../../../http/route.ts";
import { name } from "../../../http/texts.ts";
import { user } from "../../auth/audience.ts";
import { callerOf } from "../../auth/scope.ts";
import { type Route, route } from "../../base/route.ts";
import { deviceParam, rangeOf, rangeQuery } from "./bodies.ts";
import { findDeviceFor } from "./devices.ts";
import {
  type LogFilter,
  linesFile,
  linesForFile,
  listLines,
  PAGE_LINES_MAX,
  positionOf,
} from "./log-list.ts";

const tag = "Devices";
const PARQUET = "application/vnd.apache.parquet";

const StoredLine = LogLine.extend({
  boot_id: z.string().meta({ description: "the boot that its number is of" }),
  received_at: z.iso.datetime().meta({ description: "when it came" }),
}).meta({ id: "StoredLogLine" });

const share = () => decimal((number) => number.min(0).max(1));
const filterQuery = {
  ...rangeQuery,
  kind: name().max(32).optional().meta({ description: "only lines of this kind" }),
  class: name().max(200).optional().meta({ description: "only lines with an object of it" }),
  model_id: z.uuid().optional().meta({ description: "only of this model" }),
  min_confidence: share().optional().meta({
    description: "only lines with an object, of the class where one is named, of at least it",
  }),
  max_confidence: share().optional().meta({
    description: "only lines with an object of at most it; with `min_confidence`, one in between",
  }),
};

/** A filter as a query gives it. */
type FilterQuery = z.output<z.ZodObject<typeof filterQuery>>;

function filterOf({ from, to, ...query }: FilterQuery): LogFilter {
  return {
    ...rangeOf({ from, to }),
    kind: query.kind,
    class: query.class,
    modelId: query.model_id,
    confidenceMin: query.min_confidence,
    confidenceMax: query.max_confidence,
  };
}

/** Routes of logs that people use. */
export const logRoutes: readonly Route[] = [
  route(
    {
      call: "GET /devices/{device_id}/logs",
      operationId: "listDeviceLogs",
      tag,
      summary: "Lines of an edge device's log, newest first",
      description:
        "Beyond the contract. In the order of the device's own clock, which is believed nowhere else. " +
        "Lines are kept for as long as the installation says (`DEVICE_LOG_DAYS`), and 2,000,000 or " +
        "2 GiB of a device at most. A page of large lines ends at 4 MiB, so one may have fewer than `limit`: the " +
        "last is the one whose `next` is null.",
      who: user,
      params: deviceParam,
      query: z.object({
        ...filterQuery,
        cursor: name().max(64).optional().meta({ description: "`next` of the page before" }),
        limit: whole(1, PAGE_LINES_MAX).default(100),
      }),
      answers: {
        200: json(
          "a page of lines",
          z.object({
            items: z.array(StoredLine),
            next: z.string().nullable().meta({
              description: "`cursor` of the page that follows; null: there is none",
            }),
          }),
        ),
      },
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const { cursor, limit, ...query } = context.req.valid("query");
      const filter = { ...filterOf(query), after: positionOf(cursor), limit };
      await findDeviceFor(parts, callerOf(context), device_id);
      const { items, next } = await listLines(parts.database, device_id, filter);
      return context.json({ items, next }, 200);
    },
  ),
  route(
    {
      call: "GET /devices/{device_id}/logs.parquet",
      operationId: "exportDeviceLogs",
      tag,
      summary: "Lines of an edge device's log as a Parquet file",
      description:
        "Beyond the contract. As the list, with at most 20,000 lines and 16 MiB of them as JSON: more " +
        "are 413, and `from` and `to` cut the range. `objects`, and fields of the device's own as `extra`, are JSON.",
      who: user,
      params: deviceParam,
      query: z.object(filterQuery),
      answers: {
        200: {
          description: "the file",
          headers: headers("Content-Disposition"),
          content: { [PARQUET]: { schema: { type: "string", format: "binary" } } },
        },
      },
      errors: ["row_cap_exceeded"],
    },
    async (context) => {
      const parts = context.var.service;
      const { device_id } = context.req.valid("param");
      const filter = filterOf(context.req.valid("query"));
      await findDeviceFor(parts, callerOf(context), device_id);
      const lines = await linesForFile(parts.database, device_id, filter);
      context.header("Content-Type", PARQUET);
      context.header("Content-Disposition", `attachment; filename="device-logs.parquet"`);
      return context.body(linesFile(lines), 200);
    },
  ),
];
