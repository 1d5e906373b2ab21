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
    known_from: instant.optional().meta({ description: "includeHistory: when it became known" }),
    known_to: instant.nullable().optional().meta({
      description: "includeHistory: when another version or a retraction ended it; null: it holds",
    }),
    store_version: z.int().optional().meta({ description: "provenance=full: its vintage" }),
    source_url: z.string().nullable().optional().meta({ description: "provenance=full" }),
    source_published_at: instant.nullable().optional().meta({
      description: "provenance=full: when the provider published it, where it says so",
    }),
    run_id: z.string().nullable().optional().meta({ description: "provenance=full" }),
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

/** One commit to a series. */
export const Vintage = z
  .object({
    store_version: z.int().meta({ description: "1, 2, 3 … without gaps" }),
    as_of: instant.meta({ description: "knowledge time: when it was committed" }),
    vintage_reconstructed: z.boolean(),
    inserted: z.int(),
    revised: z.int(),
    retracted: z.int(),
    rows: z.int().meta({ description: "rows of the whole series at this vintage" }),
    first_datetime: instant.meta({ description: "earliest valid time it changed" }),
    last_datetime: instant,
    covered_from: instant.meta({ description: "the source was asked from here" }),
    covered_to: instant.meta({ description: "to here, exclusive" }),
    partition: z.string(),
    run_id: z.string(),
    source_url: z.string(),
    source_published_at: instant.nullable(),
    content_sha256: z.string().meta({ description: "of its changes in canonical form" }),
  })
  .meta({ id: "Vintage" });
export type Vintage = z.infer<typeof Vintage>;

/** One commit of the change feed. */
export const Change = z
  .object({ library: z.string(), symbol: z.string(), sandbox: z.boolean(), ...Vintage.shape })
  .meta({ id: "Change" });
export type Change = z.infer<typeof Change>;

/** A page of the change feed; `next` is the `since` of the one after it. */
export const ChangePage = z.object({
  changes: z.array(Change),
  next: z.string(),
  more: z.boolean(),
});
export type ChangePage = z.infer<typeof ChangePage>;

const RowState = z
  .looseObject({ as_of: instant, vintage_reconstructed: z.boolean() })
  .meta({ id: "RowState", description: "the value columns with their vintage" });

/** A row that differs between two knowledge times. */
export const DiffRecord = z
  .object({
    Datetime: instant,
    instrument_id: z.string(),
    change: z.enum(["inserted", "revised", "retracted"]),
    before: RowState.nullable(),
    after: RowState.nullable(),
  })
  .meta({ id: "DiffRecord" });
export type DiffRecord = z.infer<typeof DiffRecord>;

const Print = z
  .object({
    value: z.number().nullable(),
    as_of: instant,
    lag_seconds: z.number().meta({ description: "as_of less Datetime" }),
    vintage_reconstructed: z.boolean(),
    retracted: z.boolean(),
  })
  .meta({ id: "Print" });

const Spread = z
  .object({
    rows: z.int(),
    mean: z.number().nullable().meta({ description: "bias: latest less earlier, on average" }),
    sd: z.number().nullable().meta({ description: "sample standard deviation" }),
    mean_abs: z.number().nullable(),
    max_abs: z.number().nullable(),
  })
  .meta({ id: "Spread" });

/** The revision triangle of one value column. */
export const Revisions = z
  .object({
    column: z.string(),
    as_of: instant.nullable(),
    rows: z.array(
      z.object({
        Datetime: instant,
        instrument_id: z.string(),
        first: Print,
        latest: Print.nullable().meta({ description: "null: retracted" }),
        prints: z.array(Print),
        by_lag: z.record(z.string(), z.number().nullable()),
      }),
    ),
    statistics: z.object({
      rows: z.int(),
      true_rows: z.int().meta({ description: "rows whose first print is a true vintage's" }),
      revised: z.int(),
      retracted: z.int(),
      first_to_latest: Spread,
      by_lag: z.record(z.string(), Spread),
    }),
  })
  .meta({ id: "Revisions" });
export type Revisions = z.infer<typeof Revisions>;

/** One instant of a panel, with a field per instrument_id. */
export const PanelRecord = z
  .object({ Datetime: instant, local: z.string().optional() })
  .catchall(z.number().nullable())
  .meta({ id: "PanelRecord" });
export type PanelRecord = z.infer<typeof PanelRecord>;

/** A named knowledge time. */
export const Snapshot = z
  .object({ name: z.string(), as_of: instant, note: z.string(), created_at: instant })
  .meta({ id: "Snapshot" });
export type Snapshot = z.infer<typeof Snapshot>;

/** `GET /healthz`: whether the service lives, and what it holds. */
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

/** What is known of an entity, and when ingest first and last saw it. */
const GraphProperties = z.looseObject({ first_seen: instant, last_seen: instant });

const GraphNode = z.object({
  label: z.string().meta({ example: "BalancingAuthority" }),
  key: z.string().meta({ example: "erco" }),
});

/** A node of the catalog graph, in its current state. */
export const GraphEntity = GraphNode.extend({ properties: GraphProperties }).meta({
  id: "GraphEntity",
});
export type GraphEntity = z.infer<typeof GraphEntity>;

/** What an instrument is connected to in the catalog graph: the answer `GraphRelated`. */
export const GraphNeighbourhood = z
  .object({
    instrument_id: z.string().meta({ example: "power.demand.erco" }),
    depth: z.int(),
    entities: z
      .array(
        GraphEntity.extend({
          distance: z.int().meta({ description: "hops from the instrument, 1 to `depth`" }),
        }),
      )
      .meta({ description: "nearest first, then by label and key; at most 1,000" }),
    relations: z
      .array(z.object({ from: GraphNode, type: z.string(), to: GraphNode }))
      .meta({ description: "among the instrument and the entities returned" }),
    siblings: z.array(z.string()).meta({
      description:
        "other instruments that share a place, commodity or fuel with it, sorted; at most 1,000",
    }),
    truncated: z.boolean().meta({ description: "true: entities or siblings were cut off" }),
  })
  .meta({ id: "GraphRelated" });
export type GraphNeighbourhood = z.infer<typeof GraphNeighbourhood>;

/**
 * `queued` with `error_code` `not_released`: it waits for its provider. `late`: the time to wait
 * was over before the provider published.
 */
export const RunState = z.enum(["queued", "running", "succeeded", "failed", "late", "canceled"]);
export type RunState = z.infer<typeof RunState>;

/** What started a run. */
export const RunTrigger = z.enum(["schedule", "manual", "backfill"]);
export type RunTrigger = z.infer<typeof RunTrigger>;

/** One execution of a pipeline over one partition. */
export const Run = z
  .object({
    run_id: z.string(),
    job: z.string().meta({ example: "grid_region" }),
    partition: z.string().meta({ example: "2026-01-31" }),
    trigger: RunTrigger,
    reconstructed: z.boolean(),
    state: RunState,
    attempt: z.int(),
    backfill_id: z.string().nullable(),
    scheduled_at: instant.nullable().meta({ description: "the tick that started it" }),
    created_at: instant,
    available_at: instant.nullable().meta({
      description: "a queued run begins no sooner; null: it waits for its turn in its backfill",
    }),
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

/** Runs over a range of partitions, with their counts by state. */
export const Backfill = z
  .object({
    backfill_id: z.string(),
    job: z.string(),
    first: z.string(),
    last: z.string(),
    created_at: instant,
    canceled_at: instant.nullable(),
    runs: z.object({
      queued: z.int(),
      running: z.int(),
      succeeded: z.int(),
      failed: z.int(),
      late: z.int(),
      canceled: z.int(),
    }),
  })
  .meta({ id: "Backfill" });
export type Backfill = z.infer<typeof Backfill>;

/** An entry of a run's journal. */
export const RunEvent = z
  .object({
    attempt: z.int(),
    at: instant,
    level: z.enum(["info", "warning", "error"]),
    event: z.string().meta({ example: "committed" }),
    detail: z.record(z.string(), z.unknown()),
  })
  .meta({ id: "RunEvent" });
export type RunEvent = z.infer<typeof RunEvent>;

/** A due instant of a schedule: the run it started, or why it started none. */
export const Tick = z
  .object({
    schedule: z.string(),
    scheduled_at: instant,
    run_id: z.string().nullable(),
    skip_reason: z.string().nullable(),
    state: RunState.nullable().meta({ description: "of the run" }),
    partition: z.string().nullable(),
  })
  .meta({ id: "Tick" });
export type Tick = z.infer<typeof Tick>;

/** When a pipeline runs by itself, and for which partition. */
export const Schedule = z
  .object({
    schedule: z.string().meta({ example: "grid_region" }),
    job: z.string(),
    cron: z.string().meta({ example: "20 * * * *" }),
    time_zone: z.string().meta({ example: "America/New_York" }),
    aim: z.enum(["latest", "previous", "unfinished"]).meta({
      description:
        "latest: the newest partition; previous: the one before, whose last values come after its " +
        "end; unfinished: the oldest recent one that no run materialized",
    }),
    enabled: z.boolean(),
    next_tick: instant.nullable(),
    last_tick: Tick.nullable(),
  })
  .meta({ id: "Schedule" });
export type Schedule = z.infer<typeof Schedule>;

/** A pipeline. */
export const Job = z
  .object({
    job: z.string(),
    title: z.string(),
    provider: z.string(),
    libraries: z.array(z.string()),
    partition_unit: z.enum(["day", "weekday", "operating_day", "week", "month"]),
    first_partition: z.string(),
    latest_partition: z.string(),
    schedules: z.array(Schedule).meta({ description: "none: it is run by hand" }),
  })
  .meta({ id: "Job" });
export type Job = z.infer<typeof Job>;

/** A partition and its state. */
export const PartitionState = z
  .object({
    partition: z.string(),
    state: z.enum(["materialized", "queued", "running", "failed", "late", "missing"]),
    run_id: z.string().nullable().meta({ description: "its newest run" }),
    finished_at: instant.nullable(),
    error_code: z.string().nullable(),
    revised_rows: z.int().meta({ description: "rows that runs revised or retracted later" }),
  })
  .meta({ id: "PartitionState" });
export type PartitionState = z.infer<typeof PartitionState>;
