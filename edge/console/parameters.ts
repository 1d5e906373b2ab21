// What the routes of the operator API share: what they need, and the parameters that several take.

import { z } from "@hono/zod-openapi";
import { whole } from "../../shared/scalars.ts";
import type { Database } from "../http/database.ts";
import { namePart } from "../http/texts.ts";
import type { WebhookTarget } from "../http/webhook.ts";
import type { IngestParts } from "../markets/ingest/parts.ts";
import type { Config } from "./config.ts";

/** What the routes need, opened once per environment. */
export interface Console {
  config: Config;
  ingest: IngestParts;
  /** The ingest's database, over a handle that gives up early. */
  health: Database;
  /** Where alerts are sent; null: nowhere. */
  webhook: WebhookTarget | null;
  /** Operators, each with an address they were let in at since the last wrong token. */
  letIn: Set<string>;
}

/** How many are listed, with its default and its maximum. */
export const limit = (fallback: number, max: number) =>
  whole(1, max).default(fallback).meta({ description: "how many are listed", example: 2 });
/** The parameter `job`. */
export const job = namePart().meta({ description: "job name", example: "grid_region" });
/** An id of ours. */
export const id = (description: string) =>
  z.uuid("must be a UUID").meta({ description, example: "6f1c2b9e-3d7a-4c55-8a10-2b1f9d0c4e71" });
/** A day of a page's query, within what the database can hold with a margin. */
export const calendarDay = z.iso
  .date("must be a YYYY-MM-DD day")
  .refine((day) => day >= "1900" && day < "9000", "must lie in the years 1900 to 8999");
/** An optional field of a form: where it is not filled in, the browser sends the empty text. */
export const formField = <Shape extends z.ZodType>(shape: Shape) =>
  z.preprocess((given) => (given === "" ? undefined : given), shape.optional());
/** A partition's key; whether the job has it is told by `bad_partition`. */
export const partition = (description: string, example = "2026-01-31") =>
  z.string().meta({ description, example, format: "date" });
