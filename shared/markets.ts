// Wire shapes of the markets service: the read API's records and the operator API's resources.

import { z } from "zod";

const instant = z.string().meta({ format: "date-time", example: "2026-01-31T05:00:00.000Z" });

/** One row of `GET /series`. Value columns beyond `value` depend on the library. */
export const SeriesRecord = z
  .looseObject({
    Datetime: instant.meta({ description: "valid time: the interval's start, UTC" }),
    instrument_id: z.string().meta({ example: "power.demand.erco" }),
    value: z.number().nullable().optional().meta({ description: "NaN is null", example: 41234 }),
    as_of: instant.meta({ description: "knowledge time of this row: when its vintage committed" }),
    vintage_reconstructed: z.boolean().meta({
      description: "true: written by a backfill; false: a true forward vintage",
    }),
  })
  .meta({ id: "SeriesRecord" });
export type SeriesRecord = z.infer<typeof SeriesRecord>;

/** One point of `GET /curve`. */
export const CurveRecord = z
  .object({
    commodity: z.string().meta({ example: "natural_gas" }),
    trade_date: z.string().meta({
      description:
        "futures: the trade date; day_ahead: the operating day; agency_forecast: the UTC day on " +
        "which its newest vintage was learned",
      example: "2026-01-30",
    }),
    tenor: z.int().positive().meta({
      description: "n-th contract or month; day_ahead: n-th hour of the operating day, up to 25",
      example: 1,
    }),
    contract_month: z.string().nullable().meta({
      description: "delivery month; null for day_ahead",
      example: "2026-03",
    }),
    Datetime: instant.meta({
      description: "when delivery begins: the month's or the hour's start",
    }),
    price: z.number().nullable().meta({ description: "NaN is null", example: 3.42 }),
    unit: z.enum(["$/MMBtu", "$/bbl", "$/gal", "$/MWh"]),
    curve_source: z.enum(["futures", "agency_forecast", "day_ahead"]),
    instrument_id: z.string().meta({ example: "prices.spot.rngc1" }),
    as_of: instant.meta({
      description: "knowledge time of this price: when its vintage committed",
    }),
    vintage_reconstructed: z.boolean().meta({
      description: "true: written by a backfill; false: a true forward vintage",
    }),
  })
  .meta({ id: "CurveRecord" });
export type CurveRecord = z.infer<typeof CurveRecord>;

export const Health = z
  .object({
    status: z.enum(["ok", "degraded"]).meta({
      description: "degraded: the process lives, its database does not answer",
    }),
    libraries: z.array(z.string()),
    latest_as_of: instant.nullable().meta({
      description: "newest committed knowledge time; stale or null: nothing committed recently",
    }),
    graph: z.enum(["not_configured", "connected", "unavailable"]).meta({
      description: "state of the cached catalog-graph connection",
    }),
    sandbox: z
      .boolean()
      .meta({ description: "true: the store holds sandbox data, not a market's" }),
  })
  .meta({ id: "Health" });
export type Health = z.infer<typeof Health>;

export const RunState = z.enum(["queued", "running", "succeeded", "failed"]);
export type RunState = z.infer<typeof RunState>;

export const RunTrigger = z.enum(["schedule", "manual", "backfill"]);
export type RunTrigger = z.infer<typeof RunTrigger>;

/** One execution of a pipeline over one partition. */
export const Run = z
  .object({
    run_id: z.string(),
    job: z.string().meta({ example: "grid_region" }),
    partition: z.string().meta({ example: "2026-01-31" }),
    trigger: RunTrigger,
    state: RunState,
    attempt: z.int(),
    backfill_id: z.string().nullable(),
    created_at: instant,
    started_at: instant.nullable(),
    finished_at: instant.nullable(),
    error_code: z.string().nullable(),
    error_detail: z.string().nullable(),
    metadata: z.record(z.string(), z.unknown()).nullable().meta({
      description: "rows written, instrument ids, as_of, store versions, source_url, check",
    }),
  })
  .meta({ id: "Run" });
export type Run = z.infer<typeof Run>;

export const Backfill = z
  .object({
    backfill_id: z.string(),
    job: z.string(),
    first: z.string(),
    last: z.string(),
    created_at: instant,
    runs: z.object({
      queued: z.int(),
      running: z.int(),
      succeeded: z.int(),
      failed: z.int(),
    }),
  })
  .meta({ id: "Backfill" });
export type Backfill = z.infer<typeof Backfill>;

export const Job = z
  .object({
    job: z.string(),
    libraries: z.array(z.string()),
    cron: z.string().meta({ example: "20 * * * *" }),
    time_zone: z.string().meta({ example: "America/New_York" }),
    next_tick: instant.nullable(),
    last_tick: instant.nullable(),
    last_tick_outcome: z.string().nullable().meta({ description: "a run id or a skip reason" }),
    latest_partition: z.string(),
  })
  .meta({ id: "Job" });
export type Job = z.infer<typeof Job>;
